import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from peerlearn.errors import UserError
from peerlearn.report import read_runs
from peerlearn.report.formats import MINUS, NOTHING, STYLES, duration, render, size
from peerlearn.report.reading import Cost, Run
from peerlearn.report.tables import Row, summarise

HUMAN = ("text", "markdown", "latex")


def run(
    method: str = "er",
    aa: float | None = 0.5,
    *,
    seed: int = 0,
    data: str = "mini",
    memory: int = 200,
    status: str = "done",
    settings: dict[str, Any] | None = None,
    cost: Cost | None = None,
    **metrics: float | None,
) -> Run:
    return Run(
        folder=Path("runs") / data / method / f"m{memory}" / f"seed{seed}",
        data=data,
        method=method,
        memory=memory,
        seed=seed,
        status=status,
        metrics={"AA": aa, "LA": 0.6, "FM": 0.2, "RF": 0.3, **metrics},
        cost=cost or Cost(2.0, 2.0, 44.0, 4.0, 350e6, 3.4e6),
        settings={"seed": seed, "lr": 0.001, "tasks": 5, **(settings or {})},
        origins={},
        environment={},
    )


def pair() -> list[Row]:
    """Return `er` and `er+ccldc` on three seeds, CCL-DC ahead in AA and behind in FM."""
    runs = [run(aa=aa, seed=k) for k, aa in enumerate((0.40, 0.41, 0.42))]
    dear = Cost(14.0, 74.0, 191.8, 4.0, 1.2e9, 614_400.0)
    runs += [
        run("er+ccldc", aa, seed=k, FM=0.25, cost=dear) for k, aa in enumerate((0.50, 0.53, 0.53))
    ]
    return summarise(runs)


def cells(text: str, head: str, place: int = 1) -> str:
    """Return a cell of a Markdown table by the name of its column."""
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()]
    return lines[place + 1][lines[0].index(head)]


def test_a_row_has_mean_and_sample_deviation_of_each_metric() -> None:
    row = summarise([run(aa=0.4, seed=0, LA=0.7), run(aa=0.6, seed=2, LA=0.7)])[0]
    assert (row.data, row.memory, row.method, row.n, row.seeds) == ("mini", 200, "er", 2, (0, 2))
    assert row.metrics["AA"] == pytest.approx((0.5, 0.02**0.5))
    assert row.metrics["LA"] == (0.7, 0.0)
    assert list(row.metrics) == ["AA", "LA", "FM", "RF"]
    assert row.note == ""


def test_one_seed_has_no_deviation() -> None:
    row = summarise([run(aa=0.4)])[0]
    assert row.metrics["AA"] == (0.4, None)


def test_costs_are_means_over_the_seeds_that_measured_them() -> None:
    costs = [Cost(train_seconds=10.0, peak_bytes=5.0), Cost(train_seconds=20.0)]
    row = summarise([run(seed=k, cost=cost) for k, cost in enumerate(costs)])[0]
    assert row.cost == Cost(train_seconds=15.0, peak_bytes=5.0)


def test_unfinished_runs_are_in_no_mean_but_in_a_note() -> None:
    runs = [run(aa=0.4), run(aa=0.9, seed=1, status="running"), run(seed=2, status="failed"),
            run(seed=3, status="running")]  # fmt: skip
    row = summarise(runs)[0]
    assert (row.n, row.seeds, row.metrics["AA"]) == (1, (0,), (0.4, None))
    assert row.note == "1 failed, 2 running"


def test_a_method_without_a_finished_run_keeps_its_row() -> None:
    row = summarise([run(aa=None, status="running")])[0]
    assert (row.n, row.metrics["AA"], row.cost, row.gain) == (0, None, Cost(), None)


def test_a_metric_that_is_not_defined_has_no_mean() -> None:
    assert summarise([run(FM=None)])[0].metrics["FM"] is None
    assert summarise([run(FM=float("nan"))])[0].metrics["FM"] is None


def test_rows_are_sorted_by_data_memory_and_baseline_before_variants() -> None:
    names = [("mini", 1000, "er"), ("mini", 200, "onpro"), ("mini", 200, "er+sdc"),
             ("mini", 200, "er+ccldc"), ("mini", 200, "er"), ("cifar10", 500, "gsa")]  # fmt: skip
    rows = summarise([run(method, data=data, memory=m) for data, m, method in names])
    assert [(row.data, row.memory, row.method) for row in rows] == [
        ("cifar10", 500, "gsa"), ("mini", 200, "er"), ("mini", 200, "er+ccldc"),
        ("mini", 200, "er+sdc"), ("mini", 200, "onpro"), ("mini", 1000, "er"),
    ]  # fmt: skip


def test_the_gain_is_over_the_baseline_on_the_same_seeds() -> None:
    alone, peers = pair()
    assert alone.gain is None
    assert peers.gain is not None
    assert peers.gain.n == 3
    assert peers.gain.difference == pytest.approx(0.11)
    t = 0.11 / (0.01 / 3**0.5)
    assert peers.gain.p == pytest.approx(1 - t / (2 + t * t) ** 0.5)  # two degrees of freedom


def test_seeds_that_only_one_side_has_finished_are_not_paired() -> None:
    runs = [run(aa=0.4, seed=0), run(aa=0.1, seed=1), run(aa=0.1, seed=2, status="running")]
    runs += [run("er+ccldc", 0.5, seed=k) for k in (0, 2, 3)]
    gain = summarise(runs)[1].gain
    assert gain is not None
    assert (gain.n, round(gain.difference, 9), gain.p) == (1, 0.1, None)


def test_a_seed_without_a_number_is_not_paired() -> None:
    runs = [run(aa=float("nan"), seed=0), run(aa=None, seed=1), run(aa=0.25, seed=2)]
    runs += [run("er+ccldc", 0.5, seed=k) for k in range(3)]
    assert summarise(runs)[1].gain == (1, 0.25, None)


def test_a_baseline_with_other_data_or_memory_is_no_baseline() -> None:
    runs = [run("er+ccldc"), run(memory=500), run(data="tiny"), run("gsa")]
    assert [row.gain for row in summarise(runs)] == [None] * 4


def test_a_baseline_on_another_stream_gives_no_gain_and_a_note() -> None:
    rows = summarise([run(), run("er+ccldc", settings={"tasks": 10, "lr": 0.1})])
    assert rows[1].gain is None
    assert rows[1].note == "no gain: tasks unlike its baseline"


def test_runs_with_different_settings_are_not_averaged() -> None:
    runs = [run(seed=0), run(seed=1, settings={"lr": 0.01})]
    with pytest.raises(UserError) as raised:
        summarise(runs)
    message = str(raised.value)
    assert message.startswith(f"{runs[0].folder} and {runs[1].folder} differ in the setting lr")
    assert "(0.001, 0.01)" in message
    assert "\n" not in message


def test_a_setting_that_only_one_run_has_counts_as_different_unless_it_is_none() -> None:
    with pytest.raises(UserError, match=r"setting blur \(None, 0\.1\)"):
        summarise([run(seed=0), run(seed=1, settings={"blur": 0.1})])
    assert summarise([run(seed=0), run(seed=1, settings={"blur": None})])[0].n == 2


def test_settings_may_differ_between_methods_and_in_unfinished_runs() -> None:
    other = {"lr": 0.01}
    runs = [run(), run("er+ccldc", settings=other), run(seed=1, settings=other, status="failed")]
    assert [row.n for row in summarise(runs)] == [1, 1]


def test_the_same_seed_is_not_counted_twice() -> None:
    with pytest.raises(UserError, match="are both seed 0; remove one"):
        summarise([run(), run()])


def test_run_folders_on_disk_become_rows(runs_root: Path) -> None:
    rows = summarise(read_runs(runs_root))
    assert [(row.method, row.seeds) for row in rows] == [("er", (0, 1)), ("er+ccldc", (0, 1))]
    assert rows[1].gain is not None
    assert rows[1].gain.n == 2


def test_text_has_aligned_columns_with_the_best_marked() -> None:
    assert render(pair(), "text").splitlines()[:4] == [
        "data  memory  method    n            AA             LA             FM             RF"
        "                    gain  forward   backward     training       peak       kept",
        "mini     200  er        3  41.00 ± 1.00   60.00 ± 0.00   20.00 ± 0.00*  30.00 ± 0.00"
        f"                       {NOTHING}     2.0x*      2.0x*      44.0 s*  350.0 MB*    3.4 MB",
        "mini     200  er+ccldc  3  52.00 ± 1.73*  60.00 ± 0.00   25.00 ± 0.00   30.00 ± 0.00"
        "   +11.0 (p 0.0027, n 3)    14.0x      74.0x   3 min 12 s     1.2 GB   614.4 kB*",
        "",
    ]


def test_the_best_is_chosen_within_one_data_and_memory() -> None:
    runs = [run(aa=0.4), run("gsa", 0.3), run(aa=0.9, memory=500), run("gsa", 0.8, memory=500)]
    text = render(summarise(runs), "markdown")
    shown = [cells(text, "AA", k) for k in (1, 2, 3, 4)]
    assert shown == ["**40.00**", "30.00", "**90.00**", "80.00"]


def test_values_that_look_equal_are_equally_good() -> None:
    runs = [run(aa=0.40001), run("ocm", 0.40002), run("gsa", 0.3)]
    text = render(summarise(runs), "markdown")
    assert [cells(text, "AA", k) for k in (1, 2, 3)] == ["**40.00**", "**40.00**", "30.00"]


@pytest.mark.parametrize("style", HUMAN)
def test_nothing_is_best_without_a_rival(style: str) -> None:
    shown = render(summarise([run(), run(memory=500)]), style)
    table = shown.split("AA, LA")[0] if style != "latex" else shown
    assert "*" not in table
    assert "textbf" not in table


@pytest.mark.parametrize(
    ("aa", "shown"),
    [((0.55, 0.55), "+5.0 (p <0.001, n 2)"), ((0.45, 0.47), f"{MINUS}4.0 (p 0.16, n 2)"),
     ((0.5, 0.5), "+0.0 (p 1.00, n 2)"), ((0.61,), "+11.0 (n 1)"),
     ((0.51, 0.49), "+0.0 (p 1.00, n 2)")],
)  # fmt: skip
def test_the_gain_is_shown_with_sign_p_and_number_of_pairs(
    aa: tuple[float, ...], shown: str
) -> None:
    runs = [run(aa=0.5, seed=k) for k in (0, 1)]
    runs += [run("er+ccldc", value, seed=k) for k, value in enumerate(aa)]
    line = render(summarise(runs), "text").splitlines()[2]
    assert f" {shown} " in line


def test_columns_without_any_content_are_left_out() -> None:
    plain = render(summarise([run(cost=Cost(forward_per_image=2.0))]), "markdown").splitlines()[0]
    assert plain == "| data | memory | method | n | AA | LA | FM | RF | forward |"


def test_unfinished_runs_show_in_the_table() -> None:
    text = render(summarise([run(), run("gsa", None, status="running")]), "markdown")
    assert (cells(text, "AA", 2), cells(text, "note", 2)) == (NOTHING, "1 running")


def test_latex_is_a_tabular_with_rules_and_escapes() -> None:
    runs = [run("er_ace", 0.4, FM=-0.05), run("er_ace+ccldc", 0.5), run(data="my_50%&co")]
    text = render(summarise(runs), "latex")
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert lines[0].startswith(r"\begin{tabular}{lrlrrrrr")
    assert lines[1] == r"\toprule"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert text.count(r"\midrule") == 2
    assert r"mini & 200 & er\_ace & 1 & 40.00 & 60.00 & \textbf{$-$5.00} &" in text
    assert r"er\_ace+ccldc & 1 & \textbf{50.00} &" in text
    assert r"my\_50\%\&co & 200" in text
    columns = lines[2].count("&")
    assert all(line.replace(r"\&", "").count("&") == columns for line in lines if "200" in line)


def test_names_cannot_break_a_table_or_steer_a_terminal() -> None:
    rows = summarise([run(data="a|b\x1b[31m\nc")])
    assert "\x1b" not in render(rows, "text")
    assert "a|b?[31m?c" in render(rows, "text")
    assert r"| a\|b?" in render(rows, "markdown")
    assert json.loads(render(rows, "json"))[0]["data"] == "a|b\x1b[31m\nc"


def test_csv_has_plain_numbers() -> None:
    alone, peers = csv.DictReader(io.StringIO(render(pair(), "csv")))
    assert (alone["method"], alone["n"], alone["seeds"]) == ("er", "3", "0 1 2")
    assert float(peers["AA"]) == pytest.approx(0.52)
    assert float(peers["AA_std"]) == pytest.approx(0.0173205)
    assert (alone["gain"], alone["gain_p"], alone["gain_n"]) == ("", "", "")
    assert float(peers["gain"]) == pytest.approx(0.11)
    assert peers["gain_n"] == "3"
    assert float(peers["train_seconds"]) == pytest.approx(191.8)
    assert float(peers["kept_bytes"]) == 614_400


def test_json_has_numbers_from_0_to_1_and_null_where_there_is_nothing() -> None:
    rows = [*pair(), *summarise([run(memory=500, FM=float("nan"))])]
    text = render(rows, "json")
    assert "NaN" not in text
    alone, peers, single = json.loads(text)
    assert (peers["data"], peers["memory"], peers["method"]) == ("mini", 200, "er+ccldc")
    assert (peers["n"], peers["seeds"]) == (3, [0, 1, 2])
    assert (peers["AA"], peers["AA_std"]) == (pytest.approx(0.52), pytest.approx(0.0173205))
    assert set(peers["gain"]) == {"baseline", "difference", "p", "n"}
    assert peers["gain"]["baseline"] == "er"
    assert alone["gain"] is None
    assert peers["cost"] == {
        "forward_per_image": 14.0, "backward_per_image": 74.0,
        "train_seconds": pytest.approx(191.8), "eval_seconds": 4.0, "peak_bytes": 1.2e9,
        "kept_bytes": 614_400.0,
    }  # fmt: skip
    assert (single["FM"], single["AA_std"], single["note"]) == (None, None, None)


def test_json_and_csv_say_the_same() -> None:
    records = json.loads(render(pair(), "json"))
    for record, line in zip(
        records, csv.DictReader(io.StringIO(render(pair(), "csv"))), strict=True
    ):
        assert {name: float(line[name]) for name in ("AA", "LA", "FM", "RF", "RF_std")} == {
            name: record[name] for name in ("AA", "LA", "FM", "RF", "RF_std")
        }


@pytest.mark.parametrize("style", STYLES)
def test_every_style_shows_every_row_and_ends_without_a_newline(style: str) -> None:
    text = render(pair(), style)
    assert not text.endswith("\n")
    assert text.count("er+ccldc") == 1
    assert not render([], style).endswith("\n")


def test_an_unknown_style_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="no table style 'markdwon'; did you mean markdown"):
        render([], "markdwon")


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
