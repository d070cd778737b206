"""From a grid to its runs: every one that is meant, once; what means nothing is told in a line."""

from pathlib import Path

import pytest

from peerlearn.errors import UserError
from peerlearn.experiment.config_file import read_file
from peerlearn.studies.grid import MOST_RUNS, Grid, combined, from_flags, with_preset
from peerlearn.studies.grid_file import from_file


def grid_of(folder: Path, text: str) -> Grid:
    path = folder / "grid.yaml"
    path.write_text(text)
    return from_file(path)


def labels(grid: Grid, *settings: str) -> list[tuple[object, ...]]:
    """The method of each run, these of its settings, and its seed."""
    runs = [wish.run for wish in grid.runs()]
    return [(run.method, *(run.values[name] for name in settings), run.seed) for run in runs]


def test_a_grid_is_every_combination_first_those_of_the_first_seed(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, "methods: [er, gsa]\nmemory: [20, 50]\nseeds: 0-1\n")
    assert labels(grid, "memory.size") == [
        (method, memory, seed) for seed in (0, 1) for memory in (20, 50) for method in ("er", "gsa")
    ]


def test_flags_with_commas_mean_the_same_as_a_file(tmp_path: Path) -> None:
    flags = from_flags(["er", "gsa"], [("memory", "20,50"), ("lr", "1e-3, 0.01")], "0-1")
    file = grid_of(
        tmp_path, "methods: [er, gsa]\nmemory: [20, 50]\nlr: [1e-3, 0.01]\nseeds: [0, 1]\n"
    )
    names = ("memory.size", "optim.lr")
    assert labels(flags, *names) == labels(file, *names)


def test_a_single_value_needs_no_list(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, "method: er\nseed: 3\noptim:\n  lr: 0.1\nmemory-policy: reservoir\n")
    assert labels(grid, "optim.lr") == [("er", 0.1, 3)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{from: 0.1, to: 0.3, step: 0.1}", [0.1, 0.2, 0.3]),
        ("{from: 1e-4, to: 1e-1, count: 4, log: true}", [1e-4, 1e-3, 1e-2, 1e-1]),
        ("{from: 0.1, to: 0.5, count: 3}", [0.1, 0.3, 0.5]),
        ("{from: 0.1, to: 0.25, step: 0.1}", [0.1, 0.2]),
    ],
)
def test_a_range_stands_for_its_values_without_rounding(
    text: str, values: list[float], tmp_path: Path
) -> None:
    grid = grid_of(tmp_path, f"methods: er\nlr: {text}\n")
    assert [wish.run.values["optim.lr"] for wish in grid.runs()] == values


def test_seeds_may_be_a_range_or_a_text(tmp_path: Path) -> None:
    for text in ("{from: 0, to: 4, step: 2}", "[0, 2, 4]", "0,2,4"):
        grid = grid_of(tmp_path, f"methods: er\nseeds: {text}\n")
        assert labels(grid) == [("er", 0), ("er", 2), ("er", 4)]


def test_a_run_that_is_meant_twice_is_made_once() -> None:
    assert len(from_flags(["er", "er"], [("lr", "1e-3,0.001")], "0,0").runs()) == 1
    # alpha is DER++'s; ER is the same run with any of them
    assert len(from_flags(["er", "derpp"], [("alpha", "0.1,0.3")], None).runs()) == 3


def test_exclude_leaves_out_runs_that_agree_in_all_it_names(tmp_path: Path) -> None:
    grid = grid_of(
        tmp_path,
        "methods: [er, gsa]\nlr: [1e-3, 1e-2]\nseeds: 0-1\nexclude:\n"
        "  - {method: gsa, lr: 0.001}\n  - {lr: 1e-2, seeds: 1}\n",
    )
    assert labels(grid, "optim.lr") == [
        ("er", 0.001, 0), ("er", 0.01, 0), ("gsa", 0.01, 0), ("er", 0.001, 1),
    ]  # fmt: skip


def test_a_folder_of_images_is_excluded_by_its_name_or_its_path(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    for name in ("cats", f"{tmp_path}/cats", f"{tmp_path}/./cats/"):
        text = f"methods: er\ndata: [mini, {tmp_path}/cats]\nexclude:\n  - data: {name}\n"
        assert [wish.run.data for wish in grid_of(tmp_path, text).runs()] == ["mini"]


def test_what_cannot_work_together_may_be_excluded(tmp_path: Path) -> None:
    text = "methods: [er, ocm]\nblur: [0, 0.5]\n"
    with pytest.raises(UserError, match=r"grid.yaml, line 2: blur hides where tasks end.*exclude"):
        grid_of(tmp_path, text).runs()
    grid = grid_of(tmp_path, text + "exclude:\n  - {method: ocm, blur: 0.5}\n")
    assert labels(grid, "stream.blur") == [("er", 0, 0), ("ocm", 0, 0), ("er", 0.5, 0)]


def test_an_included_grid_takes_single_values_and_seeds_from_above_and_no_lists(
    tmp_path: Path,
) -> None:
    grid = grid_of(
        tmp_path,
        "methods: er\nlr: [0.1, 0.2]\nmemory: 20\nwidth: 1\nseeds: 0-1\n"
        "include:\n  - {methods: gsa, width: 2}\n  - {method: derpp, seed: 7, lr: [0.3, 0.4]}\n",
    )
    found = labels(grid, "optim.lr", "memory.size", "net.width")
    usual = from_flags(["gsa"], [], None).runs()[0].run.values["optim.lr"]
    assert found[4:] == [
        ("gsa", usual, 20, 2, 0), ("gsa", usual, 20, 2, 1),
        ("derpp", 0.3, 20, 1, 7), ("derpp", 0.4, 20, 1, 7),
    ]  # fmt: skip


def test_an_included_method_need_not_be_able_to_use_what_it_takes_from_above(
    tmp_path: Path,
) -> None:
    grid = grid_of(tmp_path, "methods: er+ccldc\nstages: 2\ninclude:\n  - {methods: er}\n")
    assert labels(grid) == [("er+ccldc", 0), ("er", 0)]


def test_a_setting_counts_as_used_if_one_of_the_values_of_another_makes_it_so() -> None:
    flags = [("optimizer", "adamw,sgd"), ("momentum", "0.5,0.9")]
    found = from_flags(["er"], flags, None).runs()
    assert [wish.run.values.get("optim.momentum") for wish in found] == [None, 0.5, 0.9]


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = grid_of(
        tmp_path,
        "methods: [er, gsa]\noptim.lr: [0.1, 0.2]\nseeds: 0-4\nexclude:\n  - {lr: 0.1}\n"
        "include:\n  - {methods: derpp}\n",
    )
    flags = from_flags([], [("lr", "0.3,0.4")], "9")
    whole = combined(file, flags)
    expected = [(m, lr, 9) for lr in (0.3, 0.4) for m in ("er", "gsa")]
    assert labels(whole, "optim.lr") == [*expected, ("derpp", 0.3, 9), ("derpp", 0.4, 9)]
    alone = combined(file, from_flags(["ocm"], [], "9"))
    assert labels(alone, "optim.lr") == [("ocm", 0.2, 9)]  # include is the file's methods


def test_a_preset_file_beats_presets_and_is_beaten_by_grid_and_flags(tmp_path: Path) -> None:
    preset = tmp_path / "preset.yaml"
    preset.write_text("lr: 0.5\nwidth: 2\nmemory: 20\n")
    file = grid_of(tmp_path, "methods: er\nwidth: [1, 3]\ninclude:\n  - {methods: gsa}\n")
    flags = from_flags([], [("memory", "30")], None)
    whole = with_preset(combined(file, flags), read_file(preset))
    names = ("optim.lr", "net.width", "memory.size")
    assert labels(whole, *names) == [("er", 0.5, 1, 30, 0), ("er", 0.5, 3, 30, 0),
                                     ("gsa", 0.5, 2, 30, 0)]  # fmt: skip
    preset.write_text("alpha: 0.5\n")
    with pytest.raises(UserError, match=r"preset.yaml, line 1: er and gsa cannot use it"):
        with_preset(file, read_file(preset)).runs()


def test_the_grid_of_the_documents_means_what_they_say(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "sweeps.md"
    text = page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    found = labels(grid_of(tmp_path, text), "memory.size", "optim.lr", "data", "optim.name")
    usual = from_flags(["gsa"], [], None).runs()[0].run.values["optim.lr"]
    assert len(found) == 5 * (3 * 2 * 4 * 3 - 12 - 18 + 1)
    gsa = [one for one in found if one[0] == "gsa"]
    assert gsa == [("gsa", 1000, usual, "mini", "adamw", seed) for seed in range(5)]


def test_a_folder_of_images_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "cats,dogs"
    folder.mkdir()
    (wish,) = from_flags(["er"], [("data", str(folder))], None).runs()
    assert wish.run.data == "cats,dogs"


def test_devices_with_commas_are_those_of_one_run() -> None:
    (wish,) = from_flags(["er+ccldc"], [("device", "cuda:0,cuda:1")], None).runs()
    assert wish.run.values["machine.device"] == "cuda:0,cuda:1"


WRONG = {
    "Methods: [er]": "line 1: there is no setting 'Methods'; did you mean methods?",
    "metods: [er]": "line 1: there is no setting 'metods'; did you mean methods?",
    "methods: er\nseds: 0-2": "line 2: there is no setting 'seds'; did you mean seeds?",
    "methods: er\nexclud:\n  - {method: er}": "line 2: there is no setting 'exclud'; did you mean",
    "methods: er\nincludes:\n  - {methods: er}": "did you mean include?",
    "methods: er\nmemry: 3": "line 2: there is no setting 'memry'; did you mean memory?",
    "methods: er\noptim:\n  lrr: 3": "there is no setting 'optim.lrr'; did you mean lr?",
    "methods: er\nwhatever: 3": "line 2: there is no setting 'whatever'; see peerlearn sweep",
    "methods: er\njobs: 3": "line 2: jobs is no setting of a run; give it as --jobs",
    "methods: er\nper_run: 3": "give it as --per-run",
    "methods: er\nstages: 2": "line 2: er cannot use it, it belongs to wrapper ccldc",
    "methods: er\nlr: []": "line 2: lr has no value; give one, or leave it out",
    "methods: er\nlr:": "line 2: lr must be a number, got None",
    "methods: er\nlr: [0.1, x]": "line 2: lr must be a number, got 'x'",
    "methods: er\nlr: 0.1\noptim.lr: 0.2": "line 3: optim.lr is set twice, by another name",
    "methods: er\nthreads: [1, 2]": "line 2: threads is for all runs alike; give it one value",
    "methods: []": "line 1: methods must be names such as [er, er+ccldc], got []",
    "methods:": "line 1: methods must be names such as [er, er+ccldc], got None",
    "methods: {er: 1}": "line 1: methods must be names",
    "methods: err": "there is no method 'err'; did you mean er?",
    "lr: 0.1": "sweep: no method is named; write methods: [er, er+ccldc], or name one",
    "methods: er\nmethod: gsa": "line 2: method is given beside methods; say one of them",
    "methods: er\nseeds: 1\nseed: 2": "line 3: seed is given beside seeds; say one of them",
    "methods: er\nseeds: 5-2": "line 2: '5-2' holds no seed; write the lower one first",
    "methods: er\nseeds: -1": "line 2: '-1' is not a list such as 0-2 or 0,3,7",
    "methods: er\nlr: {from: 1, to: 0.1, count: 3}": "a range begins with the lower end, got from",
    "methods: er\nlr: {from: 1, to: 2}": "line 2: a range needs either step or count; write {",
    "methods: er\nlr: {from: 1, to: 2, step: 1, count: 2}": "needs either step or count",
    "methods: er\nlr: {from: 1, too: 2, step: 1}": "line 2: a range has no 'too'; write {from",
    "methods: er\nlr: {from: 1, step: 1}": "line 2: a range needs 'to'; write {from",
    "methods: er\nlr: {from: 0, to: 1, count: 3, log: true}": "log: true has a count and begins",
    "methods: er\nlr: {from: 0, to: 1, step: 1e-9}": "has a step above 0 and at most 10000 values",
    "methods: er\nlr: {from: 0, to: 1, count: 1}": "has a count from 2 to 10000, got 1",
    "methods: er\nlr: {from: a, to: 1, count: 3}": "must have a number as from, got 'a'",
    "methods: er\nexclude: {method: er}": "line 2: exclude must be a list of mappings",
    "methods: er\nexclude:\n  - {lrr: 1}": "line 2, entry 1 of exclude: no run has a setting 'lrr'",
    "methods: er\nexclude:\n  - {lr: 3}": "entry 1 of exclude: no run has lr 3; take the entry out",
    "methods: er\nlr: [1, 2]\nseeds: 0-1\nexclude:\n  - {lr: 1, seed: 0}\n  - {lr: 1, seed: 0}":
        "line 4, entry 2 of exclude: no run has all of it at once; take the entry out",
    "methods: er\nexclude:\n  - {method: er}": "entry 1 of exclude: leaves no run; exclude less",
    "methods: er\ninclude:\n  - {lr: 1}": "entry 1 of include: needs methods of its own",
    "methods: er\ninclude:\n  - {methods: er, include: []}": "hold exclude or include itself",
    "methods: er\ninclude:\n  - {metods: er}": "setting 'metods'; did you mean methods?",
    "methods: er\nseeds: 0-9999\nlr: {from: 0.01, to: 1, count: 100}":
        f"the grid holds 1000000 runs, more than {MOST_RUNS}; divide it",
    "- er": "must hold `name: value` lines",
    "": "is empty",
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WRONG.items())
def test_a_grid_that_cannot_be_meant_is_refused_in_a_line(
    text: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        grid_of(tmp_path, text).runs()
    assert says in str(caught.value)
    assert str(caught.value).isprintable()
