"""Files of an outsider, taken from the page that tells how to write them, and how they are run."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command import command

from peerlearn.config.names import KINDS
from peerlearn.data import DATASETS
from peerlearn.distill import TEACHERS

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"
FILES = ("my_pcr.py", "my_parts.py")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Two batches per task of a net with one channel: a whole run in a second.
SHORT = [
    *("--data", "mini", "--memory", "20", "--threads", "1"),
    *("--train-per-class", "10", "--test-per-class", "5"),
]
TINY = [*SHORT, "--net", "small", "--width", "1"]


def write_from_page(name: str, folder: Path) -> None:
    """Write the file that the blocks of the page with this name on top make up."""
    blocks = [block for block in BLOCK.findall(PAGE.read_text()) if block.startswith(f"# {name}\n")]
    assert blocks
    (folder / name).write_text("\n\n".join(blocks))


def run(*words: str) -> int:
    """The exit code of `peerlearn run`."""
    return command("run", *words)


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work where an outsider has her two files; what a test makes known is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        write_from_page(name, tmp_path)
    with ExitStack() as stack:
        for registry in (*KINDS.values(), TEACHERS, DATASETS):
            stack.enter_context(registry.unchanged())
        yield
