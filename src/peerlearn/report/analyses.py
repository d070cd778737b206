"""The analyses of a report: what each has found, how it was computed, and its panels."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from peerlearn.records.analysis import (
    Analysis,
    AnyPanel,
    Bars,
    Heat,
    Images,
    Lines,
    Scatter,
    read_analysis,
)
from peerlearn.report.looks import COLOURS
from peerlearn.report.markup import Child, Html, join, table, tag
from peerlearn.report.palette import MOST_CLASSES, class_colour
from peerlearn.report.panel_charts import bars_figure, lines_figure, scatter_figure
from peerlearn.report.panel_grids import heat_figure, images_figure
from peerlearn.report.panels import class_numbers, line_numbers
from peerlearn.report.parts import count
from peerlearn.report.trials import text_of

FOLDER = "analysis"  # in that of the runs
MOST_PANELS = 24  # of an analysis
MOST_RUNS = 12  # that it names
MOST_FACTS = 100
LONGEST_FACT = 300  # letters
MOST_LETTERS = 2_000_000  # of the pictures of an analysis, in base64


def analyses_in(roots: Iterable[Path]) -> list[Analysis]:
    """The analyses that some folders of runs hold, by the names of their files."""
    files = [file for root in roots for file in sorted((root / FOLDER).glob("*.json"))]
    return [read_analysis(file) for file in dict.fromkeys(files)]


def show_analyses(analyses: Sequence[Analysis]) -> Html:
    """All of them, one below the other."""
    return tag("div", [_article(one, k) for k, one in enumerate(analyses)], class_="stack")


def places(analyses: Sequence[Analysis]) -> list[tuple[str, str]]:
    """The key of each on the page, and its title."""
    return [(_key(k), one.title) for k, one in enumerate(analyses)]


def have_images(analyses: Sequence[Analysis]) -> bool:
    """Whether any of them has pictures, which the page's policy must let in."""
    return any(isinstance(panel, Images) for one in analyses for panel in one.panels)


def class_rules(analyses: Sequence[Analysis]) -> str:
    """The style rules for the colours of classes of which the style sheet has none."""
    most = max((len(class_numbers(one)) for one in analyses), default=0)
    return "\n".join(
        f".k{k} {{ color: light-dark({class_colour(k)}, {class_colour(k, dark=True)}); }}"
        for k in range(COLOURS, min(most, MOST_CLASSES))
    )


def _key(place: int) -> str:
    return f"analysis-{place}"


def _article(one: Analysis, place: int) -> Html:
    """An analysis: its title, how it was computed, its facts and its panels."""
    about = [tag("p", part) for part in one.about.split("\n\n") if part.strip()]
    more = len(one.runs) - MOST_RUNS
    runs = [*one.runs[:MOST_RUNS], *([f"{more} more"] if more > 0 else [])]
    left = len(one.panels) - MOST_PANELS
    return tag(
        "article",
        tag("h3", one.title, id=_key(place)),
        about,
        tag("p", f"Runs: {'; '.join(runs)}.") if runs else None,
        _facts(one),
        tag("div", _figures(one), class_="charts"),
        tag("p", f"Not drawn: {count(left, 'further panel')}.") if left > 0 else None,
        class_="analysis",
        aria_labelledby=_key(place),
    )


def _facts(one: Analysis) -> Html | None:
    rows: list[list[Child]] = [
        [name, text_of(value, 6, LONGEST_FACT)] for name, value in one.facts.items()
    ]
    if not rows:
        return None
    shown = table(["Fact", "Value"], rows[:MOST_FACTS], label=f"Facts of {one.title}",
                  class_="facts numbers")  # fmt: skip
    left = len(rows) - MOST_FACTS
    return join(shown, tag("p", f"Not shown: {count(left, 'further fact')}.") if left > 0 else None)


def _figures(one: Analysis) -> list[Html]:
    lines, classes = line_numbers(one), class_numbers(one)
    pictures = sum(isinstance(panel, Images) for panel in one.panels)

    def drawn(panel: AnyPanel) -> Html:
        match panel:
            case Lines():
                return lines_figure(panel, lines)
            case Bars():
                return bars_figure(panel)
            case Scatter():
                return scatter_figure(panel, classes)
            case Heat():
                return heat_figure(panel)
            case Images():
                return images_figure(panel, MOST_LETTERS // pictures)

    return [drawn(panel) for panel in one.panels[:MOST_PANELS]]
