import csv
import io
import json
from pathlib import Path

import pytest
from fabricate import cost_of, fabricate, record

from peerlearn.errors import UserError
from peerlearn.records.read import RunRecord, read_runs
from peerlearn.records.schema import Cost
from peerlearn.results.compare import BEST, compare
from peerlearn.results.formats import MINUS, NOTHING, STYLES, render, size
from peerlearn.units import duration

HUMAN = ("text", "markdown", "latex")


def pair() -> list[RunRecord]:
    """`er` and `er+ccldc` on three seeds, CCL-DC ahead in AA and behind in FM."""
    runs = [record(aa=aa, seed=k, FM=0.2 + k / 100) for k, aa in enumerate((0.40, 0.41, 0.42))]
    dear = cost_of(14.0, 74.0, 191.8, 4.0, 1.2e9, 614_400.0)
    runs += [
        record("er+ccldc", aa, seed=k, FM=0.26 + k / 99, cost=dear)
        for k, aa in enumerate((0.50, 0.53, 0.53))
    ]
    return runs


def cells(text: str, head: str, place: int = 1) -> str:
    """A cell of a Markdown table by the name of its column."""
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()]
    return lines[place + 1][lines[0].index(head)]


def test_text_has_aligned_columns_with_the_best_marked() -> None:
    assert render(pair(), "text").splitlines()[:4] == [
        "data  memory  method    n            AA             LA             FM             RF"
        "                                  gain  forward  backward    training      peak      kept",
        "mini     200  er        3  41.00 ± 1.00   60.00 ± 0.00*  21.00 ± 1.00*  30.00 ± 0.00*"
        f"                                    {NOTHING}     2.0x      2.0x      44.0 s  350.0 MB"
        "    3.4 MB",
        "mini     200  er+ccldc  3  52.00 ± 1.73*  60.00 ± 0.00*  27.01 ± 1.01   30.00 ± 0.00*"
        "  +11.0 [+8.5, +13.5] (p 0.0027, n 3)    14.0x     74.0x  3 min 12 s    1.2 GB  614.4 kB",
        "",
    ]  # fmt: skip


@pytest.mark.parametrize("style", HUMAN)
def test_the_rule_of_the_marks_and_the_directions_stand_below_the_table(style: str) -> None:
    text = render(pair(), style)
    assert BEST in text
    assert "AA, LA: higher is better; FM, RF: lower is better" in text


def test_runs_and_their_comparison_give_the_same_table() -> None:
    assert render(compare(pair()), "json") == render(pair(), "json")


def test_two_variants_are_two_rows_with_their_settings() -> None:
    runs = [*pair(), record("er+ccldc", 0.9, settings={"optim.lr": 0.01})]
    text = render(runs, "markdown")
    assert [cells(text, "method", k) for k in (1, 2, 3)] == ["er", "er+ccldc", "er+ccldc, lr=0.01"]
    assert (cells(text, "gain", 3), cells(text, "note", 3)) == (NOTHING, "no baseline with lr=0.01")


def test_what_cannot_be_told_apart_is_marked_together() -> None:
    runs = [record(aa=aa, seed=k) for k, aa in enumerate((0.40, 0.50, 0.45))]
    runs += [record("gsa", aa, seed=k) for k, aa in enumerate((0.42, 0.49, 0.47))]
    text = render(runs, "markdown")
    assert [cells(text, "AA", k) for k in (1, 2)] == ["**45.00 ± 5.00**", "**46.00 ± 3.61**"]


@pytest.mark.parametrize("style", HUMAN)
def test_one_seed_marks_nothing(style: str) -> None:
    shown = render([record(aa=0.4), record("gsa", 0.9)], style)
    table = shown.split("AA, LA")[0] if style != "latex" else shown
    assert "*" not in table
    assert "textbf" not in table


@pytest.mark.parametrize(
    ("aa", "shown"),
    [((0.55, 0.55), "+5.0 (equal in all seeds: no p, n 2)"),
     ((0.45, 0.47), f"{MINUS}4.0 [{MINUS}16.7, +8.7] (p 0.16, n 2)"),
     ((0.5, 0.5), "+0.0 (equal in all seeds: no p, n 2)"), ((0.61,), "+11.0 (n 1)"),
     ((0.51, 0.49), f"+0.0 [{MINUS}12.7, +12.7] (p 1.00, n 2)")],
)  # fmt: skip
def test_the_gain_is_shown_with_sign_interval_p_and_number_of_pairs(
    aa: tuple[float, ...], shown: str
) -> None:
    runs = [record(aa=0.5, seed=k) for k in (0, 1)]
    runs += [record("er+ccldc", value, seed=k) for k, value in enumerate(aa)]
    line = render(runs, "text").splitlines()[2]
    assert f" {shown} " in line


def test_columns_without_any_content_are_left_out() -> None:
    plain = render([record(cost=Cost(forward_per_image=2.0))], "markdown").splitlines()[0]
    assert plain == "| data | memory | method | n | AA | LA | FM | RF | forward |"


def test_unfinished_runs_show_in_the_table() -> None:
    text = render([record(), record("gsa", None, status="running")], "markdown")
    assert (cells(text, "AA", 2), cells(text, "note", 2)) == (NOTHING, "1 unfinished")


def test_latex_is_a_tabular_with_rules_and_escapes() -> None:
    runs = [record("er_ace", 0.4, seed=k, FM=-0.05 + k / 1000) for k in (0, 1)]
    runs += [record("er_ace+ccldc", 0.5, seed=k) for k in (0, 1)]
    runs += [record(data="my_50%&co")]
    text = render(runs, "latex")
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert lines[0].startswith(r"\begin{tabular}{lrlrrrrr")
    assert lines[1] == r"\toprule"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert text.count(r"\midrule") == 2
    assert r"er\_ace & 2 & 40.00 $\pm$ 0.00 &" in text
    assert r"\textbf{$-$4.95 $\pm$ 0.07}" in text
    assert r"er\_ace+ccldc & 2 & \textbf{50.00 $\pm$ 0.00} &" in text
    assert r"my\_50\%\&co & 200" in text
    columns = lines[2].count("&")
    assert all(line.replace(r"\&", "").count("&") == columns for line in lines if "200" in line)


def test_names_cannot_break_a_table_or_steer_a_terminal() -> None:
    runs = [record(data="a|b\x1b[31m\nc", settings={"x": "\x1b[2J"})]
    assert "\x1b" not in render(runs, "text")
    assert "a|b?[31m?c" in render(runs, "text")
    assert r"| a\|b?" in render(runs, "markdown")
    assert json.loads(render(runs, "json"))[0]["data"] == "a|b\x1b[31m\nc"


def test_csv_has_plain_numbers() -> None:
    alone, peers = csv.DictReader(io.StringIO(render(pair(), "csv")))
    assert (alone["method"], alone["n"], alone["seeds"]) == ("er", "3", "0 1 2")
    assert float(peers["AA"]) == pytest.approx(0.52)
    assert float(peers["AA_std"]) == pytest.approx(0.0173205)
    assert float(peers["AA_low"]) == pytest.approx(0.52 - 4.302653 * 0.01)
    assert (alone["gain"], alone["gain_p"], alone["gain_n"]) == ("", "", "")
    assert float(peers["gain"]) == pytest.approx(0.11)
    assert float(peers["gain_low"]) == pytest.approx(0.11 - 4.302653 * 0.01 / 3**0.5)
    assert peers["gain_n"] == peers["gain_RF_n"] == "3"
    assert float(peers["train_seconds"]) == pytest.approx(191.8)
    assert float(peers["kept_bytes"]) == 614_400


def test_json_has_numbers_from_0_to_1_and_null_where_there_is_nothing() -> None:
    runs = [*pair(), record(memory=500, FM=float("nan"), settings={"optim.lr": 0.01})]
    text = render(runs, "json")
    assert "NaN" not in text
    alone, peers, single = json.loads(text)
    assert (peers["data"], peers["memory"], peers["method"]) == ("mini", 200, "er+ccldc")
    assert (peers["n"], peers["seeds"], peers["variant"]) == (3, [0, 1, 2], {})
    assert (peers["AA"], peers["AA_std"]) == (pytest.approx(0.52), pytest.approx(0.0173205))
    assert peers["AA_low"] < 0.52 < peers["AA_high"]
    assert {"baseline", "difference", "p", "n", "low", "high"} <= set(peers["gain"])
    assert peers["gain"]["baseline"] == "er"
    assert [name for name, gain in peers["gains"].items() if gain] == ["AA", "LA", "FM", "RF"]
    assert peers["gains"]["FM"]["difference"] == pytest.approx(0.0601, abs=1e-4)
    assert alone["gain"] is None
    assert peers["cost"] == {
        "forward_per_image": 14.0, "backward_per_image": 74.0,
        "train_seconds": pytest.approx(191.8), "eval_seconds": 4.0, "peak_bytes": 1.2e9,
        "kept_bytes": 614_400.0, "flops": None, "relative": None, "updates_per_image": None,
        "image_flops": None,
    }  # fmt: skip
    assert (single["FM"], single["AA_std"], single["AA_low"], single["note"]) == (None,) * 4
    assert (single["method"], single["variant"]) == ("er", {"lr": 0.01})


def test_json_and_csv_say_the_same() -> None:
    records = json.loads(render(pair(), "json"))
    lines = csv.DictReader(io.StringIO(render(pair(), "csv")))
    names = ("AA", "LA", "FM", "RF", "RF_std", "RF_low", "RF_high")
    for row, line in zip(records, lines, strict=True):
        assert {name: float(line[name]) for name in names} == {name: row[name] for name in names}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_shows_every_row_and_ends_without_a_newline(style: str) -> None:
    text = render(pair(), style)
    assert not text.endswith("\n")
    assert "er+ccldc" in text
    assert not render([], style).endswith("\n")


def test_an_unknown_style_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="no table style 'markdwon'; did you mean markdown"):
        render([], "markdwon")


def test_run_folders_on_disk_become_rows(tmp_path: Path) -> None:
    for seed in (0, 1):
        fabricate(tmp_path, "er", seed=seed)
        fabricate(tmp_path, "er+ccldc", seed=seed)
    rows = json.loads(render(read_runs(tmp_path), "json"))
    assert [(row["method"], row["seeds"]) for row in rows] == [("er", [0, 1]), ("er+ccldc", [0, 1])]
    assert rows[1]["gain"]["n"] == 2


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s"), (192, "3 min 12 s"),
     (3599.4, "59 min 59 s"), (3599.6, "1 h 0 min"), (90_000, "25 h 0 min")],
)  # fmt: skip
def test_durations_are_in_the_units_of_people(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (999.4, "999 B"), (999.6, "1.0 kB"), (999_960, "1.0 MB"), (1.2e9, "1.2 GB"),
     (4.5e12, "4500.0 GB")],
)  # fmt: skip
def test_sizes_are_in_the_units_of_people(number: float, shown: str) -> None:
    assert size(number) == shown
