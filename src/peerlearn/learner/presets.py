"""The published combinations by name: `er+ccldc`, `gsa+sdc`, ..."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from peerlearn.augment import ViewChain, partial_shared
from peerlearn.errors import UserError, did_you_mean
from peerlearn.learner.collaboration import (
    OWN,
    Collaboration,
    Edge,
    Teacher,
    easy_to_hard,
    hard_to_easy,
    level,
)
from peerlearn.learner.online import OnlineLearner
from peerlearn.methods import METHODS, Method
from peerlearn.stream import StreamInfo


class Weights(NamedTuple):
    """lambda1, lambda2 and tau, as the authors chose them on CIFAR-100 with 2000 images kept."""

    label: float
    lesson: float
    temperature: float


WEIGHTS = {
    "er": Weights(0.5, 2, 4),
    "derpp": Weights(0.5, 1, 3),
    "er_ace": Weights(0.5, 1, 4),
    "ocm": Weights(0.25, 4, 4),
    "gsa": Weights(0.5, 1, 4),
    "onpro": Weights(0.25, 1, 4),
}
UNPUBLISHED = Weights(0.5, 1, 4)  # for a method of your own, to begin with


class Preset(NamedTuple):
    """A way to collaborate; its weights are the method's unless it has its own."""

    about: str
    edges: Callable[[int], tuple[Edge, ...]]  # for a chain of so many stages
    peers: int = 2
    teacher: Teacher = "peer"
    stages: int | None = None  # None: those of the chain
    weights: Weights | None = None


PRESETS = {
    "ccldc": Preset(
        "two peers, the teacher has the harder view (CCL-DC)",
        lambda n: level(0) + hard_to_easy(n),
    ),
    "ccldc-easy-to-hard": Preset(
        "two peers, the teacher has the easier view", lambda n: level(0) + easy_to_hard(n)
    ),
    "ccldc-same-difficulty": Preset(
        "two peers, both have the same view", lambda n: level(*range(n + 1))
    ),
    "ccl": Preset("two peers, the images themselves only", lambda _: level(0), stages=0),
    "sdc": Preset(
        "one network that teaches itself, from its harder view",
        hard_to_easy,
        peers=1,
        teacher="self",
    ),
    "sdc-easy-to-hard": Preset(
        "one network that teaches itself, from its easier view",
        easy_to_hard,
        peers=1,
        teacher="self",
    ),
    "multiview": Preset("one network, labels on every view, no lessons", lambda _: (), peers=1),
    "untrained": Preset(  # its weight and temperature are not published
        "one network and a teacher that never learns",
        lambda _: level(OWN),
        peers=1,
        teacher="frozen",
        weights=Weights(0, 1, 4),
    ),
}


def collaboration(
    preset: str,
    method: str,
    *,
    chain: ViewChain | None = None,
    profile: str = "paper",
    **given: Any,
) -> Collaboration:
    """The collaboration of a name such as "ccldc" with the published weights of a method.

    given: fields of `Collaboration` that are to be otherwise, such as lesson_weight=1.
    """
    if preset not in PRESETS:
        raise UserError(did_you_mean(f"there is no collaboration {preset!r}", preset, PRESETS))
    chosen = PRESETS[preset]
    chain = chain or ViewChain()
    if chosen.stages is not None:
        chain = replace(chain, stages=chosen.stages)
    weights = chosen.weights or WEIGHTS.get(method, UNPUBLISHED)
    made = Collaboration(
        peers=chosen.peers,
        edges=chosen.edges(chain.stages),
        teacher=chosen.teacher,
        label_weight=weights.label,
        lesson_weight=weights.lesson,
        temperature=weights.temperature,
        chain=chain,
    )
    made = replace(made, **given)
    return _as_in_the_authors_code(made, method) if profile == "authors" else made


def _as_in_the_authors_code(c: Collaboration, method: str) -> Collaboration:
    """Two peers' lesson on equal views is on the hardest one; ER's own loss has lambda1 too."""
    if c.peers < 2:
        return c
    last = c.chain.stages
    edges = tuple(level(last)[0] if edge == (0, 0) else edge for edge in c.edges)
    return replace(c, edges=edges, base_weight=c.label_weight if method == "er" else 1.0)


def find_method(name: str) -> type[Method[Any]]:
    """The class of a method's name."""
    if name not in METHODS:
        raise UserError(did_you_mean(f"there is no method {name!r}", name, METHODS))
    return METHODS[name]


def authors_options(method: str, profile: str) -> dict[str, Any]:
    """Settings of a method that the authors' code has otherwise than the paper."""
    if profile not in ("paper", "authors"):
        raise UserError(f"profile must be paper or authors, got {profile!r}")
    if profile == "paper" or method not in ("derpp", "er_ace"):
        return {}
    return {"augment": partial_shared} | (
        {"unseen": "first_batch_ids"} if method == "er_ace" else {}
    )


def build_learner(
    name: str,
    stream: StreamInfo,
    net: Callable[[], nn.Module],
    *,
    memory: int,
    seed: int = 0,
    chain: ViewChain | None = None,
    profile: str = "paper",
    method: dict[str, Any] | None = None,
    **settings: Any,
) -> OnlineLearner:
    """The learner of a name such as "er" or "er+ccldc".

    Args:
        name: a method, and after a plus how it collaborates.
        stream: what the stream tells its learner; `ClassStream.info`, or your own.
        net: makes a network; called once per peer.
        memory: images kept for replay.
        seed: decides everything that is drawn.
        chain: the views; the default is the paper's for CIFAR.
        profile: "paper", or "authors" to differ from it where their code does.
        method: settings of the method, such as {"alpha": 0.5} for derpp.
        settings: further settings of `OnlineLearner`.
    """
    base, _, preset = name.partition("+")
    chosen = find_method(base)
    for key in method or {}:
        if key not in chosen.own_settings():
            known = chosen.own_settings()
            raise UserError(did_you_mean(f"{base} has no setting {key!r}", key, known))
    made = chosen(stream, **(authors_options(base, profile) | (method or {})))
    c = Collaboration()
    if "+" in name:
        c = collaboration(preset, base, chain=chain, profile=profile)
    return OnlineLearner(made, net, c, memory=memory, seed=seed, **settings)
