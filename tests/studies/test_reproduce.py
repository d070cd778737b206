"""A table of the paper is a sweep: which runs it takes, and what of it can be asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

from peerlearn import cli
from peerlearn.cli.reproduce import listing
from peerlearn.cli.sweep import part_of
from peerlearn.errors import UserError
from peerlearn.experiment.resolve import Given
from peerlearn.paper.tables import EXAMPLE, TABLES
from peerlearn.studies.reproduce import Asked, asked_for, planned, wishes_of

SMALL = [
    *("--data", "mini", "--memory", "20", "--width", "1", "--threads", "1"),
    *("--train-per-class", "10", "--test-per-class", "5"),
]


@pytest.mark.parametrize("scale", ["paper", "lite"])
@pytest.mark.parametrize("name", TABLES)
def test_every_run_of_every_table_can_be_made(name: str, scale: str) -> None:
    table = TABLES[name]
    found = planned(Asked(table, scale, seeds=(0,)))
    assert len(found) == len(table.lines) * len(table.places)
    assert wishes_of(found)


def test_the_main_tables_are_the_1080_published_runs_each_once() -> None:
    plans = [
        one for name in ("aa", "la", "rf", "fm") for one in planned(Asked(TABLES[name], "paper"))
    ]
    wishes = wishes_of(plans)
    assert len(wishes) == 1080
    assert not any(wish.run.variant for wish in wishes)  # every setting is that of a preset


def test_tables_share_their_runs() -> None:
    def keys(name: str, scale: str = "lite") -> set[str]:
        plan = planned(Asked(TABLES[name], scale))
        return {key for one in plan for key in one.keys.values()}

    assert keys("independent", "paper") < keys("aa", "paper")
    assert keys("ncm") < keys("aa")
    assert keys("time") < keys("aa")
    assert len(keys("stages") & keys("ablation")) == 5  # three stages are the preset
    assert len(keys("lambda") & keys("randaugment") & keys("ablation")) == 5


def test_a_shortened_run_says_in_its_name_what_is_shorter() -> None:
    one = planned(Asked(TABLES["ablation"], "lite"))[0]
    assert one.place == ("cifar100", 2000)
    assert one.at == ("cifar100", 500)
    assert dict(one.wishes[0].run.variant) == {
        "train_per_class": 20, "test_per_class": 20, "width": 16,
    }  # fmt: skip


def test_flags_win_over_the_scale() -> None:
    given = (Given("width", "32", "flag", "--width"), Given("profile", "authors", "flag", "--p"))
    run = planned(Asked(TABLES["ablation"], "lite", given))[0].wishes[0].run
    assert run.values["net.width"] == 32
    assert run.values["profile"] == "authors"


def test_a_run_with_other_settings_is_not_as_published() -> None:
    given = (Given("width", "32", "flag", "--width"), Given("threads", "1", "flag", "--threads"))
    one = planned(Asked(TABLES["ablation"], "paper", given))[0]
    assert (one.scale, one.as_published) == ("paper, width=32", False)
    one = planned(Asked(TABLES["ablation"], "lite", given))[0]
    assert (one.scale, one.as_published) == ("lite, width=32", False)
    authors = (Given("profile", "authors", "flag", "--profile"),)
    for name in TABLES:
        for asked in (Asked(TABLES[name], "paper"), Asked(TABLES[name], "paper", authors)):
            found = planned(asked)
            assert all(one.as_published and one.scale == "paper" for one in found), name
        assert {one.scale for one in planned(Asked(TABLES[name], "lite"))} == {"lite"}


def test_no_flag_changes_what_the_name_of_a_row_says() -> None:
    for name, flag in (
        ("stages", "stages"),
        ("plasticity-gap", "epochs"),
        ("lambda", "distill_weight"),
    ):
        with pytest.raises(UserError, match=f"--{flag}: is given twice, also as the row er"):
            planned(Asked(TABLES[name], "lite", (Given(flag, "3", "flag", f"--{flag}"),)))


def test_seeds_are_ten_at_full_scale_and_fewer_where_steps_are_dear() -> None:
    full = {one.line.method: len(one.wishes) for one in planned(Asked(TABLES["aa"], "paper"))}
    assert set(full.values()) == {10}
    lite = {one.line.method: len(one.wishes) for one in planned(Asked(TABLES["aa"], "lite"))}
    assert (lite["er"], lite["gsa+ccldc"], lite["ocm"], lite["onpro+ccldc"]) == (5, 5, 2, 2)


class TestParts:
    def test_rows_places_and_other_data_sets(self) -> None:
        only = TABLES["aa"].only(["er", "gsa"])
        assert {line.base for line in only.lines} == {"er", "gsa"}
        assert len(only.orders) == 2
        narrow, instead = asked_for(only, ["cifar10", "tiny"], [500, 2000])
        assert narrow.places == (("cifar10", 500), ("tiny", 2000))
        assert instead is None
        moved, place = asked_for(TABLES["ablation"], ["cifar10"], [])
        assert moved.places == (("cifar100", 2000),)
        assert place == ("cifar10", 500)
        one = planned(Asked(moved, "lite", instead=place))[0]
        assert (one.place, one.at) == (("cifar100", 2000), ("cifar10", 200))

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["aa", "--only", "err"], "did you mean er"),
            (["aa", "--only", ","], "--only: aa has no ''"),
            (["aa", "--data", "cifar10,foo"], "the paper has no foo"),
            (["aa", "--memory", "500,777"], "the paper has no 777"),
            (["aa", "--seed", "7"], "say --seeds 7"),
            (["aa", "--show", "--part", "1/2"], "leave out --dry-run and --part"),
            (["aa", "--data", "mnist"], "the paper has no mnist; choose from cifar10 500"),
            (["aa", "--memory", "x"], "is not a list such as 500,1000"),
            (["ablation", "--data", "mini"], "say also --memory"),
            (["ablation", "--data", "cifar10", "--memory", "1,2"], "with one; choose it"),
            (["ablaton"], "did you mean ablation"),
            (["aa", "--scale", "full"], "there is no"),
            (["aa", "--part", "3/2"], "is not such as 1/4"),
            (["aa", "--lrr", "1"], "lr"),
            (["aa", "--format", "latec"], "did you mean latex"),
            (["aa", "--seeds", "b"], "is not a list such as 0-2"),
        ],
    )
    def test_what_does_not_exist_is_refused_with_what_does(
        self, words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["reproduce", *words, "--out", str(tmp_path / "runs")]) == 2
        assert says in capsys.readouterr().err
        assert not (tmp_path / "runs").exists()

    def test_every_run_is_in_one_part_and_dear_ones_are_in_all(self) -> None:
        wishes = wishes_of(planned(Asked(TABLES["aa"], "paper")))
        parts = [part_of(f"{k}/4", wishes) for k in (1, 2, 3, 4)]
        keys = [[(w.method, w.run.data, w.run.memory, w.seed) for w in part] for part in parts]
        assert len({key for part in keys for key in part}) == len(wishes) == 1080
        assert {len(part) for part in parts} == {270}
        for part in parts:
            assert 10 < sum(wish.method == "ocm+ccldc" for wish in part) < 40  # of 90
        assert part_of("", wishes) == wishes
        with pytest.raises(UserError, match="is empty, there are 2 runs"):
            part_of("3/3", wishes[:2])

    def test_the_list_names_every_table(self) -> None:
        assert all(name in listing() for name in (*TABLES, EXAMPLE))


def test_a_table_is_made_in_parts_and_shown_from_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "untrained", *SMALL, "--seeds", "0-1", "--scale", "lite"]
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    assert cli.main([*words, "--out", here, "--part", "1/2"]) == 0
    assert cli.main([*words, "--out", there, "--part", "2/2"]) == 0
    capsys.readouterr()
    assert cli.main([*words, "--out", here, "--runs", there, "--dry-run"]) == 0
    assert "2 runs, 2 done before" in capsys.readouterr().out  # those elsewhere are not made again
    assert cli.main([*words, "--out", here, "--show", "--json"]) == 0
    half = json.loads(capsys.readouterr().out)
    assert sum(row["measured"]["n"] for row in half["rows"] if row["measured"]) == 2
    assert cli.main([*words, "--out", here, "--runs", there, "--show", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert [row["measured"]["n"] for row in whole["rows"]] == [2, 2]
    assert [row["at_data"] for row in whole["rows"]] == ["mini", "mini"]
    assert whole["orders"][0]["n"] == 2
    assert cli.main([*words, "--out", here]) == 0  # what is missing, and no more
    shown = capsys.readouterr()
    assert "2 done before" in shown.err
    assert "Table 2 of the paper" in shown.out
    kept = tmp_path / "here" / "reproduced" / "untrained-lite-mini-other.json"
    left = json.loads(kept.read_text())
    assert left["rows"] == whole["rows"]


CORE = Path(__file__).parents[2] / "docs" / "results" / "core.json"
SHOWN = ["--scale", "lite", "--only", "er", "--data", "cifar10", "--memory", "500", "--show"]


class TestFromFiles:
    """What is read from elsewhere is looked at like what was made here."""

    @pytest.fixture
    def exported(self, tmp_path: Path) -> dict[str, Any]:
        assert cli.main(["results", "export", str(CORE), "--out", str(tmp_path / "c.json")]) == 0
        found: dict[str, Any] = json.loads((tmp_path / "c.json").read_text())
        return found

    def show(self, tmp_path: Path, content: dict[str, Any], *more: str) -> int:
        (tmp_path / "changed.json").write_text(json.dumps(content))
        words = ["reproduce", "aa", *SHOWN, "--json", "--out", str(tmp_path / "none")]
        return cli.main([*words, "--runs", str(tmp_path / "changed.json"), *more])

    def run_of(self, exported: dict[str, Any], seed: int = 0) -> dict[str, Any]:
        return next(
            run for run in exported["runs"]
            if run["config"]["method"] == "er" and run["config"]["seed"] == seed
        )  # fmt: skip

    def test_metrics_that_are_not_those_of_the_accuracies_are_refused(
        self, tmp_path: Path, exported: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.run_of(exported)["summary"]["AA"] = 0.9
        assert self.show(tmp_path, exported) == 2
        assert "its metrics are not those of the accuracies" in capsys.readouterr().err

    def test_runs_are_found_in_files(
        self, tmp_path: Path, exported: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        capsys.readouterr()
        assert self.show(tmp_path, exported) == 0
        from_file = capsys.readouterr().out
        assert cli.main(["reproduce", "aa", *SHOWN, "--json", "--runs", str(CORE)]) == 0
        assert capsys.readouterr().out == from_file
        assert [row["measured"]["n"] for row in json.loads(from_file)["rows"]] == [3, 3]

    def test_a_run_of_other_settings_at_the_same_place_is_refused(
        self, tmp_path: Path, exported: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.run_of(exported)["config"]["settings"]["optim.lr"] = 0.5
        assert self.show(tmp_path, exported) == 2
        assert "optim.lr 0.5 there, 0.0005 here; leave it out" in capsys.readouterr().err

    def test_two_records_that_contradict_each_other_are_refused(
        self, tmp_path: Path, exported: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        own, other = self.run_of(exported), self.run_of(exported, seed=1)
        own["accuracy"], own["summary"] = other["accuracy"], {**other["summary"], "seed": 0}
        assert self.show(tmp_path, exported, str(CORE)) == 2
        assert "but different numbers; give only one of the two" in capsys.readouterr().err

    def test_several_tables_are_one_list(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["reproduce", "aa", "la", EXAMPLE, *SHOWN, "--json", "--runs", str(CORE)]
        assert cli.main([*words, "--out", str(tmp_path)]) == 0
        names = [one["name"] for one in json.loads(capsys.readouterr().out)]
        assert names == ["aa", "la", EXAMPLE]
