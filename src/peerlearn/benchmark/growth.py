"""What grows with the problem: steps, answers by nearest means, checkpoints."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from peerlearn.benchmark.around import prediction, saved_and_loaded
from peerlearn.benchmark.learners import Scene, prepared
from peerlearn.benchmark.timing import Effort, in_turns
from peerlearn.config.names import split_name
from peerlearn.nets.small import small_net

TEST_IMAGES = 100
ONCE = Effort(rounds=1)
MEMORIES = (200, 2_000, 10_000, 50_000)
CLASSES = (10, 100, 1_000)
PEERS = (1, 2, 3, 4)
STAGES = (0, 1, 2, 3, 4, 5)
PIXELS = (32, 64, 128, 224)


class Case(NamedTuple):
    """One size of one thing; all else is as usual."""

    grows: str
    value: int
    learner: str
    scene: Scene
    options: dict[str, Any]  # of `build_learner`
    answers: bool = True  # whether these are timed: which images are in memory changes nothing


def growth(names: Sequence[str], width: int, effort: Effort) -> Iterator[dict[str, Any]]:
    """A row for each size of memory, classes, peers, stages and images."""
    for base in dict.fromkeys(split_name(name)[0] for name in names):
        for case in cases(base, Scene(width=width)):
            yield measured(case, effort)


def cases(base: str, usual: Scene) -> Iterator[Case]:
    """What is measured for a method."""
    for policy, answers in {"reservoir": True, "class_balanced": False}.items():
        options = {"memory_policy": policy}
        for memory in MEMORIES:
            scene = usual._replace(memory=memory)
            yield Case(f"memory, {policy}", memory, base, scene, options, answers)
        for classes in CLASSES:
            scene = usual._replace(classes=classes, memory=max(usual.memory, classes))
            yield Case(f"classes, {policy}", classes, base, scene, options, answers)
    for peers in PEERS:
        wrapper = "ccldc" if peers > 1 else "sdc"  # a single one can only teach itself
        yield Case("peers", peers, f"{base}+{wrapper}", usual, {"peers": peers})
    for stages in STAGES:
        yield Case("stages", stages, f"{base}+ccldc", usual, {"stages": stages})
    for pixels in PIXELS:
        yield Case("pixels", pixels, base, usual._replace(pixels=pixels), {})


def measured(case: Case, effort: Effort) -> dict[str, Any]:
    """Seconds of everything that may grow.

    What a step costs beside its networks is seen with one that has next to no arithmetic.
    """
    scene = case.scene
    tiny = {**case.options, "net": lambda: small_net(scene.classes, width=1)}
    around = prepared(case.learner, scene, **tiny)
    (rest,) = in_turns([around.step], effort._replace(seconds=0.5))
    subject = prepared(case.learner, scene, **case.options)
    (steps,) = in_turns([subject.step], effort._replace(seconds=2.0))
    answers = prediction(subject, scene.images(TEST_IMAGES, seed=2))
    ways = ("means_first", "means_again", "predict")
    times = in_turns([answers[way] for way in ways], ONCE) if case.answers else []
    return {
        "grows": case.grows,
        "value": case.value,
        "learner": case.learner,
        "step_seconds": steps.median,
        "rest_seconds": rest.median,
        **{f"{way}_seconds": None for way in ways},
        **{f"{way}_seconds": some.median for way, some in zip(ways, times, strict=False)},
        **saved_and_loaded(subject, ONCE),
    }
