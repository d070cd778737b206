"""What a person meets at the command line: one line that helps, and exit code 2."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import SMALL, command
from fabricate import config_of, fabricate

from peerlearn.records import read
from peerlearn.records.folder import run_path
from peerlearn.results import formats


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
        ("run err", "there is no method 'err'; did you mean er?"),
        ("run er+ccdlc", "there is no wrapper 'ccdlc'; did you mean ccldc?"),
        ("run er --data cifer10", "cifar10"),
        ("run er --memry 5", "--memry: there is no setting 'memry'; did you mean memory?"),
        ("run er --memory many", "--memory: size must be a whole number, got 'many'"),
        ("run er --memory -3", "--memory: size must be at least 0"),
        ("run er --memory 10000000000000", "--memory: size must be at most 100000000"),
        ("run er --lr 0", "--lr: lr must be above 0"),
        ("run er --lr nan", "--lr: lr must be a finite number"),
        ("run er --lr", "--lr: needs a value"),
        ("run er --width 0", "--width: width must be at least 1"),
        ("run er+ccldc --stages -1", "--stages: chain.stages must be at least 0"),
        ("run er --lr 0 --width x", "width must be a whole number, got 'x'; --lr: lr must be"),
        ("run er --net resnet19", "there is no network 'resnet19'; did you mean resnet18?"),
        ("run er --net nowhere:net", "No module named 'nowhere'"),
        ("run er --optimizer sgdd", "there is no optimizer 'sgdd'; did you mean sgd?"),
        ("run er --momentum 0.9", "--momentum: er cannot use it, it belongs to optimizer sgd"),
        ("run er --method derpp", "--method: name methods before the flags"),
        ("run er --seeds 0 --seed 7", "--seed: is given beside --seeds"),
        ("run er --net :foo", "network ':foo': cannot be loaded"),
        ("run er --net .rel:foo", "network '.rel:foo': cannot be loaded"),
        ("run er --net os:getcwd", "must take the number of classes"),
        ("run er --memory-policy fifo", "there is no memory 'fifo'"),
        ("run er --plugin nowhere.py", "nowhere.py: cannot be read"),
        ("run er --profile mine", "--profile: profile must be paper or authors"),
        ("run er --seeds 0-1000000000", "more than 10000 seeds"),
        ("run er --tasks 3", "3"),
        ("run er --seeds x", "--seeds: 'x' is not a list such as 0-2"),
        ("run er --stages 2", "--stages: er cannot use it"),
        ("run er --config nowhere.yaml", "nowhere.yaml: cannot be read"),
        ("run er --alpha 0.5", "--alpha: er cannot use it"),
        ("run derpp --alpha -1", "--alpha: alpha must be at least 0"),
        ("run er --device warp", "device 'warp' cannot be used"),
        ("run er --threads -1", "--threads: threads must be at least 0"),
        ("run er --threads 100000", "--threads: threads must be at most 1024"),
        ("run er --precision fp16", "needs device='cuda'"),
        ("run", "see peerlearn run --help"),
        ("run --lr 0.1", "run: name a method"),
        ("run zzzzz", "there is no method 'zzzzz'; known: derpp, er, er_ace"),
        ("run er --zzz 1", "--zzz: there is no setting 'zzz'; see peerlearn run er --help"),
        ("run er --width 1000000", "--width: width must be at most 4096, got '1000000'"),
        ("run er --weight_decay nan", "--weight_decay: weight_decay must be a finite number"),
        ("run er+ccldc --peers 1000", "--peers: peers must be at most 64"),
        ("run er+ccldc --stages 1000000", "--stages: chain.stages must be at most 100"),
        ("run er+ccldc --ops 1000000", "--ops: chain.ops must be at most 100"),
        ("run er --tasks 1000000", "--tasks: tasks must be at most 300"),
        ("run er --seed 4294967296", "--seed: seed must be at most 4294967295"),
        (f"run er --seeds {'9' * 5000}", "beyond the largest seed, 4294967295"),
        (f"run er --seeds 0-{'9' * 5000}", "beyond the largest seed, 4294967295"),
        (
            "table runs --zzz",
            "table: there is no --zzz; known: --help, --answers, --against, --format, --json",
        ),
        ("table nowhere", "nowhere: no such folder"),
        ("report nowhere", "nowhere: no such folder"),
        ("data get", "name a data set"),
        ("data check cifer10", "cifar10"),
        ("dance", "there is no command 'dance'; known: run, sweep, status"),
        ("list method", "there is no kind 'method'; did you mean methods?"),
        ("list zebras", "there is no kind 'zebras'; known: methods, wrappers"),
        ("data fetch", "there is no action 'fetch'; known: list, get, check"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_leaves_nothing(
    words: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refuse(capsys, says, *words.split())
    assert list(tmp_path.iterdir()) == []


LONG = "a" * 300
PLACES = [  # where a command takes a path
    "run er --out {}", "run er --data {}", "run er --data cifar10 --root {}", "run er --config {}",
    "run er --plugin {}", "run er --tensorboard {}", "run {}.py:Mine", "run er --net {}.py:net",
    "table {}", "report {}", "data check {}",
]  # fmt: skip


@pytest.mark.parametrize("words", PLACES)
@pytest.mark.parametrize(
    "typed",
    [LONG, "~nosuchuser/x", "loop", "loop/x", "a\0b", "", "pipe", f"{'b/' * 3000}c"],
    ids=["long", "user", "loop", "in a loop", "NUL", "empty", "pipe", "deep"],
)
def test_a_path_that_cannot_be_is_refused_in_one_line(
    words: str,
    typed: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    first, *rest = (word.format(typed) for word in words.split())
    refuse(capsys, "", first, *(SMALL if first == "run" else ()), *rest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "pipe"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(5, "Input/output error", "disk"), "disk: Input/output error; see to the file"),
        (OSError("no words"), "no words; see to"),
        (MemoryError(), "the memory does not suffice; take a smaller --memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "the memory does not suffice"),
    ],
)
def test_what_the_world_outside_refuses_is_told_in_one_line(
    error: Exception,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(formats, "render", fail)
    monkeypatch.setattr(read, "read_runs", lambda _: [])
    refuse(capsys, says, "table", "runs")


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(read, "read_runs", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        command("table", "runs")


def test_a_method_with_a_very_long_name_has_a_folder(tmp_path: Path) -> None:
    config = config_of("m" * 300, "d" * 300, 200, 0, {}, "f00d", {})
    other = config_of("m" * 301, "d" * 300, 200, 0, {}, "f00d", {})
    places = [run_path(tmp_path, one) for one in (config, other)]
    assert places[0] != places[1]
    for place in places:
        place.mkdir(parents=True)


def test_an_output_folder_that_cannot_be_written_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    refuse(capsys, "choose another --out", "run", "er", *SMALL, "--out", str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_folder_without_images_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "runs"
    refuse(capsys, "empty", "run", "er", "--data", str(tmp_path / "empty"), "--out", str(out))
    assert not out.exists()


def test_help_and_tables_come_without_torch() -> None:
    modules = "peerlearn.cli, peerlearn.results.formats, peerlearn.report, peerlearn.records.read"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_listing_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from peerlearn.cli import main; main(['list']); main(['data', 'list']); "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0


def test_help_tells_the_settings_of_a_method_with_choices_and_ranges(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("run", "derpp", "--help") == 0
    said = capsys.readouterr().out
    assert "--alpha                weight of the stored logits (from 0; default 0.2)" in said
    assert "(3x3 | 7x7; default 3x3)" in said
    assert "--stages" not in said
    assert command("run", "--help") == 0
    assert "--stages" in capsys.readouterr().out


def test_help_tells_the_values_that_a_method_would_run_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("run", "ocm", "--help") == 0
    assert "learning rate (above 0; default 0.001)" in capsys.readouterr().out
    assert command("run", "er", "--optimizer", "sgd", "--net", "small", "--help") == 0
    said = capsys.readouterr().out
    assert "--momentum" in said
    assert "--stem" not in said


def test_a_narrow_encoding_is_no_fault(tmp_path: Path) -> None:
    for seed in (0, 1):
        fabricate(tmp_path, "er", seed=seed)
    words = [sys.executable, "-m", "peerlearn", "table", str(tmp_path)]
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=narrow)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\xb1" in done.stdout


def test_the_command_is_also_a_module() -> None:
    words = [sys.executable, "-m", "peerlearn", "list", "methods"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert "er_ace" in done.stdout
    words[-2:] = ["dance"]
    assert subprocess.run(words, check=False, capture_output=True).returncode == 2


@pytest.mark.parametrize(
    ("kind", "name"), [("methods", "er_ace"), ("wrappers", "ccldc"), ("data", "imagenet100")]
)
def test_each_kind_can_be_listed_alone(
    kind: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("list", kind) == 0
    listed = capsys.readouterr().out
    assert name in listed
    assert "resnet18" not in listed


def test_everything_there_is_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("list") == 0
    listed = capsys.readouterr().out
    names = ("er_ace", "ccldc-easy-to-hard", "imagenet100", "resnet18", "sgd", "class_balanced")
    assert all(name in listed for name in names)
    assert command("list", "wrappers") == 0
    assert "ccldc" in (listed := capsys.readouterr().out)
    assert "er_ace" not in listed
    assert command("list", "presets") == 0
    assert len(capsys.readouterr().out.splitlines()) == 108
    assert command("data", "list") == 0
    assert "mini" in capsys.readouterr().out


@pytest.mark.parametrize("closing", [">&- 2>&-", "2>/dev/full"])
def test_closed_and_full_outputs_are_no_fault(closing: str, tmp_path: Path) -> None:
    peerlearn = f"{shlex.quote(sys.executable)} -m peerlearn"
    words = f"run er {' '.join(SMALL)} --threads 1 --net small --out {shlex.quote(str(tmp_path))}"
    for rest, code in ((words.replace(" --width 1", ""), 0), ("table nosuch", 2)):
        done = subprocess.run(f"{peerlearn} {rest} {closing}", shell=True, check=False)
        assert done.returncode == code


def test_ctrl_c_while_the_command_starts_ends_it_at_once(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "peerlearn", "run", "er", *SMALL, "--out", str(tmp_path)]
    for seconds in (0.3, 0.6):
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGINT, 130)
        assert "Traceback" not in said
