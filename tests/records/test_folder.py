from pathlib import Path

import pytest
from fabricate import config_of, fabricate

from peerlearn.files import Log
from peerlearn.records.folder import RunFolder, run_path, variant_name
from peerlearn.records.read import read_run


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    config = config_of("er+ccldc", "mini", 200, 3, {"optim.lr": 0.01}, "f00d", {"mine": "a.py 1"})
    folder = RunFolder(tmp_path)
    folder.write_config(config)
    assert folder.config() == config
    assert folder.finished(tasks=5) is None


def test_numbers_that_are_not_defined_come_back_as_none(tmp_path: Path) -> None:
    run = read_run(fabricate(tmp_path, "er", tasks=1))
    assert run.metrics["FM"] is None
    assert run.metrics["AA"] == pytest.approx(run.accuracy_over_stream[-1])


def test_a_variant_has_a_folder_of_its_own(tmp_path: Path) -> None:
    plain, other = (
        run_path(tmp_path, config_of("er", "mini", 200, 1, variant, "f00d", {}))
        for variant in ({}, {"optim.lr": 0.01})
    )
    assert plain == tmp_path / "mini/er/m200/seed1"
    assert other == tmp_path / "mini/er/m200/lr=0.01/seed1"


def test_names_that_no_file_system_likes_stay_apart() -> None:
    assert variant_name({"a": "x/y"}) != variant_name({"a": "x?y"})
    assert "/" not in variant_name({"a": "x/y"})
    assert len(variant_name({"a": "x" * 500})) <= 120


def test_who_finds_another_process_at_work_is_told_and_may_leave(tmp_path: Path) -> None:
    def leave() -> None:
        raise LookupError

    with (
        RunFolder(tmp_path).locked(leave),
        pytest.raises(LookupError),
        RunFolder(tmp_path).locked(leave),
    ):
        pass


def test_the_log_can_be_cut_back_to_where_a_checkpoint_was(tmp_path: Path) -> None:
    folder = RunFolder(fabricate(tmp_path, "er"))
    size = folder.steps.stat().st_size
    with Log(folder.steps) as log:
        folder.log(log, 999, 4, {"base": float("nan")}, 0.1)
    folder.truncate_log(size)
    assert folder.steps.stat().st_size == size
