"""Results files: finished runs in one JSON file, to hand on and to add to.

A run is one line, which holds what the files of its folder hold but for logs and checkpoint, and is
read by what reads those. As in a folder, a run's place is its data, method, memory, variant and
seed. Lines are sorted by it, so that a file depends on its runs alone and grows by small diffs.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from peerlearn.errors import UserError
from peerlearn.files import Unreadable, read_bytes, replace_file
from peerlearn.records.document import brief, check_schema, checked, mapping_in
from peerlearn.records.folder import run_path, variant_name
from peerlearn.records.read import (
    RunRecord,
    accuracy_in,
    config_in,
    consistent,
    memory_classes_in,
    summary_in,
)
from peerlearn.records.schema import ACCURACY_SCHEMA, SCHEMA, Config, Count, Record, without_nan

RESULTS_SCHEMA = 1
MOST_BYTES = 1 << 27  # some 30,000 runs of five tasks, or 700 of a hundred
MOST_RUNS = 100_000
MOST_NAMED = 5  # in a message
LONGEST_TEXT = 10_000  # of an environment, in letters
MOST_WORDS = 1000  # of a command
PARTS = ("config", "environment", "accuracy", "summary")
# what leads to the last part of an absolute path in one typed word: there may be spaces in it, and
# our own names of folders have = and ,
FOLDERS = re.compile(
    r"""(?:^|(?<=[=,:'"]))(?:~[^\\/=,]*|[A-Za-z]:)?[\\/](?:[^=,]*[\\/])?(?=[^\\/])"""
)

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


class Environment(Record):
    """What is handed on of environment.json; not where on a machine its files lie."""

    peerlearn: Text | None = None
    python: Text | None = None
    torch: Text | None = None
    platform: Text | None = None
    processor: Text | None = None
    threads: Count | None = None
    peer_threads: Count | None = None
    device: Text | None = None
    commit: Text | None = None
    command: Text | Annotated[list[Text], Field(max_length=MOST_WORDS)] | None = None


class Added(NamedTuple):
    """How many runs were added to a file, took the place of others, or were there before.

    remeasured: how many of those that were there have another cost, which was not taken.
    """

    new: int
    replaced: int
    there: int
    remeasured: int


def read_results(path: Path) -> list[RunRecord]:
    """Every run of a results file, each looked at as a whole."""
    content = mapping_in(path, MOST_BYTES, refuse=_damaged)
    entries = content.get("runs")
    if not isinstance(entries, list):
        raise _damaged(path, "the file holds no list of runs")
    check_schema(path, content, (RESULTS_SCHEMA,), _damaged)
    if len(entries) > MOST_RUNS:
        raise _damaged(path, f"the file holds over {MOST_RUNS} runs")
    runs = [_run(path, number, entry) for number, entry in enumerate(entries, 1)]
    first: dict[Path, int] = {}
    for number, run in enumerate(runs, 1):
        if first.setdefault(run.folder, number) != number:
            both = f"runs {first[run.folder]} and {number}"
            raise _damaged(path, f"{both} are both {_place(run.config)}")
    return runs


def _run(path: Path, number: int, entry: object) -> RunRecord:
    where = f"{path}: run {number}"
    parts = dict(entry) if isinstance(entry, dict) else {}
    for name in PARTS:
        if not isinstance(parts.get(name), dict):
            raise _damaged(Path(where), f"{name} is {brief(parts.get(name))}, not a mapping")
    config = config_in(Path(f"{where}, config"), parts["config"], _damaged)
    folder = run_path(path, config)
    where += f" ({folder.relative_to(path).as_posix()})"
    place = Path(f"{where}, summary")
    summary = summary_in(place, parts["summary"], _damaged)
    memory_classes_in(place, parts["summary"], _damaged)
    if summary.status != "done":
        raise _damaged(place, f"status is {summary.status}, not done")
    accuracy = accuracy_in(Path(f"{where}, accuracy"), parts["accuracy"], _damaged)
    if not consistent(summary, accuracy):
        raise _damaged(place, "its metrics are not those of the accuracies")
    place = Path(f"{where}, environment")
    environment = checked(place, Environment, parts["environment"], _damaged)
    parts["environment"] = environment.model_dump(exclude_unset=True)
    return RunRecord(folder, config, summary, parts=parts)


def _damaged(path: Path, what: str) -> UserError:
    return UserError(
        f"{path}: {what}; restore the file, or write a new one with `peerlearn results export`"
    )


def _place(config: Config) -> str:
    """Where a run is, in a file as in a folder."""
    return run_path(Path(), config).as_posix()


def add_runs(path: Path, runs: Iterable[RunRecord], *, replace: bool = False) -> Added:
    """Write runs that are done to a results file, beside those that it has; all or none of them.

    One that is there with the same accuracies stays as it is, as a table counts it once. One with
    others is refused. With `replace` the new one takes its place if any of its numbers differ. A
    crash at any moment leaves the old file whole.
    """
    before = _bytes(path)
    whole = {} if before is None else {_place(run.config): run for run in read_results(path)}
    given = _each_once(run for run in runs if run.done)
    there = {place: run for place, run in given.items() if place in whole}
    refused = {place: why for place in there if (why := _difference(whole[place], given[place]))}
    if refused and not replace:
        named = [f"{place} ({why})" for place, why in refused.items()][:MOST_NAMED]
        named += [f"{len(refused) - MOST_NAMED} more"] if len(refused) > MOST_NAMED else []
        raise UserError(
            f"{path}: has other numbers of {', '.join(named)}; nothing was written; leave these "
            "out, or take the new numbers with --replace"
        )
    other = {p for p, run in there.items() if p in refused or run.summary != whole[p].summary}
    taken = [p for p in given if p not in there or (replace and p in other)]
    if taken:
        exported = {place: _exported(given[place], path) for place in taken}
        _write(path, [*(whole | exported).values()], before)
    new, replaced = len(given) - len(there), len(other) if replace else 0
    return Added(new, replaced, len(there) - replaced, len(other) - replaced)


def _each_once(runs: Iterable[RunRecord]) -> dict[str, RunRecord]:
    """Runs by their places; two sources may have the same one, with the same numbers."""
    found: dict[str, RunRecord] = {}
    for run in runs:
        first = found.setdefault(_place(_handed_on(run.config)), run)
        if first is not run and (why := _difference(first, run)):
            raise UserError(
                f"{first.folder} and {run.folder} are the same run with different numbers ({why}); "
                "give only one of the two"
            )
    return found


def _difference(one: RunRecord, other: RunRecord) -> str:
    """What differs in the accuracies of two runs, in a few words; nothing if nothing does."""
    for name in {**one.metrics, **other.metrics}:
        values = one.metrics.get(name), other.metrics.get(name)
        if values[0] != values[1]:
            return f"{name} {values[0]} and {values[1]}"
    return "" if one.accuracy == other.accuracy else "in single accuracies"


def _exported(run: RunRecord, path: Path) -> RunRecord:
    """A run as a results file has it."""
    config = _handed_on(run.config)
    place = run.folder / "environment.json"
    environment = checked(place, Environment, run.environment).model_dump(exclude_unset=True)
    if isinstance(environment.get("command"), str):
        words = environment["command"].split(" ")
        environment["command"] = " ".join(map(_without_folders, words))
    parts = {
        "config": {"schema": SCHEMA, **config.model_dump()},
        "environment": _without_folders(environment),
        "accuracy": {"schema": ACCURACY_SCHEMA, **run.accuracy.model_dump(exclude_unset=True)},
        "summary": {name: v for name, v in run.part("summary").items() if name != "variant"},
    }
    return RunRecord(run_path(path, config), config, run.summary, parts=parts)


def _handed_on(config: Config) -> Config:
    """Settings that tell nothing of a machine's folders."""
    return Config.model_validate(_without_folders(config.model_dump()))


def _without_folders(value: Any) -> Any:
    r"""A value in which absolute paths, which tell of a machine, have become their last parts.

    >>> _without_folders(["--root=/home/me/data", "runs/core", "C:\\mine.py:Net"])
    ['--root=data', 'runs/core', 'mine.py:Net']
    """
    if isinstance(value, dict):
        return {name: _without_folders(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    return FOLDERS.sub("", value) if isinstance(value, str) else value


def _write(path: Path, runs: Sequence[RunRecord], before: bytes | None) -> None:
    ordered = sorted(
        runs,
        key=lambda r: (r.data, r.method, r.memory, variant_name(r.config.variant), r.seed),
    )
    lines = [json.dumps(without_nan(run.parts), separators=(",", ":")) for run in ordered]
    text = f'{{"schema":{RESULTS_SCHEMA},"runs":[\n' + ",\n".join(lines) + "\n]}\n"
    if len(lines) > MOST_RUNS or len(text) > MOST_BYTES:
        raise UserError(
            f"{path}: would have over {MOST_RUNS} runs or {MOST_BYTES} bytes; begin another file"
        )
    if _bytes(path) != before:
        raise UserError(f"{path}: somebody has just written to it; repeat the same command")
    try:
        replace_file(Path(os.path.realpath(path)), text, shared=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"{path}: cannot be written ({why}); choose another --out") from error


def _bytes(path: Path) -> bytes | None:
    """What a file holds, None if it is not there."""
    try:
        return read_bytes(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        raise _damaged(path, f"the file {error}") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(f"{path}: cannot be read ({why}); choose another --out") from error
