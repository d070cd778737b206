"""Every committed record of runs comes from a sweep in the repository, setting by setting."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from peerlearn.records.read import read_runs
from peerlearn.records.schema import MACHINE, later_settings
from peerlearn.studies.grid_file import from_file

HOME = Path(__file__).parents[2]
RESULTS = HOME / "docs" / "results"
SWEEPS = {
    "core": ["core"],
    "wrappers": ["wrappers", "wrappers-further"],
    "streams": ["streams"],
    "paper": ["paper"],
    "authors-ours": ["authors"],
    "wrappers-tuning": ["wrappers-tuning"],
}
SCRIPTS = {  # records that are not of sweeps, and the page that says how they were made
    "live": ("results/live.md", "scripts/measure_live.py"),
    "authors": ("results/authors.md", "scripts/authors_page.py"),
    "precision": ("precision.md", "peerlearn run er $SMALL"),
}
DROPPED = {"alpha": 0.05, "distill_weight": 5.5}  # one seed, not in the sweep: wrappers.md says so


def key(settings: Mapping[str, Any]) -> str:
    """All settings that decide numbers; those that came later as runs before them had them."""
    known = {name: value for name, value in settings.items() if name not in MACHINE}
    method = f"{settings['method.name']}+{settings['collaboration.name'] or ''}"
    return json.dumps({**later_settings(method), **known}, sort_keys=True)


def wanted(name: str) -> list[Any]:
    files = [HOME / "sweeps" / f"{sweep}.yaml" for sweep in SWEEPS[name]]
    return [wish.run for file in files for wish in from_file(file).runs()]


def test_every_record_has_its_sweeps_or_a_page_that_says_how_it_was_made() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} == {*SWEEPS, *SCRIPTS}
    for page, command in SCRIPTS.values():
        assert command in (HOME / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in SWEEPS if name != "wrappers-tuning"])
def test_every_run_of_a_record_is_one_of_its_sweeps(name: str) -> None:
    known = {key(run.values) for run in wanted(name)}
    found = [key(run.config.settings) for run in read_runs(RESULTS / f"{name}.json")]
    assert [one for one in found if one not in known] == []


@pytest.mark.parametrize("name", ["paper", "authors-ours", "core", "streams"])
def test_a_sweep_makes_nothing_that_the_record_lacks(name: str) -> None:
    found = {key(run.config.settings) for run in read_runs(RESULTS / f"{name}.json")}
    assert [key(run.values) for run in wanted(name) if key(run.values) not in found] == []


def test_a_setting_outside_the_variant_tells_two_runs_apart() -> None:
    run, *_ = wanted("authors-ours")
    assert key(run.values) != key({**run.values, "method.augment": "full_aligned"})
    assert key(run.values) == key({**run.values, "machine.threads": 7})


def test_what_was_tuned_is_of_its_sweep() -> None:
    def settings(method: str, variant: dict[str, Any]) -> str:
        names = ("alpha", "distill_weight", "shadow_weight")
        usual = {"alpha": 0.1} if method == "er+ema-chain" else {}  # today its default
        known = {k: float(v) for k, v in {**usual, **variant}.items() if k in names}
        return f"{method} {[known.get(name) for name in names]}"

    known = {(settings(run.method, run.variant), run.seed) for run in wanted("wrappers-tuning")}
    rows = json.loads((RESULTS / "wrappers-tuning.json").read_text(encoding="utf-8"))
    kept = [row for row in rows if not DROPPED.items() <= row["variant"].items()]
    found = {(settings(r["method"], r["variant"]), seed) for r in kept for seed in r["seeds"]}
    assert len(rows) - len(kept) <= 6
    assert found - known == set()
