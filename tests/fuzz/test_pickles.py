"""No file of CIFAR ends the process, takes its memory or its time, or is more than one line."""

import resource
from pathlib import Path

import pytest

from fuzz.harness import run_cases
from fuzz.pickles import BOMBS, STYLES, WRITERS, case, whole
from peerlearn.data import load
from peerlearn.errors import UserError

ROOM = 1 << 30  # bytes that reading a small file may take


def in_little_memory(seed: int, folder: Path) -> str:
    limit_memory()
    return case(seed, folder)


def bomb(seed: int, folder: Path) -> str:
    """The bomb of this number, as a data set whose every file it is."""
    limit_memory()
    for name in ("batches.meta", "data_batch_1"):
        (folder / name).write_bytes(list(BOMBS.values())[seed])
    try:
        load(folder)
    except UserError:
        return "refused"
    return "read"


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))


def test_mutated_pickles_are_read_or_refused(tmp_path: Path) -> None:
    counts = run_cases(in_little_memory, range(300), tmp_path)
    assert min(counts["read"], counts["refused"]) > 15


def test_no_bomb_goes_off(tmp_path: Path) -> None:
    assert run_cases(bomb, range(len(BOMBS)), tmp_path) == {"refused": len(BOMBS)}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_mutated_is_whole_at_first(style: str, writer: str, tmp_path: Path) -> None:
    for name, content in whole(style, writer).items():
        (tmp_path / name).write_bytes(content)
    assert load(tmp_path).name == style
