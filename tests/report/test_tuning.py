"""The page of a search for settings."""

import itertools
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peerlearn.records.study import Range, Study, Trial
from peerlearn.report.tuning import MOST_COLUMNS, MOST_ROWS, OPEN_ROWS, render_study
from peerlearn.results.formats import NOTHING

from .test_browser import CHROMIUM, Chromium, Tab
from .test_page import EVIL, Reader, headline

SETTINGS: dict[str, Any] = {"optim.name": "sgd", "optim.lr": 0.01}


def done(number: int, value: float | None, **settings: Any) -> Trial:
    named = {name.replace("__", "."): setting for name, setting in settings.items()}
    return Trial(number=number, state="done", value=value, settings=SETTINGS | named, seconds=90)


def study(trials: list[Trial], **values: Any) -> Study:
    found = [t for t in trials if t.state == "done" and t.value is not None]
    best = max(found, key=lambda t: t.value or 0).number if found else None
    about: dict[str, Any] = {
        "method": "er", "data": "mini", "memory": 200, "search": "tpe", "wanted": 10,
        "space": {"optim.name": ["adamw", "sgd"], "optim.lr": Range(low=1e-4, high=1, log=True)},
        "stream": {"seeds": [100, 101], "images per class": 50},
        "evaluation": "the test images.", "trials": trials, "best": best,
        "command": ["peerlearn", "tune", "er"],
    }  # fmt: skip
    return Study(**about | values)


def many(n: int) -> Study:
    """A search of eight settings, some trials stopped or failed."""
    space: dict[str, Any] = {f"group.setting_{k}": Range(low=0, high=1) for k in range(6)}
    trials = []
    for k in range(n):
        settings = dict.fromkeys(space, k * 7919 % 1009 / 1009)
        state = "done" if k % 5 else "pruned" if k % 10 else "failed"
        aa = (k * 104729 % 997) / 997
        trials.append(
            Trial(number=k, state=state, value=aa if k % 5 else None, settings=SETTINGS | settings,
                  running=[0.8, 0.7], seconds=100 + k, why="" if k % 5 else "below the median")
        )  # fmt: skip
    importance = dict.fromkeys(space, 1 / 6)
    return study(trials, space=space, importance=importance, importance_by="fANOVA", wanted=n)


def part(page: str, key: str) -> str:
    """A section of the page."""
    return page.split(f'<section id="{key}"')[1].split("</section>")[0]


def test_the_headline_says_the_best_aa_and_how_many_trials_there_were() -> None:
    trials = [done(0, 0.4), done(1, 0.4567, optim__lr=0.1)]
    trials += [Trial(number=2, state="pruned"), Trial(number=3, state="failed")]
    page = render_study(study(trials), preset="er.yaml")
    assert headline(page) == "er reaches AA 45.7 in the best of 2 trials"
    text = Reader(page).text
    assert "4 of 10 trials asked for: 2 done, 1 pruned, 1 failed." in text
    assert "Settings of trial 1, as a preset in er.yaml." in text
    assert "running" not in text


def test_what_it_could_see_and_what_was_not_touched_is_said() -> None:
    shown = Reader(
        render_study(study([done(0, 0.4)], stream={"seeds": [7, 8], "x": {"a": 1}}))
    ).text
    assert "seeds7, 8" in shown
    assert '{"a": 1}' in shown
    assert "Not touched: the test images." in shown
    shown = Reader(render_study(study([], stream={}, evaluation=""))).text
    assert "The tuning stream was not declared." in shown
    assert "it is not said what was kept for the evaluation." in shown


def test_the_best_so_far_is_a_line_that_pruned_and_failed_trials_take_no_part_in() -> None:
    trials = [
        done(0, 0.3),
        Trial(number=1, state="pruned", running=[0.9], settings=SETTINGS, why="below the median"),
        Trial(number=2, state="pruned", value=0.8, settings=SETTINGS),
        Trial(number=3, state="failed", why="out of memory"),
        done(4, 0.5),
        done(5, 0.4),
    ]
    shown = part(render_study(study(trials)), "history")
    assert re.findall(r'scope="row">trial (\d)', shown) == ["0", "4"]
    kinds = dict(re.findall(r'<(\w+) [^>]*data-tip="trial (\d)', shown))
    assert kinds == {"polygon": "4", "circle": "5", "path": "3"}  # the last of each shape
    assert 'data-tip="trial 1: stopped after task 1, at 90.0 %"' in shown
    assert 'data-tip="trial 2: 80.0 %, stopped"' in shown
    # within the axis of AA, 20 to 80 in percent, there is no place for a task's 90 %
    assert ">90</text>" not in shown


def test_shapes_not_only_colours_tell_the_trials_apart() -> None:
    trials = [done(0, 0.3), done(1, 0.2), Trial(number=2, state="pruned"),
              Trial(number=3, state="failed"), Trial(number=4, state="running")]  # fmt: skip
    page = render_study(study(trials))
    legend = part(page, "history").split("</ul>")[0]
    shapes = re.findall(r'<svg viewBox="0 0 18 16" aria-hidden="true"><(.*?)/>', legend)
    drawn = [re.sub(r"c\d|[\d.]+", "", shape) for shape in shapes]
    assert len(set(drawn)) == len(drawn) == 5


def test_importance_is_in_percent_and_says_how_it_was_computed() -> None:
    shares = {"optim.lr": 0.756, "optim.name": 0.244}
    page = render_study(study([done(0, 0.4)], importance=shares, importance_by="fANOVA, 8 trials"))
    text = part(page, "importance")
    assert "75.6 %" in text
    assert "24.4 %" in text
    assert "Computed by fANOVA, 8 trials." in text


def test_without_importance_a_line_stands_in_its_place() -> None:
    shown = part(render_study(study([done(0, 0.4)])), "importance")
    assert "Left out: it was not computed" in shown
    assert "<svg" not in shown


def test_a_setting_has_a_log_axis_if_it_was_searched_so_or_spans_a_wide_range() -> None:
    space = {"a": Range(low=1, high=10, log=True), "b": [1, 100], "c": Range(low=1, high=10),
             "d": Range(low=0, high=1000)}  # fmt: skip
    trials = [done(0, 0.4, a=1.0, b=1, c=2.0, d=0.0), done(1, 0.5, a=9.0, b=100, c=9.0, d=999.0)]
    shown = part(render_study(study(trials, space=space)), "slices")
    charts = re.findall(r"<figcaption>(\w)</figcaption>(.*?)</svg>", shown)
    assert {name: "log scale" in chart for name, chart in charts} == {
        "a": True, "b": True, "c": False, "d": False,
    }  # fmt: skip


def test_texts_and_truths_have_a_column_each() -> None:
    space = {"optim.name": ["adamw", "sgd"], "nesterov": [True, False]}
    trials = [done(0, 0.4, nesterov=True), done(1, 0.5, optim__name="adamw", nesterov=False)]
    shown = part(render_study(study(trials, space=space)), "slices")
    for name in ("adamw", "sgd", "true", "false"):
        assert f'text-anchor="middle">{name}</text>' in shown


def test_a_setting_that_only_some_trials_have_is_drawn_for_those() -> None:
    trials = [done(0, 0.4), done(1, 0.5, optim__momentum=0.9), done(2, 0.3)]
    page = render_study(study(trials, space={"optim.momentum": [0.0, 0.9]}))
    assert "optim.momentum (1 of 3 trials)" in part(page, "slices")
    table = part(page, "trials")
    assert table.count(f"<td>{NOTHING}</td>") == 2
    assert table.count("<td>0.9</td>") == 1


def test_a_best_value_at_the_end_of_its_range_is_pointed_out() -> None:
    space = {"a": Range(low=0, high=1), "b": [1, 2, 3], "c": [1, 2], "d": Range(low=0, high=9)}
    page = render_study(study([done(0, 0.4, a=1.0, b=1, c=1, d=5.0)], space=space))
    assert "a and b are at the ends of their ranges: better values may lie outside." in page


def test_trials_stand_by_their_aa_and_those_without_one_last() -> None:
    trials = [done(0, 0.3), Trial(number=1, state="failed", why="out of memory"), done(2, 0.5),
              Trial(number=3, state="pruned", running=[0.7], why="below the median"),
              done(4, math.nan)]  # fmt: skip
    shown = part(render_study(study(trials)), "trials")
    assert re.findall(r'scope="row">(\d)</th>', shown) == ["2", "0", "4", "3", "1"]
    assert "<strong>50.0</strong>" in shown
    assert "after task 1, at 70.0 %: below the median" in shown
    assert "out of memory" in shown
    assert "nan" not in shown.lower()


def test_long_tables_are_folded_and_what_is_left_out_is_said() -> None:
    shown = part(render_study(many(OPEN_ROWS + 30)), "trials")
    assert "30 further trials" in shown
    assert "Left out" not in shown
    wide = {f"s{k:02}": k for k in range(MOST_COLUMNS + 5)}
    trials = [done(k, 0.5, **wide) for k in range(MOST_ROWS + 7)]
    shown = part(render_study(study(trials, space={})), "trials")
    assert shown.count('scope="row"') == MOST_ROWS
    assert "not in study.json: 7 trials at the end of this order and 7 settings." in shown


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ([], "No trial has a result yet"),
        ([Trial(number=0, state="running")], "No trial has a result yet"),
        ([Trial(number=0, state="failed")], "The only trial failed"),
        ([Trial(number=k, state="failed", why="no") for k in range(4)], "All 4 trials failed"),
        ([done(0, math.nan)], "No trial has a result yet"),
        ([done(0, 0.0)], "er reaches AA 0.0 in the only trial with a result"),
        ([done(9, 1.0)], "er reaches AA 100.0 in the only trial with a result"),
    ],
)
def test_a_search_that_has_found_little_still_makes_a_page(trials: list[Trial], said: str) -> None:
    page = render_study(study(trials, wanted=0))
    Reader(page)
    assert headline(page) == said
    assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S)


def test_a_search_of_nothing_makes_a_page() -> None:
    empty = study([done(0, 0.4)], space={}, stream={}, evaluation="", command=[])
    assert "Nothing was searched." in Reader(render_study(empty)).text


@pytest.mark.parametrize("low", [5e-324, 1e-30, 1e-12, 1.0, 1e99])
@pytest.mark.parametrize("factor", [1, 1 + 1e-15, 2, 1e3, 1e200])
@pytest.mark.parametrize("log", [True, False])
def test_any_numbers_can_be_drawn(low: float, factor: float, log: bool) -> None:
    high = min(low * factor, 1e100)
    space = {"x": Range(low=low, high=high, log=log), "y": [10**200, 1], "z": [0, -low]}
    trials = [done(0, 0.4, x=low, y=10**200, z=0), done(1, 0.5, x=high, y=1, z=-low)]
    page = render_study(study(trials, space=space))
    Reader(page)
    assert "inf" not in part(page, "slices").replace("overflow", "")


def test_values_of_any_kind_can_be_settings() -> None:
    odd: list[Any] = [None, True, 3, 0.5, "text", [1, [2]], {"a": [None]}, "x" * 5000, 10**299]
    trials = [done(k, k / 10, odd=value) for k, value in enumerate(odd)]
    page = render_study(study(trials, space={"odd": odd}))
    assert "x" * 100 not in page.split('id="made"')[0]


def test_names_and_values_from_files_are_text_wherever_they_stand() -> None:
    evil = f"{EVIL}\ud800\x00"
    trials = [
        Trial(
            number=0, state="done", value=0.4, settings={evil: evil, f"{EVIL}.2": 1}, runs=[evil]
        ),
        Trial(number=1, state="done", value=0.5, settings={evil: 1, f"{EVIL}.2": 2}, runs=[evil]),
        Trial(number=2, state="failed", why=evil),
    ]
    page = render_study(
        study(trials, method=evil, data=evil, space={evil: [evil, 1], f"{EVIL}.2": [1, 2]},
              stream={evil: [evil], "x": {evil: evil}}, evaluation=evil, importance={evil: 0.5},
              importance_by=evil, peerlearn=evil, command=[evil]),
        title=evil, preset=evil,
    )  # fmt: skip
    page.encode("utf-8")  # a lone surrogate would not pass
    read = Reader(page)
    names = [tag for tag, _ in read.tags]
    assert names.count("script") == 1
    assert not {"img", "iframe", "object", "link"} & set(names)
    assert not [a for _, attrs in read.tags for a in attrs if a.startswith("on")]
    assert read.text.count(EVIL) > 8


def test_a_thousand_trials_stay_small() -> None:
    assert len(render_study(many(1000))) < 2_000_000


def test_ten_thousand_trials_stay_bearable_and_the_drawing_says_what_it_leaves_out() -> None:
    page = render_study(many(10_000))
    assert len(page) < 4_000_000
    assert re.search(r"AA in % by trial, \d+ of 8000 trials drawn", page)


def test_the_page_needs_no_network_and_its_policy_allows_none() -> None:
    page = render_study(many(20))
    assert not re.search(r"https?://|url\(|@import|//cdn", page)
    read = Reader(page)
    for _, attrs in read.tags:
        assert "src" not in attrs
        assert "style" not in attrs
        assert (attrs.get("href") or "#").startswith("#")
    (policy,) = [a["content"] or "" for _, a in read.tags if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_every_image_has_a_name_every_id_is_unique_and_every_link_finds_its_target() -> None:
    read = Reader(render_study(many(20)))
    images = [a for t, a in read.tags if t == "svg"]
    assert all(
        (a.get("role") == "img" and a.get("aria-label")) or a.get("aria-hidden") for a in images
    )
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in read.tags:
        for target in (attrs.get("aria-labelledby"), (attrs.get("href") or "")[1:]):
            assert not target or target in ids
    levels = [int(t[1]) for t, _ in read.tags if re.fullmatch(r"h\d", t)]
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_equal_studies_give_equal_bytes() -> None:
    assert render_study(many(60)) == render_study(many(60))


def test_the_page_of_a_search_needs_neither_torch_nor_optuna() -> None:
    code = (
        "import sys, peerlearn.report.tuning; "
        "sys.exit(bool({'torch', 'optuna'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if CHROMIUM is None:
        pytest.skip("needs chromium on the path")
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Callable[[Study, int], Tab]:
    def opened(shown: Study, width: int) -> Tab:
        path = tmp_path / "tuning.html"
        path.write_text(render_study(shown), encoding="utf-8")
        return Tab(browser, path, width, "light", scripts=True)

    return opened


@pytest.mark.parametrize("width", [320, 380, 768, 1440])
def test_the_body_never_scrolls_sideways(show: Callable[[Study, int], Tab], width: int) -> None:
    long = "a.very.long.name.of.a.setting." + "x" * 90
    trials = [done(0, 0.4, **{long: "y" * 90}), done(1, 0.5, **{long: "z" * 50})]
    trials.append(Trial(number=2, state="failed", why="w" * 300))
    wide = study(
        trials, space={long: ["y" * 90, "z" * 50]}, importance={long: 1.0}, method="m" * 90
    )
    tab = show(wide, width)
    tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("innerWidth") == width


def test_a_browser_finds_no_fault_with_the_policy_and_every_table_can_be_focused(
    show: Callable[[Study, int], Tab],
) -> None:
    tab = show(many(70), 1440)
    assert tab.events("Log.entryAdded") == []
    assert tab.events("Runtime.exceptionThrown") == []
    code = """[...document.querySelectorAll('table')].every((table) => {
        const box = table.closest('.scroll');
        return box && box.tabIndex === 0 && box.getAttribute('aria-label');
    })"""
    assert tab.evaluate(f"Boolean({code})")
