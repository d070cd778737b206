"""One self-contained HTML page: what it says, in which order, and what it may load (nothing)."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from importlib import resources
from itertools import count
from typing import NamedTuple

from peerlearn.errors import UserError
from peerlearn.metrics.table import EVERY
from peerlearn.records.analysis import Analysis
from peerlearn.records.read import RunRecord
from peerlearn.records.reproduction import Reproduction
from peerlearn.report import details, figures, published
from peerlearn.report.along import along
from peerlearn.report.analyses import class_rules, have_images, places, show_analyses
from peerlearn.report.detail import Detail, choose_detail
from peerlearn.report.headline import hero
from peerlearn.report.looks import Looks, assign_looks
from peerlearn.report.markup import Child, Html, join, raw, tag
from peerlearn.report.parts import choosing, contents, legend
from peerlearn.report.settings import environment_tables, settings_tables
from peerlearn.report.summary import further_table, summary_table, unfinished_table
from peerlearn.results.compare import BEST, compare
from peerlearn.results.layout import MINUS
from peerlearn.results.legend import known_in, notes_on_points, notes_on_steps
from peerlearn.results.series import Group


def render(
    runs: Sequence[RunRecord],
    title: str = "Peerlearn report",
    analyses: Sequence[Analysis] = (),
    tables: Sequence[Reproduction] = (),
) -> str:
    """The page of these runs as one document that needs no network.

    analyses, tables: what `peerlearn analyse` and `peerlearn reproduce` left of them.
    """
    if not runs:
        raise UserError("a report needs at least one run; make one with `peerlearn run`")
    groups = compare(runs)
    detail = choose_detail(groups)
    looks = assign_looks(detail.shown["curves"])
    sheets = map(_file, ("page.css", "along.css"))
    rules = filter(None, [*sheets, choosing(looks), class_rules(analyses)])
    style, script = raw("\n".join(rules)), raw(_file("page.js"))
    sections = drawn_sections(detail, looks)
    if tables:
        shown, aside = published.show_reproductions(tables), contents(published.places(tables))
        after = 1 + [section.key for section, _ in sections].index(SUMMARY.key)
        section = PUBLISHED, block(PUBLISHED, shown, aside=aside, beside=False)
        sections.insert(after, section)
    if analyses:
        shown, aside = show_analyses(analyses), contents(places(analyses))
        sections.append((ANALYSES, block(ANALYSES, shown, aside=aside)))
    links = [(section.key, section.name) for section, _ in sections]
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#main", class_="skip"),
        top_bar(groups, links),
        tag(
            "main",
            hero(groups, title, note="" if detail.seeds else MANY),
            [html for _, html in sections],
            settings_section(detail),
            id="main",
            tabindex=-1,
        ),
        footer(groups),
        tag("script", script),
    )
    top = head(title, style, script, images=have_images(analyses))
    return f"<!DOCTYPE html>\n{tag('html', top, body, lang='en')}\n"


def head(title: str, style: Html, script: Html, *, images: bool = False) -> Html:
    """The head of the document, with the policy that lets nothing else in.

    images: whether the page holds some, each within its own address.
    """
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    ) + ("; img-src data:" if images else "")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        raw(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )


def digest(text: str) -> str:
    """What a content security policy calls the hash of an inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _file(name: str) -> str:
    return resources.files("peerlearn.report").joinpath(name).read_text(encoding="utf-8")


def top_bar(groups: Sequence[Group], sections: Sequence[tuple[str, str]]) -> Html:
    """The bar with the ways into the page, the groups to choose and the theme."""
    links = [*sections, ("settings", "Settings"), ("formulas", "Formulas")]
    items = [tag("li", tag("a", name, href=f"#{key}")) for key, name in links]
    themes = [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")]
    options = [("all", "All"), *((key_of(k), group.name) for k, group in enumerate(groups))]
    return tag(
        "header",
        tag("nav", tag("ul", items), aria_label="Sections"),
        choice("group", "Runs on", options) if len(groups) > 1 else None,
        choice("theme", "Theme", themes),
        class_="bar",
    )


def key_of(place: int) -> str:
    """What the script calls a group."""
    return f"g{place}"


def choice(name: str, label: str, options: Sequence[tuple[str, str]]) -> Html:
    """Radio buttons in a row; hidden until the script that serves them runs."""
    buttons = [
        tag("label", tag("input", type="radio", name=name, value=key, checked=k == 0), text)
        for k, (key, text) in enumerate(options)
    ]
    title = tag("legend", label, class_="unseen")
    return tag("fieldset", title, buttons, class_="choice", data_choice=name, hidden=True)


class Section(NamedTuple):
    """A section of charts: what draws the figures of a group, and how to read them."""

    key: str
    name: str
    note: str
    draw: Callable[[Group], Html | None]
    legend: bool = False
    fold: bool = False  # all but the first group are closed
    kind: str = "rows"  # of detail.LIMITS: how many series it has room for
    seeds: bool = False  # it can show single runs


def chart_sections(looks: Looks, *, seeds: bool = True) -> list[Section]:
    """Every section of charts that there can be; seeds: with single runs."""
    ids = count()
    points = " A named point is the mean of the small ones, one per seed." if seeds else ""
    choose = " Choose a seed above each matrix." if seeds else ""
    return [
        Section("stream", "Over the stream", "AA on all tasks seen so far, after each task: mean "
                "over seeds, the band from the worst seed to the best. The dotted line is chance: "
                "one over the classes so far, what guessing would give. With more than four "
                "lines, bands show for those you choose or point at.",
                lambda group: figures.over_stream(group, looks), legend=True, kind="curves"),
        Section("along", "Inside tasks", "Accuracy along the stream, not only at ends of tasks, "
                "which dotted lines mark: mean over seeds, the band from the worst seed to the "
                "best. Inside a task it is that of a sample of the test images, at its end of all. "
                "Prequential: of images of the stream itself, each before it is learnt.",
                lambda group: along(group, looks), legend=True, kind="single"),
        Section("plasticity", "Plasticity and stability", "To the right a method learns new tasks "
                "better (LA), further up it forgets less of them (RF, FM; their axes point down)."
                f"{points} Circles are baselines; a dotted line leads to the diamond of their "
                "wrapper.",
                lambda group: figures.plasticity(group, looks, seeds=seeds), legend=True,
                kind="curves", seeds=True),
        Section("matrices", "Accuracy matrices", "Row i, column j: accuracy in percent on task j "
                "after task i. A strong diagonal is fast learning, a column that fades is "
                f"forgetting.{choose}",
                lambda group: details.matrices(group, ids, seeds=seeds), fold=True, kind="single",
                seeds=True),
        Section("memory", "Memory", "Images in the memory after each task, mean over seeds. The "
                "stronger the colour, the older the task; thin lines part the classes.",
                details.memory, fold=True, kind="single"),
        Section("losses", "Losses", "The parts of the loss by name, mean over seeds, smoothed over "
                "stretches of the stream; a log axis where they span a wide range.",
                lambda group: details.losses(group, looks), legend=True, fold=True, kind="single"),
        Section("cost", "Cost", "What a method takes for each image of the stream, and its "
                "training time without evaluation, mean over finished seeds. In the first chart "
                "a backward pass counts as two forward passes, which is about what it takes: to "
                "the left a method costs less, further up it knows more at the end.",
                lambda group: priced(group, looks, seeds=seeds), fold=True, kind="curves"),
    ]  # fmt: skip


def priced(group: Group, looks: Looks, *, seeds: bool) -> Html | None:
    """What accuracy costs, and each cost by itself."""
    charts = [figures.worth(group, looks, seeds=seeds), details.cost(group, looks)]
    return join(charts) if any(charts) else None


MANY = (
    "They are too many to show each: charts show the series that lead, mean over seeds, and say "
    "what they leave out."
)
GAINS = Section(
    "gains",
    "Gains",
    "Each wrapper against its baseline, over the seeds that both have finished: mean difference "
    "with its 95 % interval. Only an interval that leaves out zero has a colour; hollow points "
    "rest on one seed.",
    figures.gains,
    kind="curves",
)
SUMMARY = Section(
    "summary",
    "Summary",
    "Mean ± sample standard deviation over n finished seeds, in percent; ↑ higher is better, ↓ "
    f"lower. Marked: {BEST}. What it cost stands beside it.",
    lambda _: None,
)

PUBLISHED = Section(
    "published",
    "Published beside measured",
    "Tables and figures of the CCL-DC paper. Figures of a shortened scale are not to be held "
    "against the published ones; which row is ahead is.",
    lambda _: None,
)

ANALYSES = Section(
    "analyses",
    "Analyses",
    "What was found in the trained networks. Each says how it was computed and of which runs; "
    "point at a line or a class to bring it out.",
    lambda _: None,
)


def drawn_sections(detail: Detail, looks: Looks) -> list[tuple[Section, Html]]:
    """The sections that have something to show, in their order."""
    found = []
    if sum(len(group.gains) for group in detail.groups) > 1:  # one has its tiles at the top
        charts = drawn(GAINS, detail.shown[GAINS.kind])
        found.append((GAINS, block(GAINS, charts, aside=detail.left_out(GAINS.kind))))
    groups = detail.shown[SUMMARY.kind]
    body = [summary_table(groups), unfinished_table(detail.groups), further_table(groups)]
    notes = " ".join([*notes_on_points(groups), *notes_on_steps(groups)])
    aside = [tag("p", notes) if notes else None, detail.left_out(SUMMARY.kind)]
    found.append((SUMMARY, block(SUMMARY, body, aside=aside, beside=False)))
    choose = True  # the boxes that choose stand in the first legend only
    for section in chart_sections(looks, seeds=detail.seeds):
        groups = detail.shown[section.kind]
        charts = drawn(section, groups)
        if charts:
            names = None
            if section.legend and len(looks) > 1:
                there = {one.name for group in groups for one in group.series}
                own = {name: look for name, look in looks.items() if name in there}
                names = legend(own, choose=choose, scroll=not detail.seeds)
                choose = False
            rest = detail.left_out(section.kind, seeds=section.seeds)
            found.append((section, block(section, charts, aside=[rest, names])))
    return found


def drawn(section: Section, groups: Sequence[Group]) -> Html | None:
    """The figures of all groups, if there are any."""
    images = [(key_of(k), group, section.draw(group)) for k, group in enumerate(groups)]
    parts: list[Html] = []
    for key, group, image in images:
        if image and section.fold and len(groups) > 1:
            title = tag("summary", group.name)
            image = tag("details", title, image, class_="fold", open=not parts)
        if image:
            parts.append(tag("div", image, data_group=key, class_="group"))
    return tag("div", parts, class_="stack") if parts else None


def block(section: Section, shown: Child, *, aside: Child = None, beside: bool = True) -> Html:
    """A section: its name and how to read it beside (or above) what it shows."""
    title = f"{section.key}-title"
    words = tag("h2", section.name, id=title), tag("p", section.note), aside
    return tag(
        "section",
        tag("div", words, class_="words"),
        tag("div", shown, class_="shown") if beside else shown,
        id=section.key,
        class_="block" if beside else None,
        aria_labelledby=title,
    )


def settings_section(detail: Detail) -> Html:
    """Settings and environment."""
    runs = [run for group in detail.groups for one in group.series for run in one.runs]
    note = (
        "Flags beat files, files beat presets, presets beat defaults; the origin of a value "
        "stands below it."
    )
    section = Section("settings", "Settings and environment", note, lambda _: None)
    return block(section, [settings_tables(runs), environment_tables(detail.environments, runs)])


def footer(groups: Sequence[Group]) -> Html:
    """The definitions of the metrics: of a matrix, and along the stream of those that appear."""
    items = [
        tag(
            "div",
            tag("dt", tag("b", metric.name), " ", metric.title),
            tag(
                "dd",
                tag("code", metric.formula.replace(" - ", f" {MINUS} ")),
                tag("span", f"{metric.meaning} {metric.direction.capitalize()}."),
            ),
        )
        for metric in (EVERY[name] for name in known_in(groups))
    ]
    note = (
        "a[i][j] is the accuracy on task j after training task i, and k the last task. With "
        "peers, the accuracies are those of the ensemble. On this page all are in percent. "
        "Intervals are Student's, of 95 %."
    )
    return tag(
        "footer",
        tag("h2", "How the metrics are defined", id="formulas-title"),
        tag("p", note),
        tag("dl", items),
        id="formulas",
        aria_labelledby="formulas-title",
    )
