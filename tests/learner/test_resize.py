"""Classes that nobody announced: a learner that grows keeps all that it has learnt."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from conftest import same
from conftest import tensors as as_they_are
from torch import Tensor, nn
from torch.nn import functional as F

from peerlearn import OnlineLearner, StreamInfo, UserError, WithHead, build_learner, small_net
from peerlearn.learner import resize
from peerlearn.learner.transaction import Transaction
from peerlearn.methods import ER, METHODS
from peerlearn.methods.derpp import dark_loss

Batch = tuple[Tensor, Tensor]
PARTS = {  # of a learner, by group
    "method": "er", "collaboration": None, "net": "small", "optim": "adamw", "memory": "reservoir",
}  # fmt: skip
NAMES = [
    *("er", "er+ccldc", "er+ema-chain", "er+untrained", "er+gwm", "er+mkd-pair"),
    *("er_ace+ccldc", "derpp", "derpp+ccldc", "derpp+mkd", "pcr+ccldc", "pcr+ema", "mir"),
    *("ocm+ccldc", "gsa", "gsa+ccldc", "onpro", "onpro+ccldc"),
]


def tensors(learner: OnlineLearner) -> dict[str, Tensor]:
    """Every tensor of a learner; nothing is equal to NaN, so that becomes a number of its own."""
    return {name: t.nan_to_num(-1e9) for name, t in as_they_are(learner).items()}


def boundaries(name: str) -> bool:
    return METHODS[name.partition("+")[0]].needs_boundaries


def growing(name: str, **settings: Any) -> OnlineLearner:
    settings = {"net": partial(small_net, width=4), "memory": 20} | settings
    return build_learner(name, StreamInfo(boundaries=boundaries(name)), **settings)


def batches(count: int, classes: range, seed: int = 0) -> list[Batch]:
    rng = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randint(256, (10, 3, 16, 16), generator=rng, dtype=torch.uint8),
            torch.randint(classes.start, classes.stop, (10,), generator=rng),
        )
        for _ in range(count)
    ]


def learnt(name: str, **settings: Any) -> OnlineLearner:
    """A learner that knows two classes, at the start of a second task if it has such."""
    learner = growing(name, **settings)
    for batch in batches(4, range(2)):
        learner.learn(*batch)
    if boundaries(name):
        learner.end_task()
        for batch in batches(2, range(2), seed=1):
            learner.learn(*batch)
        learner.end_task()
    assert learner.num_classes == 2
    return learner


def grown(learner: OnlineLearner, classes: int) -> OnlineLearner:
    with Transaction(learner, "statistics") as transaction:
        resize.resize(learner, classes)
        transaction.commit()
    assert learner.num_classes == classes
    return learner


@pytest.mark.parametrize("name", NAMES)
def test_all_that_was_there_is_there_still_and_answers_the_same(name: str) -> None:
    learner, x = learnt(name), batches(1, range(2))[0][0]
    before, said = tensors(learner), learner.logits(x)
    counts = learner.cost
    after, says = tensors(grown(learner, 5)), learner.logits(x)
    torch.testing.assert_close(says[:, :2], said)
    assert says.shape == (10, 5)
    assert after.keys() == before.keys()
    wider = [key for key in before if after[key].shape != before[key].shape]
    assert wider
    for key, old in before.items():
        assert torch.equal(after[key][tuple(slice(side) for side in old.shape)], old), key
    assert learner.cost == counts


@pytest.mark.parametrize("name", NAMES)
def test_one_that_grew_goes_on_as_one_that_was_built_with_all_classes(name: str) -> None:
    learner = grown(learnt(name), 4)
    told = StreamInfo(num_classes=4, boundaries=boundaries(name))
    if name.startswith("gsa"):  # two tasks of two classes so far
        told = StreamInfo(num_classes=4, boundaries=True, classes_per_task=2)
        learner.progress = _in_task(learner, 1)
    twin = build_learner(name, told, partial(small_net, 4, width=4), memory=20)
    twin.load_state_dict(learner.state_dict())
    for batch in batches(3, range(2, 4), seed=2):
        assert learner.learn(*batch) == twin.learn(*batch)
    assert same(tensors(learner), tensors(twin))


def _in_task(learner: OnlineLearner, task: int) -> Any:
    return replace(learner.progress, task=task)


@pytest.mark.parametrize("name", ["er", "er+ccldc", "pcr", "er+untrained"])
def test_new_rows_are_those_of_a_learner_just_built(name: str) -> None:
    learner = grown(learnt(name), 4)
    told = StreamInfo(num_classes=4)
    fresh = build_learner(name, told, partial(small_net, 4, width=4), memory=20)
    for own, new in zip(learner.networks, fresh.networks, strict=True):
        head = "head.weight" if name == "pcr" else "net.head.weight"
        rows, new_rows = own.state_dict()[head], new.state_dict()[head]
        assert torch.equal(rows[2:], new_rows[2:])
        assert not torch.equal(rows[:2], new_rows[:2]) or own not in [
            peer.model for peer in learner.peers
        ]
    assert learner.peers[0].model.net.head.out_features == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["er+ema", "er+ccldc-ema", "er+gwm"])
def test_ema_copies_begin_new_rows_where_their_peers_do(name: str) -> None:
    learner = grown(learnt(name), 4)
    (copies,) = filter(None, (teacher.ema_copies for teacher in learner.teachers.values()))
    for peer, slow in zip(learner.peers, copies, strict=True):
        own, its = (model.state_dict()["net.head.weight"] for model in (peer.model, slow))
        assert torch.equal(own[2:], its[2:])
        assert not torch.equal(own[:2], its[:2])


def test_the_optimizer_has_gathered_nothing_for_new_rows_but_knows_their_usual_size() -> None:
    learner = learnt("er")
    (peer,) = learner.peers
    head = peer.model.net.head
    assert isinstance(head, nn.Linear)
    second = peer.optimizer.state[head.weight]["exp_avg_sq"].clone()
    grown(learner, 4)
    moments = peer.optimizer.state[head.weight]
    assert not moments["exp_avg"][2:].any()
    torch.testing.assert_close(moments["exp_avg_sq"][2:], second.mean(dim=0).expand(2, -1))
    before = head.weight[2:].detach().clone()
    learner.learn(*batches(1, range(4), seed=3)[0])
    moved = (head.weight[2:] - before).abs().max()
    assert 0 < moved < 4 * peer.optimizer.param_groups[0]["lr"]


class InColumns(nn.Module):
    """A classifier (D, C), as of those who write features @ weight."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.feature_dim, self.weight = 3, nn.Parameter(torch.randn(3, num_classes))

    def features(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.features(x) @ self.weight


def test_classes_may_be_columns_of_a_classifier() -> None:
    learner = learnt("er+ema", net=InColumns)
    (peer,), x = learner.peers, batches(1, range(2))[0][0]
    weight, said = peer.model.net.weight, learner.logits(x)
    assert isinstance(weight, nn.Parameter)
    second = peer.optimizer.state[weight]["exp_avg_sq"].clone()
    moments = grown(learner, 4).peers[0].optimizer.state[weight]
    assert not moments["exp_avg"][:, 2:].any()
    assert torch.equal(moments["exp_avg_sq"][:, :2], second)
    usual = second.mean(dim=1, keepdim=True)
    torch.testing.assert_close(moments["exp_avg_sq"][:, 2:], usual.expand(-1, 2))
    assert torch.equal(learner.logits(x)[:, :2], said)
    learner.learn(*batches(1, range(4), seed=3)[0])


def test_with_zeros_for_second_moments_new_rows_would_move_too_far() -> None:
    def moved(old_steps: int, steps: int) -> float:
        """In learning rates, what a step does to a row that came after some."""
        weight = nn.Parameter(torch.zeros(1))
        adam = torch.optim.Adam([weight], lr=1.0)
        for number in range(old_steps + steps):
            weight.grad = torch.full((1,), float(number >= old_steps))  # zeros leave zeros
            before = weight.item()
            adam.step()
        return abs(weight.item() - before)

    assert moved(0, 1) == pytest.approx(1)
    assert [round(moved(5000, steps), 1) for steps in (1, 10, 100)] == [3.2, 6.5, 3.2]


def test_nothing_that_a_user_holds_is_replaced() -> None:
    learner = learnt("er+ccldc")
    model = learner.peers[0].model
    schedule = torch.optim.lr_scheduler.StepLR(learner.peers[0].optimizer, 1, gamma=0.5)
    frozen = next(model.parameters()).requires_grad_(False)
    value, answer = frozen.clone(), learner.snapshot()
    learner.learn(*batches(1, range(6))[0])
    schedule.step()
    assert learner.peers[0].model is model
    assert torch.equal(frozen, value)
    assert learner.peers[0].optimizer.param_groups[0]["lr"] == pytest.approx(
        0.5 * learner.peers[1].optimizer.param_groups[0]["lr"]
    )
    x = batches(1, range(2))[0][0]
    assert answer.logits(x).shape == (10, 2)  # of the state before
    assert learner.logits(x).shape == (10, 6)


@pytest.mark.parametrize("name", ["er+ccldc", "derpp+mkd", "onpro", "ocm+ccldc", "gsa"])
def test_a_step_that_fails_takes_its_growth_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, twin = learnt(name), learnt(name)
    before = tensors(learner)
    x, y = batches(1, range(2, 5), seed=2)[0]

    def fails(*_: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(learner.memory, "choose", fails)
        with pytest.raises(RuntimeError):
            learner.learn(x, y)
    assert learner.num_classes == 2
    assert same(tensors(learner), before)
    assert learner.learn(x, y) == twin.learn(x, y)
    assert same(tensors(learner), tensors(twin))


def test_a_step_that_has_been_taken_keeps_its_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, twin = learnt("er"), learnt("er")
    x, y = batches(1, range(4), seed=2)[0]
    commit = Transaction.commit

    def interrupted(transaction: Transaction) -> None:
        commit(transaction)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(x, y)
    twin.learn(x, y)
    assert same(tensors(learner), tensors(twin))


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_carry_it(name: str, tmp_path: Path) -> None:
    learner = learnt(name)
    learner.save(tmp_path / "two")
    for batch in batches(2, range(2, 5), seed=2):
        learner.learn(*batch)
    learner.save(tmp_path / "five")
    for wanted, others in (("two", "five"), ("five", "two")):
        there, fresh = growing(name), growing(name)
        there.load(tmp_path / others)
        there.load(tmp_path / wanted)  # grows, or shrinks
        fresh.load(tmp_path / wanted)
        assert same(tensors(there), tensors(fresh))
        for batch in batches(2, range(6), seed=3):
            assert there.learn(*batch) == fresh.learn(*batch)
        assert same(tensors(there), tensors(fresh))


def test_a_checkpoint_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    learner, other = learnt("er"), grown(learnt("er", net=partial(small_net, width=6)), 5)
    other.save(tmp_path)
    before = tensors(learner)
    with pytest.raises(UserError, match="build the learner with the network of the checkpoint"):
        learner.load(tmp_path)
    assert learner.num_classes == 2
    assert same(tensors(learner), before)


class TestDarkLoss:
    def test_leaves_out_what_was_not_asked(self) -> None:
        logits = torch.randn(3, 4, requires_grad=True)
        stored = torch.randn(3, 4)
        stored[0, 2:] = stored[1, 3] = torch.nan
        expected = sum(
            (logits[i, k].item() - stored[i, k].item()) ** 2
            for i in range(3)
            for k in range(4)
            if not torch.isnan(stored[i, k])
        )
        loss = dark_loss(logits, stored)
        assert loss.item() == pytest.approx(expected / 12, rel=1e-5)
        loss.backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
        assert torch.equal(logits.grad == 0, stored.isnan())

    def test_is_the_plain_one_where_nothing_is_missing(self) -> None:
        logits, stored = torch.randn(3, 4), torch.randn(3, 4)
        assert torch.equal(dark_loss(logits, stored), F.mse_loss(logits, stored))

    def test_a_grown_learner_remembers_which_classes_it_was_not_asked_about(self) -> None:
        learner = grown(learnt("derpp"), 3)
        assert learner.memory["logits"][:, :2].isfinite().all()
        assert learner.memory["logits"][:, 2].isnan().all()
        for batch in batches(3, range(3), seed=4):
            assert torch.tensor([*learner.learn(*batch).values()]).isfinite().all()


class TestGSAWithoutAnnouncement:
    def test_takes_classes_that_come_again(self) -> None:
        learner = growing("gsa")
        rounds = [range(2), range(2, 4), range(1, 5), range(2), range(5)]
        for number, classes in enumerate(rounds):
            for batch in batches(3, classes, seed=number):
                assert torch.tensor([*learner.learn(*batch).values()]).isfinite().all()
            learner.end_task()

    def test_a_task_is_of_the_labels_since_the_last_end(self) -> None:
        learner = learnt("gsa")
        learner.learn(*batches(1, range(3, 4))[0])
        present = learner.method.present(learner.progress)  # type: ignore[attr-defined]
        assert present.tolist() == [False, False, False, True]

    @pytest.mark.parametrize("last", [(1, 2), (0, 7), (2,)])
    def test_labels_of_a_task_may_lie_anywhere(self, last: tuple[int, ...]) -> None:
        learner, drawn = growing("gsa"), list[Any]()
        draw = learner.method.draw
        learner.method.draw = lambda *given: drawn.append(draw(*given)) or drawn[-1]
        for task in ((3, 5), last):
            for x, y in batches(3, range(len(task))):
                learner.learn(x, torch.tensor(task)[y])
            learner.end_task()
        assert drawn[-1].slots.tolist() == [*last]
        assert {*drawn[-1].current.y.tolist()} == {*last}

    def test_only_old_classes_leave_out_the_loss_within_the_task(self) -> None:
        learner = growing("gsa", memory=30)
        for batch in batches(4, range(2)):
            learner.learn(*batch)
        learner.end_task()
        assert learner.learn(*batches(1, range(2), seed=2)[0])["base"] > 0


class Scrambled(WithHead):
    """Two rows for each class, all first ones before all second ones."""

    def __init__(self, num_classes: int) -> None:
        encoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(encoder, 3, 2 * num_classes)

    def classify(self, features: Tensor) -> Tensor:
        first, second = super().classify(features).chunk(2, dim=1)
        return first - second

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


class TwiceAsWide(InColumns):
    """Has two hidden features for each class."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.weight = nn.Parameter(torch.randn(2 * num_classes, num_classes))
        self.hidden = nn.Parameter(torch.randn(3, 2 * num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return (self.features(x) @ self.hidden) @ self.weight


class WithMean(WithHead):
    """Has a tensor and a tuple that are neither parameters nor buffers."""

    def __init__(self, num_classes: int) -> None:
        encoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(encoder, 3, num_classes)
        self.mean, self.sizes = torch.full((3, 1, 1), 0.5), (1, 2)

    def features(self, x: Tensor) -> Tensor:
        return super().features(x - self.mean)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


def test_networks_with_tensors_of_their_own_grow() -> None:
    learner = growing("er", net=WithMean)
    for classes in (2, 3, 5):
        learner.learn(*batches(1, range(classes))[0])
    assert learner.logits(batches(1, range(2))[0][0]).shape == (10, 5)


@pytest.mark.parametrize("moment", ["exp_avg", "exp_avg_sq"])
def test_an_interrupt_between_two_moments_is_taken_back(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, before = learnt("er+ccldc"), tensors(learnt("er+ccldc"))
    resized, calls = resize.resized, 0

    def interrupted(old: Tensor, new: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == (1 if moment == "exp_avg" else 2):
            monkeypatch.undo()
            raise KeyboardInterrupt
        return resized(old, new)

    monkeypatch.setattr(resize, "resized", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(*batches(1, range(4))[0])
    assert same(tensors(learner), before)


def test_classes_of_a_step_under_way_are_no_answers_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, x = learnt("er+ccldc"), batches(1, range(2))[0][0]
    before, said = learner.logits(x), list[Tensor]()
    loss = learner.method.loss

    def asks(peer: Any, draw: Any) -> Any:
        said.append(learner.logits(x))
        return loss(peer, draw)

    monkeypatch.setattr(learner.method, "loss", asks)
    learner.learn(*batches(1, range(4), seed=3)[0])
    assert len(said) == 2
    assert all(torch.equal(one, before) for one in said)
    assert learner.logits(x).shape == (10, 4)


def test_learners_in_threads_learn_what_each_would_alone() -> None:
    def learn(learner: OnlineLearner) -> dict[str, Tensor]:
        for batch in batches(4, range(3)):
            learner.learn(*batch)
        return tensors(learner)

    seeds = range(3)
    alone = [learn(growing("er+ccldc", seed=seed)) for seed in seeds]
    state = torch.get_rng_state()
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda seed: learn(growing("er+ccldc", seed=seed)), seeds))
    assert all(map(same, alone, together))
    assert torch.equal(torch.get_rng_state(), state)


class TestRefused:
    def test_a_network_that_does_not_take_a_number(self) -> None:
        with pytest.raises(UserError, match=r"takes their number.*lambda n: small_net\(n\)"):
            growing("er", net=lambda: small_net(4))

    @pytest.mark.parametrize("memory", [0, 20])
    def test_a_network_that_has_no_row_for_a_new_class(self, memory: int) -> None:
        learner = learnt("er", net=lambda _: small_net(2, width=4), memory=memory)  # two at first
        before = tensors(learner)
        with pytest.raises(UserError, match=r"answers 2 classes, .* has 4; .* lambda n: small_net"):
            learner.learn(*batches(1, range(4))[0])
        assert same(tensors(learner), before)

    @pytest.mark.parametrize("net", [Scrambled, TwiceAsWide])
    def test_a_network_that_would_answer_otherwise(self, net: type[nn.Module]) -> None:
        learner = growing("er", net=net)
        for batch in batches(3, range(2)):
            learner.learn(*batch)
        before = tensors(learner)
        with pytest.raises(UserError, match="answers otherwise to the 2 that it knew"):
            learner.learn(*batches(1, range(4))[0])
        assert same(tensors(learner), before)

    def test_a_method_that_does_not_say_what_is_absent(self) -> None:
        class Storing(ER):
            name = "storing"
            stores: ClassVar[Any] = {"odds": ("classes",)}

            def loss(self, peer: Any, draw: Any) -> Any:
                classes = self.stream.num_classes
                return super().loss(peer, draw)._replace(store={"odds": torch.zeros(10, classes)})

        learner = OnlineLearner(Storing(StreamInfo()), partial(small_net, width=4), memory=0)
        learner.learn(*batches(1, range(1))[0])
        with pytest.raises(UserError, match=r"'odds' per class .*fill_values = \{'odds': 0\.0\}"):
            learner.learn(*batches(1, range(2))[0])

    def test_more_classes_than_there_can_be(self) -> None:
        learner = growing("er")
        with pytest.raises(UserError, match=r"1000000 is out of range.*number them from 0 on"):
            learner.learn(batches(1, range(2))[0][0], torch.full((10,), 1_000_000))

    @pytest.mark.parametrize("told", [{"classes_per_task": 2}, {"class_ids": (0, 1)}])
    def test_tasks_that_are_told_of_classes_that_are_not(self, told: Any) -> None:
        with pytest.raises(UserError, match="classes that nobody announced"):
            StreamInfo(**told)


class TestRestore:
    @pytest.mark.parametrize("name", ["er", "derpp+ccldc", "gsa", "er+ema-chain"])
    def test_makes_the_learner_of_a_checkpoint_alone(self, name: str, tmp_path: Path) -> None:
        settings = {"net": "small", "width": 4, "lr": 1e-2, "seed": 3, "updates": 2}
        learner = learnt(name, **settings)
        learner.save(tmp_path)
        again = OnlineLearner.restore(tmp_path)
        assert again.config == learner.config
        for batch in batches(2, range(4), seed=2):
            assert learner.learn(*batch) == again.learn(*batch)
        assert same(tensors(learner), tensors(again))

    def test_of_announced_classes_too(self, tmp_path: Path) -> None:
        told = StreamInfo(num_classes=4, class_ids=(3, 1, 0, 2))
        learner = build_learner("er_ace", told, "small", memory=10, width=4, profile="authors")
        learner.learn(*batches(1, range(4))[0])
        learner.save(tmp_path)
        again = OnlineLearner.restore(tmp_path)
        assert again.method.stream == told
        assert again.method.settings == learner.method.settings

    def test_wants_the_function_of_a_network_that_has_no_name(self, tmp_path: Path) -> None:
        learner = learnt("er")
        learner.save(tmp_path)
        with pytest.raises(UserError, match=r"made by a function; give net="):
            OnlineLearner.restore(tmp_path)
        again = OnlineLearner.restore(tmp_path, net=partial(small_net, width=4))
        assert same(tensors(learner), tensors(again))

    @pytest.mark.parametrize("name", ["seed", "memory", "updates", "precision", "lr", "devise"])
    def test_takes_nothing_that_a_checkpoint_says_itself(self, name: str, tmp_path: Path) -> None:
        learner = learnt("er", net="small", width=4)
        learner.save(tmp_path)
        hint = "did you mean device" if name == "devise" else "known: net, device, compile, peers"
        with pytest.raises(UserError, match=f"restore: takes no {name!r}, .* checkpoint.*; {hint}"):
            OnlineLearner.restore(tmp_path, **{name: 3})
        again = OnlineLearner.restore(tmp_path, device="cpu", peers_at_once=1, compile=False)
        assert same(tensors(learner), tensors(again))

    def test_wants_a_config(self, tmp_path: Path) -> None:
        learner = OnlineLearner(ER(StreamInfo()), partial(small_net, width=4), memory=5)
        learner.save(tmp_path)
        with pytest.raises(UserError, match="does not say what its learner was built from"):
            OnlineLearner.restore(tmp_path)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"names": PARTS | {"method": "evil.py:Method"}}, "run as a program"),
            ({"names": PARTS | {"method": ["er"]}}, "damaged"),
            ({"names": {"method": "er"}}, "damaged"),
            ({"names": 3}, "damaged"),
            ({"stream": {"num_classes": "many"}}, "damaged"),
            ({"stream": {"colour": 1}}, "damaged"),
            ({"values": {"method.replay_batch": -1}}, "replay_batch"),
            ({"memory": "much"}, "damaged"),
        ],
    )
    def test_runs_nothing_of_a_doctored_one(
        self, change: dict[str, Any], words: str, tmp_path: Path
    ) -> None:
        learner = learnt("er", net="small", width=4)
        learner.save(tmp_path)
        state = json.loads((tmp_path / "state.json").read_text())
        state["recipe"] |= change
        (tmp_path / "state.json").write_text(json.dumps(state))
        with pytest.raises(UserError, match=words):
            OnlineLearner.restore(tmp_path)


def test_a_batch_that_is_skipped_may_bring_a_class() -> None:
    learner = learnt("er")
    x, y = batches(1, range(3, 4))[0]
    learner.skip(x, y)
    assert learner.num_classes == 2
    learner.skip(x, y, remember=True)
    assert learner.num_classes == 4
    assert 3 in learner.memory["y"]
