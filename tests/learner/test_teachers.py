"""Teachers: asked for the views that somebody reads, and for nothing else."""

from collections.abc import Iterable
from functools import partial

import pytest
import torch
from conftest import Build, learn_some, same, weights
from torch import Tensor

from peerlearn import ClassStream, Distillation, Edge, OnlineLearner, UserError, small_net
from peerlearn.distill import TEACHERS, WRAPPERS
from peerlearn.distill.distillation import Wrapper
from peerlearn.distill.teachers.base import (
    OtherPeers,
    Teacher,
    TeacherInput,
    TeacherSettings,
    UntrainedTeacher,
)
from peerlearn.methods import ER
from peerlearn.settings import setting

NET = partial(small_net, 4, width=4)
BATCH = 10 + 20  # the stream, and all of the memory once it is full


def learner(stream: ClassStream, *edges: Edge, peers: int = 1, labels: float = 0) -> OnlineLearner:
    c = Distillation(peers=peers, edges=edges, label_weight=labels, distill_weight=1)
    return OnlineLearner(ER(stream.info), NET, c, memory=20)


def images_of_a_step(made: OnlineLearner, stream: ClassStream) -> list[int]:
    """Images forward in one step, by network."""
    batches = list(stream.tasks[0])
    for batch in batches[:4]:
        made.learn(*batch)
    before = [network.forwards for network in made.networks]
    made.learn(*batches[4])
    return [n.forwards - start for n, start in zip(made.networks, before, strict=True)]


@pytest.mark.parametrize(
    ("edges", "labels", "expected"),
    [
        ([Edge(0, 3, "frozen")], 0, [2, 1]),  # own batch and view 0; the teacher: view 3
        ([Edge(0, 3, "frozen"), Edge(1, 3, "frozen")], 0, [3, 1]),
        ([Edge(0, 1, "frozen"), Edge(0, 2, "frozen")], 0, [2, 2]),
        ([Edge(0, 1, "self")], 0, [3]),
        ([Edge(0, 3, "frozen")], 0.5, [5, 1]),  # labels on all four views
    ],
)
def test_a_network_is_shown_only_the_views_that_somebody_reads(
    edges: list[Edge], labels: float, expected: list[int], stream: ClassStream
) -> None:
    made = learner(stream, *edges, labels=labels)
    assert images_of_a_step(made, stream) == [views * BATCH for views in expected]


def test_edges_of_one_distillation_may_have_different_teachers(stream: ClassStream) -> None:
    made = learner(stream, Edge(0, 0, "peer"), Edge(0, 1, "self"), Edge(1, 2, "frozen"), peers=2)
    assert set(made.teachers) == {"peer", "self", "frozen"}
    assert len(made.networks) == 3
    assert learn_some(made, stream)[-1]["distill"] > 0


def test_an_edge_of_weight_two_is_the_same_edge_twice(stream: ClassStream) -> None:
    once = learner(stream, Edge(0, 1, "frozen", 2.0))
    twice = learner(stream, Edge(0, 1, "frozen"), Edge(0, 1, "frozen"))
    one, two = learn_some(once, stream), learn_some(twice, stream)
    assert one[-1]["distill"] == pytest.approx(two[-1]["distill"], rel=1e-4)


class Counting(OtherPeers):
    """The other peers, and how often they have stepped."""

    name = "counting"
    steps = 0

    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        assert all(set(logits) >= set(views) for logits in given.students)
        return super().logits(views, given)

    def after_step(self) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Tensor]:
        return {"steps": torch.tensor(self.steps)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.steps = int(state["steps"])


def test_a_teacher_from_outside_answers_follows_and_is_saved(
    stream: ClassStream, tmp_path: object
) -> None:
    with TEACHERS.unchanged():
        TEACHERS.add(Counting)
        ours = learner(stream, Edge(0, 1, "counting"), peers=2)
        theirs = learner(stream, Edge(0, 1, "peer"), peers=2)
        again = learner(stream, Edge(0, 1, "counting"), peers=2)
        learn_some(ours, stream, 3)
        learn_some(theirs, stream, 3)
        assert same(weights(ours), weights(theirs))
        teacher = ours.teachers["counting"]
        assert isinstance(teacher, Counting)
        assert teacher.steps == 5  # the first batch has nothing to replay
        ours.save(str(tmp_path))
        again.load(str(tmp_path))
        restored = again.teachers["counting"]
        assert isinstance(restored, Counting)
        assert restored.steps == 5


class Dim(OtherPeers):
    """The other peers, their answers made smaller."""

    class Settings(TeacherSettings):
        factor: float = setting(1.0, "of the answers", gt=0)

    settings: Settings
    name = "dim"

    def logits(self, views: Iterable[int], given: TeacherInput) -> list[dict[int, Tensor]]:
        found = super().logits(views, given)
        return [{v: self.settings.factor * z for v, z in one.items()} for one in found]


class Dimmed(Wrapper):
    """A wrapper that tells its teacher something."""

    name = "dimmed"
    factor: float = setting(1.0, "of the answers", gt=0)

    def edges(self) -> tuple[Edge, ...]:
        return (Edge(0, 0, "dim"),)

    def teachers(self) -> dict[str, dict[str, float]]:
        return {"dim": {"factor": self.factor}}


def test_a_teacher_is_told_what_its_wrapper_was_told(build: Build, stream: ClassStream) -> None:
    with TEACHERS.unchanged(), WRAPPERS.unchanged():
        TEACHERS.add(Dim)
        WRAPPERS.add(Dimmed)
        plain, dimmed = build("er+dimmed"), build("er+dimmed", factor=0.5)
        assert dimmed.teachers["dim"].settings.model_dump() == {"factor": 0.5}
        assert learn_some(plain, stream) != learn_some(dimmed, stream)
        with pytest.raises(UserError, match="factor must be above 0"):
            build("er+dimmed", factor=0)


def test_what_nobody_would_hear_is_refused(build: Build, stream: ClassStream) -> None:
    with pytest.raises(UserError, match=r"no edge is by 'froze'; did you mean frozen"):
        Distillation(edges=(Edge(0, 0, "frozen"),), teachers={"froze": {}})
    c = Distillation(edges=(Edge(0, 0, "frozen"),), teachers={"frozen": {"decay": 0.1}})
    with pytest.raises(UserError, match=r"teacher 'frozen': .*there is no setting 'decay'"):
        OnlineLearner(ER(stream.info), NET, c, memory=20)
    with TEACHERS.unchanged(), WRAPPERS.unchanged():
        WRAPPERS.add(Dimmed)  # its teacher is not known
        with pytest.raises(UserError, match="there is no teacher 'dim'"):
            build("er+dimmed")


class Half(Wrapper):
    """A wrapper with a weight of the method's own loss."""

    name = "half"
    base_weight: float = setting(0.5, "weight of the method's own loss", ge=0)

    def edges(self) -> tuple[Edge, ...]:
        return (Edge(0, 0),)


def test_every_field_that_a_distillation_has_reaches_it() -> None:
    assert Half(base_weight=0.3).distillation().base_weight == 0.3


def test_two_teachers_that_are_born_are_born_different(stream: ClassStream) -> None:
    class AnotherFrozen(UntrainedTeacher):
        name = "another"

    with TEACHERS.unchanged():
        TEACHERS.add(AnotherFrozen)
        made = learner(stream, Edge(0, 1, "frozen"), Edge(0, 2, "another"))
    _, one, two = made.networks
    assert not same(dict(one.named_parameters()), dict(two.named_parameters()))


def test_every_teacher_says_whether_it_sees_the_method_batch() -> None:
    for name, teacher in TEACHERS.items():
        overrides = teacher.batch_logits is not Teacher.batch_logits
        assert overrides == teacher.sees_method_batch, name
