"""Published beside measured: what is said of figures, of their order, and of the bound."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fabricate import record
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from peerlearn.errors import UserError
from peerlearn.paper.published import DOUBTFUL, published
from peerlearn.paper.tables import INDEPENDENT, NCM, PLACES, TABLES, Line, Measure, Order, Table
from peerlearn.records.reproduction import Reproduction, read_reproduction, write_reproduction
from peerlearn.results.example import worked_example
from peerlearn.results.reproduced import STYLES, render, summary
from peerlearn.results.statistics import Known, welch
from peerlearn.results.verdicts import Measured, refuse_mixed_data, reproduction, value_of

PLACE = ("cifar100", 2000)
BOTH = (Line("er"), Line("er+ccldc"))


def measured(line: Line, values: Sequence[float], metric: str = "AA", **options: str) -> Measured:
    runs = {
        seed: record(line.method, **{"aa": 0.4, metric.lower(): value} if metric == "AA"
                     else {"aa": 0.4, metric: value}, seed=seed, data="cifar100", memory=2000,
                     **options)
        for seed, value in enumerate(values)
    }  # fmt: skip
    return Measured(line, PLACE, PLACE, runs, "paper", as_published=True)


def lite(one: Measured, scale: str = "lite") -> Measured:
    return one._replace(scale=scale, as_published=False)


def table(metric: str = "AA") -> Table:
    return replace(
        TABLES["aa"], lines=BOTH, orders=(Order(BOTH[1], BOTH[0]),), measures=(Measure(metric),)
    )


def judged(one: Sequence[float], other: Sequence[float], scale: str = "paper") -> Reproduction:
    """ER and ER with CCL-DC."""
    found = [measured(BOTH[0], one), measured(BOTH[1], other)]
    return reproduction(
        table(), found if scale == "paper" else [lite(m) for m in found], scale, "paper"
    )


class TestPublished:
    @pytest.mark.parametrize(
        ("metric", "method", "data", "memory", "by", "mean", "std"),
        [
            ("AA", "er", "cifar10", 500, "ensemble", 56.68, 1.89),
            ("AA", "onpro+ccldc", "imagenet100", 5000, "ensemble", 47.93, 1.26),
            ("LA", "er_ace", "tiny", 10000, "ensemble", 4.92, 0.95),
            ("RF", "derpp+ccldc", "cifar100", 2000, "ensemble", 39.39, 2.71),
            ("FM", "gsa+ccldc", "tiny", 2000, "ensemble", 64.86, 1.19),
            ("AA", "ocm+ccldc", "cifar100", 1000, INDEPENDENT, 34.02, 1.22),
            ("AA", "onpro", "cifar100", 2000, NCM, 34.32, 0.95),
            ("LA", "er_ace+ccldc-easy-to-hard", "cifar100", 2000, "ensemble", 39.0, 1.03),
            ("AA", "er+sdc", "cifar100", 2000, "ensemble", 41.31, 1.25),
            ("AA", "er+untrained", "cifar100", 5000, "ensemble", 41.15, 1.16),
            ("LA", "er+multiview", "cifar100", 2000, "ensemble", 64.02, 1.12),
            ("AA", "er_ace+ccl", "cifar100", 2000, "ensemble", 40.9, 1.08),
        ],
    )
    def test_figures_of_the_paper_are_carried(
        self, metric: str, method: str, data: str, memory: int, by: str, mean: float, std: float
    ) -> None:
        found = published(metric, method, data, memory, by)
        assert found is not None
        assert (100 * found.mean, 100 * found.std, found.n) == pytest.approx((mean, std, 10))

    def test_every_row_of_the_main_tables_has_its_figure(self) -> None:
        for name in ("aa", "la", "rf", "fm"):
            for line in TABLES[name].lines:
                for data, memory in PLACES:
                    assert published(name.upper(), line.method, data, memory)

    def test_every_row_of_an_ablation_has_its_figure(self) -> None:
        for name in ("ablation", "schemes", "sdc", "untrained", "ncm", "independent"):
            for line in TABLES[name].lines:
                for metric, by in TABLES[name].measures:
                    if not by.startswith("peer "):
                        assert published(metric, line.method, *PLACE, by), (name, line, metric)

    def test_what_was_not_published_is_nothing(self) -> None:
        assert published("AA", "er", "mini", 200) is None
        assert published("AA", "er+mkd", "cifar100", 2000) is None

    def test_the_rows_called_doubtful_are_those_that_contradict_themselves(self) -> None:
        """RF is about d / (AA + d) with d = FM (T - 1) / T, within four points."""
        tasks = {"cifar10": 5, "cifar100": 10, "tiny": 100, "imagenet100": 10}
        off = set()
        for line in TABLES["aa"].lines:
            for data, memory in PLACES:
                figures = (published(m, line.method, data, memory) for m in ("AA", "RF", "FM"))
                aa, rf, fm = (one.mean for one in figures if one)
                lost = fm * (tasks[data] - 1) / tasks[data]
                if abs(rf - lost / (aa + lost)) > 0.04:
                    off.add((line.method, data))
        assert off == {(method, data) for _, method, data in DOUBTFUL}


@given(
    *(st.floats(0, 1) for _ in range(2)), *(st.floats(1e-4, 0.3) for _ in range(2)),
    *(st.integers(2, 12) for _ in range(2)),
)  # fmt: skip
def test_welch_is_that_of_scipy(
    one: float, other: float, s: float, t: float, n: int, m: int
) -> None:
    found = welch(Known(one, s, n), Known(other, t, m))
    theirs = stats.ttest_ind_from_stats(one, s, n, other, t, m, equal_var=False)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    a, b = s**2 / n, t**2 / m
    freedom = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    low, high = stats.t.interval(0.95, freedom, one - other, (a + b) ** 0.5)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
    assert (found.sign == 0) == (low <= 0 <= high)


def test_welch_without_spread_has_no_p_and_one_value_is_refused() -> None:
    assert welch(Known(0.5, 0, 3), Known(0.4, 0, 3)).p is None
    assert welch(Known(0.5, 0, 3), Known(0.5, 0, 3)) == (0, None, None, None)
    with pytest.raises(UserError, match="two values or more"):
        welch(Known(0.5, 0, 1), Known(0.5, 0.1, 3))


class TestFigures:
    @pytest.mark.parametrize(
        ("values", "verdict"),
        [
            ([0.31, 0.32, 0.33], "agrees"),  # published: 31.89 ± 1.45
            ([0.41, 0.42, 0.43], "higher"),
            ([0.21, 0.22, 0.23], "lower"),
            ([0.32], ""),  # one seed has no spread
            ([], ""),
        ],
    )
    def test_a_figure_agrees_if_the_interval_of_the_difference_holds_zero(
        self, values: list[float], verdict: str
    ) -> None:
        row, _ = judged(values, []).rows
        assert row.verdict == verdict
        assert (row.measured.n if row.measured else 0) == len(values)
        assert (row.gap is not None) == (len(values) > 1)

    def test_a_figure_of_another_scale_or_data_set_is_never_said_to_agree(self) -> None:
        assert judged([0.31, 0.32, 0.33], [], "lite").rows[0].verdict == "other scale"
        moved = lite(measured(BOTH[0], [0.31, 0.32]), "paper")._replace(at=("cifar10", 500))
        found = reproduction(table(), [moved], "paper", "paper")
        assert found.rows[0].verdict == "other scale"
        assert found.rows[0].gap is None  # nothing to hold against each other
        assert "Published on cifar100, measured on cifar10." in render(found, "text")

    def test_a_row_that_leaves_its_preset_has_no_published_figure(self) -> None:
        line = Line("er+ccldc", {"stages": 2})
        found = reproduction(table(), [measured(line, [0.4, 0.41])], "paper", "paper")
        assert found.rows[0].verdict == "no figure"

    def test_forgetting_is_counted_as_in_the_published_figures(self) -> None:
        run = record("er", 0.5)
        run.__dict__["accuracy"] = type("A", (), {"ensemble": ((0.2,), (0.6, 0.5))})
        assert value_of(run, Measure("FM")) == 0  # ours is negative: the task got better

    def test_who_answers_is_kept_apart(self) -> None:
        run = record("er+ccldc", 0.5)
        peers = [{"AA": 0.4}, {"AA": 0.46}]
        more = run.summary.model_copy(update={"peers": peers, "ncm": {"AA": 0.3}})
        run = replace(run, summary=more)
        asked = {by: value_of(run, Measure("AA", by)) for by in ("peer 1", "peer 2", "peer 3")}
        assert asked == {"peer 1": 0.4, "peer 2": 0.46, "peer 3": None}
        assert value_of(run, Measure("AA", INDEPENDENT)) == pytest.approx(0.43)
        assert value_of(run, Measure("AA", NCM)) == 0.3
        assert value_of(run, Measure("AA")) == 0.5
        assert value_of(run, Measure("seconds")) == run.cost.train_seconds


class TestOrders:
    @pytest.mark.parametrize(
        ("one", "other", "verdict"),
        [
            ([0.30, 0.31, 0.33], [0.40, 0.42, 0.43], "same order"),
            ([0.40, 0.42, 0.43], [0.30, 0.31, 0.33], "opposite order"),
            ([0.30, 0.40, 0.33], [0.35, 0.36, 0.37], "undecided here"),
            ([0.30, 0.31], [0.40, 0.41], "too few seeds"),
            ([0.40, 0.39], [0.30, 0.31], "too few seeds"),
            ([0.30, 0.40], [0.40, 0.31], "too few seeds"),
            ([0.30], [0.40], "too few seeds"),
            ([0.30], [], ""),
        ],
    )
    def test_the_order_is_judged_apart_from_the_figures(
        self, one: list[float], other: list[float], verdict: str
    ) -> None:
        for scale in ("paper", "lite"):
            (order,) = judged(one, other, scale).orders
            assert order.verdict == verdict
            assert order.n == min(len(one), len(other))

    def test_what_the_paper_leaves_open_is_not_held_against_anybody(self) -> None:
        # published RF of ER, with and without CCL-DC: 39.11 ± 3.87 and 37.67 ± 2.16
        found = reproduction(
            table("RF"),
            [measured(line, [v, v + 0.01], "RF") for line, v in zip(BOTH, (0.5, 0.3), strict=True)],
            "paper",
            "paper",
        )
        assert found.orders[0].verdict == "undecided in the paper"

    def test_only_seeds_that_both_have_are_paired(self) -> None:
        first, second = measured(BOTH[0], [0.3, 0.4]), measured(BOTH[1], [0.5, 0.6, 0.7])
        shifted = second._replace(runs={k + 1: run for k, run in second.runs.items()})
        (order,) = reproduction(table(), [first, shifted], "paper", "paper").orders
        assert order.n == 1


def test_the_ensemble_is_compared_with_a_single_peer() -> None:
    line = Line("er+ccldc")
    peers = {"peers": [{"AA": 0.30}, {"AA": 0.34}]}
    runs = {
        seed: replace(run, summary=run.summary.model_copy(update=peers))
        for seed, run in measured(line, [0.40, 0.42]).runs.items()
    }
    one = measured(line, [])._replace(runs=runs)
    found = reproduction(TABLES["independent"], [one], "paper", "paper")
    (order,) = found.orders
    assert (order.row, order.other) == ("er+ccldc", "er+ccldc, independent")
    assert order.measured is not None
    assert order.measured.difference == pytest.approx(0.09)
    assert order.published is not None  # 44.45 and 43.58
    assert order.published.difference == pytest.approx(0.0087)
    assert not found.best


def test_the_bound_is_looked_at_in_every_run_and_exceptions_are_named() -> None:
    runs = {0: record("er", 0.1, LA=0.2, RF=0.42), 1: record("er", 0.2, seed=1, LA=0.2, RF=0.4)}
    runs[2] = record("er", 0.7, seed=2, LA=1.0, RF=0.3)  # a tie, but for rounding
    one = measured(BOTH[0], [])._replace(runs=runs)
    found = reproduction(table(), [one], "paper", "paper")
    assert found.bound is not None
    assert found.bound.runs == 3
    assert [(f.seed, f.bound) for f in found.bound.fails] == [(0, pytest.approx(0.116))]
    assert "holds in 2 of 3" in render(found, "text")
    assert "er, cifar100 m2000, seed 0: 10.00 < 11.60" in render(found, "text")


def test_runs_on_other_images_of_the_same_data_are_refused() -> None:
    first, second = measured(BOTH[0], [0.3]), measured(BOTH[1], [0.4], fingerprint="beef")
    with pytest.raises(UserError, match="on different images"):
        refuse_mixed_data([first, second])


def test_where_the_paper_names_a_best_the_best_here_is_named() -> None:
    grid = replace(TABLES["lambda"], lines=TABLES["lambda"].lines[:3])
    found = [measured(line, [0.3 + (k == 1)]) for k, line in enumerate(grid.lines)]
    shown = render(reproduction(grid, found, "lite", "paper"), "text")
    found[2] = measured(grid.lines[2], [])
    assert "Best" not in render(reproduction(grid, found, "lite", "paper"), "text")
    assert "The paper: the best are 0.5 for labels and 2 for distillation." in shown
    assert "Best mean here by AA: er+ccldc, label_weight=0.25, distill_weight=0.5." in shown


def test_a_doubtful_figure_is_called_so() -> None:
    line = Line("onpro+ccldc")
    found = reproduction(
        replace(TABLES["fm"], lines=(line,)), [measured(line, [])], "paper", "paper"
    )
    assert "about twice what AA and RF of the same rows imply" in render(found, "markdown")


def test_a_doubtful_figure_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOUBTFUL, ("AA", "er+ccldc", "cifar100"), "a slip")
    found = judged([0.30, 0.31, 0.33], [0.40, 0.42, 0.43])
    assert [row.verdict for row in found.rows] == ["agrees", "doubtful in the paper"]
    assert found.orders[0].verdict == "doubtful in the paper"


def test_where_the_paper_says_who_is_ahead_without_numbers_that_is_judged() -> None:
    gap = TABLES["plasticity-gap"]
    values = {"er, memory=0": 0.6, "er": 0.3, "er, updates=5": 0.4, "er, epochs=5": 0.7}
    found = [
        measured(one, [values[one.label], values[one.label] + k / 1000, values[one.label]], "LA")
        for k, one in enumerate(gap.lines)
    ]
    orders = reproduction(gap, found, "lite", "paper").orders
    assert [(o.row, o.other, o.metric, o.verdict) for o in orders] == [
        ("er, epochs=5", "er", "LA", "same order"),
        ("er, epochs=5", "er", "RF", "no figure"),
        ("er, epochs=5", "er, updates=5", "LA", "same order"),
        ("er, epochs=5", "er, updates=5", "RF", "no figure"),
    ]


def test_the_orders_are_those_that_the_paper_speaks_of() -> None:
    said = {
        name: {(o.first.label, o.second.label) for o in TABLES[name].orders}
        for name in ("untrained", "sdc", "stages", "time")
    }
    assert said["untrained"] == {("er+untrained", "er")}
    assert said["sdc"] == {("er+sdc", "er+sdc-easy-to-hard"), ("er+ccldc", "er+sdc")}
    assert said["stages"] == {("er+ccldc, stages=3", "er+ccldc, stages=0")}
    assert ("ocm+ccldc", "ocm") in said["time"]
    wrappers = {(o.first.method, o.second.method) for o in TABLES["ablation"].orders}
    assert ("er+ccldc", "er+ccl") in wrappers
    assert ("er+ccl", "er+multiview") in wrappers
    assert ("er+multiview", "er") in wrappers


def test_directions_and_units_are_told() -> None:
    forgetting = reproduction(
        table("RF"), [measured(line, [0.5, 0.51], "RF") for line in BOTH], "paper", "paper"
    )
    assert "RF: lower is better." in render(forgetting, "text")
    assert "difference: measured minus published" in render(forgetting, "text")
    times = reproduction(
        replace(TABLES["time"], lines=BOTH), [measured(line, [0.4, 0.4]) for line in BOTH],
        "paper", "paper",
    )  # fmt: skip
    shown = render(times, "text")
    assert "first minus second, in seconds" in shown
    assert re.search("er +seconds +\N{EN DASH} +44.0 s", shown)
    assert re.search("er[+]ccldc +er +\N{EN DASH} +[+]0 ", shown)


def test_every_row_says_at_which_scale_it_was_made() -> None:
    found = [lite(measured(BOTH[0], [0.3])), lite(measured(BOTH[1], [0.4]), "lite, lr=0.5")]
    shown = render(reproduction(table(), found, "lite", "paper"), "text")
    assert len(re.findall(r"lite, lr=0\.5 +paper", shown)) == 2  # a figure and an order


def test_the_worked_example_comes_out_as_printed() -> None:
    found = worked_example()
    assert len(found.rows) == 16
    assert {row.verdict for row in found.rows} == {"agrees"}
    assert summary(found) == "agrees: 16"


class TestFaces:
    found = judged([0.30, 0.31, 0.33], [0.40, 0.42, 0.43], "lite")

    def test_scale_and_profile_stand_in_every_row(self) -> None:
        for style in ("text", "markdown", "latex"):
            lines = render(self.found, style).splitlines()
            figures = [line for line in lines if "cifar100" in line and "seed" not in line]
            assert len(figures) == 3
            assert all(re.search(r"lite.*paper", line) for line in figures)

    def test_a_latex_table_has_as_many_cells_in_every_row(self) -> None:
        text = render(self.found, "latex")
        for body in re.findall(r"\\begin{tabular}{(.*?)}\n(.*?)\\end{tabular}", text, re.DOTALL):
            rows = [line for line in body[1].splitlines() if line.endswith(r"\\")]
            assert {line.count(" & ") + 1 for line in rows} == {len(body[0])}
            assert not re.search("(?<!\\\\)[_%#]|±|\N{MINUS SIGN}", "\n".join(rows))

    def test_json_is_the_record(self, tmp_path: Path) -> None:
        write_reproduction(tmp_path / "reproduced" / "aa.json", self.found)
        assert read_reproduction(tmp_path / "reproduced" / "aa.json") == self.found
        assert json.loads(render(self.found, "json"))["orders"][0]["verdict"] == "same order"

    def test_an_unknown_style_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(UserError, match="did you mean latex"):
            render(self.found, "latec")
        assert "csv" not in STYLES

    def test_a_damaged_record_says_what_to_do(self, tmp_path: Path) -> None:
        path = tmp_path / "aa.json"
        path.write_text('{"schema": 1, "name": 3}')
        with pytest.raises(UserError, match="repeat its `peerlearn reproduce` command"):
            read_reproduction(path)
