"""The page of a search for settings: what it found, what it could see, and every trial."""

import json
import shlex
from collections.abc import Sequence
from importlib import resources
from typing import Any

from peerlearn.metrics.table import METRICS
from peerlearn.records.study import Range, Searched, Study, Trial
from peerlearn.report.bars import bar_chart
from peerlearn.report.charts import mark
from peerlearn.report.headline import unbroken
from peerlearn.report.labels import cut
from peerlearn.report.markup import Child, Html, join, raw, table, tag
from peerlearn.report.page import Section, block, choice, head
from peerlearn.report.parts import count, figure, listed
from peerlearn.report.trials import (
    BEST,
    RESULT,
    STOPPED,
    UNDER_WAY,
    cross,
    history,
    numeric,
    reached,
    sample,
    slice_chart,
    text_of,
)
from peerlearn.results.layout import NOTHING
from peerlearn.units import duration, percent

OPEN_ROWS = 50  # of trials, before the rest is folded
MOST_ROWS = 1000
MOST_COLUMNS = 30  # settings in the table of trials
MOST_CHARTS = 24  # slices, and bars of importance
MOST_TILES = 12  # settings of the best trial
LONGEST_FACT = 2000  # letters of a declared fact
LONGEST_NAME = 17  # letters beside a bar
EDGE = 1e-9  # relative; closer to the end of a range is at its end
SEARCHES = {"grid": "a grid", "tpe": "TPE, which learns from the trials before"}
ORDER = ("done", "pruned", "running", "failed")


def render_study(study: Study, title: str = "", *, preset: str = "") -> str:
    """A search for settings as one HTML document that needs no network.

    preset: the name of the file that holds the settings found, said beside them.
    """
    title = title or f"Search for the settings of {study.method}"
    style = raw(_file("page.css") + "\n" + _file("tuning.css"))
    script = raw(_file("page.js"))
    sections = _sections(study)
    links = [(section.key, section.name) for section, _, _ in sections]
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#main", class_="skip"),
        _bar([*links, ("formulas", "Formula")]),
        tag(
            "main",
            _hero(study, title, preset),
            [
                block(s, shown, aside=aside, beside=s.key != "trials")
                for s, shown, aside in sections
            ],
            id="main",
            tabindex=-1,
        ),
        _footer(study),
        tag("script", script),
    )
    return f"<!DOCTYPE html>\n{tag('html', head(title, style, script), body, lang='en')}\n"


def _file(name: str) -> str:
    return resources.files("peerlearn.report").joinpath(name).read_text(encoding="utf-8")


def _bar(links: Sequence[tuple[str, str]]) -> Html:
    """The bar with the ways into the page, and the theme."""
    items = [tag("li", tag("a", name, href=f"#{key}")) for key, name in links]
    return tag(
        "header",
        tag("nav", tag("ul", items), aria_label="Sections"),
        choice("theme", "Theme", [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")]),
        class_="bar",
    )


def _sections(study: Study) -> list[tuple[Section, Html, Html | None]]:
    """Every section: its name and how to read it, what it shows, its legend."""

    def section(key: str, name: str, note: str) -> Section:
        return Section(key, name, note, lambda _: None)

    drawn = history(study)
    return [
        (section("stream", "What it could see", "The tuning stream, as it was declared. The best "
                 "of many trials was chosen by the very AA that is shown for it, which flatters "
                 "it; what it is worth shows on a stream that took no part in the choice."),
         _stream(study), None),
        (section("history", "Trial by trial", "AA of each trial in the order of their numbers; the "
                 "line is the best so far. A trial that was stopped within the stream stands below "
                 "the axis: AA after fewer tasks cannot be compared."),
         drawn or _said("No trial has an AA yet."), _legend(study) if drawn else None),
        (section("importance", "Importance", "Which settings the differences in AA come from, for "
                 "the values that were searched and for no others."),
         _importance(study), None),
        (section("slices", "Setting by setting", "AA in % over the value of each setting that was "
                 "searched. Trials side by side may differ in everything else."),
         _slices(study), _legend(study, valued=True)),
        (section("trials", "Trials", "Every trial, the highest AA first. AA is the mean over the "
                 "tuning seeds, in percent; values are rounded here, not in study.json."),
         _trials(study), None),
        (section("made", "How it was made", "What was searched, and the command."),
         _made(study), None),
    ]  # fmt: skip


def _said(text: str) -> Html:
    return tag("p", text, class_="said")


def headline(study: Study) -> str:
    """What the search has found, in one sentence."""
    best, n = study.best_trial, len(study.trials)
    results = sum(t.state == "done" and t.value is not None for t in study.trials)
    if best is not None:
        among = f"the best of {results} trials" if results > 1 else "the only trial with a result"
        return f"{study.method} reaches AA {percent(best.value)} in {among}"
    if n and all(trial.state == "failed" for trial in study.trials):
        return f"All {n} trials failed" if n > 1 else "The only trial failed"
    return "No trial is called the best" if results else "No trial has a result yet"


def _hero(study: Study, title: str, preset: str) -> Html:
    states = [trial.state for trial in study.trials]
    counts = [f"{states.count(s)} {s}" for s in ("done", "pruned", "failed")]
    counts += [f"{states.count('running')} running"] if "running" in states else []
    lead = (
        f"{len(states)} of {count(study.wanted, 'trial')} asked for: {', '.join(counts)}. On "
        f"{study.data}, memory {study.memory}, by {SEARCHES[study.search]}."
    )
    return tag(
        "section",
        tag("p", title, class_="eyebrow"),
        tag("h1", unbroken(headline(study))),
        tag("p", lead, class_="lead"),
        _chosen(study, study.best_trial, preset) if study.best_trial else None,
        class_="hero",
    )


def _chosen(study: Study, best: Trial, preset: str) -> Html:
    """The settings of the best trial, and where they can be had."""
    tiles = [_tile(study, *one) for one in list(best.settings.items())[:MOST_TILES]]
    said = f"Settings of trial {best.number}" + (f", as a preset in {preset}" if preset else "")
    left = len(best.settings) - len(tiles)
    said += f"; {left} more in the table of trials." if left else "."
    said += "" if best.seconds is None else f" It took {duration(best.seconds)}."
    runs = f" Its runs: {listed(best.runs, 3)}." if best.runs else ""
    return join(
        _edge_warning(study, best),
        tag("ul", tiles, class_="tiles chosen") if tiles else None,
        tag("p", said + runs, class_="after"),
    )


def _tile(study: Study, name: str, value: Any) -> Html:
    share = study.importance.get(name)
    notes = [f"importance {percent(share)} %"] if share is not None else []
    notes += ["at the end of its range"] if _at_the_edge(study.space.get(name), value) else []
    return tag(
        "li",
        tag("span", _breakable(name), class_="what"),
        tag("span", tag("span", text_of(value), class_="to"), class_="numbers"),
        tag("span", ", ".join(notes), class_="change flat"),
    )


def _breakable(name: str) -> list[Html]:
    """A dotted name that may be broken after its dots."""
    *groups, last = name.split(".")
    return [tag("span", part, class_="part-of") for part in (*(f"{g}." for g in groups), last)]


def _at_the_edge(searched: Searched | None, value: Any) -> bool:
    """Whether a number is the smallest or the largest that was searched."""
    if isinstance(searched, Range):
        ends = [searched.low, searched.high]
    else:
        numbers = [v for v in searched or [] if numeric(v)]
        # of two values each is an end, which says nothing
        ends = [min(numbers), max(numbers)] if len(set(numbers)) > 2 else []
    return numeric(value) and any(abs(value - end) <= EDGE * abs(end) for end in ends)


def _edge_warning(study: Study, best: Trial) -> Html | None:
    names = [n for n, v in best.settings.items() if _at_the_edge(study.space.get(n), v)]
    if not names:
        return None
    where = "is at the end of its range" if len(names) == 1 else "are at the ends of their ranges"
    said = f"{listed(names)} {where}: better values may lie outside."
    return tag("p", tag("span", said), class_="warning")


def _stream(study: Study) -> Html:
    rows: list[list[Child]] = [[name, _fact(value)] for name, value in study.stream.items()]
    label = "The tuning stream as declared"
    declared = table(["Tuning stream", "As declared"], rows, label=label, class_="facts")
    untouched = study.evaluation or "it is not said what was kept for the evaluation."
    return join(
        declared if rows else _said("The tuning stream was not declared."),
        tag("p", tag("b", "Not touched: "), untouched, class_="untouched"),
    )


def _fact(value: Any) -> str:
    """A declared fact in full; a list by its parts."""
    if isinstance(value, list) and not any(isinstance(part, list | dict) for part in value):
        return cut(", ".join(map(_fact, value)), LONGEST_FACT)
    if isinstance(value, list | dict):
        return cut(json.dumps(value, ensure_ascii=False), LONGEST_FACT)
    return text_of(value, 12, LONGEST_FACT)


def _legend(study: Study, *, valued: bool = False) -> Html | None:
    """What the shapes mean; `valued`: of the trials that have an AA."""
    states = {t.state for t in study.trials if t.value is not None or not valued}
    shapes = [
        (study.best is not None, mark(BEST, 9, 8, size=5.5), "the best"),
        ("done" in states, mark(RESULT, 9, 8), "done"),
        ("pruned" in states, mark(STOPPED, 9, 8), "pruned: stopped early"),
        ("running" in states, mark(UNDER_WAY, 9, 8), "running"),
        ("failed" in states, cross(9, 8), "failed"),
    ]
    there = [sample(shape, name) for found, shape, name in shapes if found]
    return tag("ul", there, class_="legend") if there else None


def _importance(study: Study) -> Html:
    if not study.importance:
        return _said("Left out: it was not computed; a few trials cannot tell.")
    shares = sorted(study.importance.items(), key=lambda item: (-item[1], item[0]))
    shown, more = shares[:MOST_CHARTS], len(shares) - MOST_CHARTS
    names = short_names([name for name, _ in shown])
    solid = RESULT._replace(wrapped=True)
    image = bar_chart(
        [(cut(names[n], LONGEST_NAME), solid, v, f"{percent(v)} %") for n, v in shown],
        title="Importance of the settings",
        desc="; ".join(f"{name}: {percent(share)} %" for name, share in shown),
    )
    rows: list[list[Child]] = [[name, percent(share)] for name, share in shares]
    how = f"Computed by {study.importance_by}." if study.importance_by else ""
    how += f" The {more} smallest shares are among the numbers only." if more > 0 else ""
    return join(
        figure(image, ["Setting", "Share %"], rows, caption="Share of each setting in %"),
        _said(how or "How it was computed is not said."),
    )


def short_names(names: Sequence[str]) -> dict[str, str]:
    """The last part of each name, or all of it where that says too little.

    >>> short_names(["optim.lr", "method.alpha", "head.alpha"])
    {'optim.lr': 'lr', 'method.alpha': 'method.alpha', 'head.alpha': 'head.alpha'}
    """
    ends = [name.rpartition(".")[2] for name in names]
    clear = [ends.count(end) == 1 and end != "name" for end in ends]
    return {n: end if c else n for n, end, c in zip(names, ends, clear, strict=True)}


def _slices(study: Study) -> Html:
    """A small chart per searched setting, the important ones first."""
    order = sorted(study.space, key=lambda name: -study.importance.get(name, 0))
    drawable = [n for n in order if any(n in t.settings and t.value is not None
                                        for t in study.trials)]  # fmt: skip
    if not drawable:
        return _said("No trial has an AA yet.")
    charts = [slice_chart(name, study.space[name], study) for name in drawable[:MOST_CHARTS]]
    more = len(drawable) - len(charts)
    return join(
        tag("div", charts, class_="multiples"),
        _said(f"{count(more, 'further setting')} not drawn.") if more else None,
    )


def _trials(study: Study) -> Html:
    if not study.trials:
        return _said("There are no trials yet.")
    ordered = sorted(
        study.trials,
        key=lambda t: (t.value is None, -(t.value or 0), ORDER.index(t.state), t.number),
    )
    tried = dict.fromkeys(name for trial in study.trials for name in trial.settings)
    names = sorted(tried, key=lambda name: name not in study.space)  # those searched first
    columns = names[:MOST_COLUMNS]
    header: list[Child] = ["Trial", "AA %", "State", "Time", *map(_column_name, columns)]
    rows = [_trial_row(trial, columns, trial.number == study.best) for trial in ordered[:MOST_ROWS]]
    left = [
        f"{count(len(ordered) - MOST_ROWS, 'trial')} at the end of this order"
        if len(ordered) > MOST_ROWS else "",
        f"{count(len(names) - MOST_COLUMNS, 'setting')}" if len(names) > MOST_COLUMNS else "",
    ]  # fmt: skip
    out = " and ".join(filter(None, left))
    first = table(header, rows[:OPEN_ROWS], label="Trials by AA", class_="summary")
    rest = rows[OPEN_ROWS:]
    folded = tag(
        "details",
        tag("summary", f"{count(len(rest), 'further trial')}"),
        table(header, rest, label="Further trials by AA", class_="summary"),
    )
    return join(
        first,
        folded if rest else None,
        _said(f"Left out here, not in study.json: {out}.") if out else None,
    )


def _column_name(name: str) -> Html:
    """A setting above the group that it belongs to."""
    group, _, own = name.rpartition(".")
    return join(own, tag("span", group, class_="unit under") if group else None)


def _trial_row(trial: Trial, columns: Sequence[str], best: bool) -> list[Child]:
    value = percent(trial.value) if trial.value is not None else NOTHING
    marked = tag("td", tag("strong", value), tag("span", " best", class_="unseen"), class_="best")
    far = "" if trial.state == "done" else reached(trial)
    why = ": ".join(filter(None, (far, trial.why)))
    state = tag(
        "td",
        tag("span", trial.state, class_=f"badge {trial.state}"),
        tag("span", why, class_="why") if why else None,
        class_="state",
    )
    return [
        trial.number,
        marked if best else value,
        state,
        NOTHING if trial.seconds is None else duration(trial.seconds),
        *(text_of(trial.settings[n]) if n in trial.settings else NOTHING for n in columns),
    ]


def _made(study: Study) -> Html:
    rows: list[list[Child]] = [[name, _space(what)] for name, what in study.space.items()]
    searched = table(["Setting", "Searched"], rows, label="What was searched", class_="facts")
    command = shlex.join(study.command)
    version = f"Peerlearn {study.peerlearn}." if study.peerlearn else ""
    return join(
        searched if rows else _said("Nothing was searched."),
        tag("h3", "Command") if command else None,
        tag("pre", tag("code", command), tabindex=0) if command else None,
        tag("p", version, class_="said after") if version else None,
    )


def _space(what: Searched) -> str:
    if not isinstance(what, Range):
        return cut(", ".join(map(text_of, what)), LONGEST_FACT)
    said = f"{text_of(what.low)} to {text_of(what.high)}"
    said += ", by its logarithm" if what.log else ""
    return said + ("" if what.step is None else f", in steps of {text_of(what.step)}")


def _footer(study: Study) -> Html:
    """The definition of what was searched for."""
    metric = METRICS[study.metric]
    note = (
        "a[i][j] is the accuracy on task j after training task i, and k the last task. With "
        "peers, the accuracies are those of the ensemble. On this page all are in percent."
    )
    words = tag("dt", tag("b", metric.name), " ", metric.title)
    formula = tag("dd", tag("code", metric.formula), tag("span", metric.meaning))
    return tag(
        "footer",
        tag("h2", f"How {metric.name} is defined", id="formulas-title"),
        tag("p", note),
        tag("dl", tag("div", words, formula)),
        id="formulas",
        aria_labelledby="formulas-title",
    )
