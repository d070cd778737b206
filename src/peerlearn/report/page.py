"""One self-contained HTML page: what it says, in which order, and what it may load (nothing)."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from importlib import resources
from itertools import count

from peerlearn.errors import UserError
from peerlearn.report import figures
from peerlearn.report.groups import Group, assign_looks, find_pairs, group_runs
from peerlearn.report.markup import MINUS, Child, Html, raw, tag
from peerlearn.report.parts import legend
from peerlearn.report.reading import Run
from peerlearn.report.settings import environment_tables, settings_tables
from peerlearn.report.summary import further_table, hero, summary_table, unfinished_table

FORMULAS = (
    (
        "AA",
        "average accuracy",
        "mean over j ≤ k of a[k][j]",
        "How well all tasks are known at the end.",
    ),
    (
        "LA",
        "learning accuracy",
        "mean over j ≤ k of a[j][j]",
        "How well each task was known when it had just been trained: plasticity.",
    ),
    (
        "FM",
        "forgetting measure",
        f"mean over j < k of (max over j ≤ i < k of a[i][j]) {MINUS} a[k][j]",
        "Accuracy lost since the best moment of each old task; negative when a task is better "
        "than ever. Undefined for one task. With fm_floor_zero, i runs to k.",
    ),
    (
        "RF",
        "relative forgetting",
        f"mean over j ≤ k of 1 {MINUS} a[k][j] / (max over j ≤ i ≤ k of a[i][j])",
        "The share of its best accuracy that each task has lost: stability. An old task that was "
        "never known counts 1, the last task 0.",
    ),
    (
        "BWT",
        "backward transfer",
        f"mean over j < i ≤ k of a[i][j] {MINUS} a[j][j]",
        "What later tasks changed, over all pairs of an old and a later task. Undefined for one "
        "task.",
    ),
)


def render(runs: Sequence[Run], title: str = "Peerlearn report") -> str:
    """Return the page for these runs as one HTML document that needs no network."""
    if not runs:
        raise UserError("a report needs at least one run; make one with `peerlearn run`")
    style, script = (
        raw(resources.files("peerlearn.report").joinpath(name).read_text(encoding="utf-8"))
        for name in ("page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    groups = group_runs(runs)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        raw(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    sections = chart_sections(groups, runs)
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#main", class_="skip"),
        top_bar(groups, [(key, name) for key, name, _ in sections]),
        tag(
            "main",
            hero(groups, find_pairs(groups), title),
            summary_section(groups, runs),
            [section for _, _, section in sections],
            settings_section(runs),
            id="main",
            tabindex=-1,
        ),
        footer(),
        tag("script", script),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def digest(text: str) -> str:
    """Return what a content security policy calls the hash of an inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def top_bar(groups: Sequence[Group], sections: Sequence[tuple[str, str]]) -> Html:
    """Return the bar with the ways into the page, the groups to choose and the theme."""
    links = [("summary", "Summary"), *sections, ("settings", "Settings"), ("formulas", "Formulas")]
    items = [tag("li", tag("a", name, href=f"#{key}")) for key, name in links]
    themes = [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")]
    return tag(
        "header",
        tag("nav", tag("ul", items), aria_label="Sections"),
        choice("group", "Runs on", [("all", "All"), *((g.key, g.name) for g in groups)])
        if len(groups) > 1
        else None,
        choice("theme", "Theme", themes),
        class_="bar",
    )


def choice(name: str, label: str, options: Sequence[tuple[str, str]]) -> Html:
    """Return radio buttons in a row; hidden until the script that serves them runs."""
    buttons = [
        tag("label", tag("input", type="radio", name=name, value=key, checked=k == 0), text)
        for k, (key, text) in enumerate(options)
    ]
    title = tag("legend", label, class_="unseen")
    return tag("fieldset", title, buttons, class_="choice", data_choice=name, hidden=True)


def block(key: str, name: str, note: str, *body: Child, aside: Child = None) -> Html:
    """Return a section: its name and how to read it beside what it shows."""
    words = tag("div", tag("h2", name, id=f"{key}-title"), tag("p", note), aside, class_="words")
    shown = tag("div", body, class_="shown")
    return tag("section", words, shown, id=key, class_="block", aria_labelledby=f"{key}-title")


def summary_section(groups: Sequence[Group], runs: Sequence[Run]) -> Html:
    """Return the table of means with what belongs to it."""
    note = (
        "Mean ± sample standard deviation over n finished seeds, in percent; the best mean of "
        "each metric is marked. High AA and LA and low FM and RF are good. What it cost stands "
        "beside it."
    )
    body = [summary_table(groups), unfinished_table(runs), further_table(groups)]
    words = tag("div", tag("h2", "Summary", id="summary-title"), tag("p", note), class_="words")
    return tag("section", words, body, id="summary", aria_labelledby="summary-title")


def chart_sections(groups: Sequence[Group], runs: Sequence[Run]) -> list[tuple[str, str, Html]]:
    """Return (key, name, section) of every chart section that has something to show."""
    looks, ids = assign_looks(runs), count()
    kinds: list[tuple[str, str, str, bool, bool, Callable[[Group], Html | None]]] = [
        ("stream", "Over the stream", "AA on all tasks seen so far, after each task: mean over "
         "seeds, the band from the worst seed to the best.", True, False,
         lambda group: figures.over_stream(group, looks)),
        ("plasticity", "Plasticity and stability", "One point per run. To the right a run learns "
         "new tasks better (LA), further up it forgets less of them (RF, its axis points down). "
         "Diamonds learn with peers, circles alone.", True, False,
         lambda group: figures.plasticity(group, looks)),
        ("matrices", "Accuracy matrices", "Row i, column j: accuracy in percent on task j after "
         "task i. A strong diagonal is fast learning, a column that fades is forgetting. Choose "
         "a seed above each matrix.", False, True, lambda group: figures.matrices(group, ids)),
        ("memory", "Memory", "Images in the memory after each task, mean over seeds. The "
         "stronger the colour, the older the task; thin lines part the classes.", False, True,
         figures.memory),
        ("losses", "Losses", "The parts of the loss by name, mean over seeds, smoothed over "
         "stretches of the stream; a log axis where they span a wide range.", True, True,
         lambda group: figures.losses(group, looks)),
        ("cost", "Cost", "What a method takes for each image of the stream, and its training "
         "time without evaluation, mean over finished seeds.", False, True,
         lambda group: figures.cost(group, looks)),
    ]  # fmt: skip
    entries = [(method, look) for method, look in looks.items()]
    result = []
    for key, name, note, with_legend, fold, draw in kinds:
        drawn = [(group, image) for group in groups if (image := draw(group))]
        if drawn:
            parts = [
                in_group(group, image, many=len(groups) > 1, fold=fold, first=k == 0)
                for k, (group, image) in enumerate(drawn)
            ]
            body = tag("div", parts, class_="stack" if fold else "charts")
            aside = legend(entries) if with_legend else None
            result.append((key, name, block(key, name, note, body, aside=aside)))
    return result


def in_group(group: Group, image: Html, *, many: bool, fold: bool, first: bool) -> Html:
    """Return what belongs to a group; among many groups it is folded, unless it is one figure."""
    if fold and many:
        image = tag("details", tag("summary", group.name), image, class_="fold", open=first)
    return tag("div", image, data_group=group.key, class_=None if many else "only")


def settings_section(runs: Sequence[Run]) -> Html:
    """Return settings and environment."""
    note = (
        "Flags beat files, files beat presets, presets beat defaults; the origin of a value "
        "stands below it."
    )
    body = [settings_tables(runs), environment_tables(runs)]
    return block("settings", "Settings and environment", note, body)


def footer() -> Html:
    """Return the definitions of the metrics."""
    items = [
        tag(
            "div",
            tag("dt", tag("b", name), " ", words),
            tag("dd", tag("code", formula), tag("span", meaning)),
        )
        for name, words, formula, meaning in FORMULAS
    ]
    note = (
        "a[i][j] is the accuracy on task j after training task i, and k the last task. With "
        "peers, the accuracies are those of the ensemble. On this page all are in percent."
    )
    return tag(
        "footer",
        tag("h2", "How the metrics are defined", id="formulas-title"),
        tag("p", note),
        tag("dl", items),
        id="formulas",
        aria_labelledby="formulas-title",
    )
