"""Figures for a paper: files that parse, the same bytes each time, their numbers beside them."""

import base64
import csv
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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
from peerlearn.report.figure_files import write_figure

from .test_analyses_page import FAR, NOTHING_THERE, ONE, analysis, every_kind, line, png
from .test_page import EVIL

pytest.importorskip("matplotlib")
FORMS = ("svg", "pdf", "png")
SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path) -> list[str]:
    """What an SVG says, as text."""
    return ["".join(found.itertext()) for found in ElementTree.parse(path).iter(f"{SVG}text")]


def parses(path: Path) -> bool:
    """Whether a figure is what its name says."""
    match path.suffix:
        case ".svg":
            return ElementTree.parse(path).getroot().tag == f"{SVG}svg"
        case ".pdf":
            return path.read_bytes().startswith(b"%PDF")
        case _:
            with Image.open(path) as image:
                image.load()
                return image.format == "PNG"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_panel_becomes_a_file_of_the_same_bytes(form: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"a.{form}", tmp_path / f"b.{form}"
    for out in (first, second):
        write_figure(analysis(*every_kind()), out)
    assert parses(first)
    assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.parametrize("form", ["svg", "png"])
def test_another_process_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    source, out = tmp_path / "a.json", tmp_path / f"a.{form}"
    write_analysis(source, analysis(*every_kind()))
    found = []
    for seed in ("1", "2"):
        words = [sys.executable, "-m", "peerlearn", "figure", str(source), "--out", str(out)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "DISPLAY": "", "MPLBACKEND": "svg"}
        subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)
        found.append(out.read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("panel", [*NOTHING_THERE, *ONE, *FAR])
def test_nothing_one_number_and_numbers_far_away_can_be_drawn(
    panel: AnyPanel, tmp_path: Path
) -> None:
    write_figure(analysis(panel), tmp_path / "a.svg")
    assert parses(tmp_path / "a.svg")
    said = "There is nothing to draw." in texts(tmp_path / "a.svg")
    assert said == (panel in NOTHING_THERE)


def test_text_stays_text_and_no_name_is_taken_for_a_formula(tmp_path: Path) -> None:
    both: list[float | None] = [1.0, 2.0]
    names = [EVIL, r"$\frac{1}$", "\x00\x1b\ufffe", "<b>"]
    panels: list[AnyPanel] = [
        Lines(title=r"$\alpha$ & <i>", lines=[line(name, both) for name in names]),
        Bars(title="b\x07", bars=[Bar(name=name, value=1.0) for name in names]),
        Scatter(title="c", sets=[line(name * 2, both) for name in names]),
        Heat(title="d", rows=[both], row_names=names[:1], column_names=names[1:3]),
    ]
    for form in FORMS:
        write_figure(analysis(*panels, title=EVIL), tmp_path / f"a.{form}")
        assert parses(tmp_path / f"a.{form}")
    said = texts(tmp_path / "a.svg")
    assert r"$\alpha$ & <i>" in said
    assert r"$\frac{1}$" in said
    assert "???" in said
    tags = {element.tag for element in ElementTree.parse(tmp_path / "a.svg").iter()}
    assert f"{SVG}script" not in tags


def test_letters_that_the_font_lacks_are_said(tmp_path: Path) -> None:
    panel = Lines(title="\N{CJK UNIFIED IDEOGRAPH-732B}", lines=[line("a", [1.0, 2.0])])
    assert "not in the font" in " ".join(write_figure(analysis(panel), tmp_path / "a.png"))
    assert not write_figure(analysis(panel), tmp_path / "a.svg")  # where they stay letters


@pytest.mark.parametrize(("width", "pixels"), [("column", 990), ("page", 2070), ("4", 1200)])
def test_a_figure_is_as_wide_as_was_asked(width: str, pixels: int, tmp_path: Path) -> None:
    source, out = tmp_path / "a.json", tmp_path / "a.png"
    write_analysis(source, analysis(*every_kind()[:2]))
    assert main(["figure", str(source), "--out", str(out), "--width", width]) == 0
    with Image.open(out) as image:
        assert image.size[0] == pixels
        assert round(image.info["dpi"][0]) == 300


def test_all_text_is_of_eight_points_but_the_numbers_in_cells(tmp_path: Path) -> None:
    write_figure(analysis(*every_kind()[:3]), tmp_path / "a.svg")
    found = ElementTree.parse(tmp_path / "a.svg").iter(f"{SVG}text")
    assert {"8px" in (one.get("style") or "") for one in found} == {True}


def test_pages_have_panels_side_by_side(tmp_path: Path) -> None:
    for width in (3.3, 6.9):
        write_figure(analysis(*every_kind()[:2]), tmp_path / f"{width}.png", width=width)
    sizes = [Image.open(tmp_path / f"{width}.png").size for width in (3.3, 6.9)]
    assert sizes[0][1] > sizes[1][1]


def test_one_panel_can_be_chosen(tmp_path: Path) -> None:
    write_figure(analysis(*every_kind()), tmp_path / "a.svg", panel=2)
    assert "Entropy" in texts(tmp_path / "a.svg")
    assert "Loss" not in texts(tmp_path / "a.svg")
    assert {row["panel"] for row in rows_of(tmp_path / "a.csv")} == {"2"}


# ---- the numbers beside it ----


def test_the_table_holds_every_number_as_it_is(tmp_path: Path) -> None:
    curve = Curve(name="er", x=[0.1, 1 / 3, 2.0], y=[1e-300, None, -1.5])
    panels: list[AnyPanel] = [
        Lines(title="a", lines=[curve], marks=[1.0], log=True),
        Bars(title="b", bars=[Bar(name="er, X0", value=0.1 + 0.2, spread=1e-9)]),
        Scatter(title="c", sets=[curve]),
        Heat(title="d", rows=[[1 / 7, None], [2.0]], row_names=["cat"], column_names=["dog"]),
    ]
    notes = write_figure(analysis(*panels), tmp_path / "fig.svg")
    assert notes == ["a: Left out: 1 value not above 0, for which a log axis has no place."]
    found = [
        (row["panel"], row["kind"], row["name"], row["x"], row["y"], row["spread"])
        for row in rows_of(tmp_path / "fig.csv")
    ]
    points = [(repr(0.1), repr(1e-300)), (repr(1 / 3), ""), (repr(2.0), repr(-1.5))]
    assert found == [
        *(("1", "lines", "er", x, y, "") for x, y in points),
        ("1", "lines", "a task begins", "1.0", "", ""),
        ("2", "bars", "er, X0", "", repr(0.1 + 0.2), "1e-09"),
        *(("3", "scatter", "er", x, y, "") for x, y in points),
        ("4", "heat", "cat", "dog", repr(1 / 7), ""),
        ("4", "heat", "cat", "2", "", ""),
        ("4", "heat", "2", "dog", "2.0", ""),
    ]


def test_pictures_go_into_a_folder_byte_by_byte(tmp_path: Path) -> None:
    rows = [ImageRow(name="cat", images=[png(1), png(2)]), ImageRow(name="dog", images=[png(3)])]
    panel = Images(title="Views", column_names=["X0", "X1"], rows=rows)
    out, folder = tmp_path / "fig.svg", tmp_path / "fig-images"
    write_figure(analysis(panel), out)
    (folder / "mine.png").write_bytes(b"mine")
    listed = {(row["name"], row["x"]): row["y"] for row in rows_of(tmp_path / "fig.csv")}
    assert (folder / listed["cat", "X1"]).read_bytes() == base64.b64decode(png(2))
    assert (folder / listed["dog", "X0"]).read_bytes() == base64.b64decode(png(3))
    write_figure(analysis(Images(title="Views", rows=rows[1:])), out)  # a smaller one
    assert sorted(path.name for path in folder.iterdir()) == [
        "mine.png",
        "panel1-row1-column1.png",
    ]
    assert (folder / "panel1-row1-column1.png").read_bytes() == base64.b64decode(png(3))


def test_a_figure_without_pictures_has_no_folder(tmp_path: Path) -> None:
    write_figure(analysis(*every_kind()[:1]), tmp_path / "fig.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig.csv", "fig.svg"]


# ---- many ----


def test_many_points_lines_bars_and_rows_are_bounded_and_said(tmp_path: Path) -> None:
    wave: list[float | None] = [float(k % 97) for k in range(5000)]
    panels: list[AnyPanel] = [
        Lines(title="a", lines=[line(f"l{k}", wave[:50]) for k in range(30)]),
        Bars(title="b", bars=[Bar(name=f"b{k}", value=1.0) for k in range(70)]),
        Scatter(title="c", sets=[line(f"s{k}", wave) for k in range(3)]),
        Scatter(title="d", sets=[line(f"t{k}", [1.0]) for k in range(100)]),
        Images(title="e", rows=[ImageRow(name=str(k), images=[png()]) for k in range(30)]),
    ]
    notes = write_figure(analysis(*panels), tmp_path / "a.svg")
    assert notes == [
        "a: Left out: 6 further lines.",
        "b: 10 bars are not drawn.",
        "c: 9,999 of 15,000 points are drawn.",
        "d: 100 names are too many for a legend.",
        "e: 6 rows of pictures are not drawn.",
    ]
    assert (tmp_path / "a.svg").stat().st_size < 4_000_000
    assert len(rows_of(tmp_path / "a.csv")) == 30 * 50 + 70 + 3 * 5000 + 100 + 30


def test_a_large_matrix_stays_small(tmp_path: Path) -> None:
    rows: list[list[float | None]] = [[float(i * j % 7) for j in range(300)] for i in range(300)]
    write_figure(analysis(Heat(title="a", rows=rows)), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size < 1_000_000


# ---- what cannot be done ----

Refused = Callable[[dict[str, Any], str], None]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Ask for a figure that is refused, and look at the one line that says why."""
    write_analysis(tmp_path / "a.json", analysis(*every_kind()[:2]))

    def ask(flags: dict[str, Any], why: str) -> None:
        words = [str(word) for pair in flags.items() for word in pair]
        before = sorted(tmp_path.rglob("*"))
        assert main(["figure", str(tmp_path / "a.json"), *words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert why in said
        assert sorted(tmp_path.rglob("*")) == before

    return ask


@pytest.mark.parametrize("name", ["a.jpg", "a", ".svg", "a.csv", "a.svg.gz"])
def test_a_wrong_suffix_is_refused(name: str, refused: Refused, tmp_path: Path) -> None:
    refused({"--out": tmp_path / name}, "a figure's name ends in one of .svg, .pdf, .png")


@pytest.mark.parametrize("width", ["wide", "0.5", "13", "nan", "-3", ""])
def test_a_width_that_no_paper_has_is_refused(width: str, refused: Refused, tmp_path: Path) -> None:
    refused({"--out": tmp_path / "a.svg", "--width": width}, "not column, page or a number of")


@pytest.mark.parametrize("panel", ["0", "3", "-1"])
def test_a_panel_that_is_not_there_is_refused(panel: str, refused: Refused, tmp_path: Path) -> None:
    refused({"--out": tmp_path / "a.svg", "--panel": panel}, "choose one from 1 to 2")


def test_a_folder_and_a_place_that_is_not_there_are_refused(
    refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / "b.svg").mkdir()
    refused({"--out": tmp_path / "b.svg"}, "this is a folder; name a file")
    refused({"--out": tmp_path / "nowhere" / "a.svg"}, "cannot be written (No such file")


def test_without_matplotlib_the_extra_is_named(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused({"--out": tmp_path / "a.svg"}, "pip install 'peerlearn[figures]'")


def test_no_panels_and_too_many_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is nothing to draw"):
        write_figure(analysis(), tmp_path / "a.svg")
    with pytest.raises(UserError, match=r"20 panels, more than the 12 .* --panel"):
        write_figure(analysis(*every_kind() * 4), tmp_path / "a.svg")
    assert not write_figure(analysis(*every_kind() * 4), tmp_path / "a.svg", panel=20)


def test_a_picture_that_is_damaged_or_huge_is_refused_by_its_place(tmp_path: Path) -> None:
    start = base64.b64decode(png())
    for content, why in ((start[:60], "is damaged"), (start[:16] + b"\xff" * 8, "1024 pixels")):
        code = base64.b64encode(content).decode()
        row = ImageRow(name="cat", images=[png(), code])
        with pytest.raises(UserError, match=f"row 1, column 2 .*{why.split()[-1]}"):
            write_figure(analysis(Images(title="Views", rows=[row])), tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


def test_an_existing_figure_is_replaced_and_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real.svg").write_text("old")
    (tmp_path / "a.svg").symlink_to("real.svg")
    (tmp_path / "a.csv").write_text("old")
    write_figure(analysis(every_kind()[0]), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").is_symlink()
    assert parses(tmp_path / "real.svg")
    assert (tmp_path / "a.csv").read_text().startswith("panel,title,kind,name,x,y,spread\n")
    assert len(list(tmp_path.iterdir())) == 3


def test_neither_a_window_nor_torch_nor_the_style_of_the_user_takes_part(tmp_path: Path) -> None:
    write_analysis(tmp_path / "a.json", analysis(*every_kind()))
    code = (
        "import sys, matplotlib\n"
        "matplotlib.rcParams['font.size'] = 30\n"
        "from peerlearn.cli import main\n"
        "main(['figure', 'a.json', '--out', 'b.svg'])\n"
        "assert matplotlib.rcParams['font.size'] == 30\n"
        "sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path)
    assert done.returncode == 0
    write_figure(Analysis(**analysis(*every_kind()).model_dump()), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_figure_is_told_of_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values: list[float | None] = [-1.0, 2.0]
    write_analysis(tmp_path / "a.json", analysis(Lines(title="L", lines=[line("b", values)],
                                                       log=True)))  # fmt: skip
    assert main(["figure", str(tmp_path / "a.json"), "--out", str(tmp_path / "a.pdf")]) == 0
    said = io.StringIO(capsys.readouterr().out).readlines()
    assert said[0].endswith(f"3.3 inches wide, its numbers are in {tmp_path / 'a.csv'}\n")
    assert said[1] == "  L: Left out: 1 value not above 0, for which a log axis has no place.\n"
