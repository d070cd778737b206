"""An augmentation from a file or a package of somebody else, through the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from outside import TINY as TEN_BATCHES
from outside import outside, run, write_from_page  # noqa: F401

from peerlearn import StreamInfo, build_learner
from peerlearn.augment import AUGMENTATIONS
from peerlearn.cli import main

MINE = '''
from typing import Annotated

import torch

from peerlearn.augment import augmentation
from peerlearn.settings import about

@augmentation
def mine(x, rng, *, mine_setting: Annotated[int, about("pixels to the right", ge=0, le=8)] = 1):
    """Move images to the right, or leave them where they are."""
    far = mine_setting * int(torch.randint(2, (), generator=rng))
    return x.roll(far, dims=3)

def helper(x, rng):
    """Has no name of its own, so it is no augmentation."""
    return x
'''
TINY = [
    *("--data", "mini", "--train-per-class", "4", "--test-per-class", "2"),
    *("--net", "small", "--memory", "20", "--threads", "1", "--out", "runs"),
]
CHOSEN = ("--plugin", "mine.py", "--augment", "mine")


@pytest.fixture(autouse=True)
def mine(outside: None) -> None:  # noqa: F811, ARG001
    Path("mine.py").write_text(MINE)


def configs() -> dict[str, Any]:
    """What was recorded, by the folder that says how a run leaves its preset."""
    found = Path("runs").rglob("config.yaml")
    return {path.parts[-3]: yaml.safe_load(path.read_text()) for path in found}


def summaries() -> dict[Path, str]:
    """The ends of all runs, which hold their seconds: a run that is repeated has others."""
    return {path: path.read_text() for path in Path("runs").rglob("summary.json")}


class TestAsAPlugin:
    def test_it_is_recorded_with_its_setting_and_its_file(self) -> None:
        assert run("er", *CHOSEN, "--mine-setting", "3", *TINY) == 0
        ((variant, config),) = configs().items()
        assert {"augment=mine", "mine_setting=3"} < {*variant.split(",")}
        assert config["settings"]["method"]["augment"] == "mine"
        assert config["settings"]["augment"] == {"mine_setting": 3}
        assert config["plugins"]["augmentation mine"].startswith("mine.py ")

    def test_another_value_of_its_setting_is_another_run_and_the_same_value_is_not(self) -> None:
        for value in ("3", "5"):
            assert run("er", *CHOSEN, "--mine-setting", value, *TINY) == 0
        settings = [config["settings"]["augment"]["mine_setting"] for config in configs().values()]
        assert sorted(settings) == [3, 5]
        before = summaries()
        assert run("er", *CHOSEN, "--mine-setting", "3", *TINY) == 0
        assert summaries() == before

    def test_its_setting_changes_what_is_learnt(self) -> None:
        for value in ("0", "5"):
            words = ("--mine-setting", value, *TEN_BATCHES, "--out", "runs")
            assert run("er", *CHOSEN, *words) == 0
        files = sorted(Path("runs").rglob("steps.jsonl"))
        still, moved = (json.loads(path.read_text())["losses"]["base"] for path in files)
        assert still != moved

    def test_its_default_is_recorded_too_but_names_no_folder(self) -> None:
        assert run("er", *CHOSEN, *TINY) == 0
        ((variant, config),) = configs().items()
        assert "mine_setting" not in variant
        assert config["settings"]["augment"] == {"mine_setting": 1}

    def test_it_is_listed_with_its_file_and_its_flag_is_in_the_help(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["list", "augmentations", "--plugin", "mine.py"]) == 0
        listed = capsys.readouterr().out.splitlines()
        (line,) = [line for line in listed if line.split()[:1] == ["mine"]]
        assert "Move images to the right, or leave them where they are [mine.py " in line
        assert not [line for line in listed if "helper" in line]
        assert run("er", "--help", *CHOSEN) == 0
        assert "pixels to the right (from 0 to 8; default 1)" in capsys.readouterr().out

    def test_a_changed_file_is_not_passed_off_as_the_old_one(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("er", *CHOSEN, *TINY) == 0
        Path("mine.py").write_text(MINE.replace("x.roll(far", "x.roll(-far"))
        assert run("er", *CHOSEN, *TINY) == 2
        assert "augmentation mine mine.py " in capsys.readouterr().err

    def test_a_chain_of_views_takes_it_as_its_first_stage(self) -> None:
        assert run("er+ccldc", "--plugin", "mine.py", "--first", "mine", *TINY) == 0
        ((_, config),) = configs().items()
        assert config["settings"]["collaboration"]["chain"]["first"] == "mine"

    def test_its_file_is_recorded_where_a_chain_of_views_takes_it(self) -> None:
        assert run("er+ccldc", "--plugin", "mine.py", "--first", "mine", *TINY) == 0
        ((_, config),) = configs().items()
        assert config["plugins"]["augmentation mine"].startswith("mine.py ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--augment mine --mine-setting 9", "--mine-setting: mine_setting must be at most 8"),
        ("--augment mien", "there is no augmentation 'mien'; did you mean mine?"),
        ("--mine-setting 3", "--mine-setting: er cannot use it, it belongs to augmentation mine"),
        ("--augment helper", "there is no augmentation 'helper'"),
    ],
)
def test_it_is_refused_in_one_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("er", "--plugin", "mine.py", *words.split(), *TINY) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not Path("runs").exists()


def test_a_name_of_peerlearns_is_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(MINE.replace("def mine", "def full"))
    assert run("er", "--plugin", "mine.py", *TINY) == 2
    assert "augmentation 'full' already, of Peerlearn itself" in capsys.readouterr().err


def test_by_its_place_it_is_the_same_run() -> None:
    assert run("er", *CHOSEN, "--mine-setting", "3", *TINY) == 0
    before = summaries()
    assert run("er", "--augment", "./mine.py:mine", "--mine-setting", "3", *TINY) == 0
    assert summaries() == before


@pytest.mark.parametrize(
    ("method", "flag"), [("er+ema-chain", "--first"), ("er+ccldc", "--first"), ("er+mkd", "--view")]
)
def test_a_wrapper_takes_it_by_its_place(method: str, flag: str) -> None:
    assert run(method, "--plugin", "mine.py", flag, "mine", *TINY) == 0
    before = summaries()
    assert run(method, flag, "./mine.py:mine", *TINY) == 0
    assert summaries() == before
    ((_, config),) = configs().items()
    assert config["plugins"]["augmentation mine"].startswith("mine.py ")


def test_a_program_names_it_by_its_place() -> None:
    info = StreamInfo(num_classes=4)
    with AUGMENTATIONS.unchanged():
        learner = build_learner(
            "er+ema-chain", info, "small", memory=20, first="./mine.py:mine", width=1
        )
        assert learner.distillation.chain.first == "mine"


@pytest.mark.parametrize(("method", "flag"), [("er+ema-chain", "--first"), ("er+mkd", "--view")])
def test_help_says_that_a_wrapper_takes_the_default_settings(
    method: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(method, "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "with its default settings" in said.partition(f" {flag} ")[2].partition(" --")[0]


def test_without_a_docstring_the_listing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = '    """Move images to the right, or leave them where they are."""\n'
    Path("mine.py").write_text(MINE.replace(said, ""))
    assert main(["list", "augmentations", "--plugin", "mine.py"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.split()[:1] == ["mine"]]
    assert "no description [mine.py " in line


def test_that_of_the_page_runs_with_the_methods_that_the_page_names() -> None:
    write_from_page("my_noise.py", Path())
    words = ("--plugin", "my_noise.py", "--augment", "noise", "--noise-level", "0.2")
    assert run("er", "rar+ema", *words, *TINY) == 0
    found = [config["settings"]["augment"] for config in configs().values()]
    assert found == [{"noise_level": 0.2}] * len(found)
    assert len([*Path("runs").rglob("accuracy.json")]) == 2


def test_an_installed_package_names_it_by_an_entry_point() -> None:
    info = Path("mine.dist-info")
    info.mkdir()
    (info / "entry_points.txt").write_text("[peerlearn.augmentations]\nmine = mine:mine\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.2\n")
    words = ("run", "er", "--augment", "mine", "--mine-setting", "3")
    done = subprocess.run(
        [sys.executable, "-m", "peerlearn", *words, *TINY],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ((_, config),) = configs().items()
    assert config["settings"]["augment"] == {"mine_setting": 3}
    assert config["plugins"] == {"augmentation mine": "mine 1.2"}
