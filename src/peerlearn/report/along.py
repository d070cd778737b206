"""Accuracy along the stream, inside tasks too: on test images, and on what is about to be learnt.

Points come from the logs of runs, so that runs of a results file have no curve.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from peerlearn.records.read import RunRecord
from peerlearn.report.axes import LARGE
from peerlearn.report.charts import Line, line_chart
from peerlearn.report.details import QUARTERS
from peerlearn.report.looks import Looks
from peerlearn.report.markup import Child, Html, join
from peerlearn.report.panel_parts import said
from peerlearn.report.panels import MOST_MARKS, thinned
from peerlearn.report.parts import figure, listed, named
from peerlearn.results.along import Way, in_words
from peerlearn.results.formats import number
from peerlearn.results.layout import NOTHING
from peerlearn.results.series import Group, Series

MOST_POINTS = 120  # of a line
ROOM = LARGE._replace(height=340, right=190)


class Measure(NamedTuple):
    """What is drawn over the stream.

    Args:
        part: of a point.
        metric: that sums it up.
        title: in words.
        how: of `Summary.along`, what must agree.
        words: what to say of that.
    """

    part: str
    metric: str
    title: str
    how: tuple[str, ...]
    words: Callable[[Way], str]

    def of(self, run: RunRecord) -> dict[int, float]:
        """Its values by images of the stream."""
        points = [] if run.answer else run.points  # those of the one that the run itself chose
        found = {point.images: getattr(point, self.part) for point in points}
        return {images: value for images, value in found.items() if value is not None}


def _window(way: Way) -> str:
    (size,) = way
    return "" if size is None else f"over the last {size:,.0f} images"


MEASURES = (
    Measure("pool", "A_AUC", "Accuracy on all classes met so far", ("every", "probe"), in_words),
    Measure("recent", "prequential", "Prequential accuracy", ("window",), _window),
)


class Step(NamedTuple):
    """The values of all seeds after so many images, in percent."""

    images: float
    mean: float
    low: float
    high: float


class Course(NamedTuple):
    """A measure of a series over the stream. way: how all of its seeds were evaluated."""

    series: Series
    way: Way
    seeds: int
    steps: list[Step]


def along(group: Group, looks: Looks) -> Html | None:
    """Each measure that some series has, with what sums it up beside the names."""
    ends = task_ends(group)
    found = [
        _figure(group, looks, measure, courses, ends)
        for measure in MEASURES
        if (courses := [c for one in group.series if (c := course(one, measure))])
    ]
    return join(found) if found else None


def course(one: Series, measure: Measure) -> Course | None:
    """The course of a series where all its seeds have points; None if they were had unlike."""
    runs = [(run.summary.along, values) for run in one.drawn if (values := measure.of(run))]
    ways = {tuple(along.get(name) for name in measure.how) for along, _ in runs}
    if len(ways) != 1:
        return None
    steps = []
    for images in sorted(set.intersection(*(set(values) for _, values in runs))):
        at = [100 * values[images] for _, values in runs]
        steps.append(Step(images, fmean(at), min(at), max(at)))
    return Course(one, ways.pop(), len(runs), steps) if steps else None


def task_ends(group: Group) -> Sequence[int]:
    """After how many images tasks end, if that is the same for all that is drawn."""
    found = {_ends(run) for one in group.series for run in one.drawn}
    longest = max(found, key=len, default=())
    alike = all(longest[: len(ends)] == ends for ends in found)
    return longest if alike and len(longest) <= MOST_MARKS else ()


def _ends(run: RunRecord) -> tuple[int, ...]:
    last = {line.task: line.images for line in run.probes if line.images is not None}
    return tuple(last.values())[: len(run.matrix)]


def _figure(
    group: Group, looks: Looks, measure: Measure, courses: Sequence[Course], ends: Sequence[int]
) -> Html:
    lines = [_line(one, measure, looks) for one in courses]
    image = line_chart(
        lines,
        title=f"{measure.title} along the stream, {group.name}",
        desc=f"{'; '.join(_described(line, measure) for line in lines)}{_told(ends)}.",
        x_label="images of the stream",
        y_label="accuracy in %",
        room=ROOM,
        names=True,
        values=f"{measure.metric} in %",
        ends=ends,
    )
    ways = {one.way for one in courses}
    where = measure.words(ways.pop()) if len(ways) == 1 else ""
    caption = ", ".join(filter(None, (f"{measure.title} in %", where, group.name)))
    drawn = [one.series.label for one in courses]
    left = [one.name for one in group.series if one.drawn and one.label not in drawn]
    why = f"Not drawn: {listed(left)}, without such points or not evaluated alike in all seeds."
    head = ["Method", f"{measure.metric} %", "first", "after 1/4", "after 1/2", "after 3/4", "last"]
    rows = [_numbers(one, measure) for one in courses]
    return figure(join(image, said(why if left else "")), head, rows, caption=caption)


def _line(one: Course, measure: Measure, looks: Looks) -> Line:
    kept = {x for x, _ in thinned([(step.images, step.mean) for step in one.steps], MOST_POINTS)}
    steps = [step for step in one.steps if step.images in kept]
    band = [(step.images, step.low, step.high) for step in steps] if one.seeds > 1 else []
    sum_ = one.series.spread(measure.metric)
    return Line(
        named(one.series),
        looks[one.series.name],
        [(step.images, step.mean) for step in steps],
        band,
        marks=False,
        value=number(100 * sum_.mean, ".1f") if sum_ else "",
    )


def _described(line: Line, measure: Measure) -> str:
    total = f"has {measure.metric} {line.value} % and " if line.value else ""
    return f"{line.name} {total}ends at {line.points[-1][1]:.1f} %"


def _told(ends: Sequence[int]) -> str:
    return f"; tasks end after {listed([f'{end:,}' for end in ends])} images" if ends else ""


def _numbers(one: Course, measure: Measure) -> list[Child]:
    total = one.series.spread(measure.metric)
    deviation = f" ± {100 * total.std:.1f}" if total and total.std is not None else ""
    at = [one.steps[round(q * (len(one.steps) - 1))].mean for q in QUARTERS]
    shown = f"{100 * total.mean:.1f}{deviation}" if total else NOTHING
    return [named(one.series), shown, *(f"{value:.1f}" for value in at)]
