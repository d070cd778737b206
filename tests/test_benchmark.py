"""The benchmark: bare loops that do what a step does, turns that alternate, tables, JSON."""

import io
import json
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from command import command
from conftest import same, tensors

from peerlearn import METHODS, small_net
from peerlearn.benchmark import around, growth, report, roof, steps
from peerlearn.benchmark.bare import Backward, BareLoop, Forward, Step, record
from peerlearn.benchmark.learners import Scene, Subject, prepared
from peerlearn.benchmark.timing import Effort, in_turns, ratios, spread, taking_threads
from peerlearn.experiment import machine, precision
from peerlearn.nets.processor import Trial
from peerlearn.peer import Peer, PeerModel

TINY = Scene(width=1, pixels=8, memory=140)
ONCE = Effort(rounds=1)


def tiny(name: str, **options: Any) -> Subject:
    return prepared(name, TINY, **{"net": lambda: small_net(10, width=1), **options})


# ---- the bare loop ----


@pytest.mark.parametrize("wrapper", ["", "+ccldc"])
@pytest.mark.parametrize("method", METHODS)
def test_the_bare_loop_shows_its_networks_as_many_images_as_the_step(
    method: str, wrapper: str
) -> None:
    subject = tiny(method + wrapper, replay_batch=8)
    before = subject.learner.cost
    recording = record(subject)
    after = subject.learner.cost
    shown = sum(forward.shape[0] for forward in recording.forwards)
    learnt = sum(forward.shape[0] for forward in recording.forwards if forward.gradient)
    assert shown == after["forward_images"] - before["forward_images"]
    assert learnt == after["backward_images"] - before["backward_images"]

    bare, seen = BareLoop(recording), []
    for network in bare.networks:
        first = next(part for part in network.modules() if isinstance(part, torch.nn.Conv2d))
        first.register_forward_hook(lambda _, x, y: seen.append((len(x[0]), y.requires_grad)))
    kept = tensors(subject.learner)
    bare.step()
    assert same(tensors(subject.learner), kept)  # the learner itself rests meanwhile
    assert [count for count, _ in seen] == [forward.shape[0] for forward in recording.forwards]
    assert sum(count for count, gradient in seen if gradient) == learnt
    for _ in range(3):
        subject.step()
    assert record(subject).events == recording.events  # one step stands for all


def test_a_recording_has_the_order_of_a_step() -> None:
    events = record(tiny("er+ccldc")).events
    own = [Forward(0, "logits", (74, 3, 8, 8), True), Backward((0,))]
    assert events[:2] == own
    assert events[-2:] == [Step(0), Step(1)]
    assert [event for event in events if isinstance(event, Backward)] == [
        Backward((0,)), Backward((2,)), Backward((4, 5, 6, 7)), Backward((8, 9, 10, 11)),
    ]  # fmt: skip


def test_what_is_imagined_takes_no_optimizer_step() -> None:
    recording = record(tiny("mir"))
    taken = [event for event in recording.events if isinstance(event, Step)]
    assert len(recording.networks) == 2
    assert taken == [Step(1)]
    assert [forward.gradient for forward in recording.forwards] == [True, False, False, True]


def test_every_weight_that_learns_moves_in_the_bare_loop_too() -> None:
    bare = BareLoop(record(tiny("derpp+ccldc")))
    before = [w.detach().clone() for network in bare.networks for w in network.parameters()]
    bare.step()
    after = [w for network in bare.networks for w in network.parameters()]
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(weight.grad is None for weight in after)


def test_a_recording_leaves_no_trace_even_if_the_step_fails() -> None:
    subject = tiny("er")
    watched = [PeerModel.logits, PeerModel.features, Peer.step, torch.autograd.backward]
    bad = subject._replace(batches=iter([(torch.zeros(1, 1), torch.zeros(1))]))
    with pytest.raises(Exception, match="images"):
        record(bad)
    record(subject)
    assert watched == [PeerModel.logits, PeerModel.features, Peer.step, torch.autograd.backward]


def test_operations_are_counted_forward_and_backward() -> None:
    recording = record(tiny("er"))
    events = [event for event in recording.events if isinstance(event, Forward)]
    forward_only = recording._replace(events=[e._replace(gradient=False) for e in events])
    whole, forward = BareLoop(recording).flops(), BareLoop(forward_only).flops()
    assert 2 * forward < whole < 3 * forward  # nobody asks for the gradient of the images


# ---- turns ----


def test_who_went_last_goes_first_in_the_next_round() -> None:
    order: list[str] = []
    actions = [lambda: order.append("ours"), lambda: order.append("bare")]
    times = in_turns(actions, Effort(rounds=3))
    assert order == ["ours", "bare", "bare", "ours", "ours", "bare"]
    assert [len(some.clock) for some in times] == [len(some.processor) for some in times] == [3, 3]


def test_where_time_decides_each_side_has_been_first_equally_often() -> None:
    effort = Effort(seconds=1.0)
    assert not effort.suffices(1, seconds=5.0)
    assert effort.suffices(2, seconds=5.0)
    assert not effort.suffices(2, seconds=0.5)
    assert not effort.suffices(3, seconds=5.0)


def test_ratios_are_of_one_round() -> None:
    found = ratios([1.1, 11.0, 2.2], [1.0, 10.0, 2.0])
    assert found == pytest.approx((1.1, 1.1, 1.1))


def test_threads_are_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    with taking_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_a_single_time_has_no_spread() -> None:
    assert spread([2.0]) == (2.0, 2.0, 2.0)


# ---- the command ----


@pytest.fixture
def _toy_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scene.__new__, "__defaults__", (1, 140, 10, 8))
    monkeypatch.setattr(precision, "bf16_trial", lambda *_: Trial("", 1.5))
    monkeypatch.setattr(machine, "available_threads", lambda: 1)
    monkeypatch.setattr(around, "STARTS", {"import torch": ["-c", ""]})
    monkeypatch.setattr(around, "TEST_IMAGES", 10)
    monkeypatch.setattr(around, "FLAGS", {**around.FLAGS, "train_per_class": 10})
    monkeypatch.setattr(roof, "SIZE", 64)


@pytest.mark.usefixtures("_toy_sizes")
def test_all_parts_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["er", "er+ccldc", "--width", "1", "--rounds", "1", "--threads", "1", "--json"]
    assert command("benchmark", *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [*found] == ["machine", *report.USUAL_PARTS]
    assert found["machine"]["torch"] == torch.__version__
    assert [row["step"] for row in found["steps"]] == ["er", "er+ccldc"]
    for row in found["steps"]:
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert row["seconds"] > 0
        assert row["rounds"] == 1
        assert row["processor_ratio"] > 0  # one thread
    assert [row["images"] for row in found["steps"]] == [74, 740]
    assert found["peers"] == []  # nothing can be at once with one thread
    assert all(row["flops_per_second"] > 0 for row in found["roof"])
    assert found["auto"][-1]["choice"] == "bf16"
    assert {row["learner"] for row in found["evaluation"]} == {"er", "er+ccldc"}
    assert [row["learner"] for row in found["along"]] == ["er", "er", "er+ccldc", "er+ccldc"]


@pytest.mark.usefixtures("_toy_sizes")
def test_threads_are_compared_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def taking(count: int) -> nullcontext[None]:  # several would fight over a busy machine
        taken.append(count)
        return nullcontext()

    for module in (roof, steps):
        monkeypatch.setattr(module, "taking_threads", taking)
    assert [row["threads"] for row in roof.roof([1], 2, ONCE)] == [1, 2, 1, 2]
    assert taken == [1, 2, 1, 2]
    taken.clear()
    (row,) = steps.side_by_side(["er", "er+ccldc"], [1], 4, ONCE)
    assert (row["step"], row["peers_at_once"], row["threads_per_peer"]) == ("er+ccldc", 2, 2)
    assert taken == [2, 2, 4]


@pytest.mark.usefixtures("_toy_sizes")
def test_tables_are_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["er", "checkpoint", "--width", "1,2", "--rounds", "1", "--threads", "1"]
    assert command("benchmark", *words) == 0
    first, title, about, *table = filter(None, capsys.readouterr().out.splitlines())
    assert "threads: 1" in first
    assert (title, about[0]) == ("## checkpoint", "A")
    assert [line.count("|") for line in table] == [6, 6, 6, 6]
    assert [line.split()[1:4] for line in table[2:]] == [["er", "|", "1"], ["er", "|", "2"]]


def test_every_part_shows_every_row_that_it_may_have() -> None:
    row = {"what": "x", "threads": 1, "flops_per_second": 1e9}
    assert [show(row) for show in report.PARTS["roof"].columns.values()] == ["x", "1", "1"]
    assert report.number("gone", 1)({"gone": None}) == "-"
    assert set(report.every_method()) >= {"er", "er+ccldc", "mir+ccldc"}


def test_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command("benchmark", "--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(part in text for part in report.PARTS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("err", "there is no part or method 'err'; did you mean er?"),
        ("step", "there is no part or method 'step'; did you mean steps?"),
        ("er+ccdlc", "there is no wrapper 'ccdlc'; did you mean ccldc?"),
        ("--width 0", "argument --width: must be a whole number from 1 to 4096, got '0'"),
        ("--width 16,x", "argument --width: must be a whole number from 1 to 4096, got 'x'"),
        ("--threads many", "argument --threads: must be a whole number from 1 to 1024"),
        ("--rounds -1", "--rounds"),
        ("--memory 5", "benchmark: there is no --memory"),
        ("--plugin nowhere.py", "nowhere.py: cannot be read"),
    ],
)
def test_wrong_usage_is_refused_in_a_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("benchmark", *words.split()) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    report.Progress(out).show("steps ...")
    assert not out.getvalue()
    monkeypatch.setattr(out, "isatty", lambda: True)
    progress = report.Progress(out)
    progress.show("steps ...")
    progress.clear()
    assert out.getvalue() == "\r\x1b[Ksteps ...\r\x1b[K"


# ---- growth ----


def test_growth_covers_what_may_grow() -> None:
    found: dict[str, list[int]] = {}
    for case in growth.cases("er", Scene()):
        found.setdefault(case.grows, []).append(case.value)
    assert found == {
        "memory, reservoir": [200, 2_000, 10_000, 50_000],
        "classes, reservoir": [10, 100, 1_000],
        "memory, class_balanced": [200, 2_000, 10_000, 50_000],
        "classes, class_balanced": [10, 100, 1_000],
        "peers": [1, 2, 3, 4],
        "stages": [0, 1, 2, 3, 4, 5],
        "pixels": [32, 64, 128, 224],
    }


@pytest.mark.parametrize("grows", ["peers", "stages", "classes, class_balanced"])
def test_a_case_of_growth_is_measured_in_all_respects(grows: str) -> None:
    case = next(case for case in growth.cases("er", TINY) if case.grows == grows)
    row = growth.measured(case._replace(scene=TINY), ONCE)
    assert (row["grows"], row["value"]) == (grows, case.value)
    shown = [show(row) for show in report.PARTS["growth"].columns.values()]
    assert shown[:3] == [grows, str(case.value), case.learner]
    assert row["bytes"] > TINY.memory * 3 * TINY.pixels**2
