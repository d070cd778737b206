"""How the runs were made: settings with the origin of each value, and the environments."""

import json
from collections.abc import Sequence

from peerlearn.records.read import RunRecord
from peerlearn.report.markup import Child, Html, join, table, tag
from peerlearn.report.parts import count
from peerlearn.results.layout import NOTHING

IDENTITY = ("data", "method", "memory", "seed")
MOST_ROWS = 120  # of settings that differ; a page of few runs has no more
MOST_VALUES = 60  # of one setting
ALSO = ("method.name", "memory.size")  # say the same


def settings_tables(runs: Sequence[RunRecord]) -> Html:
    """The settings that differ between runs, then all of them."""
    names = sorted({name for run in runs for name in run.config.settings} - {*IDENTITY, *ALSO})
    names += ["fingerprint"]
    differing = [name for name in names if len({value(run, name) for run in runs}) > 1]
    by_setting: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        own = (run.data, run.method, str(run.memory))
        by_setting.setdefault((*own, *(value(run, name) for name in differing)), []).append(run)
    rows: list[list[Child]] = [
        [
            same[0].method,
            same[0].data,
            same[0].memory,
            some([str(run.seed) for run in same]),
            *(with_origin(same[0], name) for name in differing),
        ]
        for same in list(by_setting.values())[:MOST_ROWS]
    ]
    rest = len(by_setting) - len(rows)
    head: list[Child] = ["Method", "Data", "Memory", "Seeds", *differing]
    all_rows: list[list[Child]] = []
    for name in (*IDENTITY, *names):
        values = dict.fromkeys(value(run, name) for run in runs)
        origins = dict.fromkeys(run.config.origins.get(name, NOTHING) for run in runs)
        all_rows.append([name, tag("code", some([*values])), some([*origins])])
    return join(
        tag("h3", "What differs"),
        table(head, rows, label="Settings that differ between runs", class_="settings"),
        tag("p", f"{rest:,} more are in the config.yaml of each run.") if rest else None,
        tag(
            "details",
            tag("summary", f"All {count(len(all_rows), 'setting')}"),
            table(["Setting", "Value", "Origin"], all_rows, label="All settings"),
        ),
    )


def some(values: Sequence[str]) -> str:
    """Values in a line, not too many of them."""
    more = len(values) - MOST_VALUES
    return ", ".join(values) if more <= 0 else f"{', '.join(values[:MOST_VALUES])}, {more:,} more"


def value(run: RunRecord, name: str) -> str:
    """A setting as text."""
    if name in (*IDENTITY, "fingerprint"):
        return str(getattr(run.config, name))
    if name not in run.config.settings:
        return NOTHING
    setting = run.config.settings[name]
    return setting if isinstance(setting, str) else json.dumps(setting, default=str)


def with_origin(run: RunRecord, name: str) -> Html:
    """A value above the place that it came from."""
    origin = run.config.origins.get(name)
    shown = tag("span", origin, class_="origin") if origin else None
    return tag("td", tag("code", value(run, name)), shown)


def environment_tables(runs: Sequence[RunRecord], whole: Sequence[RunRecord]) -> Html:
    """Each environment that occurs, and the commands, of some of all runs."""
    kinds: dict[str, list[RunRecord]] = {}
    for run in runs:
        machine = {k: v for k, v in run.environment.items() if k != "command"}
        kinds.setdefault(json.dumps(machine, sort_keys=True, default=str), []).append(run)
    tables = []
    for same in kinds.values():
        rows: list[list[Child]] = [
            [name, (entry if isinstance(entry, str) else json.dumps(entry, default=str))]
            for name, entry in same[0].environment.items()
            if name != "command"
        ]
        used = count(len(same), "run")
        body = table(["Environment", used], rows, label=f"Environment of {used}")
        tables.append(body if len(kinds) == 1 else environment_box(same, used, body))
    made = [run.environment["command"] for run in runs if "command" in run.environment]
    commands = dict.fromkeys(map(str, made))
    lines = tag("pre", tag("code", "\n".join(commands)), tabindex=0) if commands else None
    part = f"Of {len(runs):,} of the {len(whole):,} runs, one of a series."
    return join(
        tag("h3", "Environment"),
        tag("p", part) if len(runs) < len(whole) else None,
        tables,
        tag("h3", "Commands") if lines else None,
        lines,
    )


def environment_box(same: Sequence[RunRecord], used: str, body: Html) -> Html:
    """One of several environments, to open."""
    methods = ", ".join(sorted({run.method for run in same}))
    return tag("details", tag("summary", f"{used}: {methods}"), body)
