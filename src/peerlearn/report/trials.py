"""Charts of a search for settings: AA trial by trial, and over the values of one setting."""

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from peerlearn.records.schema import LARGEST
from peerlearn.records.study import Range, Searched, Study, Trial
from peerlearn.report.axes import (
    Axis,
    Room,
    frame,
    horizontal,
    log_ticks,
    nice_ticks,
    thin,
    vertical,
)
from peerlearn.report.charts import mark, path, size, svg
from peerlearn.report.labels import cut
from peerlearn.report.looks import Look
from peerlearn.report.markup import Child, Html, join, raw, short, tag
from peerlearn.report.parts import count, figure
from peerlearn.units import percent

RESULT = Look(0, 0, wrapped=False)  # a circle
BEST = Look(1, 1, wrapped=True)  # a diamond
STOPPED = Look(2, 7, wrapped=True, rank=2)  # a triangle
UNDER_WAY = Look(3, 5, wrapped=False, rank=1)  # a hollow circle
FAILED = "c3"
MOST_POINTS = 1000  # of a chart; of more trials every n-th is drawn
CROWD = 300  # points that are drawn at full size
MOST_TIPS = 250  # points of a slice that tell their numbers; of more the page would grow too long
MOST_COLUMNS = 10  # values of a setting that is no number
LOG_FROM = 50.0  # a setting that spans more than this factor is drawn on a log axis
LONGEST_VALUE = 60  # letters
BINS = 5  # ranges of numbers in the table below a slice
HISTORY = Room(width=600, height=350, right=16)
SLICE = Room(width=288, height=208, left=36, right=8, top=10, bottom=44)
ROW = 26  # pixels for a kind of trial without an AA
GAP = 12  # between them and the axis


def text_of(value: Any, digits: int = 4, longest: int = LONGEST_VALUE) -> str:
    """A setting's value in a few letters.

    >>> text_of(0.000123456), text_of(True), text_of([1, "a"]), text_of(None)
    ('0.0001235', 'true', '1, a', 'none')
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, int | float):
        text = str(value) if isinstance(value, int) else f"{value:.{digits}g}"
        return cut(text, longest)  # with a plain minus: people copy it into a command
    if isinstance(value, list):
        return cut(", ".join(text_of(part, digits) for part in value), longest)
    return cut(json.dumps(value) if isinstance(value, dict) else str(value), longest)


def numeric(value: Any) -> bool:
    """Whether a value has a place on an axis."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= LARGEST


def cross(x: float, y: float, r: float = 4, tip: str | None = None) -> Html:
    """A trial that failed."""
    a, b, c, d = (short(v) for v in (x - r, x + r, y - r, y + r))
    way = raw(f"M{a},{c}L{b},{d}M{a},{d}L{b},{c}")
    return tag("path", d=way, class_=f"cross {FAILED}", data_tip=tip)


def sample(shape: Html, name: str) -> Html:
    """An entry of a legend: a shape at (9, 8), and what it means."""
    image = tag("svg", shape, viewBox="0 0 18 16", aria_hidden="true")
    return tag("li", tag("span", image, tag("span", name), class_="key"))


def some(trials: Sequence[Trial], best: int | None) -> list[Trial]:
    """The trials that a chart draws: all, or every n-th and the best."""
    step = math.ceil(len(trials) / MOST_POINTS) or 1
    return [trial for k, trial in enumerate(trials) if k % step == 0 or trial.number == best]


def history(study: Study) -> Html | None:
    """AA by trial number, the best so far as a line; below it the trials that have no AA."""
    trials = sorted(study.trials, key=lambda trial: trial.number)
    valued = [trial for trial in trials if trial.value is not None]
    if not valued:
        return None
    kinds = [("pruned", "stopped"), ("failed", "failed"), ("running", "running")]
    without = {s: [t for t in trials if t.value is None and t.state == s] for s, _ in kinds}
    rows = [(state, name) for state, name in kinds if without[state]]
    strip = GAP + ROW * len(rows) if rows else 0
    room = HISTORY._replace(height=HISTORY.height + strip)
    ends = trials[0].number, trials[-1].number
    x = Axis(ends[0] - 0.5, ends[1] + 0.5, room.left + 10, room.width - room.right,
             _whole_ticks(*ends), "trial")  # fmt: skip
    values = [100 * (trial.value or 0) for trial in valued]
    y = vertical(nice_ticks(min(values), max(values)), "AA in %", room)
    y = y._replace(start=room.floor - strip)
    strips = [
        _strip(name, [(t, x.at(t.number)) for t in some(without[state], None)],
               y.start + GAP + ROW * (k + 0.5), room)
        for k, (state, name) in enumerate(rows)
    ]  # fmt: skip
    steps = best_so_far(valued)
    drawn = some(valued, study.best)
    dot = 4.0 if len(drawn) <= CROWD else 3.0
    image = svg(
        frame(x, y, room),
        strips,
        _best_line(steps, x, y, ends[1]),
        [_point(t, x.at(t.number), y, dot, t.number == study.best) for t in drawn],
        title="AA by trial",
        desc=_history_words(valued, steps),
        room=room,
        class_=size(room),
    )
    table: list[list[Child]] = [[f"trial {t.number}", percent(t.value)] for t in steps]
    caption = "AA in % by trial"
    if len(drawn) < len(valued):
        caption += f", {len(drawn)} of {len(valued)} trials drawn"
    return figure(image, ["Best so far", "AA %"], table, caption=caption)


def best_so_far(trials: Sequence[Trial]) -> list[Trial]:
    """The finished trials that were better than all before them."""
    found: list[Trial] = []
    for trial in trials:
        finished = trial.state == "done" and trial.value is not None
        if finished and (not found or (trial.value or 0) > (found[-1].value or 0)):
            found.append(trial)
    return found


def _history_words(valued: Sequence[Trial], steps: Sequence[Trial]) -> str:
    said = f"{count(len(valued), 'trial')} with an AA"
    if not steps:
        return f"{said}."
    first, last = steps[0], steps[-1]
    return (
        f"{said}; the best so far is {percent(first.value)} % from trial {first.number} and "
        f"{percent(last.value)} % from trial {last.number} on."
    )


def _whole_ticks(low: int, high: int) -> tuple[float, ...]:
    ticks = nice_ticks(low, high, 8) if high > low else (float(low),)
    return tuple(t for t in ticks if t % 1 == 0 and low <= t <= high) or (float(low),)


def _best_line(steps: Sequence[Trial], x: Axis, y: Axis, last: int) -> Html | None:
    points: list[tuple[float, float]] = []
    for trial in steps:
        at = x.at(trial.number), y.at(100 * (trial.value or 0))
        points += [(at[0], points[-1][1])] if points else []
        points.append(at)
    if not points:
        return None
    points.append((x.at(last), points[-1][1]))
    style = f"curve {BEST.line}"
    return tag("polyline", points=path(points), class_=style, data_tip="best so far")


def _strip(name: str, trials: Sequence[tuple[Trial, float]], y: float, room: Room) -> Html:
    """A row of trials that have no place on the axis of AA."""
    line = tag("line", x1=room.left, x2=room.width - room.right, y1=y, y2=y, class_="strip")
    word = tag("text", name, x=room.left - 8, y=y, dy="0.34em", text_anchor="end")
    return join(line, word, [shape(trial, x, y) for trial, x in trials])


def shape(trial: Trial, x: float, y: float, dot: float = 4.0) -> Html:
    """The mark of a trial, by how it ended."""
    tip = f"trial {trial.number}: {said_of(trial)}"
    if trial.state == "failed":
        return cross(x, y, dot, tip)
    look = {"pruned": STOPPED, "running": UNDER_WAY}.get(trial.state, RESULT)
    return mark(look, x, y, size=dot, tip=tip)


def said_of(trial: Trial) -> str:
    """What came of a trial, in a few words."""
    if trial.value is not None:
        return f"{percent(trial.value)} %" + (", stopped" if trial.state == "pruned" else "")
    words = {"pruned": "stopped", "done": "done without an AA"}
    return f"{words.get(trial.state, trial.state)} {reached(trial)}".strip()


def reached(trial: Trial) -> str:
    """How far a trial has come."""
    if not trial.running:
        return ""
    return f"after task {len(trial.running)}, at {percent(trial.running[-1])} %"


def _point(trial: Trial, x: float, y: Axis, dot: float, best: bool) -> Html:
    height = y.at(100 * (trial.value or 0))
    if best:
        return mark(BEST, x, height, size=6.5, tip=f"trial {trial.number}: {said_of(trial)}, best")
    return shape(trial, x, height, dot)


# one setting


def slice_chart(name: str, searched: Searched, study: Study) -> Html | None:
    """AA over the values of a setting, for the trials that have it and an AA."""
    having = [t for t in study.trials if t.value is not None and name in t.settings]
    if not having:
        return None
    ys = [100 * (t.value or 0) for t in study.trials if t.value is not None]  # the same for all
    y = vertical(nice_ticks(min(ys), max(ys), 4), "", SLICE)
    numbers = all(numeric(trial.settings[name]) for trial in having)
    if numbers:
        x = number_axis([float(t.settings[name]) for t in having], searched)
        at = {t.number: x.at(t.settings[name]) for t in having}
        under, heads, rows = frame(x, y, SLICE), "Values", _ranges(name, having, x.log)
    else:
        columns = _columns(name, having)
        at = _places(columns)
        x = Axis(0, 1, SLICE.left, SLICE.width - SLICE.right, ())
        under = join(frame(x, y, SLICE), _column_names(list(columns)))
        heads, rows = "Value", [_row(value, found) for value, found in columns.items()]
    drawn = [t for t in some(having, study.best) if t.number in at]
    top = max(having, key=lambda trial: trial.value or 0)
    best = f"the highest AA, {percent(top.value)} %, at {text_of(top.settings[name])}"
    image = svg(
        under,
        _points(drawn, at, y, name, study.best),
        title=f"AA over {name}",
        desc=f"{count(len(having), 'trial')}; {best}.",
        room=SLICE,
        class_=size(SLICE),
    )
    valued = sum(trial.value is not None for trial in study.trials)
    caption = name if len(having) == valued else f"{name} ({len(having)} of {valued} trials)"
    hidden = 0 if numbers else len(having) - len(at)
    caption += f", {count(hidden, 'trial')} of other values not drawn" if hidden else ""
    return figure(image, [heads, "Trials", "Mean AA %", "Best AA %"], rows, caption=caption)


def number_axis(values: Sequence[float], searched: Searched) -> Axis:
    """The axis of a setting: what was searched, and what was tried."""
    edges = [searched.low, searched.high] if isinstance(searched, Range) else searched
    span = [*values, *(float(edge) for edge in edges if numeric(edge))]
    low, high = min(span), max(span)
    wide = low > 0 and high > LOG_FROM * low
    log = low > 0 and (wide or (isinstance(searched, Range) and searched.log))
    if log and high > low:
        ticks = _log_ticks(low, high)
        axis = horizontal(ticks, "log scale", SLICE)._replace(log=True)
        # no further than what was searched: a whole decade would be empty
        axis = axis._replace(low=low, high=high)
        return axis._replace(ticks=_few(t for t in ticks if low * 0.999 <= t <= high * 1.001))
    ticks = _ticks(low, high)
    return horizontal(ticks, "", SLICE)._replace(ticks=_few(ticks))


def _few(ticks: Any) -> tuple[float, ...]:
    return tuple(thin(list(ticks), 5))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    if low >= 1e-8:  # below, their rounding would leave nothing
        return log_ticks(low, high)
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return tuple(10.0**e for e in range(first, last + 1)) or (low, high)


def _ticks(low: float, high: float) -> tuple[float, ...]:
    largest = max(abs(low), abs(high))
    if high - low <= 1e-9 * largest:  # one value, as far as an axis can tell
        return (low - (abs(low) * 0.1 or 1.0), low, low + (abs(low) * 0.1 or 1.0))
    return nice_ticks(low, high, 4) if largest >= 1e-8 else (low, high)


def _columns(name: str, having: Sequence[Trial]) -> Mapping[str, list[Trial]]:
    """The trials by the value of a setting; the values of the best trials if there are many."""
    found: dict[str, list[Trial]] = {}
    for trial in sorted(having, key=lambda t: (-(t.value or 0), t.number)):
        found.setdefault(text_of(trial.settings[name]), []).append(trial)
    kept = list(found)[:MOST_COLUMNS]
    return {value: found[value] for value in sorted(kept)}


def _middle(k: int, columns: int) -> float:
    width = SLICE.width - SLICE.left - SLICE.right
    return SLICE.left + width * (k + 0.5) / columns


def _places(columns: Mapping[str, list[Trial]]) -> dict[int, float]:
    """Where each trial stands: in its column, by turns a little aside, so that none hides all."""
    width = (SLICE.width - SLICE.left - SLICE.right) / len(columns)
    places = {}
    for k, trials in enumerate(columns.values()):
        for n, trial in enumerate(sorted(trials, key=lambda t: t.number)):
            aside = (n * 0.618) % 1 - 0.5 if len(trials) > 1 else 0.0
            places[trial.number] = _middle(k, len(columns)) + aside * min(width * 0.5, 40)
    return places


def _column_names(names: Sequence[str]) -> list[Html]:
    letters = max(3, int((SLICE.width - SLICE.left - SLICE.right) / len(names) / 6.6))
    return [
        tag("text", cut(name, letters), x=_middle(k, len(names)), y=SLICE.floor + 18,
            text_anchor="middle", data_tip=name if len(name) > letters else None)
        for k, name in enumerate(names)
    ]  # fmt: skip


def _points(
    trials: Sequence[Trial], at: Mapping[int, float], y: Axis, name: str, best: int | None
) -> Html:
    """Circles in one group, which keeps a page of many trials small; the others, and the best."""
    tips = len(trials) <= MOST_TIPS
    circles: list[Html] = []
    others: list[Html] = []
    for trial in trials:
        place, height = round(at[trial.number], 1), round(y.at(100 * (trial.value or 0)), 1)
        said = f"trial {trial.number}: {text_of(trial.settings[name])}, {said_of(trial)}"
        if trial.number == best:
            others.append(mark(BEST, place, height, size=5.5, tip=f"{said}, best"))
        elif trial.state == "done":
            tip = said if tips else None
            circles.append(tag("circle", cx=place, cy=height, r=3.5, data_tip=tip))
        else:
            others.insert(0, mark(STOPPED, place, height, size=3.5, tip=said))
    return join(tag("g", circles, class_=f"points c{RESULT.colour}"), others)


def _row(value: str, trials: Sequence[Trial]) -> list[Child]:
    values = [trial.value or 0 for trial in trials]
    return [value, len(trials), percent(fmean(values)), percent(max(values))]


def _ranges(name: str, having: Sequence[Trial], log: bool) -> list[list[Child]]:
    """The rows of a setting of numbers: its values if they are few, else ranges of them."""
    ordered = sorted(having, key=lambda trial: trial.settings[name])
    by_value: dict[float, list[Trial]] = {}
    for trial in ordered:
        by_value.setdefault(float(trial.settings[name]), []).append(trial)
    if len(by_value) <= 2 * BINS:
        return [_row(text_of(value), trials) for value, trials in by_value.items()]
    low, high = next(iter(by_value)), list(by_value)[-1]
    way = (lambda v: math.log(v)) if log else (lambda v: v)
    bins: dict[int, list[Trial]] = {}
    for trial in ordered:
        share = (way(float(trial.settings[name])) - way(low)) / ((way(high) - way(low)) or 1)
        bins.setdefault(min(BINS - 1, int(share * BINS)), []).append(trial)
    return [
        _row(f"{text_of(part[0].settings[name])} to {text_of(part[-1].settings[name])}", part)
        for part in bins.values()
    ]
