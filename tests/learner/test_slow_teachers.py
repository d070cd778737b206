"""Slow copies of peers: how they follow, what they teach, what they cost, and that they last."""

import copy
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from conftest import Build, learn_some, same, tensors, weights
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn import (
    METHODS,
    ClassStream,
    Distillation,
    Edge,
    OnlineLearner,
    UserError,
    build_learner,
    small_net,
)
from peerlearn.distill import TEACHERS, distillation_of
from peerlearn.distill.distillation import Networks
from peerlearn.distill.teachers.base import TeacherInput
from peerlearn.distill.teachers.ema import EMATeacher
from peerlearn.learner.validation import check_state
from peerlearn.methods import ER
from peerlearn.methods.interface import LabelledImages
from peerlearn.peer import PeerModel
from peerlearn.stream import Batch

NET = partial(small_net, 4, width=2)
NETWORKS: tuple[Networks, ...] = ("peers", "ema", "average")
OWN = ["er+ema", "er+mkd", "er+ema-chain", "er+mkd-pair", "er+ccldc-ema"]  # a copy for each peer
SETTINGS = [
    ("er+ema", {}),
    ("er+mkd", {}),
    ("er+mkd", {"profile": "authors"}),
    ("derpp+mkd", {}),
    ("er+ema-chain", {}),
    ("er+mkd-pair", {}),
    ("er+ccldc-ema", {}),
    ("er+gwm", {"broadcast_every": 2, "broadcast_share": 0.5}),
]


def slow(learner: OnlineLearner) -> EMATeacher:
    """The teacher that has slow copies."""
    (teacher,) = (one for one in learner.teachers.values() if isinstance(one, EMATeacher))
    return teacher


def state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of weights and buffers."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def buffers(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the buffers, which are running statistics and how many batches there were."""
    return {name: tensor.clone() for name, tensor in model.named_buffers()}


def copied(models: Iterable[PeerModel]) -> list[nn.Module]:
    """Their networks as they are now, in double precision."""
    return [copy.deepcopy(model.net).double() for model in models]


def begun(learner: OnlineLearner, stream: ClassStream, batches: int = 4) -> Batch:
    """Learn the first batches; return the next one."""
    *first, following = list(stream.tasks[0])[: batches + 1]
    for batch in first:
        learner.learn(*batch)
    return following


def some_images(seed: int = 0) -> Tensor:
    return torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


class Drawn(NamedTuple):
    """What the next step of a learner will be shown."""

    train: list[LabelledImages]  # the groups of the method's own loss
    y: Tensor  # labels of the images that are taught, whichever group they are of
    views: list[Tensor]


def drawn_next(learner: OnlineLearner, batch: Batch) -> Drawn:
    """The same draws, by generators of our own that stand where the learner's do."""
    draws, views = (learner.rngs[name].clone_state() for name in ("draws", "views"))
    images = LabelledImages(batch.x / 255, batch.y)
    progress = learner.progress.meeting(batch.y)
    draw = learner.method.draw(images, learner.memory, progress, draws)
    assert draw is not None
    groups = learner.method.groups(draw, views)
    x, y = (torch.cat(parts) for parts in zip(*((g.x, g.y) for g in groups), strict=True))
    return Drawn(draw.train, y, learner.distillation.chain(x, views))


def kl(student: Tensor, teacher: Tensor, tau: float = 4.0) -> Tensor:
    """KL(teacher || student) of softened answers, times tau squared, mean over images."""
    q, log_p = (teacher.detach() / tau).softmax(1), (student / tau).log_softmax(1)
    return tau**2 * (q * (q.log() - log_p)).sum(dim=1).mean()


class TestFollowing:
    @pytest.mark.parametrize("name", OWN)
    def test_a_copy_that_goes_all_of_the_way_is_its_peer_to_the_bit(
        self, name: str, build: Build, stream: ClassStream
    ) -> None:
        learner = build(name, shadow={"alpha": 1.0})
        x = stream.test_sets[0].x
        for batch in list(stream.tasks[0])[:4]:
            learner.learn(*batch)
            for peer, model in zip(learner.peers, slow(learner).ema_copies, strict=True):
                assert same(state(peer.model), state(model))
            logits = [learner.snapshot(who).logits(x) for who in NETWORKS]
            assert torch.equal(logits[0], logits[1])
            assert torch.equal(logits[0], logits[2])
            assert len({tuple(learner.predict(x, who).tolist()) for who in NETWORKS}) == 1
        assert slow(learner).updates == 3  # the first batch has nothing to replay

    @pytest.mark.parametrize("name", [*OWN, "er+gwm"])
    def test_a_copy_goes_a_share_of_the_way_to_the_mean_of_those_whom_it_follows(
        self, name: str, build: Build, stream: ClassStream
    ) -> None:
        learner = build(name, shadow={"alpha": 0.3})
        batch = begun(learner, stream)
        before = [state(model) for model in slow(learner).models]
        learner.learn(*batch)
        now = [state(peer.model) for peer in learner.peers]
        followed = [now] if name == "er+gwm" else [[one] for one in now]
        for model, was, whom in zip(slow(learner).models, before, followed, strict=True):
            for key, tensor in model.state_dict().items():
                mean = sum(one[key].double() for one in whom) / len(whom)
                counts = key.endswith("num_batches_tracked")
                expected = mean if counts else 0.7 * was[key].double() + 0.3 * mean
                torch.testing.assert_close(tensor.double(), expected, rtol=1e-6, atol=1e-7)

    def test_a_copy_of_all_follows_peers_that_differ(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+gwm")
        begun(learner, stream)
        one, two, of_both = (state(model) for model in learner.networks)
        assert not same(one, two)
        assert not same(one, of_both)

    def test_a_copy_that_begins_near_zero_grows_as_in_the_code_of_its_authors(
        self, build: Build, stream: ClassStream
    ) -> None:
        alpha, learns = 0.3, {"optimizer": "sgd", "lr": 1e-30}  # a student that stays as it is
        learner = build("er+mkd", net=NET, shadow={"alpha": alpha, "start": "zero"}, **learns)
        born, (model,) = weights(learner), slow(learner).models
        batches = list(stream.tasks[0])
        learner.learn(*batches[0])  # no step, so no update

        def expect(share: float) -> None:
            for name, weight in model.named_parameters():
                torch.testing.assert_close(weight, share * born[name], rtol=1e-5, atol=1e-7)

        share = alpha / (1 - alpha)
        expect(share)
        for update in range(45):
            learner.learn(*batches[update % 10])
            share = (1 - alpha) * share + alpha / (1 - alpha ** max(1, update // 10))
            if update < 20:
                assert share == pytest.approx((1 - (1 - alpha) ** (update + 2)) / (1 - alpha))
            expect(share)
        for name, weight in weights(learner).items():
            torch.testing.assert_close(weight, born[name], rtol=0, atol=1e-20)
        assert slow(learner).updates == 45

    def test_several_steps_on_a_batch_are_several_updates(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+ema", updates=3)
        begun(learner, stream, 3)
        assert slow(learner).updates == 6


class TestBuffers:
    def test_that_follow_are_not_moved_by_what_is_shown(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+mkd", shadow={"alpha": 0.3})
        begun(learner, stream)
        teacher, (model,) = slow(learner), slow(learner).models
        was, theirs = buffers(model), buffers(learner.peers[0].model)
        teacher.logits([0, 1], TeacherInput([some_images(0), some_images(1)], []))
        assert same(buffers(model), was)
        teacher.after_step()
        for name, tensor in buffers(model).items():
            floats = tensor.is_floating_point()
            expected = torch.lerp(was[name], theirs[name], 0.3) if floats else theirs[name]
            torch.testing.assert_close(tensor, expected)

    def test_that_are_its_own_are_of_what_is_shown_and_of_nothing_else(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+mkd", shadow={"alpha": 0.3, "buffers": "own"})
        begun(learner, stream)
        teacher, (model,) = slow(learner), slow(learner).models
        plain, views = copy.deepcopy(model.net), [some_images(0), some_images(1)]
        teacher.logits([0, 1], TeacherInput(views, []))
        for view in (views[1], views[0]):  # the hardest first
            plain(view)
        assert same(buffers(model.net), buffers(plain))
        was = state(model)
        teacher.after_step()
        assert same(buffers(model), {name: was[name] for name in buffers(model)})
        assert not same(state(model), was)

    @pytest.mark.parametrize(("kind", "batches"), [("own", 3), ("follow", 6)])
    def test_count_the_batches_shown_or_those_of_the_peer(
        self, kind: str, batches: int, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+mkd", shadow={"buffers": kind})
        begun(learner, stream)  # three steps: a view for the copy, two for the student
        counts = [t for t in slow(learner).models[0].buffers() if not t.is_floating_point()]
        assert [int(count) for count in counts] == [batches] * 2


class TestLessons:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("wrapper", ["ema", "mkd"])
    def test_without_them_a_method_learns_the_same_bits(
        self, method: str, wrapper: str, build: Build, stream: ClassStream
    ) -> None:
        none: dict[str, Any] = {"label_weight": 0, "distill_weight": 0, "base_weight": 1}
        followed = build(f"{method}+{wrapper}", **(none if wrapper == "mkd" else {}))
        alone = build(method)
        assert learn_some(followed, stream, 3) == learn_some(alone, stream, 3)
        assert same(state(followed.peers[0].model), state(alone.peers[0].model))
        x = stream.test_sets[0].x
        assert torch.equal(followed.predict(x, predict_with="peers"), alone.predict(x))
        assert followed.cost == alone.cost
        assert not same(state(slow(followed).models[0]), state(alone.peers[0].model))

    @pytest.mark.parametrize("form", ["code", "paper"])
    @pytest.mark.parametrize("method", ["er", "er_ace"])
    def test_of_mkd_and_its_step_are_the_formula_written_out(
        self, method: str, form: str, build: Build, stream: ClassStream
    ) -> None:
        lr, lambda_ = 0.1, 5.5
        learner = build(f"{method}+mkd", form=form, optimizer="sgd", lr=lr, shadow={"alpha": 0.3})
        batch = begun(learner, stream)
        train, y, (raw, hard) = drawn_next(learner, batch)
        (theta,), (phi,) = copied([learner.peers[0].model]), copied(slow(learner).models)
        found = learner.learn(*batch)

        student, teacher = theta(hard.double()), phi(hard.double())
        labels = F.cross_entropy(student, y)  # among all classes, also for ER-ACE
        if form == "code":
            other = kl(theta(raw.double()), teacher)
        else:
            other = kl(student, phi(raw.double()))
        distilled = (kl(student, teacher) + other) / 2
        base = _asymmetric(theta, train) if method == "er_ace" else torch.zeros(())
        (base + labels + lambda_ * distilled).backward()

        expected = {"base": base.item(), "labels": labels.item(), "distill": distilled.item()}
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)  # distilled are small yet
        for name, weight in theta.named_parameters():
            assert weight.grad is not None
            own = weights(learner)[f"net.{name}"].double()
            torch.testing.assert_close(own, weight - lr * weight.grad, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("name", ["er+mkd", "er+ema-chain", "er+mkd-pair"])
    def test_are_given_by_copies_as_they_were_before_the_step(
        self, name: str, build: Build, stream: ClassStream
    ) -> None:
        learner = build(name, shadow={"alpha": 0.5}, lr=0.02)
        batch = begun(learner, stream)
        views = [view.double() for view in drawn_next(learner, batch).views]
        models = slow(learner).models
        students, before = copied(peer.model for peer in learner.peers), copied(models)
        found = learner.learn(*batch)["distill"]
        swapped = -1 if name == "er+mkd-pair" else 1

        def given_by(copies: Sequence[nn.Module]) -> float:
            distilled = [
                edge.weight * kl(one(views[edge.student]), by(views[edge.teacher]))
                for one, by in zip(students, copies[::swapped], strict=True)
                for edge in learner.distillation.edges
            ]
            return torch.stack(distilled).sum().item() / len(students)

        assert found == pytest.approx(given_by(before), rel=1e-4)
        assert found != pytest.approx(given_by(copied(models)), rel=1e-2)

    @pytest.mark.parametrize("name", ["er+mkd", "er+mkd-pair", "er+ccldc-ema", "er+gwm"])
    def test_leave_no_gradient_in_the_copies(
        self, name: str, build: Build, stream: ClassStream
    ) -> None:
        learner = build(name)
        batch, models = begun(learner, stream), slow(learner).models
        slow_weights = [weight for model in models for weight in model.parameters()]
        seen: list[bool] = []

        def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
            learnt = [weight for group in optimizer.param_groups for weight in group["params"]]
            seen.append(all(weight.grad is not None for weight in learnt))
            seen.append(all(weight.grad is None for weight in slow_weights))

        for peer in learner.peers:
            peer.optimizer.register_step_pre_hook(look)  # its gradients are forgotten after it
        learner.learn(*batch)
        assert seen == [True, True] * len(learner.peers)
        assert not any(weight.requires_grad for weight in slow_weights)
        assert all(model.forwards and not model.backwards for model in models)
        said = slow(learner).logits([0], TeacherInput([some_images()], []))
        assert len(said) == len(learner.peers)
        assert not any(by[0].requires_grad for by in said)

    @pytest.mark.parametrize("peers", [2, 3])
    def test_of_the_others_copies_are_their_mean(
        self, peers: int, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+mkd-pair", peers=peers)
        begun(learner, stream, 3)
        views = [some_images(0), some_images(1)]
        own = [[net(view) for view in views] for net in (m.net for m in slow(learner).models)]
        said = slow(learner).logits([0, 1], TeacherInput(views, []))
        for i, by in enumerate(said):
            others = [*own[:i], *own[i + 1 :]]
            for view in (0, 1):
                mean = sum(one[view] for one in others) / (peers - 1)
                torch.testing.assert_close(by[view], mean, rtol=1e-6, atol=1e-7)
                assert not torch.allclose(by[view], own[i][view])

    def test_of_the_copy_of_all_are_the_same_for_all(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+gwm", peers=3)
        begun(learner, stream, 3)
        (model,), x = slow(learner).models, some_images()
        said = slow(learner).logits([0], TeacherInput([x], []))
        assert len(said) == 3
        assert all(torch.equal(by[0], model.net(x)) for by in said)


def _asymmetric(net: nn.Module, groups: Sequence[LabelledImages]) -> Tensor:
    """ER-ACE's own loss: on each group, the label among the classes that compete there."""
    total = torch.zeros((), dtype=torch.float64)
    for x, y, active, _ in groups:
        z = net(x.double())
        rivals = z if active is None else z[:, active]
        total = total + (rivals.logsumexp(dim=1) - z[torch.arange(len(y)), y]).mean()
    return total


class TestCosts:
    """Images forward and backward per image of the stream: batches of 10, 64 replayed."""

    def spent(self, learner: OnlineLearner, batch: Batch) -> dict[str, float]:
        before = learner.cost
        learner.learn(*batch)
        return {kind: (count - before[kind]) / 10 for kind, count in learner.cost.items()}

    @pytest.mark.parametrize(
        ("name", "settings", "forward", "backward"),
        [
            ("er", {}, 7.4, 7.4),
            ("er+ema", {}, 7.4, 7.4),
            ("er+mkd", {}, 22.2, 14.8),
            ("er+mkd", {"form": "paper"}, 22.2, 7.4),
            ("derpp+mkd", {}, 36.0, 28.6),
            ("er_ace+mkd", {}, 29.6, 22.2),
            ("er+ema-chain", {}, 44.4, 29.6),
            ("er+ema-chain", {"base_weight": 0, "first": "full"}, 37.0, 22.2),
            ("er+mkd-pair", {}, 44.4, 29.6),
            ("er+ccldc-ema", {}, 74.0, 59.2),
            ("er+ccldc-ema", {"stages": 3}, 88.8, 74.0),
            ("er+gwm", {}, 37.0, 29.6),
            ("er+ccldc", {}, 74.0, 74.0),
        ],
    )
    def test_are_those_of_the_table(
        self,
        name: str,
        settings: Mapping[str, Any],
        forward: float,
        backward: float,
        build: Build,
        stream: ClassStream,
    ) -> None:
        learner = build(name, net=NET, memory=64, **settings)
        spent = self.spent(learner, begun(learner, stream, 7))
        assert spent == {"stream_images": 1, "forward_images": forward, "backward_images": backward}

    def test_of_gsa_are_bounded(self, build: Build, stream: ClassStream) -> None:
        learner = build("gsa+mkd", net=NET, memory=64)
        spent = self.spent(learner, begun(learner, stream, 7))
        assert 22.2 + 6.4 < spent["forward_images"] <= 41.4
        assert spent["backward_images"] == pytest.approx(spent["forward_images"] - 7.4)

    def test_of_ocm_are_of_the_stream_alone_in_the_first_task(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("ocm+mkd", net=NET, memory=64)
        first = self.spent(learner, begun(learner, stream, 7))
        assert (first["forward_images"], first["backward_images"]) == (36, 35)
        learner.end_task()
        later = self.spent(learner, next(iter(stream.tasks[1])))
        assert (later["forward_images"], later["backward_images"]) == (374.2, 258)

    @pytest.mark.parametrize(
        ("name", "networks"),
        [("er+ema", 2), ("er+mkd", 2), ("er+mkd-pair", 4), ("er+ccldc-ema", 4), ("er+gwm", 3)],
    )
    def test_in_memory_are_those_of_every_copy(
        self, name: str, networks: int, build: Build
    ) -> None:
        one = build("er").kept_bytes["networks"]
        assert build(name).kept_bytes["networks"] == networks * one


class TestResuming:
    @pytest.mark.parametrize(("name", "settings"), SETTINGS)
    def test_goes_on_bit_for_bit(
        self,
        name: str,
        settings: Mapping[str, Any],
        build: Build,
        stream: ClassStream,
        tmp_path: Path,
    ) -> None:
        def made() -> OnlineLearner:
            return build(name, **{"shadow": {"alpha": 0.2}, **settings})

        unbroken, broken, resumed = made(), made(), made()
        learn_some(unbroken, stream)
        for batch in list(stream.tasks[0])[:4]:
            broken.learn(*batch)
        broken.end_task()
        broken.learn(*next(iter(stream.tasks[1])))
        broken.save(tmp_path)
        resumed.load(tmp_path)
        assert slow(resumed).updates == slow(broken).updates > 0
        learn_some(resumed, stream, start=5)
        assert same(tensors(unbroken), tensors(resumed))
        assert slow(unbroken).updates == slow(resumed).updates == (8 if "derpp" in name else 7)
        assert unbroken.cost == resumed.cost
        x = torch.cat([test.x for test in stream.test_sets])
        for who in NETWORKS:
            logits = [one.snapshot(who).logits(x) for one in (unbroken, resumed)]
            assert torch.equal(*logits)

    @pytest.mark.parametrize("who", NETWORKS)
    def test_does_not_depend_on_who_answers(
        self, who: str, build: Build, stream: ClassStream, tmp_path: Path
    ) -> None:
        saved, other = build("er+mkd"), build("er+mkd", predict_with=who)
        batch = begun(saved, stream)
        saved.save(tmp_path)
        other.load(tmp_path)
        assert saved.learn(*batch) == other.learn(*batch)
        assert same(tensors(saved), tensors(other))

    def test_a_step_that_breaks_off_moves_no_copy(
        self, build: Build, stream: ClassStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner, unbroken = (build("er+mkd", profile="authors") for _ in range(2))
        batch = begun(learner, stream)
        before, updates = tensors(learner), slow(learner).updates

        def refuse(_: Tensor) -> None:
            raise KeyboardInterrupt  # once copies have answered, and counted what they saw

        with monkeypatch.context() as patch:
            patch.setattr(learner.peers[0], "backward", refuse)
            with pytest.raises(KeyboardInterrupt):
                learner.learn(*batch)
        assert same(tensors(learner), before)
        assert slow(learner).updates == updates
        begun(unbroken, stream)
        assert learner.learn(*batch) == unbroken.learn(*batch)
        assert same(tensors(learner), tensors(unbroken))

    @pytest.mark.parametrize("updates", [-1, 1.5, True, "7", None, 2**60])
    def test_is_refused_with_a_count_of_updates_that_cannot_be(
        self, updates: object, build: Build, stream: ClassStream, tmp_path: Path
    ) -> None:
        learner, fresh = build("er+mkd", net=NET), build("er+mkd", net=NET)
        begun(learner, stream)
        learner.save(tmp_path)
        saved = json.loads((tmp_path / "state.json").read_text())
        assert saved["state"]["teacher.shadow.updates"] == 3
        saved["state"]["teacher.shadow.updates"] = updates
        (tmp_path / "state.json").write_text(json.dumps(saved))
        before = tensors(fresh)
        with pytest.raises(UserError, match=r"teacher\.shadow\.updates should be "):
            fresh.load(tmp_path)
        assert same(tensors(fresh), before)
        assert slow(fresh).updates == 0

    def test_is_refused_with_a_copy_that_is_not_finite(self, build: Build) -> None:
        learner = build("er+gwm", net=NET)
        wrong = learner.state_dict()
        name = "teacher.shadow_all.0.net.head.weight"
        wrong[name] = torch.full_like(wrong[name], float("nan"))
        with pytest.raises(UserError, match=f"{name} holds numbers that are not finite"):
            check_state(learner, wrong)


class TestBroadcasts:
    def peers(self, learner: OnlineLearner) -> list[dict[str, Tensor]]:
        return [state(peer.model) for peer in learner.peers]

    def test_make_peers_one_that_began_alike_and_grew_apart(
        self, build: Build, stream: ClassStream
    ) -> None:
        learner = build("er+gwm", shadow={"broadcast_every": 3, "alpha": 0.5})
        assert same(*self.peers(learner))
        assert same(self.peers(learner)[0], state(slow(learner).models[0]))
        equal = []
        for batch in list(stream.tasks[0])[:8]:
            learner.learn(*batch)
            equal.append(same(*self.peers(learner)))
            if equal[-1]:
                assert same(self.peers(learner)[0], state(slow(learner).models[0]))
        # the first batch is only kept
        assert equal == [True, False, False, True, False, False, True, False]

    @pytest.mark.parametrize("share", [0.5, 1.0])
    def test_take_peers_a_share_of_the_way_and_leave_their_moments(
        self, share: float, build: Build, stream: ClassStream
    ) -> None:
        never, once = (
            build("er+gwm", broadcast_every=every, broadcast_share=share) for every in (0, 3)
        )
        for learner in (never, once):
            begun(learner, stream)
        centre = state(slow(never).models[0])
        assert same(centre, state(slow(once).models[0]))
        for was, now in zip(self.peers(never), self.peers(once), strict=True):
            for name, tensor in now.items():
                way = (1 - share) * was[name] + share * centre[name]
                counts = name.endswith("num_batches_tracked")
                torch.testing.assert_close(tensor, centre[name] if counts else way)
            assert not same(was, now)
        moments = [
            {name: t for name, t in tensors(learner).items() if ".optimizer." in name}
            for learner in (never, once)
        ]
        assert moments[0]
        assert same(*moments)

    def test_never_come_unless_asked_for(self, build: Build, stream: ClassStream) -> None:
        never, late = build("er+gwm", broadcast_every=0), build("er+gwm")
        learn_some(never, stream)
        learn_some(late, stream)
        assert same(tensors(never), tensors(late))
        assert not same(*self.peers(never))


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("er+ema", {"alpha": 0}, "alpha must be above 0, got 0"),
        ("er+ema", {"alpha": -0.1}, "alpha must be above 0"),
        ("er+mkd", {"alpha": 1.5}, "alpha must be at most 1, got 1.5"),
        ("er+mkd", {"alpha": float("nan")}, "alpha must be"),
        ("er+mkd", {"start": "none"}, "start must be copy or zero"),
        ("er+mkd", {"buffers": "none"}, "buffers must be follow or own"),
        ("er+mkd", {"alpha": 1, "start": "zero"}, "needs an alpha below 1; take start='copy'"),
        ("er+mkd", {"alpha": 1, "profile": "authors"}, "needs an alpha below 1"),
        ("er+gwm", {"broadcast_every": -1}, "broadcast_every must be at least 0"),
        ("er+gwm", {"broadcast_share": 0}, "broadcast_share must be above 0"),
        ("er+gwm", {"broadcast_share": 1.1}, "broadcast_share must be at most 1"),
        ("er+mkd", {"predict_with": "shadows"}, "'shadows'; choose peers, ema, average or ncm"),
        ("er+ema", {"buffers": "own"}, "no edge is by it; take buffers='follow'"),
        ("er+mkd-pair", {"peers": 1}, "teacher 'shadow_peer' needs at least 2 peers"),
    ],
)
def test_a_copy_that_cannot_be_is_refused(
    name: str, settings: Mapping[str, Any], says: str, build: Build
) -> None:
    with pytest.raises(UserError, match=says) as refused:
        build(name, net=NET, **settings)
    assert "\n" not in str(refused.value)


def test_a_teacher_says_that_its_settings_are_the_wrong_ones(stream: ClassStream) -> None:
    c = Distillation(teachers={"shadow": {"alpha": 1, "start": "zero"}})
    with pytest.raises(UserError, match=r"^teacher 'shadow': .*needs an alpha below 1"):
        OnlineLearner(ER(stream.info), NET, c, memory=20)


@pytest.mark.parametrize("who", ["ema", "average"])
def test_an_answer_by_copies_that_are_not_there_is_refused_with_what_to_do(
    who: Networks,
) -> None:
    edges = (Edge(0, 0, "frozen"),)
    with pytest.raises(UserError, match=f"predict_with='{who}' needs an EMA copy") as refused:
        Distillation(edges=edges, predict_with=who)
    assert "take predict_with='peers', or teachers={'shadow': {}}" in str(refused.value)
    beside = Distillation(edges=edges, predict_with=who, teachers={"shadow": {}})
    assert beside.predict_with == who


def test_a_copy_may_be_beside_any_distillation(build: Build, stream: ClassStream) -> None:
    """Nobody hears it, so nothing is learnt otherwise."""
    plain = build("er+ccldc", net=NET)
    told = plain.distillation.model_copy(update={"teachers": {"shadow": {"alpha": 0.1}}})
    beside = OnlineLearner(plain.method, NET, told, memory=20, seed=0)
    assert learn_some(plain, stream, 3) == learn_some(beside, stream, 3)
    for one, two in zip(plain.peers, beside.peers, strict=True):
        assert same(state(one.model), state(two.model))
    assert plain.cost == beside.cost
    assert [*beside.sources] == [*NETWORKS]


def test_a_mask_of_infinities_stays_what_it_is(stream: ClassStream) -> None:
    def masked() -> nn.Module:
        made = NET()
        made.mask = nn.Buffer(torch.tensor([0.0, -torch.inf]))
        return made

    for name in ("er+ema", "er+gwm"):
        settings = {"broadcast_every": 2} if name == "er+gwm" else {}
        learner = build_learner(name, stream.info, masked, memory=20, **settings)
        learn_some(learner, stream, 3)
        assert {tuple(n.net.mask.tolist()) for n in learner.networks} == {(0.0, -torch.inf)}


def test_a_network_that_cannot_be_copied_is_told(stream: ClassStream) -> None:
    def locked() -> nn.Module:
        made = NET()
        made.lock = threading.Lock()
        return made

    with pytest.raises(UserError, match="network: cannot be copied"):
        build_learner("er+ema", stream.info, locked, memory=20)


def test_a_learner_that_takes_the_state_of_another_shares_nothing_with_it(
    build: Build, stream: ClassStream
) -> None:
    one, two, alone = (build("er+ema") for _ in range(3))
    learn_some(one, stream, 3)
    learn_some(alone, stream, 3)
    two.load_state_dict(one.state_dict())
    batch = list(stream.tasks[1])[4]
    for learner in (one, two, alone):
        learner.learn(*batch)
    assert same(weights(two), weights(alone))


def test_a_learner_that_would_learn_nothing_is_refused(build: Build) -> None:
    with pytest.raises(UserError, match="nothing is learnt: base_weight is 0"):
        build("er+mkd", label_weight=0, distill_weight=0)


def test_a_method_with_a_loss_of_its_own_keeps_it_beside_mkd(stream: ClassStream) -> None:
    class Louder(ER):
        name = "louder"

        def loss(self, peer: Any, draw: Any) -> Any:
            outcome = super().loss(peer, draw)
            return outcome._replace(loss=2 * outcome.loss)

    class Another(ER):
        name = "another"

    with METHODS.unchanged():
        METHODS.add(Louder)
        METHODS.add(Another)
        weights_of = [
            build_learner(f"{name}+mkd", stream.info, NET, memory=20).distillation.base_weight
            for name in ("louder", "another")
        ]
    assert weights_of == [1, 0]


def test_a_checkpoint_of_another_broadcast_is_refused(stream: ClassStream, tmp_path: Path) -> None:
    learners = [
        build_learner("er+gwm", stream.info, NET, memory=20, broadcast_every=every)
        for every in (0, 500)
    ]
    learn_some(learners[0], stream, 2)
    learners[0].save(tmp_path)
    with pytest.raises(UserError, match=r"broadcast_every 0 there, 500 here"):
        learners[1].load(tmp_path)


def test_a_slow_teacher_that_lacks_a_copy_is_told(stream: ClassStream) -> None:
    class Lacking(EMATeacher):
        name = "lacking"

        @property
        def ema_copies(self) -> list[PeerModel]:
            return self.models[:1]

    with TEACHERS.unchanged():
        TEACHERS.add(Lacking)
        c = Distillation(peers=2, teachers={"lacking": {}}, predict_with="ema")
        with pytest.raises(UserError, match="must hold a network for each of 2 peers"):
            OnlineLearner(ER(stream.info), NET, c, memory=20)


def test_weights_that_nobody_learns_may_be_infinite(stream: ClassStream) -> None:
    def masked() -> nn.Module:
        made = NET()
        made.mask = nn.Parameter(torch.tensor([1.0, -torch.inf]), requires_grad=False)
        return made

    for settings in ({}, {"start": "zero"}):
        learner = build_learner("er+ema", stream.info, masked, memory=20, **settings)
        learn_some(learner, stream, 3)
        assert {tuple(n.net.mask.tolist()) for n in learner.networks} == {(1.0, -torch.inf)}


@pytest.mark.parametrize("form", ["build_learner", "distillation_of"])
def test_one_field_of_a_slow_copy_leaves_the_others_as_the_profile_has_them(
    form: str, stream: ClassStream
) -> None:
    given: dict[str, Any] = {"profile": "authors", "shadow": {"alpha": 0.05}}
    if form == "build_learner":
        c = build_learner("er+mkd", stream.info, NET, memory=20, **given).distillation
    else:
        c = distillation_of("mkd", "er", **given)
    assert c.teachers == {"shadow": {"alpha": 0.05, "start": "zero", "buffers": "own"}}
