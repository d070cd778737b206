"""Folders of the first version, whose settings were flat, as it wrote them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from peerlearn.records.read import read_runs
from peerlearn.report import render as page
from peerlearn.results.compare import compare
from peerlearn.results.formats import render as table

FLAT = {
    "data": "mini", "memory": 200, "tasks": 2, "batch": 10, "blur": 0.0, "image_size": None,
    "width": 16, "stem": "3x3", "replay_batch": 64, "updates": 1, "lr": 0.0005,
    "weight_decay": 0.0001, "profile": "paper", "alpha": None, "device": "cpu",
    "precision": "fp32", "threads": 2,
}  # fmt: skip


def write(root: Path, method: str, seed: int, **given: Any) -> Path:
    """A folder of schema 1, written by hand; `given` stands for flags."""
    folder = root / "mini" / method / "m200" / f"seed{seed}"
    folder.mkdir(parents=True)
    settings = {**FLAT, "method": method, "seed": seed, **given}
    if "+" in method:
        settings |= {"peers": 2, "temperature": 4, "stages": 3}
    flags = {"data", "method", "memory", "seed", "threads", *given}
    origins = {name: "flag" if name in flags else "default" for name in settings}
    config = {"schema": 1, "settings": settings, "origins": origins, "fingerprint": "e360"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    aa = 0.3 + 0.01 * seed + (0.199 + 0.001 * seed) * ("+" in method)
    metrics = {"AA": aa, "LA": 0.6, "FM": 0.2, "RF": 0.3, "BWT": -0.2, "anytime": 0.5}
    about = {"data": "mini", "method": method, "memory": 200, "seed": seed}
    summary = {
        "schema": 1, "status": "done", **about, **metrics, "peers": [], "ncm": None,
        "cost": {"forward_per_image": 2.0, "kept_bytes": {"images": 10, "networks": 20}},
        "memory_classes": [[100, 100, 0, 0], [50, 50, 50, 50]],
    }  # fmt: skip
    matrix = {"schema": 1, "class_names": ["a", "b", "c", "d"], "classes_per_task": 2,
              "ensemble": [[0.6, None], [2 * aa - 0.6, 0.6]], "peers": [], "ncm": None}  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "accuracy.json").write_text(json.dumps(matrix))
    (folder / "environment.json").write_text(json.dumps({"torch": "2.6.0"}))
    (folder / "steps.jsonl").write_text('{"batch": 0, "task": 0, "losses": {"base": 2.3}}\n')
    return folder


@pytest.fixture
def old_runs(tmp_path: Path) -> Path:
    for seed in (0, 1, 2):
        write(tmp_path, "er", seed)
        write(tmp_path, "er+ccldc", seed)
    return tmp_path


def test_flat_settings_are_put_where_they_belong(tmp_path: Path) -> None:
    (run,) = read_runs(write(tmp_path, "er+ccldc", 3, width=32))
    settings = run.config.settings
    assert (settings["net.width"], settings["optim.lr"], settings["memory.size"]) == (32, 5e-4, 200)
    assert (settings["method.name"], settings["collaboration.name"]) == ("er", "ccldc")
    assert run.config.variant == {"width": 32}
    assert run.cost.kept_bytes == 30


def test_old_folders_are_shown_by_the_table(old_runs: Path) -> None:
    rows = json.loads(table(read_runs(old_runs), "json"))
    assert [(row["label"], row["n"]) for row in rows] == [("er", 3), ("er+ccldc", 3)]
    assert rows[1]["gain"]["difference"] == pytest.approx(0.2)


def test_old_folders_are_shown_by_the_page(old_runs: Path) -> None:
    text = page(read_runs(old_runs))
    assert "lifts er from AA 31.0 to 51.0 (3 seeds)" in text.replace("</span>", "")
    assert "after task 2, on task 1: 0.0 %" in text


def test_old_runs_of_another_width_are_another_row(old_runs: Path) -> None:
    write(old_runs / "wide", "er", 0, width=32)
    (group,) = compare(read_runs(old_runs))
    assert [one.label for one in group.series] == ["er", "er, width=32", "er+ccldc"]


@pytest.mark.parametrize("given", [{"image_size": 64}, {"alpha": 0.5}])
def test_an_old_setting_that_was_left_open_is_not_the_same_as_one_given(
    tmp_path: Path, given: dict[str, float]
) -> None:
    write(tmp_path, "derpp", 0)
    write(tmp_path, "derpp+ccldc", 0, **given)
    (group,) = compare(read_runs(tmp_path))
    (name,) = given
    assert group.series[1].gain is None
    assert group.series[1].why == f"no baseline with {name}={given[name]}"
