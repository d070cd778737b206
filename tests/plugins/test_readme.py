"""The commands that README and results give can be run: every method, flag and value is known."""

import re
import shlex
from pathlib import Path

import pytest
from outside import outside  # noqa: F401

from peerlearn.cli import _parser
from peerlearn.cli.parsing import load_plugins
from peerlearn.cli.run import plan
from peerlearn.cli.sweep import grid_of

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^ *(peerlearn (?:run|sweep) [^#\n]*)", re.MULTILINE)


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text() + (ROOT / "docs/results/core.md").read_text()
    return COMMAND.findall(text)


@pytest.mark.parametrize("command", commands())
def test_this_command_is_understood(command: str) -> None:
    name, *words = shlex.split(command)[1:]
    words = [str(ROOT / word) if word.endswith(".yaml") else word for word in words]
    parser = _parser()
    known, given = parser.split([name, *words])
    args = parser.parse_args(known)
    args.given = given
    load_plugins(args.plugins)
    runs = plan(args, ()) if name == "run" else [wish.run for wish in grid_of(args).runs()]
    assert runs
    for run in runs:
        run.check()


def test_there_are_some() -> None:
    assert {command.split()[1] for command in commands()} == {"run", "sweep"}
