"""The analyses on the page: every kind of panel, bounded, escaped, and open about what is left."""

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from peerlearn.cli import main
from peerlearn.errors import UserError
from peerlearn.records.analysis import (
    Analysis,
    AnyPanel,
    Bar,
    Bars,
    Curve,
    Heat,
    ImageRow,
    Images,
    Lines,
    Scatter,
    write_analysis,
)
from peerlearn.records.read import read_runs
from peerlearn.report import render
from peerlearn.report.analyses import analyses_in, show_analyses
from peerlearn.report.palette import MOST_CLASSES, class_colour
from peerlearn.report.panels import groups_of

from .test_browser import CHROMIUM, Chromium, Tab
from .test_colours import colour, contrast, linear
from .test_page import EVIL, Reader

STEPS = [float(k) for k in range(200)]
CLASSES = [f"class {k}" for k in range(10)]


def png(shade: int = 120, size: int = 32) -> str:
    """A small picture of one colour."""
    file = io.BytesIO()
    Image.new("RGB", (size, size), (shade, 60, 200)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def analysis(*panels: AnyPanel, **values: Any) -> Analysis:
    facts = {"name": "found", "title": "What was found", "about": "By looking.", "runs": ["er"]}
    return Analysis(**{**facts, "panels": list(panels), **values})


def line(name: str, y: list[float | None]) -> Curve:
    return Curve(name=name, x=[float(k) for k in range(len(y))], y=y)


def every_kind() -> list[AnyPanel]:
    """What analyses really hold, in small."""
    fall: list[float | None] = [2.3 / (1 + k % 40) for k in range(200)]
    cloud = [Curve(name=name, x=[k + 0.1, k + 0.3], y=[0.2, k / 3]) for k, name in
             enumerate(CLASSES)]  # fmt: skip
    marks = [0.0, 40.0, 80.0, 120.0, 160.0]
    bars = [Bar(name=f"{run}, X{k}", value=0.3 + k / 5, spread=0.05) for run in ("er", "er+ccldc")
            for k in range(4)]  # fmt: skip
    rows: list[list[float | None]] = [[0.9 if i == j else 0.01 for j in range(10)]
                                      for i in range(10)]  # fmt: skip
    return [
        Lines(title="Loss", x="step", y="loss", lines=[line("er", fall)], marks=marks, log=True),
        Bars(title="Entropy", x="view", y="nats", bars=bars),
        Scatter(title="t-SNE", sets=cloud),
        Heat(title="Confusion", x="said", y="true", rows=rows, row_names=CLASSES,
             column_names=CLASSES),
        Images(title="Views", column_names=["X0", "X1"],
               rows=[ImageRow(name="cat", images=[png(), png(80)])]),
    ]  # fmt: skip


def shown(*panels: AnyPanel, **values: Any) -> str:
    return show_analyses([analysis(*panels, **values)])


# ---- where they come from ----


def test_a_report_shows_the_analyses_of_its_folder(runs_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    about = "First sentence. Second one.\n\nA further paragraph."
    facts = {"ECE": 0.0834, "how": ["ten", "bins"]}
    write_analysis(runs_root / "analysis" / "b.json", analysis(title="The second"))
    first = analysis(*every_kind(), about=about, facts=facts, runs=["er, mini, seed 0"])
    write_analysis(runs_root / "analysis" / "a.json", first)
    assert main(["report", str(runs_root), "--out", str(out)]) == 0
    read = Reader(page := out.read_text(encoding="utf-8"))
    ids = [attrs["id"] for tag, attrs in read.tags if tag == "section" and "id" in attrs]
    assert ids[-2:] == ["analyses", "settings"]
    for words in ("First sentence. Second one.", "Runs: er, mini, seed 0.", "ECE0.0834",
                  "ten, bins", "The second"):  # fmt: skip
        assert words in read.text
    assert page.index("What was found") < page.index("The second")
    assert '<a href="#analyses">Analyses</a>' in page
    assert '<a href="#analysis-1">The second</a>' in page


def test_without_analyses_the_page_is_as_it_was(runs_root: Path) -> None:
    page = render(read_runs(runs_root), analyses=analyses_in([runs_root]))
    assert page == render(read_runs(runs_root))
    assert "img-src" not in page
    assert 'id="analyses"' not in page


def test_a_damaged_analysis_stops_the_report_in_one_line(
    runs_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs_root / "analysis").mkdir()
    (runs_root / "analysis" / "loss.json").write_text("{")
    assert main(["report", str(runs_root), "--out", str(runs_root / "page.html")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "loss.json: the file is not JSON" in said
    assert "delete the file and repeat its `peerlearn analyse` command" in said


def test_an_analysis_of_a_folder_named_twice_is_shown_once(runs_root: Path) -> None:
    write_analysis(runs_root / "analysis" / "a.json", analysis())
    assert len(analyses_in([runs_root, runs_root])) == 1


# ---- the page stays what it promises ----


def test_every_panel_has_a_name_a_description_and_its_numbers() -> None:
    html = shown(*every_kind())
    images = re.findall(r'<svg role="img" aria-label="([^"]+)"[^>]*><title>', html)
    assert len(images) == html.count("<desc>") == html.count('class="numbers"><thead>') == 4
    assert images[0] == "Loss. er ends at 0.0575."
    assert html.count("<figure>") == 5
    assert re.findall(r'<img [^>]*alt="([^"]+)"', html) == ["cat, X0", "cat, X1"]


def test_only_a_page_with_pictures_lets_them_in_and_nothing_else(runs_root: Path) -> None:
    runs = read_runs(runs_root)

    def policy(*panels: AnyPanel) -> str:
        read = Reader(render(runs, analyses=[analysis(*panels)]))
        (found,) = [a["content"] or "" for _, a in read.tags if "http-equiv" in a]
        return re.sub("sha256-[^']+", "sha256", found)

    without = policy(*every_kind()[:4])
    assert "img-src" not in without
    assert policy(*every_kind()) == f"{without}; img-src data:"


def test_a_page_with_analyses_is_whole_and_asks_for_nothing(runs_root: Path) -> None:
    found = [analysis(*every_kind()), analysis(*every_kind())]
    page = render(read_runs(runs_root), analyses=found)
    assert page == render(read_runs(runs_root), analyses=found)
    assert not re.search(r"https?://|url\(|@import|//cdn", page)
    read = Reader(page)
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in read.tags:
        assert "style" not in attrs
        assert ("src" in attrs) == (tag == "img")
        assert (attrs.get("src") or "data:image/png;base64,").startswith("data:image/png;base64,")
        for target in (attrs.get("for"), attrs.get("aria-labelledby"), attrs.get("href")):
            assert not target or target.removeprefix("#") in ids


@pytest.mark.parametrize(
    "name", [EVIL, "a" * 200, "\x00\x1b[31m\x7f", "\N{RIGHT-TO-LEFT OVERRIDE}x"]
)
def test_names_from_analyses_are_text_wherever_they_stand(runs_root: Path, name: str) -> None:
    two: list[float | None] = [1.0, 2.0]
    panels: list[AnyPanel] = [
        Lines(title=name, x=name, y=name, lines=[line(name, two)]),
        Bars(title=name, x=name, y=name, bars=[Bar(name=name, value=1.0)]),
        Scatter(title=name, x=name, y=name, sets=[line(name, two)]),
        Heat(title=name, x=name, y=name, rows=[two], row_names=[name], column_names=[name, name]),
        Images(title=name, x=name, y=name, column_names=[name],
               rows=[ImageRow(name=name, images=[png()])]),
    ]  # fmt: skip
    one = analysis(*panels, name=name, title=name, about=name, runs=[name], facts={name: name})
    page = render(read_runs(runs_root), analyses=[one])
    read = Reader(page)
    tags = [tag for tag, _ in read.tags]
    assert tags.count("script") == 1
    assert tags.count("img") == 1
    assert not [a for _, attrs in read.tags for a in attrs if a.startswith("on")]
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", page)
    if name.isprintable():
        assert name in read.text


# ---- lines ----


def points(html: str) -> list[list[str]]:
    """The places of each polyline."""
    return [way.split() for way in re.findall(r'<polyline points="([^"]+)"', html)]


def test_none_breaks_a_line_and_what_stands_alone_has_a_mark() -> None:
    values: list[float | None] = [1.0, 2.0, None, 3.0, None, *[2.0] * 40]
    html = shown(Lines(title="Gaps", lines=[line("er", values)]))
    assert [len(way) for way in points(html)] == [2, 40]
    assert html.count("<polygon") == 1  # the third point


def test_a_log_axis_leaves_out_what_is_not_above_zero_and_says_so() -> None:
    values: list[float | None] = [1.0, 0.1, -2.0, 0.0, 0.01, 0.001]
    html = shown(Lines(title="Loss", lines=[line("er", values)], log=True))
    assert "Left out: 2 values not above 0, for which a log axis has no place." in html
    assert [len(way) for way in points(html)] == [2, 2]
    assert ">0.001<" in html
    assert "Left out" not in shown(Lines(title="Loss", lines=[line("er", values)]))
    alone = shown(Lines(title="Loss", lines=[line("er", [-1.0, 0.0])], log=True))
    assert "There is nothing to draw." in alone


def test_tasks_begin_at_uprights_that_the_legend_explains() -> None:
    html = shown(every_kind()[0])
    assert html.count('data-tip="a task begins at') == 5
    assert "<span>a task begins</span>" in html
    many = Lines(title="Loss", lines=[line("er", [1.0, 2.0])], marks=[float(k) for k in range(101)])
    html = shown(many)
    assert "Left out: 101 marks of tasks." in html
    assert "a task begins" not in html


def test_a_long_line_keeps_its_peaks() -> None:
    values: list[float | None] = [0.0] * 50_000
    values[31_234] = 100.0
    html = shown(Lines(title="Loss", lines=[line("er", values)]))
    (way,) = points(html)
    assert len(way) <= 400
    heights = [float(place.split(",")[1]) for place in way]
    assert heights.count(min(heights)) == 1


def test_lines_of_one_name_are_drawn_alike_in_all_panels() -> None:
    both: list[float | None] = [1.0, 2.0]
    first = Lines(title="a", lines=[line("er", both), line("gsa", both)])
    second = Lines(title="b", lines=[line("gsa", both)])
    html = shown(first, second)
    styles = re.findall(r'class="curve (c\d) wrapped0" data-tip="gsa"', html)
    assert styles == ["c1", "c1"]


def test_few_numbers_are_all_in_the_table() -> None:
    html = shown(Lines(title="Reliability", lines=[line("er", [0.25, None, 0.75])]))
    assert "<td>0.25</td><td>0.75</td>" in html


# ---- bars ----


def test_names_in_two_parts_group_bars() -> None:
    names = [f"{run}, X{k}" for run in ("er", "er+ccldc, lr=0.1") for k in range(3)]
    assert groups_of(names)[4] == ("X1", "er+ccldc, lr=0.1")
    assert groups_of([f"X{k}, {run}, m200" for k in range(3) for run in ("er", "gsa")])[0] == (
        "X0", "er, m200",
    )  # fmt: skip
    assert groups_of(["er", "er, X0"]) == [("er", ""), ("er, X0", "")]
    assert groups_of([]) == []
    html = shown(every_kind()[1])
    assert html.count(">X2</text>") == 1
    assert html.count('class="beam c0 wrapped0" data-tip="er, X') == 4
    assert html.count('class="beam c1 wrapped0" data-tip="er+ccldc, X') == 4
    assert ">0.7 ± 0.05</text>" in html


def test_bars_below_zero_begin_at_zero() -> None:
    html = shown(Bars(title="Change", bars=[Bar(name="a", value=-2.0), Bar(name="b", value=1.0)]))
    beams = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*data-tip', html)
    (a, wide), (b, half) = [(float(x), float(w)) for x, w in beams]
    assert a + wide == pytest.approx(b, abs=0.02)
    assert wide == pytest.approx(2 * half, abs=0.02)
    assert "\N{MINUS SIGN}2</text>" in html


def test_more_bars_than_a_chart_has_room_for_are_in_its_table() -> None:
    html = shown(Bars(title="Many", bars=[Bar(name=f"b{k}", value=float(k)) for k in range(90)]))
    assert html.count('class="beam') == 60
    assert "Not drawn: 30 further bars." in html
    assert ">b89</th>" in html


# ---- points ----


def test_each_of_a_hundred_classes_has_its_colour_and_its_shape(runs_root: Path) -> None:
    sets = [Curve(name=f"c{k}", x=[float(k)], y=[1.0]) for k in range(100)]
    page = render(read_runs(runs_root), analyses=[analysis(Scatter(title="t-SNE", sets=sets))])
    assert 'class="s dots solid k47"' in page
    assert page.count("{ color: light-dark(") == 92  # those that the style sheet lacks
    for dark in (False, True):
        assert len({class_colour(k, dark=dark) for k in range(MOST_CLASSES)}) == 100


@pytest.mark.parametrize("dark", [False, True])
def test_the_colour_of_every_class_stands_out_from_its_ground(dark: bool) -> None:
    for k in range(MOST_CLASSES):
        code = class_colour(k, dark=dark)
        parts = linear(int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))
        assert contrast(parts, colour("surface", dark)) >= 3, k


def test_ten_thousand_points_make_no_giant_page() -> None:
    sets = [Curve(name=name, x=[k * 0.37 % 9 for k in range(1000)], y=STEPS * 5)
            for name in CLASSES]  # fmt: skip
    html = shown(Scatter(title="t-SNE", sets=sets))
    assert len(html) < 120_000
    assert "5,000 of 10,000 points are drawn." in html
    assert html.count('class="s dots') == 10


def test_sets_of_one_name_are_one() -> None:
    one = Curve(name="cat", x=[1.0], y=[2.0])
    html = shown(Scatter(title="t-SNE", sets=[one, one]))
    assert "2 points of cat." in html


# ---- matrices ----


def test_a_small_matrix_has_names_and_numbers() -> None:
    html = shown(every_kind()[3])
    assert html.count(">class 3</text>") == 2
    assert html.count('class="cell" fill-opacity="1"') == 11  # the diagonal, and the scale's end
    assert 'data-tip="class 3, class 3: 0.9"' in html
    assert ">0.90</text>" in html


def test_a_large_matrix_is_drawn_by_strengths_of_colour() -> None:
    rows: list[list[float | None]] = [[float(i == j) for j in range(100)] for i in range(100)]
    html = shown(Heat(title="Confusion", rows=rows))
    assert len(html) < 20_000
    assert html.count('<path d="M') == 2
    assert "M41,41h1v1h-1z" in html


def test_a_matrix_that_no_chart_can_show_is_said_to_be_so() -> None:
    html = shown(Heat(title="All", rows=[[1.0] * 300, [2.0]]))
    assert "2 by 300 cells are more than the 200 by 200 of a chart." in html
    assert "<svg" not in html


def test_missing_and_negative_cells_are_shown_as_such() -> None:
    html = shown(Heat(title="Change", rows=[[-1.0, None], [3.0]]))
    assert html.count("data-tip") == 2
    assert "Values below 0 have the colour of 0." in html


# ---- pictures ----


def test_pictures_stand_in_a_table_at_a_size_that_can_be_seen() -> None:
    html = shown(every_kind()[4])
    assert 'width="64" height="64" class="pixels"/>' in html
    assert '<th scope="col">X1</th>' in html
    assert '<th scope="row">cat</th>' in html
    large = Images(title="a", rows=[ImageRow(name="r", images=[png(size=320)])])
    assert 'width="160" height="160"/>' in shown(large)


def test_pictures_that_would_make_a_giant_page_are_left_out_and_said_so() -> None:
    noise = base64.b64encode(base64.b64decode(png()) + b"\0" * 500_000).decode()
    rows = [ImageRow(name=f"r{k}", images=[noise]) for k in range(8)]
    html = shown(Images(title="Many", rows=rows))
    assert html.count("<img") == 2
    assert "Not shown: 6 further rows." in html


def test_a_picture_that_is_cut_off_or_claims_to_be_huge_is_not_shown() -> None:
    start = base64.b64decode(png())
    cut = base64.b64encode(start[:8]).decode()
    huge = base64.b64encode(start[:16] + b"\0\0\xff\xff" * 2 + start[24:]).decode()
    html = shown(Images(title="Bad", rows=[ImageRow(name="r", images=[cut, huge])]))
    assert "<img" not in html
    assert html.count("damaged or too large") == 2


# ---- nothing, one, and the far ends of numbers ----

NOTHING_THERE: list[AnyPanel] = [
    Lines(title="a", lines=[]),
    Lines(title="a", lines=[Curve(name="b", x=[None, 1.0], y=[1.0, None])], marks=[1.0]),
    Bars(title="a", bars=[]),
    Bars(title="a", bars=[Bar(name="b", value=None)]),
    Scatter(title="a", sets=[]),
    Scatter(title="a", sets=[Curve(name="b", x=[None], y=[None])]),
    Heat(title="a", rows=[]),
    Heat(title="a", rows=[[None], []]),
    Images(title="a", rows=[]),
    Images(title="a", rows=[ImageRow(name="b", images=[])]),
]
ONE: list[AnyPanel] = [
    Lines(title="a", lines=[line("b", [1.0])]),
    Lines(title="a", lines=[line("b", [1.0])], log=True),
    Bars(title="a", bars=[Bar(name="b", value=0.0)]),
    Scatter(title="a", sets=[line("b", [1.0])]),
    Heat(title="a", rows=[[0.0]]),
]
FAR: list[AnyPanel] = [
    Lines(title="a", lines=[Curve(name="b", x=[-1e100, 1e100], y=[1e-320, 1e100])]),
    Lines(title="a", lines=[Curve(name="b", x=[0.0, 1e-310], y=[1e-299, 1e100])], log=True),
    Lines(title="a", lines=[line("b", [1e-12, 3e-12])]),
    Bars(title="a", bars=[Bar(name="b", value=-1e100, spread=1e100), Bar(name="c", value=1e-320)]),
    Scatter(title="a", sets=[Curve(name="b", x=[1e100, 1e-320], y=[1.0, 1.0])]),
    Heat(title="a", rows=[[1e-310, -1e100], [1e100]]),
]


@pytest.mark.parametrize("panel", NOTHING_THERE)
def test_a_panel_without_a_number_says_so(panel: AnyPanel) -> None:
    html = shown(panel)
    assert "There is nothing to draw." in html
    assert "<svg" not in html


@pytest.mark.parametrize("panel", [*ONE, *FAR])
def test_one_number_and_numbers_far_away_can_be_drawn(panel: AnyPanel) -> None:
    html = shown(panel)
    assert 'role="img"' in html
    assert not re.search(r'="[^"]*(nan|inf)\b', html)
    places = re.findall(r' (?:c?x|x1|y|y1)="(-?[\d.]+)"', html)
    assert places
    assert all(-50 <= float(place) <= 800 for place in places)


def test_an_analysis_has_at_most_so_many_panels_and_facts_on_the_page() -> None:
    facts = {f"fact {k}": k for k in range(120)}
    html = shown(*[Heat(title="a", rows=[[1.0]])] * 30, facts=facts)
    assert html.count("<figure>") == 24
    assert "Not drawn: 6 further panels." in html
    assert "Not shown: 20 further facts." in html


def test_a_file_of_another_kind_is_refused(runs_root: Path) -> None:
    (runs_root / "analysis").mkdir()
    content = {"schema": 1, "name": "a", "panels": [{"kind": "pie"}]}
    (runs_root / "analysis" / "a.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"a\.json: .*peerlearn analyse"):
        analyses_in([runs_root])


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the path")
@pytest.mark.parametrize("width", [320, 390, 1440])
def test_pictures_show_under_the_policy_and_nothing_scrolls_sideways(
    browser: Chromium, runs_root: Path, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "report.html"
    long = analysis(*every_kind(), title="a" * 200, facts={"b" * 200: "c" * 200})
    page = render(read_runs(runs_root), analyses=[analysis(*every_kind()), long])
    path.write_text(page, encoding="utf-8")
    tab = Tab(browser, path, width, "dark", True)
    loaded = "[...document.images].map((image) => image.complete && image.naturalWidth)"
    assert tab.evaluate(loaded) == [32] * 4
    assert not tab.events("Log.entryAdded")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.evaluate("document.querySelector('#pick0').click()")
    faded = "[...document.querySelectorAll('#analyses .s')].map((e) => getComputedStyle(e).opacity)"
    assert set(tab.evaluate(faded)) == {"1"}
