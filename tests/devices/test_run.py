"""A whole run on a device: the command, and the files that it leaves."""

import json
from pathlib import Path
from typing import Any

from command import run_small

from devices.learners import TWO


def run(out: Path, device: str) -> Path:
    """The folder of a small run on this device."""
    assert run_small(out, "--net", "small", "--width", "4", "--device", device) == 0
    return next(out.rglob("accuracy.json")).parent


def losses(folder: Path) -> list[Any]:
    lines = (folder / "steps.jsonl").read_text().splitlines()
    return [json.loads(line)["losses"] for line in lines]


def test_a_run_on_two_devices_leaves_the_numbers_of_one_on_the_cpu(tmp_path: Path) -> None:
    there, here = run(tmp_path / "there", TWO), run(tmp_path / "here", "cpu")
    assert (there / "accuracy.json").read_bytes() == (here / "accuracy.json").read_bytes()
    assert losses(there) == losses(here) != []
    assert json.loads((there / "environment.json").read_text())["device"] == TWO
