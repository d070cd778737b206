"""The answer: the headline, the table of means, and what is still unfinished."""

from collections.abc import Sequence

from peerlearn.report.groups import Group, Pair, Series
from peerlearn.report.markup import MINUS, NOTHING, TIMES, Child, Html, join, table, tag
from peerlearn.report.reading import Run, mean_std

METRICS = ("AA", "LA", "FM", "RF")
HIGHER_IS_BETTER = frozenset({"AA", "LA"})


def headline(groups: Sequence[Group], pairs: Sequence[Pair]) -> str:
    """Return the result in one sentence."""
    if len(pairs) == 1:
        return f"{pair_sentence(pairs[0])} ({count(len(pairs[0].seeds), 'seed')})"
    if pairs:
        gains = [gain(pair) for pair in pairs]
        up = sum(g > 0 for g in gains)
        mean = mean_std(gains)[0]
        return (
            f"CCL-DC lifts AA in {up} of {len(pairs)} comparisons, {signed(mean)} points on average"
        )
    finished = [(mean_std(aa)[0], g, s) for g in groups for s in g.series if (aa := s.metric("AA"))]
    if not finished:
        return "No run has finished yet"
    best_aa, group, series = max(finished, key=lambda entry: entry[0])
    n = count(len(series.metric("AA")), "seed")
    best = "reaches the best AA," if len(finished) > 1 else "reaches AA"
    return f"{series.method} {best} {100 * best_aa:.1f} on {group.name} ({n})"


def pair_sentence(pair: Pair) -> str:
    """Return what CCL-DC does to one baseline."""
    before, after = pair.means("AA") or (0.0, 0.0)
    if f"{before:.1f}" == f"{after:.1f}":
        return f"CCL-DC leaves {pair.alone.method} at AA {before:.1f}"
    verb = "lifts" if after > before else "lowers"
    return f"CCL-DC {verb} {pair.alone.method} from AA {before:.1f} to {after:.1f}"


def gain(pair: Pair) -> float:
    """Return the points of AA that CCL-DC adds."""
    before, after = pair.means("AA") or (0.0, 0.0)
    return after - before


def hero(groups: Sequence[Group], pairs: Sequence[Pair], title: str) -> Html:
    """Return the head of the page: the sentence, then its numbers beside what they cost."""
    runs = [run for group in groups for series in group.series for run in series.runs]
    where = groups[0].name if len(groups) == 1 else f"{len(groups)} settings of data and memory"
    unfinished = sum(not run.done for run in runs)
    lead = f"{count(len(runs), 'run')} on {where}." + (
        f" {unfinished} not finished: shown, but in no mean." if unfinished else ""
    )
    finished = [series for group in groups for series in group.series if series.done]
    if len(finished) == 1:  # no comparison carries the cost beside the accuracy
        lead += f" {price(finished[0])}"
    if len(pairs) == 1:
        cards = tag("ul", tiles(pairs[0]), class_="tiles")
    else:
        cards = tag("ul", [pair_card(pair) for pair in pairs], class_="tiles pairs")
    return tag(
        "section",
        tag("p", title, class_="eyebrow"),
        tag("h1", headline(groups, pairs)),
        tag("p", lead, class_="lead"),
        cards if pairs else None,
        class_="hero",
    )


def price(series: Series) -> str:
    """Return what a method took, in one sentence."""
    forward, seconds = series.cost("forward_per_image"), series.cost("train_seconds")
    if forward is None or seconds is None:
        return "Its cost was not measured."
    return (
        f"It took {forward:.1f} images forward per stream image and {seconds:,.0f} s of training."
    )


def tiles(pair: Pair) -> list[Html]:
    """Return the four numbers of one comparison: three metrics and the price."""
    meanings = {
        "AA": "known at the end",
        "LA": "learnt when new",
        "RF": "share forgotten",
    }
    result = []
    for name, meaning in meanings.items():
        if means := pair.means(name):
            better = (means[1] > means[0]) == (name in HIGHER_IS_BETTER)
            values = [f"{value:.1f}" for value in means]
            result.append(tile(name, meaning, values, signed(means[1] - means[0]), better))
    if costs := pair.costs("forward_per_image"):
        times = f"{TIMES} {costs[1] / costs[0]:.1f}" if costs[0] else ""
        values = [f"{cost:.1f}" for cost in costs]
        result.append(tile("Cost", "images forward per stream image", values, times, None))
    return result


def tile(name: str, meaning: str, values: list[str], change: str, better: bool | None) -> Html:
    """Return one number before and after."""
    tone = {True: "good", False: "bad", None: "flat"}[better]
    return tag(
        "li",
        tag("span", tag("b", name), " ", meaning, class_="what"),
        tag(
            "span",
            tag("span", values[0], class_="from"),
            tag("span", " to ", class_="unseen"),
            tag("span", "→", class_="arrow", aria_hidden="true"),
            tag("span", values[1], class_="to"),
            class_="numbers",
        ),
        tag("span", change, class_=f"change {tone}"),
    )


def pair_card(pair: Pair) -> Html:
    """Return one of many comparisons."""
    before, after = pair.means("AA") or (0.0, 0.0)
    costs = pair.costs("forward_per_image")
    change = signed(after - before)
    if costs and costs[0]:
        change += f" AA, {costs[1] / costs[0]:.1f} {TIMES} images"
    name = f"{pair.group.name}, {count(len(pair.seeds), 'seed')}"
    values = [f"{before:.1f}", f"{after:.1f}"]
    return tile(pair.alone.method, name, values, change, after > before)


def summary_table(groups: Sequence[Group]) -> Html:
    """Return means and costs, a block of rows per group, the best values marked."""
    head: list[Child] = ["Method", "Memory", "n"]
    head += [join(name, " ", tag("span", "%", class_="unit")) for name in METRICS]
    head += [
        join(name, tag("span", unit, class_="unit under"))
        for name, unit in (
            ("Images forward", "per stream image"),
            ("Training", "seconds"),
            ("Peak memory", "MB"),
            ("Kept", "MB"),
        )
    ]
    rows: list[list[Child]] = []
    for group in groups:
        if len(groups) > 1:
            title = tag("th", group.name, colspan=len(head), scope="colgroup", class_="group-row")
            rows.append([title])
        best = best_of(group)
        rows += [summary_row(group, series, best) for series in group.series]
    return table(head, rows, label="Means over the seeds", class_="summary")


def best_of(group: Group) -> dict[str, str]:
    """Return the best mean of each metric as it is printed; nothing for a single method."""
    best = {}
    for name in METRICS:
        means = [mean_std(v)[0] for series in group.series if (v := series.metric(name))]
        if len(means) > 1:
            pick = max if name in HIGHER_IS_BETTER else min
            best[name] = f"{100 * pick(means):.1f}"
    return best


def summary_row(group: Group, series: Series, best: dict[str, str]) -> list[Child]:
    """Return one method's row."""
    states = [run.status for run in series.runs if not run.done]
    badges = [
        tag("span", f"{states.count(state)} {state}", class_=f"badge {state}")
        for state in sorted(set(states))
    ]
    indent = "variant" if "+" in series.method else None
    cells: list[Child] = [tag("th", tag("span", series.method, class_=indent), badges, scope="row")]
    cells += [group.memory, len(series.done)]
    cells += [metric_cell(series.metric(name), best.get(name)) for name in METRICS]
    forward, seconds = series.cost("forward_per_image"), series.cost("train_seconds")
    cells += [
        NOTHING if forward is None else f"{forward:.1f}",
        NOTHING if seconds is None else f"{seconds:,.0f}",
        megabytes(series.cost("peak_bytes")),
        megabytes(series.cost("kept_bytes")),
    ]
    return cells


def metric_cell(values: Sequence[float], best: str | None) -> Html:
    """Return mean ± sample standard deviation in percent."""
    if not values:
        return tag("td", NOTHING)
    mean, std = mean_std([100 * value for value in values])
    spread = "" if std is None else f" ± {std:.1f}"
    text = join(negative(f"{mean:.1f}"), tag("span", spread, class_="spread"))
    if f"{mean:.1f}" != best:
        return tag("td", text)
    return tag("td", tag("strong", text), tag("span", " best", class_="unseen"), class_="best")


def unfinished_table(runs: Sequence[Run]) -> Html | None:
    """Return how far the runs without an end have got, None if there are none."""
    rows: list[list[Child]] = []
    for run in (run for run in runs if not run.done):
        tasks, sofar = run.settings.get("tasks"), run.accuracy_over_stream
        reached = f"{len(sofar)} of {tasks}" if isinstance(tasks, int) else len(sofar)
        badge = tag("span", run.status, class_=f"badge {run.status}")
        aa = f"{100 * sofar[-1]:.1f}" if sofar else NOTHING
        rows.append([run.method, run.data, run.memory, run.seed, badge, reached, aa])
    if not rows:
        return None
    head = ["Method", "Data", "Memory", "Seed", "Status", "Tasks reached", "AA so far %"]
    return join(tag("h3", "Not finished"), table(head, rows, label="Runs not finished"))


def further_table(groups: Sequence[Group]) -> Html:
    """Return the other measures: transfer, anytime accuracy, single peers, nearest class mean."""
    rows: list[list[Child]] = []
    for group in groups:
        for series in group.series:
            peers = [
                aa
                for run in series.done
                for peer in run.peer_metrics
                if (aa := peer.get("AA")) is not None
            ]
            ncm = [
                aa
                for run in series.done
                if run.ncm_metrics and (aa := run.ncm_metrics.get("AA")) is not None
            ]
            measured = [series.metric("BWT"), series.metric("anytime"), peers, ncm]
            cells = [metric_cell(values, None) for values in measured]
            rows.append([series.method, group.name, *cells])
    head = [
        "Method",
        "Runs on",
        "BWT %",
        "Anytime accuracy %",
        "AA of one peer alone %",
        "AA by nearest class mean %",
    ]
    return tag(
        "details",
        tag("summary", "Further measures: backward transfer, single peers, nearest class mean"),
        table(head, rows, label="Further measures"),
    )


def megabytes(size: float | None) -> str:
    """Return bytes as MB."""
    return NOTHING if size is None else f"{size / 1e6:,.1f}"


def count(n: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def signed(value: float) -> str:
    """Return a difference with its sign."""
    return negative(f"{value:+.1f}")


def negative(text: str) -> str:
    """Return a number with a true minus sign."""
    return text.replace("-", MINUS)
