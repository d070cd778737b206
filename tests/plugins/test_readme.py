"""The commands that README and results give can be run: every method, flag and value is known."""

import re
import shlex
from pathlib import Path

import pytest
from outside import outside  # noqa: F401

from peerlearn.cli import _parser
from peerlearn.cli.parsing import load_plugins
from peerlearn.cli.run import plan

ROOT = Path(__file__).parents[2]
SLICE = re.compile(r'^ *SLICE="(.*)"$', re.MULTILINE)


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text() + (ROOT / "docs/results/core.md").read_text()
    (options,) = SLICE.findall(text)
    lines = re.findall(r"^ *(peerlearn run .*)$", text, re.MULTILINE)
    return [line.partition("#")[0].replace("$SLICE", options) for line in lines]


@pytest.mark.parametrize("command", commands())
def test_this_command_is_understood(command: str) -> None:
    parser = _parser()
    words, given = parser.split(shlex.split(command)[1:])
    args = parser.parse_args(words)
    args.given = given
    load_plugins(args.plugins)
    for run in plan(args):
        run.check()


def test_there_are_some() -> None:
    assert len(commands()) >= 6
