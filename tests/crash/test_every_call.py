"""A process may be killed at any call of the system that touches its files."""

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crash.layer import WAYS, Layer
from crash.runs import Kill, Small, end, finish, kill_and_finish, kills_at, prepare_smallest
from crash.saves import Save, calls_of, state_after
from peerlearn import cli

METHOD = "er+mkd-pair"  # peers, and slow copies of them
SHORTEST = Kill(Small(METHOD, batches=1), stop=0, how="before")


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    """Two processes without threads, in which all is imported and can be forked."""
    processes = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(2, processes, prepare_smallest, ([METHOD],)) as pool:
        yield pool


@pytest.mark.slow
def test_a_run_killed_at_any_call_ends_with_the_same_files(
    workers: ProcessPoolExecutor, tmp_path: Path
) -> None:
    unbroken = workers.submit(finish, SHORTEST, tmp_path).result()
    kinds = Counter(call.split()[0] for call in unbroken.calls)
    assert kinds.keys() >= {"open", "write", "fsync", "replace", "unlink", "mkdir"}
    assert kinds.total() > 100
    kills = kills_at(unbroken.calls, SHORTEST, ways=("before", "half"))
    ends = workers.map(partial(kill_and_finish, scratch=tmp_path), kills, chunksize=4)
    for kill, left in zip(kills, ends, strict=True):
        where = f"{kill.how} of {unbroken.calls[kill.stop - 1]}"
        assert left == unbroken.left, f"killed {where}"


def test_the_layer_sees_all_that_a_run_does_to_its_files(
    workers: ProcessPoolExecutor, tmp_path: Path
) -> None:
    seen, counted = workers.submit(_audited, tmp_path / "runs").result()
    assert counted
    assert [call for call in counted if not call.startswith(("write ", "fsync "))] == seen


def _audited(out: Path) -> tuple[list[str], list[str]]:
    """What Python says that a run does to files, and what the layer counts."""
    events = {"os.rename": "replace", "os.remove": "unlink", "os.truncate": "truncate"}
    events |= {"os.mkdir": "mkdir", "open": "open"}
    seen: list[str] = []

    def hear(event: str, given: tuple[Any, ...]) -> None:
        if event in events and str(given[0]).startswith(str(out)):
            if event == "open" and given[1] is not None and not {*given[1]} & {*"wax+"}:
                return  # opened by open(), to read
            seen.append(f"{events[event]} {os.path.relpath(given[0], out)}")

    def run() -> int:
        sys.addaudithook(hear)
        with Layer(out) as layer:
            code = cli.main([*SHORTEST.small.words, "--out", str(out)])
        told.write_text("\n".join(seen) + "\n\n" + "\n".join(layer.calls))
        return code

    told = out.with_suffix(".told")
    end(0, run, out)
    seen_text, counted_text = told.read_text().split("\n\n")
    return seen_text.splitlines(), counted_text.splitlines()


@pytest.mark.parametrize("first", [True, False])
def test_a_save_killed_at_any_call_leaves_the_old_state_or_the_new_one(
    first: bool, workers: ProcessPoolExecutor, tmp_path: Path
) -> None:
    save = Save("er", stop=0, how="before", first=first)
    calls = workers.submit(calls_of, save, tmp_path).result()
    number = next(i for i, call in enumerate(calls, 1) if call.startswith("replace "))
    old = "none" if first else "old"
    for how in WAYS:
        stops = [i for i, c in enumerate(calls, 1) if how != "half" or c.startswith("write ")]
        saves = [save._replace(stop=stop, how=how) for stop in stops]
        found = list(workers.map(partial(state_after, scratch=tmp_path), saves))
        last_of_old = number - (how == "after")
        assert found == [old if stop <= last_of_old else "new" for stop in stops]
