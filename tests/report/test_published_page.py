"""Tables of the paper on the page, where `peerlearn reproduce` has left them."""

from pathlib import Path

import pytest

from peerlearn.cli import main
from peerlearn.errors import UserError
from peerlearn.records.read import read_runs
from peerlearn.records.reproduction import Compared, Reproduction, Value, write_reproduction
from peerlearn.report import render
from peerlearn.report.published import reproductions_in
from peerlearn.results.example import worked_example

from .test_page import EVIL, Reader

CORE = Path(__file__).parents[2] / "docs" / "results" / "core.json"


def with_row(row: str) -> Reproduction:
    value = Value(mean=0.5, std=0.01, n=3)
    one = Compared(
        row=row, data="cifar10", memory=500, at_data="cifar10", at_memory=200, metric="AA",
        by="ensemble", scale="paper", published=value, measured=value, verdict="agrees",
    )  # fmt: skip
    return worked_example().model_copy(update={"rows": [one], "title": row, "name": "aa"})


def test_the_section_is_there_when_there_are_tables(tmp_path: Path) -> None:
    runs = read_runs(CORE)
    assert 'id="published"' not in render(runs)
    write_reproduction(tmp_path / "reproduced" / "a.json", worked_example())
    page = render(runs, tables=reproductions_in([tmp_path]))
    assert page.index('id="summary"') < page.index('id="published"') < page.index('id="stream"')
    assert "Forgetting of two example learners (Table 1 of the paper)" in page
    assert page.count(">agrees<") == 16
    assert 'href="#published"' in page
    assert 'href="#published-0"' not in page  # one needs no list
    assert 'href="#published-1"' in render(runs, tables=[worked_example()] * 2)


def test_names_are_text_and_never_markup() -> None:
    page = render(read_runs(CORE), tables=[with_row(EVIL)])
    assert EVIL not in page
    assert Reader(page)  # well-formed


def test_a_damaged_table_stops_the_page_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reproduced").mkdir()
    (tmp_path / "reproduced" / "aa.json").write_text("{")
    with pytest.raises(UserError, match="repeat its `peerlearn reproduce` command"):
        reproductions_in([tmp_path])
    out = tmp_path / "page.html"
    assert main(["report", str(CORE), str(tmp_path), "--out", str(out)]) == 2
    assert not out.exists()
    assert capsys.readouterr().err.count("\n") == 1
