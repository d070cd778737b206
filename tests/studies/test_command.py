"""`peerlearn sweep` as a person uses it: refusals in a line, dry runs, real runs, and its end."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from command import SMALL, command, load_quickly

from peerlearn.config.names import REGISTRIES
from peerlearn.experiment import images
from peerlearn.experiment.images import Loader
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.studies import many
from peerlearn.studies.calibrate import Estimate, calibrate, cost_key
from peerlearn.studies.executor import Share
from peerlearn.studies.grid import from_flags
from peerlearn.studies.job import Job, Place, resolved
from peerlearn.studies.many import Means
from peerlearn.studies.process import Ended

TINY = [*SMALL[:-4], "--train-per-class", "5", "--test-per-class", "5", "--tasks", "2"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "load", load_quickly)
    monkeypatch.chdir(tmp_path)


def refuse(capsys: pytest.CaptureFixture[str], says: str, *words: str) -> None:
    assert command(*words) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err[:-1].isprintable()
    assert says in said.err
    assert not said.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sweep", "sweep: no method is named; write methods: [er, er+ccldc]"),
        ("sweep --seeds 0-2", "no method is named"),
        ("sweep err", "there is no method 'err'; did you mean er?"),
        ("sweep er --lrr 0.1", "--lrr: there is no setting 'lrr'; did you mean lr?"),
        ("sweep er --lr 0.1,", "--lr: an empty value in '0.1,'"),
        ("sweep er --lr 0.1 --lr 0.2", "--lr: is given twice; write its values in a list: a,b"),
        ("sweep er --lr 0.1 --optim.lr 0.2", "--optim.lr: is given twice, also as --lr"),
        ("sweep er --lr 0.1,x", "--lr: lr must be a number, got 'x'"),
        ("sweep er --stages 1,2", "--stages: er cannot use it"),
        ("sweep er --seeds 0-2 --seed 3", "--seed: is given beside --seeds; say one of them"),
        ("sweep er --seeds 2-0", "--seeds: '2-0' holds no seed; write the lower one first"),
        ("sweep er --seeds 0-9999 --lr 1,2,3,4,5,6,7,8,9,10,11", "holds 110000 runs, more than"),
        ("sweep er --jobs 0", "--jobs: must be a whole number from 1 to 4096, got '0'"),
        ("sweep er --retries -1", "--retries: must be a whole number from 0 to 1000"),
        ("sweep er --per-run cpu=0", "--per-run: cpu=0 must be from 1 to 4096"),
        ("sweep er --per-run cpus=2", "--per-run: 'cpus=2' is none of cpu=2"),
        ("sweep er --per-run gpu=1", "--per-run: gpu is given, and all runs are on the cpu"),
        ("sweep er --per-run gpu=1 --dry-run", "gpu is given, and all runs are on the cpu"),
        ("sweep er --fetch", "--fetch: is for --ray"),
        ("sweep er --fetch --dry-run", "--fetch: is for --ray"),
        ("sweep er --data nowhere", "no data set and no folder 'nowhere'"),
        ("sweep er --tasks 2,3", "m200 tasks=3 seed 0: mini: 10 classes do not make 3 equal"),
        ("sweep er --tasks 3 --dry-run", "10 classes do not make 3 equal tasks"),
        ("sweep er --device cuda", "device 'cuda' cannot be used"),
        ("sweep er --precision fp16", "precision fp16 needs device='cuda'"),
        ("sweep er ocm --blur 0.5", "--blur: hides where tasks end, and ocm must be told"),
        ("sweep er --out file", "file: is a file, and runs need a folder; choose another --out"),
        ("sweep er --out file --dry-run", "file: is a file, and runs need a folder"),
        ("sweep missing.yaml", "missing.yaml: cannot be read (No such file or directory)"),
        ("sweep a.yaml b.yaml", "sweep: takes one grid, not 2; start one after the other"),
        ("sweep grid.json", "grid.json: a grid is a YAML file, and its name ends in .yaml"),
        ("sweep file", "file: a grid is a YAML file"),
        ("sweep er --preset missing.yaml", "missing.yaml: cannot be read"),
        ("sweep er --config file", "--config: is for peerlearn run; name a grid file first"),
        ("sweep er --plugin missing.py", "missing.py: cannot be read"),
        ("sweep missing.py:Mine", "missing.py: cannot be read"),
        ("sweep er --method gsa", "--method: name methods before the flags"),
        ("status", "see peerlearn status --help"),
        ("status nowhere", "nowhere: no such folder; give the --out of a sweep"),
        ("status .", ".: no sweep and no runs in this folder"),
        ("status . --folow", "status: there is no --folow; did you mean --follow?"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_leaves_nothing(
    words: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if torch.cuda.is_available() and "cuda" in says:
        pytest.skip("that device can be used here")
    (tmp_path / "file").write_text("")
    refuse(capsys, says, *words.split())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("words", ["sweep {}.yaml", "sweep er --preset {}", "status {}"])
@pytest.mark.parametrize("typed", ["a" * 300, "~nosuchuser/x", "loop", "loop/x", "a\0b", "pipe"])
def test_a_path_that_cannot_be_is_refused_in_one_line(
    words: str, typed: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for ending in ("", ".yaml"):
        (tmp_path / f"loop{ending}").symlink_to(f"loop{ending}")
        os.mkfifo(tmp_path / f"pipe{ending}")
    refuse(capsys, "", *(word.format(typed) for word in words.split()))


@pytest.mark.slow
def test_a_folder_with_a_run_of_other_settings_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("run", "er", *TINY, "--net", "small", "--threads", "1") == 0
    (config,) = tmp_path.glob("runs/**/config.yaml")
    config.write_text(config.read_text().replace("lr: 0.0005", "lr: 0.5"))
    capsys.readouterr()
    words = ("er", "er+ccldc", *TINY, "--net", "small")
    refuse(capsys, "holds a run of other settings or of other code: optim.lr", "sweep", *words)
    assert not list(tmp_path.glob("runs/mini/er+ccldc"))


def test_a_process_finds_files_and_folders_wherever_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "images").mkdir()
    with ExitStack() as stack:
        for registry in REGISTRIES:
            stack.enter_context(registry.unchanged())
        (wish,) = from_flags(["mine.py:Mine"], [("data", "images")], None).runs()
        spec = Job(wish, Place(Path("out"))).spec()
        monkeypatch.chdir("/")
        assert resolved(spec).method == "mine"
    assert spec["method"] == f"{tmp_path}/mine.py:Mine"
    assert spec["out"] == f"{tmp_path}/out"
    assert spec["given"][0][:2] == ["data", f"{tmp_path}/images"]


@pytest.mark.parametrize("words", ["er", "er+ccldc", "grid.yaml", ""])
def test_help_shows_every_setting_of_what_is_named(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "grid.yaml").write_text("methods: er\nseeds: 0-4\n")
    assert command("sweep", *words.split(), "--help") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: peerlearn sweep [grid.yaml] [method ...]")
    for flag in ("--dry-run", "--per-run", "--memory ", "--lr ", "--train-per-class"):
        assert f"  {flag}" in shown
    assert ("--stages" in shown) == (words in ("er+ccldc", ""))


# ---- what a sweep would do ----


def fake(seconds: float, peak: int, faults: tuple[str, ...] = ()) -> Any:
    """Stands for a process that takes a few steps."""

    class Child:
        def __init__(self, spec: dict[str, Any], threads: int) -> None:
            self.method = spec["method"]
            assert spec["calibrate"]
            assert threads == 1

        def wait(self) -> Ended:
            if self.method in faults:
                return Ended("failed", ("peerlearn: its file is gone",))
            return Ended("done", (json.dumps(Estimate(seconds, peak)._asdict()),))

    return patch.object(many, "Child", Child)


def test_a_dry_run_lists_runs_with_time_and_memory_and_measures_each_kind_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("sweep", "er", "er+ccldc", *SMALL, "--lr", "1e-3,1e-2", "--seeds", "0-2", "--dry-run")
    with fake(90.0, 500_000_000), patch.object(many, "free_memory", lambda: 10**12):
        assert command(*words, "--jobs", "3") == 0
    said = capsys.readouterr()
    assert [line.partition(":")[0] for line in said.err.splitlines()] == [
        "measuring 1 of 2", "measuring 2 of 2",
    ]  # fmt: skip
    shared, *runs, total, at_once = said.out.splitlines()
    assert shared == "12 runs, all mini m20 train_per_class=10,test_per_class=5,width=1"
    assert len(runs) == 12
    assert runs[0] == "er lr=0.001 seed 0        about 1 min 30 s, 500 MB"
    assert all(line.endswith("about 1 min 30 s, 500 MB") for line in runs)
    assert total == (
        "12 runs, 0 done before, 12 left: about 18 min 0 s of computing, 6 min 0 s from start to "
        "end"
    )
    assert at_once == "3 at once (--jobs), with 1.5 GB of memory in all"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("means", "left", "free", "slots", "why"),
    [
        (Means(), 99, 10**12, 8, "8 cores, 1 core each"),
        (Means(share=Share(cpu=2)), 99, 10**12, 4, "8 cores, 2 cores each"),
        (Means(), 99, 2.5e9, 2, "2.5 GB of memory free, 1.0 GB each"),
        (Means(), 99, 5e8, 1, "500 MB of memory free, 1.0 GB each"),
        (Means(jobs=5), 99, 10**12, 5, "--jobs"),
        (Means(), 3, 10**12, 3, "3 runs left"),
        (Means(), 1, 10**12, 1, "1 run left"),
        (Means(), 99, None, 8, "8 cores, 1 core each"),
    ],
)
def test_how_many_at_once_is_told_with_the_reason(
    means: Means,
    left: int,
    free: float | None,
    slots: int,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(many, "available_threads", lambda: 8)
    monkeypatch.setattr("peerlearn.studies.executor.available_threads", lambda: 8)
    monkeypatch.setattr(many, "free_memory", lambda: None if free is None else int(free))
    assert many._at_once(means, left, 10**9) == (slots, why)


def test_a_dry_run_says_which_runs_cannot_begin(capsys: pytest.CaptureFixture[str]) -> None:
    with fake(90.0, 500_000_000, faults=("er+ccldc",)):
        assert command("sweep", "er", "er+ccldc", *SMALL, "--dry-run", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [row.get("fault") for row in found["runs"]] == [None, "its file is gone"]
    assert found["total"]["faults"] == 1
    with fake(90.0, 500_000_000, faults=("er", "er+ccldc")):
        assert command("sweep", "er", "er+ccldc", *SMALL, "--dry-run") == 1
    assert capsys.readouterr().out.endswith("2 left, 2 of them cannot begin\n")


def test_what_decides_no_row_is_the_same_for_all_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--evaluate-every", "--probe", "--current-loss"):
        assert command("sweep", "er", *SMALL, flag, "10,20", "--dry-run") == 2
        assert f"{flag}:" in capsys.readouterr().err


def test_runs_that_differ_in_seeds_rates_or_weights_take_as_long_as_each_other() -> None:
    def key(method: str, **given: object) -> str:
        return cost_key(resolve(method, [Given(n, v, "flag", n) for n, v in given.items()]))

    assert key("er", seed=1, lr=0.1) == key("er", seed=2, lr=0.2)
    assert key("derpp", alpha=0.1) == key("derpp", alpha=0.2)
    different = [key("er"), key("gsa"), key("er", width=3), key("er", blur=0.5), key("er", batch=9)]
    assert len({*different, key("er", memory=3), key("er+ccldc"), key("er+ccldc", stages=1)}) == 8


@pytest.mark.parametrize("method", ["er", "er+ccldc"])
@pytest.mark.parametrize(
    "given", [{}, {"blur": 0.3}, {"memory": 0}, {"tasks": 1}, {"memory": 0, "tasks": 1}], ids=str
)
def test_calibration_gives_time_and_memory_for_any_stream(
    method: str, given: dict[str, object]
) -> None:
    _calibrated(method, given)


@pytest.mark.parametrize("method", ["ocm", "gsa+ccldc", "onpro"])
def test_calibration_tells_methods_that_need_it_where_a_task_ends(method: str) -> None:
    _calibrated(method, {})


def _calibrated(method: str, given: dict[str, object]) -> None:
    small = {"data": "mini", "net": "small", "memory": 20, "train_per_class": 10}
    small |= {"test_per_class": 5, **given}
    run = resolve(method, [Given(n, v, "flag", f"--{n}") for n, v in small.items()])
    found = calibrate(run, Loader())
    torch.set_num_threads(1)
    assert found.seconds > 0
    assert found.peak_bytes > 0


# ---- real runs, in processes of their own ----


def accuracies(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.glob("**/acc*")}


@pytest.mark.slow
def test_one_after_another_and_side_by_side_give_the_same_bytes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("er", "er+ccldc", *TINY, "--net", "small")
    ways = {
        "alone": ("run", "--threads", "1"),
        "one": ("sweep", "--jobs", "1"),
        "two": ("sweep", "--jobs", "2", "--per-run", "cpu=2"),
    }
    for name, (verb, *flags) in ways.items():
        assert command(verb, *words, *flags, "--out", str(tmp_path / name)) == 0
    expected = accuracies(tmp_path / "alone")
    assert len(expected) == 2
    assert accuracies(tmp_path / "one") == accuracies(tmp_path / "two") == expected
    places = (tmp_path / "one").rglob("environment.json")  # which have what was typed
    typed = [json.loads(place.read_text())["command"] for place in places]
    assert typed == [[Path(sys.argv[0]).name, *sys.argv[1:]]] * 2
    capfd.readouterr()
    assert command("sweep", *words, "--out", str(tmp_path / "two"), "--json") == 0
    said = capfd.readouterr()
    assert said.err == "all 2 runs were done before\n"
    assert json.loads(said.out) == {"done": 0, "before": 2, "stopped": 0, "failed": []}


PLUGIN = '''
from peerlearn.methods import ER

class Mine(ER):
    """Fails."""

    name = "mine"

    def draw(self, *args):
        raise RuntimeError("no idea\\nwhat to draw")
'''


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other_and_is_shown_with_its_folder_and_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "grid.yaml").write_text("methods: [mine.py:Mine, er]\nnet: small\n")
    with ExitStack() as stack:
        for registry in REGISTRIES:  # what the file adds ends with it
            stack.enter_context(registry.unchanged())
        assert command("sweep", "grid.yaml", *TINY, "--out", "out") == 1
    said = capfd.readouterr()
    assert "peerlearn table out    shows the results" in said.out
    assert "mine: failed, RuntimeError: no idea\n" in said.err
    (folder,) = (tmp_path / "out").glob("mini/mine/**/seed0")
    *_, failed, last = said.err.splitlines()
    assert failed == f"failed: {folder.relative_to(tmp_path)}: RuntimeError: no idea"
    assert last == "1 run failed; error.log in its folder has what was said"
    assert "what to draw" in (folder / "error.log").read_text()
    assert command("status", "out", "--json") == 0
    found = {row["run"].split()[0]: row for row in json.loads(capfd.readouterr().out)}
    assert (found["mine"]["state"], found["er"]["state"]) == ("failed", "done")
    assert found["mine"]["note"] == "RuntimeError: no idea"


@pytest.mark.slow
def test_ctrl_c_saves_what_is_under_way_and_status_has_the_command_that_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "er", "--data", "mini", "--jobs", "1", "--out", "out", "--seeds", "0-1"]
    one = subprocess.Popen(
        [sys.executable, "-m", "peerlearn", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while not list(tmp_path.glob("out/mini/**/summary.json")):
        assert time.monotonic() < end
        time.sleep(0.05)
    one.send_signal(signal.SIGINT)
    _, said = one.communicate()
    assert one.returncode == 130
    assert said.endswith("stopped and saved, 2 runs left; the same command goes on\n")
    assert list(tmp_path.glob("out/mini/**/checkpoint/state.json"))
    assert command("status", "out") == 0
    assert capfd.readouterr().out.splitlines() == [
        "er mini m200: 0 of 2 done, 0 running, 2 left, 0 failed",
        "  nobody is working on what is left; to go on:",
        f"  peerlearn {' '.join(words)}",
    ]
