"""A learner that is killed goes on as if it had not been."""

import hashlib
import json
import multiprocessing
import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Build, learn_some, same, tensors, weights
from killed_worker import work_through
from safetensors.torch import load_file
from safetensors.torch import save as serialized

from peerlearn import (
    METHODS,
    ClassStream,
    OnlineLearner,
    StreamInfo,
    UserError,
    build_learner,
    files,
    small_net,
)
from peerlearn.learner import checkpoint
from peerlearn.learner.validation import check_state
from peerlearn.memory import MEMORIES
from peerlearn.methods import ER

# A server that has imported torch once forks every worker: a fresh process at no cost.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["peerlearn.learner.build"])


@pytest.mark.parametrize("name", [m + c for m in METHODS for c in ("", "+ccldc")])
def test_a_loaded_learner_goes_on_bit_for_bit(
    name: str, build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    unbroken, broken = build(name), build(name)
    learn_some(unbroken, stream, batches=4)
    for batch in list(stream.tasks[0])[:4]:
        broken.learn(*batch)
    broken.end_task()
    broken.learn(*next(iter(stream.tasks[1])))
    broken.save(tmp_path)
    resumed = build(name)
    resumed.load(tmp_path)
    learn_some(resumed, stream, batches=4, start=5)
    assert same(tensors(unbroken), tensors(resumed))
    assert unbroken.cost == resumed.cost
    assert unbroken.progress.batches == resumed.progress.batches == 8


@pytest.mark.parametrize(
    "numbers",
    [
        {"memory": np.int64(10)},
        {"seed": np.int64(3), "updates": np.uint8(2)},
        {"stream": StreamInfo(num_classes=np.int64(4), class_ids=(*np.arange(4),))},
        {"memory": torch.tensor(10), "seed": torch.tensor(3)},
    ],
)
def test_whole_numbers_of_other_libraries_are_saved_as_such(
    numbers: dict[str, Any], stream: ClassStream, tmp_path: Path
) -> None:
    given = {"stream": stream.info, "memory": 20, "net": "small", "width": 4} | numbers
    learner = build_learner("er", **given)
    first, second, *_ = stream.tasks[0]
    learner.learn(*first)
    learner.save(tmp_path)
    again = OnlineLearner.restore(tmp_path)
    assert learner.learn(*second) == again.learn(*second)
    assert same(tensors(learner), tensors(again))


@pytest.mark.parametrize("name", ["er+untrained", "er+sdc", "derpp+ccldc-easy-to-hard"])
def test_other_distillations_resume_too(
    name: str, build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    unbroken, resumed = build(name), build(name)
    learn_some(unbroken, stream, batches=2)
    unbroken.save(tmp_path)
    resumed.load(tmp_path)
    extra = list(stream.tasks[1])[-1]
    assert unbroken.learn(*extra) == resumed.learn(*extra)
    assert same(tensors(unbroken), tensors(resumed))


@pytest.mark.parametrize("policy", MEMORIES)
def test_every_memory_policy_resumes_too(
    policy: str, build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    one, two = (build("derpp", memory=12, memory_policy=policy) for _ in range(2))
    learn_some(one, stream, batches=3)
    one.save(tmp_path)
    two.load(tmp_path)
    for batch in list(stream.tasks[1])[-3:]:
        assert one.learn(*batch) == two.learn(*batch)
    assert same(tensors(one), tensors(two))


def test_what_a_method_first_keeps_while_it_learns_is_saved_too(
    stream: ClassStream, tmp_path: Path
) -> None:
    class Late(ER):
        name = "late"

        def loss(self, peer: Any, draw: Any) -> Any:
            outcome = super().loss(peer, draw)
            peer.buffers["sum"] = peer.buffers.get("sum", 0) + outcome.loss.detach()
            return outcome._replace(loss=outcome.loss / (1 + peer.buffers["sum"]))

    one, two = (OnlineLearner(Late(stream.info), lambda: small_net(4), memory=9) for _ in range(2))
    learn_some(one, stream, batches=2)
    one.save(tmp_path)
    two.load(tmp_path)
    batch = list(stream.tasks[1])[-1]
    assert one.learn(*batch) == two.learn(*batch)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_process_resumes_to_the_same_bytes(method: str, tmp_path: Path) -> None:
    """SIGKILL at random moments, also while a checkpoint is being written."""

    def work(folder: Path, kill_after: int | None) -> bool:
        receiving, sending = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=work_through, args=(f"{method}+ccldc", folder, sending))
        process.start()
        sending.close()
        with suppress(EOFError):  # it came to its end
            for _ in range(kill_after or 1000):
                receiving.recv()  # a step is done
        if kill_after is not None:
            time.sleep(killer.uniform(0, 0.01))
            process.kill()
        process.join()
        return process.exitcode == 0

    killer = random.Random(method)
    assert work(tmp_path / "unbroken", None)
    assert not work(tmp_path / "broken", killer.randint(2, 12))
    work(tmp_path / "broken", killer.randint(1, 6))
    assert work(tmp_path / "broken", None)
    ends = [load_file(tmp_path / name / "end.safetensors") for name in ("unbroken", "broken")]
    assert same(ends[0], ends[1])


class TestABadCheckpoint:
    @pytest.fixture
    def saved(self, build: Build, stream: ClassStream, tmp_path: Path) -> Path:
        learner = build("er+ccldc")
        learn_some(learner, stream, 2)
        learner.save(tmp_path)
        return tmp_path

    def refuse(self, learner: OnlineLearner, folder: Path, says: str) -> None:
        before = tensors(learner)
        with pytest.raises(UserError, match=says):
            learner.load(folder)
        assert same(before, tensors(learner))

    def test_that_is_not_there_is_refused(self, build: Build, tmp_path: Path) -> None:
        self.refuse(build("er"), tmp_path / "nothing", r"no state.json")

    def test_cut_short_is_refused(self, build: Build, saved: Path) -> None:
        file = next(saved.glob("*.safetensors"))
        file.write_bytes(file.read_bytes()[:-100])
        self.refuse(build("er+ccldc"), saved, "cut short or damaged")

    def test_whose_json_is_cut_short_is_refused(self, build: Build, saved: Path) -> None:
        state = saved / "state.json"
        state.write_text(state.read_text()[:100])
        self.refuse(build("er+ccldc"), saved, "state.json is cut short or damaged")

    def test_whose_json_lacks_a_key_is_refused(self, build: Build, saved: Path) -> None:
        state = json.loads((saved / "state.json").read_text())
        del state["settings"]
        (saved / "state.json").write_text(json.dumps(state))
        self.refuse(build("er+ccldc"), saved, "state.json has no 'settings'")

    def test_of_another_method_is_refused_with_the_difference(
        self, build: Build, saved: Path
    ) -> None:
        self.refuse(build("er_ace+ccldc"), saved, "method.name 'er' there, 'er_ace' here")

    def test_of_other_settings_is_refused_with_the_difference(
        self, build: Build, saved: Path
    ) -> None:
        self.refuse(build("er+ccldc", memory=30), saved, "memory.size 20 there, 30 here")
        self.refuse(build("er"), saved, "collaboration.peers 2 there, 1 here")

    def test_with_earlier_names_of_settings_is_loaded(self, build: Build, saved: Path) -> None:
        path, settings = saved / "state.json", checkpoint.settings(build("er+ccldc"))
        text = path.read_text()
        for old, new in checkpoint.RENAMED.items():
            assert new in settings
            text = text.replace(new, old)
        path.write_text(text)
        build("er+ccldc").load(saved)

    def test_of_another_network_is_refused(self, build: Build, saved: Path) -> None:
        wider = build("er+ccldc", net=lambda: small_net(4, width=8))
        self.refuse(wider, saved, "with the network of the checkpoint")

    def test_that_is_not_ours_is_refused(self, build: Build, tmp_path: Path) -> None:
        (tmp_path / "state.json").write_text('{"format": "other"}')
        self.refuse(build("er"), tmp_path, "not written by Peerlearn")


def test_saving_again_leaves_one_file_of_tensors(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er")
    for batch in list(stream.tasks[0])[:3]:
        learner.learn(*batch)
        learner.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failed_save_leaves_the_old_checkpoint(
    build: Build, stream: ClassStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("er")
    batches = list(stream.tasks[0])
    learner.learn(*batches[0])
    learner.learn(*batches[1])
    learner.save(tmp_path)
    kept = weights(learner)
    learner.learn(*batches[2])

    def full_disk(path: Path, _content: bytes) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_file", full_disk)
    with pytest.raises(UserError, match=r"No space left.*as it was"):
        learner.save(tmp_path)
    monkeypatch.undo()
    restored = build("er")
    restored.load(tmp_path)
    assert same(kept, weights(restored))
    learner.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failure_after_the_rename_leaves_the_new_checkpoint(
    build: Build, stream: ClassStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build("er")
    learner.learn(*next(iter(stream.tasks[0])))
    learner.save(tmp_path)

    def no_folders(_path: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(files, "flush_folder", no_folders)
    with pytest.raises(UserError, match="cannot be written"):
        learner.save(tmp_path)
    build("er").load(tmp_path)


def test_a_place_that_is_a_file_is_refused(build: Build, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        build("er").save(tmp_path / "file" / "checkpoint")


def test_an_interrupted_step_leaves_nothing_behind(
    build: Build, stream: ClassStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken, broken = build("er+ccldc"), build("er+ccldc")
    batches = list(stream.tasks[0])[:4]
    for batch in batches:
        unbroken.learn(*batch)
    for batch in batches[:3]:
        broken.learn(*batch)
    broken.save(tmp_path)
    monkeypatch.setattr(
        broken._step, "_backward_ours", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        broken.learn(*batches[3])
    monkeypatch.undo()
    broken.load(tmp_path)
    broken.learn(*batches[3])
    assert same(tensors(unbroken), tensors(broken))


class Tied(torch.nn.Module):
    """Two layers that are one."""

    feature_dim = 3

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(3, 3)
        self.two = torch.nn.Linear(3, 3)
        self.two.weight = self.one.weight
        self.head = torch.nn.Linear(3, 4)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x.mean(dim=(2, 3))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


def test_a_network_with_tied_weights_resumes(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    one, two = build("er", net=Tied), build("er", net=Tied)
    learn_some(one, stream, 2)
    one.save(tmp_path)
    two.load(tmp_path)
    batch = list(stream.tasks[1])[-1]
    assert one.learn(*batch) == two.learn(*batch)


def test_a_checkpoint_holds_no_pickle(build: Build, stream: ClassStream, tmp_path: Path) -> None:
    learner = build("ocm+ccldc")
    learn_some(learner, stream, 1)
    learner.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    assert json.loads((tmp_path / "state.json").read_text())["format"] == "peerlearn-checkpoint"


def test_a_learner_can_save_where_a_checkpoint_is_damaged(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er+ccldc")
    learn_some(learner, stream, 2)
    learner.save(tmp_path)
    for content in ("", "{", "[" * 100_000, "\0"):
        (tmp_path / "state.json").write_text(content)
        learner.save(tmp_path, content)
        again = build("er+ccldc")
        assert again.load(tmp_path) == content
        assert same(tensors(again), tensors(learner))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_others_may_read_a_checkpoint_as_the_umask_says(
    umask: int, build: Build, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        build("er").save(tmp_path / "checkpoint")
    finally:
        os.umask(before)
    for file in (tmp_path / "checkpoint").iterdir():
        assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_checkpoint_can_be_read_while_it_is_being_replaced(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    writer, reader = build("er"), build("er")
    learn_some(writer, stream, 2)
    writer.save(tmp_path, 0)
    done = threading.Event()

    def write() -> None:
        for number in range(1, 60):
            writer.save(tmp_path, number)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = [0]
    try:
        while not done.is_set():
            seen.append(reader.load(tmp_path))
    finally:
        thread.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 5


def test_a_folder_that_was_moved_is_loaded_from_where_it_is_now(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner, again = build("derpp"), build("derpp")
    learn_some(learner, stream, 2)
    learner.save(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    again.load(tmp_path / "there")
    assert same(tensors(again), tensors(learner))
    with pytest.raises(UserError, match=r"no state\.json"):
        again.load(tmp_path / "here")


@pytest.mark.parametrize("path", ["", "~nosuchuser/x", "a\0b", "n" * 300])
def test_a_path_that_cannot_be_is_refused_in_words(path: str, build: Build) -> None:
    learner = build("er")
    for call in (learner.save, learner.load):
        with pytest.raises(UserError):
            call(path)


def test_what_a_network_calls_its_tensors_is_its_own_affair(
    stream: ClassStream, tmp_path: Path
) -> None:
    def net() -> torch.nn.Module:
        made = small_net(4, width=4)
        made.counts = torch.nn.Buffer(torch.tensor([1.5, -2.0]))
        made.scaler = torch.nn.Parameter(torch.tensor([-1.0]))
        made.step = torch.nn.Parameter(torch.tensor([-1.0]))
        made.mean_sq = torch.nn.Buffer(torch.tensor([-1.0]))
        made.mask = torch.nn.Buffer(torch.tensor([0.0, -float("inf")]))
        made.turn = torch.nn.Buffer(torch.tensor([1j]))
        return made

    one, two = (OnlineLearner(ER(stream.info), net, memory=9) for _ in range(2))
    learn_some(one, stream, 2)
    one.save(tmp_path)
    two.load(tmp_path)
    assert same(tensors(one), tensors(two))


def test_a_rate_that_a_schedule_has_moved_comes_back(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    one, two = build("er"), build("er")
    schedule = torch.optim.lr_scheduler.StepLR(one.peers[0].optimizer, 1)
    first, *batches = list(stream.tasks[0])[:4]
    one.learn(*first)  # nothing to replay, so no step
    for batch in batches:
        one.learn(*batch)
        schedule.step()
    one.save(tmp_path)
    two.load(tmp_path)
    assert "initial_lr" in two.peers[0].optimizer.param_groups[0]
    assert two.peers[0].optimizer.param_groups[0]["lr"] == pytest.approx(5e-7)


NESTED: list[Any] = []
for _ in range(40):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "extra",
    [10**301, {1, 2}, "x" * 2**25, NESTED],
    ids=["a long number", "a set", "a long text", "nested"],
)
def test_what_could_not_be_read_again_is_not_kept(extra: Any, build: Build, tmp_path: Path) -> None:
    learner = build("er")
    learner.save(tmp_path, "before")
    with pytest.raises(UserError, match="extra: cannot be kept as JSON"):
        learner.save(tmp_path, extra)
    assert learner.load(tmp_path) == "before"


@pytest.mark.parametrize("content", ['{"format": "other"}', "[]"])
def test_a_file_of_somebody_else_is_not_overwritten(
    content: str, build: Build, tmp_path: Path
) -> None:
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(UserError, match="of something else, or of another version"):
        build("er").save(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == [content]


def test_what_could_not_be_loaded_is_not_saved(build: Build, tmp_path: Path) -> None:
    learner = build("er")
    learner.save(tmp_path, "good")
    learner.peers[0].model.net.encoder[1].running_var.fill_(float("inf"))
    with pytest.raises(UserError, match=r"cannot be saved: .*running_var .*not finite.*smaller lr"):
        learner.save(tmp_path, "bad")
    assert learner.load(tmp_path) == "good"


def test_a_snapshot_that_is_taken_late_comes_back(stream: ClassStream, tmp_path: Path) -> None:
    class Late(ER):
        name = "late_snapshot"

        def end_task(self, peer: Any) -> None:
            peer.keep_previous()

    one, two = (OnlineLearner(Late(stream.info), lambda: small_net(4), memory=9) for _ in range(2))
    learn_some(one, stream, 2)
    one.save(tmp_path)
    two.load(tmp_path)
    assert same(tensors(one), tensors(two))
    assert any(name.startswith("peer0.snapshot.") for name in tensors(two))


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("rng.draws", lambda t: t[8:12].copy_(torch.tensor([44, 1, 0, 0])), "a generator"),
        ("rng.draws", lambda t: t[16:18].copy_(torch.tensor([112, 2])), "a generator"),
    ],
)
def test_a_generator_whose_counters_disagree_is_refused(
    name: str, spoil: Any, says: str, build: Build, stream: ClassStream
) -> None:
    learner = build("er")
    learn_some(learner, stream, 2)
    state = learner.state_dict()
    check_state(learner, state)
    state[name] = state[name].clone()
    spoil(state[name])
    with pytest.raises(UserError, match=says):
        check_state(learner, state)


def test_rates_that_an_optimizer_refuses_are_refused(build: Build, stream: ClassStream) -> None:
    learner = build("er")
    learn_some(learner, stream, 2)
    state = learner.state_dict()
    for betas in ([1.0, 1.0], [0.9, 1.5], [-0.1, 0.9], [0.9], "x", None, [True, 0.9]):
        groups = [{**state["peer0.optimizer.groups"][0], "betas": betas}]
        with pytest.raises(UserError, match="betas"):
            check_state(learner, {**state, "peer0.optimizer.groups": groups})
    for name in ("peer9.rng", "peer1.optimizer.0.step"):
        with pytest.raises(UserError, match=name):
            check_state(learner, {**state, name: state["peer0.rng"]})


def test_far_more_tensors_than_there_can_be_are_refused_at_once(
    build: Build, tmp_path: Path
) -> None:
    learner = build("er")
    learner.save(tmp_path)
    state = json.loads((tmp_path / "state.json").read_text())
    content = serialized({f"t{i}": torch.zeros(1) for i in range(20_000)})
    (tmp_path / state["tensors"]).write_bytes(content)
    state["sha256"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match="far more tensors") as refused:
        learner.load(tmp_path)
    assert len(str(refused.value)) < 500


def test_a_count_that_was_kept_once_is_left_out(build: Build, tmp_path: Path) -> None:
    learner = build("er")
    learner.save(tmp_path)
    path = tmp_path / "state.json"
    state = json.loads(path.read_text())
    state["state"]["progress.known_before"] = 3
    path.write_text(json.dumps(state))
    build("er").load(tmp_path)


def test_moments_that_could_not_be_loaded_are_not_saved_and_a_checkpoint_heals_them(
    build: Build, stream: ClassStream, tmp_path: Path
) -> None:
    learner = build("er")
    learn_some(learner, stream, 3)
    learner.save(tmp_path)
    good = {k: v for k, v in learner.state_dict().items() if isinstance(v, torch.Tensor)}
    good = {name: value.clone() for name, value in good.items()}
    moments = next(iter(learner.peers[0].optimizer.state.values()))
    moments["exp_avg"] = moments["exp_avg"].double()
    with pytest.raises(UserError, match=r"cannot be saved: peer0\.optimizer"):
        learner.save(tmp_path)
    learner.load(tmp_path)
    assert all(learner.state_dict()[name].equal(value) for name, value in good.items())
    learner.save(tmp_path)
