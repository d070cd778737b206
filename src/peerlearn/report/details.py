"""Charts of single series: accuracy matrices, memory, losses and cost."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from peerlearn.records.read import RunRecord
from peerlearn.records.schema import Matrix
from peerlearn.report.bars import bar_chart, stacked_bars
from peerlearn.report.charts import Line, line_chart
from peerlearn.report.heat import heat_map
from peerlearn.report.looks import Looks
from peerlearn.report.markup import Child, Html, join, tag
from peerlearn.report.parts import figure, named, ramp, tabs
from peerlearn.results.series import Group, Series

BINS = 120  # points of a loss curve; each is the mean of what lies in its bin
MANY_CLASSES = 20  # above this, the memory is shown by task instead of by class
WIDE_MATRIX = 8  # tasks; larger matrices get more room
MOST_TASKS = 200  # that a chart can show
MOST_CHARTS = 24  # of losses
LOG_FROM = 20.0  # a loss that spans more than this factor is drawn on a log axis
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def mean_matrix(series: Series) -> Matrix:
    """The mean accuracy matrix, as far as every drawn run has got."""
    matrices = [run.matrix for run in series.drawn]
    rows = [list(zip(*parts, strict=True)) for parts in zip(*matrices, strict=False)]
    return tuple(tuple(fmean(cell) for cell in row) for row in rows)


def mean_memory(series: Series) -> list[list[float]]:
    """Stored images per task and class slot, mean over the drawn runs."""
    kept = [run.memory_classes for run in series.drawn]
    rows = zip(*(stored for stored in kept if stored), strict=False)
    return [[sum(slot) / len(slot) for slot in zip(*row, strict=False)] for row in rows]


def matrices(group: Group, ids: Iterator[int], *, seeds: bool = True) -> Html | None:
    """A heat map per method: the mean over seeds, and, if `seeds`, each seed to choose."""
    shown = [series for series in group.series if series.drawn]
    if not shown:
        return None
    top = max(a for s in shown for run in s.drawn for row in run.matrix for a in row)
    room = max(len(run.matrix) for s in shown for run in s.drawn)
    if room > MOST_TASKS:
        return too_many(room)
    items = []
    for series in shown:
        panels = []
        if len(series.drawn) > 1:
            mean = matrix_figure(mean_matrix(series), top, room, f"{named(series)}, mean")
            panels.append(("Mean", mean))
        for run in series.drawn if seeds or not panels else ():
            name = f"{named(series)}, seed {run.seed}"
            image = join(matrix_figure(run.matrix, top, room, name, run), class_list(run))
            panels.append((f"Seed {run.seed}", image))
        body = tabs(panels, label=f"Seed of {named(series)}", ids=ids)
        items.append(tag("div", tag("h4", named(series)), body, class_="card"))
    style = "cards wide" if room > WIDE_MATRIX else "cards"
    return join(ramp("0 %", f"{100 * top:.0f} %"), tag("div", items, class_=style))


def matrix_figure(
    matrix: Matrix, top: float, room: int, name: str, run: RunRecord | None = None
) -> Html:
    """One matrix with its numbers."""
    last = matrix[-1]
    image = heat_map(
        matrix,
        top=top,
        room=room,
        title=f"Accuracy matrix of {name}",
        desc=f"After task {len(matrix)} the accuracy on task 1 is {100 * last[0]:.1f} % "
        f"and on the newest task {100 * last[-1]:.1f} %.",
    )
    rows: list[list[Child]] = [
        [f"after {i + 1}", *(f"{100 * a:.1f}" for a in row), *[""] * (len(matrix) - i - 1)]
        for i, row in enumerate(matrix)
    ]
    heads = [f"Task {j + 1}" for j in range(len(matrix))]
    if run and run.accuracy.class_names:
        heads = [f"{head}: {run.classes_of(j)}" for j, head in enumerate(heads)]
    head = ["Accuracy %", *heads]
    return figure(image, head, rows, caption=f"Accuracy in %, {name}", hide_caption=True)


def class_list(run: RunRecord) -> Html | None:
    """Which classes each task of a run brings; their order comes from the seed."""
    tasks = [run.classes_of(i) for i in range(len(run.matrix))]
    if not any(tasks):
        return None
    items = tag("ol", [tag("li", names) for names in tasks])
    return tag("details", tag("summary", "Classes of the tasks"), items)


def memory(group: Group) -> Html | None:
    """The composition of the memory after each task, one chart per method."""
    items = []
    for series in group.series:
        bars = mean_memory(series)
        if not any(map(any, bars)) or series.drawn[0].accuracy.task_sizes:
            continue  # tasks that differ in size differ from seed to seed: there is no mean of them
        parts, slots = max(1, series.drawn[0].accuracy.classes_per_task), len(bars[0])
        if max(len(bars), slots // parts) > MOST_TASKS:
            items.append(too_many(max(len(bars), slots // parts)))
            continue
        if slots > MANY_CLASSES:
            bars = [by_task(bar, parts) for bar in bars]
            names = [f"task {t + 1}" for t in range(len(bars[0]))]
            parts = 1
        else:
            names = slot_names(series, slots)
        image = stacked_bars(
            bars,
            names=names,
            parts=parts,
            title=f"Memory composition of {named(series)}, {group.name}",
            desc=f"At the end {sum(bars[-1]):g} images of {sum(n > 0 for n in bars[-1])} "
            f"{'tasks' if len(bars[-1]) > MANY_CLASSES or parts == 1 else 'classes'}.",
        )
        rows = [[name, *(f"{bar[k]:g}" for bar in bars)] for k, name in enumerate(names)]
        head = ["Images of", *(f"after task {t + 1}" for t in range(len(bars)))]
        items.append(figure(image, head, rows, caption=named(series)))
    return tag("div", items, class_="charts") if items else None


def too_many(tasks: int) -> Html:
    """What to say instead of a chart."""
    return tag("p", f"There are {tasks} tasks, more than the {MOST_TASKS} that can be drawn.")


def slot_names(series: Series, slots: int) -> list[str]:
    """Class names where all seeds agree on them, else the place in the class order."""
    names = []
    for slot in range(slots):
        orders = [run.accuracy.class_names for run in series.drawn]
        own = {order[slot] for order in orders if slot < len(order)}
        task = slot // max(1, series.drawn[0].accuracy.classes_per_task) + 1
        name = own.pop() if len(own) == 1 else f"class {slot + 1}"
        names.append(f"{name} (task {task})")
    return names


def by_task(bar: Sequence[float], parts: int) -> list[float]:
    """The sums of neighbouring slots."""
    return [sum(bar[k : k + parts]) for k in range(0, len(bar), parts)]


def losses(group: Group, looks: Looks) -> Html | None:
    """One chart per loss name, the curves smoothed by binning."""
    steps = [step for s in group.series for run in s.drawn for step in run.steps]
    names = list(dict.fromkeys(name for step in steps for name in step.losses))
    end = max((step.batch for step in steps), default=0) + 1
    items = []
    for name in names[:MOST_CHARTS]:
        curves = [(s, binned(s, name, end)) for s in group.series]
        lines = [Line(named(s), looks[s.name], c, marks=False) for s, c in curves if c]
        if not any(y for line in lines for _, y in line.points):
            continue  # a part of the loss that no method here uses
        ys = [y for line in lines for _, y in line.points]
        log = min(ys) > 0 and max(ys) / min(ys) > LOG_FROM
        image = line_chart(
            lines,
            title=f"Loss {name}, {group.name}",
            desc="; ".join(f"{ln.name} ends at {ln.points[-1][1]:.3g}" for ln in lines),
            x_label="batch of the stream",
            y_label=f"{name}, log" if log else name,
            log=log,
        )
        rows = [
            [ln.name, *(f"{ln.points[round(q * (len(ln.points) - 1))][1]:.4g}" for q in QUARTERS)]
            for ln in lines
        ]
        head = ["Method", "at the start", "after 1/4", "after 1/2", "after 3/4", "at the end"]
        items.append(figure(image, head, rows, caption=f"Loss “{name}”"))
    return tag("div", items, class_="charts") if items else None


def binned(series: Series, name: str, end: int) -> list[tuple[float, float]]:
    """(batch, mean loss) of the bins that hold a step; all drawn runs together."""
    sums: dict[int, list[float]] = {}
    for run in series.drawn:
        for step in run.steps:
            value = step.losses.get(name)
            if value is not None and abs(value) < float("inf"):
                sums.setdefault(step.batch * BINS // end, []).append(value)
    return [((k + 0.5) * end / BINS, fmean(values)) for k, values in sorted(sums.items())]


def cost(group: Group, looks: Looks) -> Html | None:
    """Bars of the relative cost, the images forward per stream image and the training seconds."""
    kinds: list[tuple[str, str, Callable[[float], str]]] = [
        ("relative", "Relative cost k, in steps of er", lambda v: f"{v:.1f}"),
        ("forward_per_image", "Images forward per stream image", lambda v: f"{v:.1f}"),
        ("train_seconds", "Training seconds", lambda v: f"{v:,.0f} s"),
    ]
    items = []
    for name, caption, text in kinds:
        bars = [
            (s.name, looks[s.name], value, text(value))
            for s in group.series
            if (value := s.cost(name)) is not None
        ]
        if bars:
            desc = "; ".join(f"{method}: {shown}" for method, _, _, shown in bars)
            image = bar_chart(bars, title=f"{caption}, {group.name}", desc=desc)
            rows = [[method, shown] for method, _, _, shown in bars]
            items.append(figure(image, ["Method", caption], rows, caption=caption))
    return tag("div", items, class_="charts") if items else None
