"""What a person meets at the command line: one line that helps, and exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest
from command import SMALL, command


def refuse(capsys: pytest.CaptureFixture[str], says: str, *words: str) -> None:
    assert command(*words) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
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
        ("run er --threads 100000", "--threads: threads must be at most 4096"),
        ("run er --precision bf16", "needs device='cuda'"),
        ("run", "see peerlearn run --help"),
        ("run --lr 0.1", "run: name a method"),
        ("table nowhere", "nowhere: no such folder"),
        ("report nowhere", "nowhere: no such folder"),
        ("data get", "name a data set"),
        ("data check cifer10", "cifar10"),
        ("dance", "there is no command 'dance'; known: run, table, report, data, list"),
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
