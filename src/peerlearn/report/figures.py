"""Charts that compare: gains over baselines, accuracy over the stream, plasticity."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean

from peerlearn.metrics.table import EVERY, MAIN, SHOWN
from peerlearn.report.axes import LARGE, SMALL, Room
from peerlearn.report.charts import Line, line_chart
from peerlearn.report.forest import Interval, forest
from peerlearn.report.headline import means, tone
from peerlearn.report.looks import Looks
from peerlearn.report.markup import Child, Html, join, tag
from peerlearn.report.parts import figure, legend, named
from peerlearn.report.scatter import Cloud, scatter
from peerlearn.results.formats import number, points
from peerlearn.results.layout import NOTHING
from peerlearn.results.series import Group, Series

CROWD = 6  # named points that a plot of common width has room for


def gains(group: Group) -> Html | None:
    """A forest plot per metric: each wrapper against its baseline."""
    if not group.gains:
        return None
    there = {name for _, gain in group.gains for name in gain.metrics}
    names = [name for name in SHOWN if name in MAIN or name in there]
    return tag("div", [gain_figure(group, name) for name in names], class_="charts")


def gain_figure(group: Group, metric: str) -> Html:
    """The gains in one metric."""
    about, pairs = EVERY[metric], []
    for one, gain in group.gains:
        if metric in gain.metrics:
            pairs.append((one, gain, gain.metrics[metric]))
    shown = [
        Interval(
            one.name,
            100 * pair.difference,
            None if pair.low is None else 100 * pair.low,
            None if pair.high is None else 100 * pair.high,
            number(100 * pair.difference, "+.1f"),
            tone(metric, pair),
        )
        for one, _, pair in pairs
    ]
    caption = f"{metric}, {about.direction}: {group.name}"
    if not shown:
        return tag("p", f"{metric}: not defined", class_="hint")
    image = forest(
        shown,
        title=f"Gain in {metric} over the baseline, {group.name}",
        desc="; ".join(f"{row.name} {row.text}" for row in shown),
        unit=f"points of {metric} over its baseline",
    )
    rows: list[list[Child]] = []
    for one, gain, pair in pairs:
        before, after = (number(value, ".1f") for value in means(one, gain, metric))
        p = NOTHING if pair.p is None else f"{pair.p:.2g}"
        rows.append([one.name, gain.baseline.name, before, after, points(pair), p, pair.n])
    head = ["Method", "Baseline", "From %", "To %", "Difference", "p", "n"]
    return figure(image, head, rows, caption=caption)


def over_stream(group: Group, looks: Looks) -> Html | None:
    """AA after each task: all series in one chart, then each method with what builds on it."""
    lines = {one.name: line for one in group.series if (line := stream_line(one, looks))}
    if not lines:
        return None
    chances = [[(k + 1.0, 100 * c) for k, c in enumerate(curve)] for curve in group.chances]
    image = line_chart(
        list(lines.values()),
        title=f"Accuracy over the stream, {group.name}",
        desc="; ".join(f"{ln.name} ends at {ln.points[-1][1]:.1f} %" for ln in lines.values()),
        room=LARGE,
        chances=chances,
        names=True,
        x_label="after task",
        y_label="AA in %",
    )
    tasks = max(len(line.points) for line in lines.values())
    head = ["Method", *(f"Task {i + 1}" for i in range(tasks))]
    curves = [(line.name, line.points) for line in lines.values()]
    curves += [("chance", points) for points in chances]
    rows = [[name, *(f"{y:.1f}" for _, y in points)] for name, points in curves]
    padded = [row + [NOTHING] * (tasks + 1 - len(row)) for row in rows]
    whole = figure(image, head, padded, caption=f"AA in %, {group.name}")
    return join(whole, multiples(group, lines, chances, looks))


def stream_line(one: Series, looks: Looks) -> Line | None:
    """The mean over seeds, with the band from the worst to the best."""
    curves = [run.accuracy_over_stream for run in one.drawn]
    steps = list(zip(*curves, strict=False))
    if not steps:
        return None
    band = [(i + 1.0, 100 * min(s), 100 * max(s)) for i, s in enumerate(steps)]
    points = [(i + 1.0, 100 * fmean(step)) for i, step in enumerate(steps)]
    return Line(named(one), looks[one.name], points, band if len(curves) > 1 else ())


def multiples(
    group: Group, lines: Mapping[str, Line], chances: Sequence[Sequence[tuple[float, float]]],
    looks: Looks,
) -> Html | None:  # fmt: skip
    """A small chart per method with its wrappers and variants, all with the same axes."""
    drawn = [one for one in group.series if one.name in lines]
    families = [(base, list(some)) for base, some in groupby(drawn, lambda one: one.base)]
    if len(families) < 2:
        return None
    among = [y for line in lines.values() for _, y in line.points]
    among += [y for line in lines.values() for _, *ends in line.band for y in ends]
    items = []
    for base, some in families:
        image = line_chart(
            [lines[one.name] for one in some],
            title=f"Accuracy over the stream of {base} and what builds on it, {group.name}",
            desc="The same lines as in the chart above, on the same axes.",
            x_label="after task",
            y_label="",
            room=SMALL,
            chances=chances,
            among=among,
        )
        names = legend({one.name: looks[one.name] for one in some})
        caption = tag("figcaption", base)
        items.append(tag("figure", caption, names, image, class_="multiple"))
    return tag("div", items, class_="multiples")


def plasticity(group: Group, looks: Looks, *, seeds: bool = True) -> Html | None:
    """LA against RF, and against FM: a named point per series, small ones for its runs."""
    figures = [against(group, looks, name, seeds=seeds) for name in ("RF", "FM")]
    return join(figures) if any(figures) else None


def against(group: Group, looks: Looks, metric: str, *, seeds: bool) -> Html | None:
    """LA against one measure of forgetting."""
    found = {one.name: cloud for one in group.series if (cloud := cloud_of(one, looks, metric))}
    if not found:
        return None
    for one, gain in group.gains:
        if one.name in found and gain.baseline.name in found:
            start = found[gain.baseline.name].middle
            found[one.name] = found[one.name]._replace(start=start)
    rows: list[list[Child]] = []
    for one in group.series if seeds else ():
        rows += [
            [one.name, run.seed, f"{100 * la:.1f}", number(100 * lost, ".1f")]
            for run in one.done
            if (la := run.metrics.get("LA")) is not None
            and (lost := run.metrics.get(metric)) is not None
        ]
    if not seeds:
        for name, cloud in found.items():
            means_of = [number(value, ".1f") for value in cloud.middle]
            rows.append([name, f"mean of {len(cloud.runs)}", *means_of])
        found = {name: cloud._replace(runs=()) for name, cloud in found.items()}
    caption = f"LA and {metric} in %, {group.name}"
    image = scatter(
        list(found.values()),
        title=f"Plasticity against stability by {metric}, {group.name}",
        desc=f"{len(found)} methods; to the right they learn more, further up they forget less.",
        x_label="LA in %: learns more →",
        y_label=f"{metric} in %: forgets less →",
        room=Room(height=360) if len(found) <= CROWD else Room(width=700, height=440),
    )
    return figure(image, ["Method", "Seed", "LA %", f"{metric} %"], rows, caption=caption)


def worth(group: Group, looks: Looks, *, seeds: bool = True) -> Html | None:
    """AA against the images that networks are shown: what accuracy costs."""
    found = {one.name: cloud for one in group.series if (cloud := _priced(one, looks))}
    if len(found) < 2:
        return None
    for one, gain in group.gains:
        if one.name in found and gain.baseline.name in found:
            start = found[gain.baseline.name].middle
            found[one.name] = found[one.name]._replace(start=start)
    rows: list[list[Child]] = [
        [name, f"{cloud.middle[0]:.1f}", f"{cloud.middle[1]:.1f}"] for name, cloud in found.items()
    ]
    if not seeds:
        found = {name: cloud._replace(runs=()) for name, cloud in found.items()}
    image = scatter(
        list(found.values()),
        title=f"Accuracy against cost, {group.name}",
        desc=f"{len(found)} methods; to the left they cost less, further up they know more.",
        x_label="images forward and twice backward, per stream image: costs more →",
        y_label="AA in %: knows more →",
        room=Room(height=360) if len(found) <= CROWD else Room(width=700, height=440),
        cost=True,
    )
    head = ["Method", "Forward and twice backward", "AA %"]
    return figure(image, head, rows, caption=f"AA and cost, {group.name}")


def _priced(one: Series, looks: Looks) -> Cloud | None:
    """The point of a series at its cost; a backward pass takes about as long as two forward."""
    known = [
        (run, run.cost.forward_per_image + 2 * run.cost.backward_per_image, run.metrics.get("AA"))
        for run in one.done
        if run.cost.forward_per_image is not None and run.cost.backward_per_image is not None
    ]
    runs = [
        (f"{one.name}, seed {run.seed}: {100 * aa:.1f}", cost, 100 * aa)
        for run, cost, aa in known
        if aa is not None
    ]
    if not runs:
        return None
    middle = (fmean(x for _, x, _ in runs), fmean(y for _, _, y in runs))
    return Cloud(one.name, looks[one.name], middle, runs)


def cloud_of(one: Series, looks: Looks, metric: str) -> Cloud | None:
    """The point of a series, with those of its runs."""
    la, lost = one.values("LA"), one.values(metric)
    runs = [
        (f"{one.name}, seed {seed}: {100 * la[seed]:.1f}, {100 * lost[seed]:.1f}",
         100 * la[seed], 100 * lost[seed])
        for seed in la if seed in lost
    ]  # fmt: skip
    if not runs:
        return None
    middle = (fmean(x for _, x, _ in runs), fmean(y for _, _, y in runs))
    return Cloud(one.name, looks[one.name], middle, runs)
