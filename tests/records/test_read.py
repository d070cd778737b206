import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from fabricate import opened

from peerlearn import safe_yaml
from peerlearn.errors import UserError
from peerlearn.records import read
from peerlearn.records.read import RunRecord, read_config, read_runs
from peerlearn.report import render as page
from peerlearn.results.formats import render as table

SOURCE = Path(__file__).parents[2] / "src" / "peerlearn"
Fabricate = Callable[..., Path]


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def read_all(folder: Path) -> RunRecord:
    """A run with every file of it read."""
    (run,) = read_runs(folder)
    _ = run.accuracy, run.environment, run.memory_classes, run.steps
    return run


def test_every_run_below_a_folder_is_read_in_order(runs_root: Path) -> None:
    runs = read_runs(runs_root)
    assert [(run.method, run.seed) for run in runs] == [
        ("er", 0), ("er", 1), ("er+ccldc", 0), ("er+ccldc", 1),
    ]  # fmt: skip
    first, last = runs[0], runs[-1]
    assert (first.data, first.memory, first.summary.status) == ("mini", 200, "done")
    assert [len(row) for row in first.matrix] == [1, 2, 3, 4, 5]
    assert first.metrics["AA"] == pytest.approx(first.accuracy_over_stream[-1])
    assert first.cost.kept_bytes == 200 * 3072 + 2_800_000
    assert (len(first.summary.peers), len(last.summary.peers)) == (0, 2)
    assert first.classes_of(0) == ", ".join(first.accuracy.class_names[:2])
    assert first.config.origins["optim.lr"] == "preset"
    assert first.config.settings["net.width"] == 16


def test_a_single_run_folder_can_be_given(fabricate_run: Fabricate) -> None:
    folder = fabricate_run()
    assert [run.folder for run in read_runs(folder)] == [folder]


def test_several_roots_are_read_together_and_one_within_the_other_once(runs_root: Path) -> None:
    assert len(read_runs([runs_root / "mini" / "er", runs_root / "mini" / "er+ccldc"])) == 4
    assert len(read_runs([runs_root, runs_root / "mini" / "er"])) == 4


def test_a_half_written_last_step_is_left_out(fabricate_run: Fabricate) -> None:
    folder = fabricate_run()
    whole = read_runs(folder)[0].steps
    with (folder / "steps.jsonl").open("a") as file:
        file.write('{"batch": 999, "losses": {"ba')
    assert read_runs(folder)[0].steps == whole


def test_a_damaged_step_in_the_middle_is_named_by_its_line(fabricate_run: Fabricate) -> None:
    path = fabricate_run() / "steps.jsonl"
    path.write_text("not json\n" + path.read_text())
    with pytest.raises(UserError, match=r"steps\.jsonl: line 1 is damaged; delete that line"):
        _ = read_runs(path.parent)[0].steps


def test_a_run_that_is_just_starting_is_left_out(fabricate_run: Fabricate) -> None:
    folder = fabricate_run()
    (folder / "summary.json").unlink()
    with pytest.raises(UserError, match="no runs in this folder"):
        read_runs(folder)


@pytest.mark.parametrize("name", ["config.yaml", "accuracy.json", "environment.json",
                                  "steps.jsonl"])  # fmt: skip
def test_a_missing_file_of_a_finished_run_is_named_with_a_remedy(
    fabricate_run: Fabricate, name: str
) -> None:
    folder = fabricate_run()
    (folder / name).unlink()
    with pytest.raises(UserError) as raised:
        read_all(folder)
    message = str(raised.value)
    assert message.startswith(f"{folder / name}: the file is missing; restore it, or delete")
    assert "\n" not in message


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "accuracy.json",
                                  "environment.json"])  # fmt: skip
@pytest.mark.parametrize("text", ['{"a": ', "[1]", "", "\x00\x01", "[" * 5000])
def test_a_damaged_file_is_named_with_a_remedy(
    fabricate_run: Fabricate, name: str, text: str
) -> None:
    folder = fabricate_run()
    (folder / name).write_text(text)
    with pytest.raises(UserError, match="repeat its `peerlearn run` command") as raised:
        read_all(folder)
    assert str(folder / name) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "values", "fault"),
    [
        ("summary.json", {"status": "asleep"}, "status is 'asleep', not one of running"),
        ("summary.json", {"AA": "high"}, "AA is 'high', not a number"),
        ("summary.json", {"seed": -1}, "seed is -1, not at least 0"),
        ("summary.json", {"method": 3}, "method is 3, not a text"),
        ("summary.json", {"cost": 3}, "cost is 3, not a mapping"),
        ("summary.json", {"memory_classes": [["x"]]},
         "memory_classes.0.0 is 'x', not a whole number"),
        ("summary.json", {"peers": 2}, "peers is 2, not a list"),
        ("summary.json", {"schema": None}, "schema is None, not 2"),
        ("summary.json", {"schema": 3}, "schema 3 is newer than 2; update peerlearn"),
        ("accuracy.json", {"schema": 2}, "schema 2 is newer than 1; update peerlearn"),
        ("accuracy.json", {"ensemble": [[0.5], [0.5]]}, "row 1 of an accuracy matrix needs 2"),
        ("accuracy.json", {"ensemble": [[0.5, 0.1]]}, "row 0 of an accuracy matrix needs 1"),
        ("accuracy.json", {"ensemble": [[50.0]]}, "row 0 of an accuracy matrix is not between"),
        ("accuracy.json", {"classes_per_task": "2"}, "classes_per_task is '2'"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_file(
    fabricate_run: Fabricate, name: str, values: dict[str, object], fault: str
) -> None:
    folder = fabricate_run()
    change(folder / name, **values)
    with pytest.raises(UserError) as raised:
        read_all(folder)
    assert f"{folder / name}: {fault}" in str(raised.value)


def test_a_table_opens_only_settings_and_summaries(
    fabricate_run: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of files are written
    for method in ("er", "er+ccldc", "gsa", "gsa+ccldc"):
        for seed in range(30):
            fabricate_run(method, seed=seed, tasks=2, classes=4)
    names = opened(monkeypatch)
    rows = json.loads(table(read_runs(tmp_path / "runs"), "json"))
    assert [row["n"] for row in rows] == [30] * 4
    assert names == {"config.yaml": 120, "summary.json": 120}


def test_settings_of_a_series_are_parsed_once_and_each_run_has_its_seed(
    fabricate_run: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [fabricate_run(m, seed=k) for m in ("er", "gsa") for k in (0, 3, 7, 12)]
    parsed: list[str] = []

    def from_yaml(text: str) -> object:
        parsed.append(text)
        return safe_yaml.from_yaml(text)

    monkeypatch.setattr(read, "from_yaml", from_yaml)
    runs = {run.folder: run for run in read_runs(tmp_path / "runs")}
    assert len(parsed) == 2
    assert [runs[folder].config for folder in folders] == [read_config(f) for f in folders]
    assert [runs[folder].config.settings["seed"] for folder in folders[:4]] == [0, 3, 7, 12]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("width: 16", "width: 32"),  # an edit by hand
        ("  seed: 1\n", "  seed: 5\n"),
        ("  seed: 1\n", ""),
        ("  seed: 1\n", "  seed: one\n"),
        ("  seed: 1\n", "  seed: 01\n"),
        ("  profile: paper\n", "  profile: |\n    a\n    seed: 1\n"),
        ("  seed: 1\n  profile: paper\n", '  seed:  1\n  profile: "a\n  seed: 3\n  b"\n'),
        ("seed: 1\nvariant: {}\n", 'seed:  1\nvariant: {a: "\nseed: 1\n"}\n'),
    ],
)
def test_settings_that_were_edited_are_read_as_they_are(
    fabricate_run: Fabricate, tmp_path: Path, old: str, new: str
) -> None:
    for seed in (0, 1, 2):
        path = fabricate_run(seed=seed) / "config.yaml"
        if seed:
            path.write_text(path.read_text().replace(old.replace("1", str(seed)), new))
    runs = read_runs(tmp_path / "runs")
    assert [run.config for run in runs] == [read_config(run.folder) for run in runs]


def test_a_damaged_matrix_stops_no_table_and_every_page(
    fabricate_run: Fabricate, tmp_path: Path
) -> None:
    (fabricate_run() / "accuracy.json").write_text("{")
    runs = read_runs(tmp_path / "runs")
    assert json.loads(table(runs, "json"))[0]["n"] == 1
    with pytest.raises(UserError, match=r"accuracy\.json: the file is not JSON"):
        page(runs)


def test_settings_that_unfold_without_end_are_refused(fabricate_run: Fabricate) -> None:
    folder = fabricate_run()
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    settings = "".join(f"  {line}\n" for line in bomb.splitlines())
    (folder / "config.yaml").write_text(f"schema: 1\nsettings:\n{settings}")
    with pytest.raises(UserError, match="over 10000 values once its aliases are followed"):
        read_runs(folder)


def test_a_config_can_make_no_objects(fabricate_run: Fabricate) -> None:
    folder = fabricate_run()
    (folder / "config.yaml").write_text("schema: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(UserError, match=r"config\.yaml: the file is not YAML"):
        read_runs(folder)


def test_a_run_that_just_began_needs_only_its_summary_and_config(
    fabricate_run: Fabricate,
) -> None:
    folder = fabricate_run(status="running", reached=0)
    for name in ("accuracy.json", "environment.json", "steps.jsonl"):
        (folder / name).unlink()
    change(folder / "summary.json", cost=None, peers=None, memory_classes=None)
    (run,) = read_runs(folder)
    assert (run.summary.status, run.matrix, run.steps) == ("running", (), ())
    assert run.cost.train_seconds is None


def test_undefined_numbers_are_none(fabricate_run: Fabricate) -> None:
    folder = fabricate_run(tasks=1, classes=10)
    path = folder / "summary.json"
    path.write_text(path.read_text().replace('"FM": null', '"FM": NaN'))
    (run,) = read_runs(folder)
    assert run.metrics["FM"] is None
    assert run.metrics["BWT"] is None


def test_a_folder_without_runs_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no runs in this folder; make some with `peerlearn run"):
        read_runs(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        read_runs(tmp_path / "nowhere")


def test_a_checkpoint_is_not_taken_for_a_run(fabricate_run: Fabricate) -> None:
    folder = fabricate_run()
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "summary.json").write_text("{}")
    assert len(read_runs(folder)) == 1


def test_numbers_of_a_yaml_file_keep_their_types(fabricate_run: Fabricate) -> None:
    folder = fabricate_run(settings={"note": "yes: no", "optim.lr": 1e-4})
    assert yaml.safe_load((folder / "config.yaml").read_text())["settings"]["optim"]["lr"] == 1e-4
    (run,) = read_runs(folder)
    assert (run.config.settings["note"], run.config.settings["optim.lr"]) == ("yes: no", 1e-4)


@pytest.mark.parametrize("package", ["records", "results", "report"])
def test_no_module_of_the_branch_without_torch_names_it(package: str) -> None:
    for path in (SOURCE / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in ("torch", "numpy"), path
                assert name.split(".")[:2][-1] not in ("learner", "data", "experiment"), path


def test_table_and_page_are_imported_without_torch_and_scipy() -> None:
    code = (
        "import sys, peerlearn.results.formats, peerlearn.report, peerlearn.records.read; "
        "assert not {'torch', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
