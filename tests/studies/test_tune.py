"""Searches with stubs in place of runs, and with a few real ones."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from peerlearn.cli import main
from peerlearn.data import toy_images
from peerlearn.data.images import ImageSet
from peerlearn.errors import UserError
from peerlearn.experiment.config_file import read_file
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.experiment.settings import for_tuning
from peerlearn.records.study import Range, Study, read_study
from peerlearn.studies.executor import Processes
from peerlearn.studies.found import evaluation
from peerlearn.studies.many import Means
from peerlearn.studies.proposals import JournalLock
from peerlearn.studies.search import FIRST_SEED, Search
from peerlearn.studies.space import checked, combinations, space_of
from peerlearn.studies.tune import hopeless, tune
from peerlearn.units import percent
from studies.jobs import stories
from studies.stub import command, quality

pytest.importorskip("optuna")
SPACE: dict[str, Any] = {
    "optim.name": ["sgd", "adamw"],
    "optim.lr": [0.1, 0.01, 0.001],
    "optim.momentum": [0, 0.9],
}


class Stubs(Means):
    """Runs are stubs."""

    def executor(self, *_: object) -> Processes:
        words = json.loads(os.environ.get("STUB", '{"seconds": 0.05}'))
        return Processes(4, command=command(Path(os.environ["JOURNAL"]), **words))


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOURNAL", str(tmp_path / "journal"))
    return tmp_path / "journal"


def search(by: str = "tpe", trials: int = 6, **options: Any) -> Search:
    given = (Given("data", "mini", "flag", "--data"),)
    parts = {"space": SPACE, "seeds": (FIRST_SEED,), **options}
    return Search("er", given, by=by, trials=trials, **parts)


def test_the_grids_of_the_paper_have_as_many_points_as_its_supplement_lists() -> None:
    counts = {
        "er": 7 * 2 * 2 * 3,  # rates, decays, augmentations; AdamW, or SGD with two momenta
        "derpp": 7 * 2 * 2 * 3 * 8,
        "er_ace": 7 * 2 * 2 * 3,
        "gsa": 7 * 2 * 3,  # its transforms are its own
        "onpro": 7 * 2 * 3,
        "ocm": 1,
        "er+ccldc": 36 * 28,
    }
    for method, count in counts.items():
        run = resolve(method)
        assert sum(1 for _ in combinations(space_of(run), run)) == count, method
    wrapped = resolve("gsa+ccldc")
    assert sum(1 for _ in combinations(space_of(wrapped, ["lambda"]), wrapped)) == 36
    assert sum(1 for _ in combinations(space_of(wrapped, ["randaugment"]), wrapped)) == 28


def test_the_best_that_the_paper_found_is_in_its_grid() -> None:
    for method in ("er", "derpp", "er_ace", "gsa", "onpro", "ocm"):
        run = resolve(method, [Given("data", "cifar100", "flag", "--data")])
        for key, values in space_of(run).items():
            if key in run.values and key != "optim.momentum":
                assert run.values[key] in values, (method, key)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tasks: [2, 5]", "stream.tasks decides what is learnt or measured"),
        ("data: [mini, cifar10]", "data decides what is learnt or measured"),
        ("memory: [100, 200]", "memory.size decides what is learnt or measured"),
        ("images: [all]", "stream.images decides what is learnt or measured"),
        ("width: [8, 16]", "net.width decides what is learnt or measured"),
        ("threads: [1, 2]", "machine.threads decides what is learnt or measured"),
        ("lrr: [1, 2]", "did you mean lr"),
        ("lr: []", "needs a list of values"),
        ("lr: {from: 1, to: 0.1}", "is no range"),
        ("lr: {from: 0, to: 0.1, log: true}", "is no range"),
        ("lr: {from: 0.1, to: 0.2, count: 3}", "is no range"),
        ("lr: {from: 0.1, to: 0.2, step: -0.1}", "is no range"),
        ("lr: {from: 0.1, to: 0.2, log: true, step: 0.01}", "is no range"),
    ],
)
def test_a_space_may_change_how_one_learns_never_what_is_measured(
    text: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        space_of(resolve("er"), [str(tmp_path / "space.yaml")])


def test_a_space_of_ones_own_may_have_ranges(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("lr: {from: 1e-4, to: 1e-1, log: true}\naugment: [full]")
    found = space_of(resolve("er"), [str(tmp_path / "space.yaml")])
    assert found == {"optim.lr": Range(low=1e-4, high=0.1, log=True), "method.augment": ["full"]}
    with pytest.raises(UserError, match="is a range; list its values"):
        list(combinations(found, resolve("er")))


def test_the_values_of_a_space_are_those_that_runs_will_have() -> None:
    written = {"optim.lr": ["1e-3", 0.01], "method.replay_batch": Range(low=8, high=64)}
    found = checked("er", (), written)
    assert found["optim.lr"] == [0.001, 0.01]
    assert found["method.replay_batch"] == Range(low=8, high=64, step=1, whole=True)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({"optim.momentum": [0, 0.9]}, "optim.momentum is no setting of adamw"),
        ({"optim.name": ["sgd"], "optim.beta1": [0.9]}, "optim.beta1 is no setting of"),
        ({"optim.lr": [-1]}, "lr must be above 0"),
        ({"optim.lr": Range(low=-1, high=1)}, "lr must be above 0"),
        ({"method.replay_batch": Range(low=8.5, high=64)}, "must be a whole number"),
    ],
)
def test_a_value_that_no_run_could_have_is_refused_before_the_first_trial(
    space: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        checked("er", (), space)


def test_only_values_after_the_same_task_are_compared() -> None:
    others = [[0.9, 0.6, 0.5, 0.4], [0.8, 0.5, 0.4, 0.3], [0.7, 0.4, 0.3, 0.2]] * 2
    assert hopeless([0.95, 0.3], others)  # its first task was better than all
    assert not hopeless([0.1, 0.55], others)
    assert not hopeless([0.1], others)  # one task says too little
    assert not hopeless([0.1, 0.1], others[:4])  # and so do four trials


def rows_of(images: ImageSet, part: ImageSet) -> list[int]:
    """Which images of a set a part of it has; all of them are different."""
    places = {bytes(x.numpy().tobytes()): i for i, x in enumerate(images.x)}
    return [places[bytes(x.numpy().tobytes())] for x in part.x]


def test_a_search_sees_no_test_image_and_the_last_training_images() -> None:
    data = toy_images(num_classes=3)
    sizes = [int((data.train.y == k).sum()) for k in range(3)]
    train, test = for_tuning(data.train, 4, 3)
    by_class = [(data.train.y == k).nonzero()[:, 0] for k in range(3)]
    wanted = torch.cat([rows[-7:-3] for rows in by_class]).sort().values.tolist()
    assert rows_of(data.train, train) == wanted
    assert sorted(rows_of(data.train, test)) == sorted(
        torch.cat([rows[-3:] for rows in by_class]).tolist()
    )
    whole, fifth = for_tuning(data.train)
    assert len(whole) + len(fifth) == sum(sizes)
    assert [int((fifth.y == k).sum()) for k in range(3)] == [n // 5 for n in sizes]
    with pytest.raises(UserError, match="take fewer --train-per-class"):
        for_tuning(data.train, 10**6)


def test_a_search_leaves_its_record_a_preset_and_evaluation_seeds_alone(
    tmp_path: Path, journal: Path
) -> None:
    # five, since no trial is stopped early before five others have shown what is usual
    study, folder, stopped = tune(search(trials=5), tmp_path / "tuning", Stubs())
    assert not stopped
    assert read_study(folder / "study.json") == study
    assert [trial.state for trial in study.trials] == ["done"] * 5
    best = max(study.trials, key=lambda trial: trial.value or 0)
    assert study.best == best.number
    assert all(("optim.momentum" in t.settings) == (t.settings["optim.name"] == "sgd")
               for t in study.trials)  # fmt: skip
    for trial in study.trials:
        (run,) = trial.runs
        good = quality(run.removeprefix("runs/"))
        assert trial.running == pytest.approx([good * share for share in (1, 0.9, 0.8, 0.7, 0.6)])
        assert trial.value == pytest.approx(0.6 * good)
    seeds = {path.name for path in (folder / "runs").rglob("seed*")}
    assert seeds == {f"seed{FIRST_SEED}"}
    assert all("images=tuning" in key for key in stories(journal))
    assert study.stream["test images of the data set that were used"] == 0
    preset = yaml.safe_load((folder / "preset.yaml").read_text())
    assert preset["optim"]["lr"] == best.settings["optim.lr"]
    run = resolve("er", [*read_file(folder / "preset.yaml")])
    assert run.values["optim.lr"] == best.settings["optim.lr"]
    assert run.values["stream.images"] == "all"


def test_a_grid_is_tried_point_by_point(tmp_path: Path) -> None:
    study, _, _ = tune(search("grid", trials=9), tmp_path / "tuning", Stubs())
    tried = sorted(json.dumps(trial.settings, sort_keys=True) for trial in study.trials)
    points = combinations(SPACE, resolve("er"))
    assert tried == sorted(json.dumps(point, sort_keys=True) for point in points)
    assert len(tried) == 9


def test_a_grid_can_be_gone_on_with(tmp_path: Path) -> None:
    for trials in (2, 7):
        study, _, _ = tune(search("grid", trials=trials), tmp_path / "tuning", Stubs())
        assert len(study.trials) == trials
    assert len({json.dumps(trial.settings, sort_keys=True) for trial in study.trials}) == 7


def test_a_trial_is_the_mean_over_the_tuning_seeds(tmp_path: Path) -> None:
    study, folder, _ = tune(search(trials=2, seeds=(7, 8)), tmp_path / "tuning", Stubs())
    for trial in study.trials:
        found = [
            json.loads((folder / run / "summary.json").read_text())["AA"] for run in trial.runs
        ]
        assert len(found) == 2
        assert trial.value == pytest.approx(sum(found) / 2)


@pytest.mark.slow
def test_hopeless_trials_are_stopped_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB", '{"seconds": 3}')
    space = {"optim.lr": Range(low=1e-4, high=0.1, log=True)}
    study, _, _ = tune(search(trials=14, space=space), tmp_path / "tuning", Stubs())
    pruned = [trial for trial in study.trials if trial.state == "pruned"]
    assert pruned
    assert len(study.trials) == 14
    for trial in pruned:
        found = re.fullmatch(r"AA (.*) after task (\d), below the median .*", trial.why)
        assert found
        assert 1 < int(found[2]) <= len(trial.running) < 5
        assert found[1] == percent(trial.running[int(found[2]) - 1])
        assert trial.value is None


def test_a_trial_whose_run_fails_is_counted_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB", json.dumps({"fails": FIRST_SEED}))
    study, folder, _ = tune(search(trials=3), tmp_path / "tuning", Stubs())
    assert [(trial.state, trial.why) for trial in study.trials] == [
        ("failed", "ValueError: a bug")
    ] * 3
    assert study.best is None
    assert not (folder / "preset.yaml").exists()


def test_a_search_of_something_else_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    tune(search(trials=1), tmp_path / "tuning", Stubs())
    with pytest.raises(UserError, match="holds a search with other space; choose another --out"):
        tune(search(space={"optim.lr": [0.1]}), tmp_path / "tuning", Stubs())


def test_a_search_of_before_a_setting_came_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declaration, new = Search.declaration, ("realtime", "realtime_store", "budget")

    def of_then(own: Search, fingerprint: str) -> dict[str, Any]:
        whole = declaration(own, fingerprint)
        kept = {k: v for k, v in whole["settings"].items() if k not in new}
        return {**whole, "settings": kept}

    with monkeypatch.context() as patch:
        patch.setattr(Search, "declaration", of_then)
        tune(search(trials=1), tmp_path / "tuning", Stubs())
    study, _, _ = tune(search(trials=2), tmp_path / "tuning", Stubs())
    assert len(study.trials) == 2


def test_more_trials_can_be_asked_for_later(tmp_path: Path) -> None:
    tune(search(trials=2), tmp_path / "tuning", Stubs())
    study, _, _ = tune(search(trials=5), tmp_path / "tuning", Stubs())
    assert [trial.state for trial in study.trials] == ["done"] * 5


def test_any_storage_of_optuna_will_do(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/studies.db"
    for trials in (2, 4):
        study, folder, _ = tune(
            search(trials=trials, storage=storage), tmp_path / "tuning", Stubs()
        )
        assert len(study.trials) == trials
    assert not (folder / "journal.log").exists()
    with pytest.raises(UserError, match="give an --out that all machines see"):
        tune(search(trials=4, storage=storage), tmp_path / "elsewhere", Stubs())


MAIN = """
import sys
from pathlib import Path
from studies.test_tune import Stubs, search
from peerlearn.studies.tune import tune
study, _, stopped = tune(search(trials=20), Path(sys.argv[1]), Stubs())
sys.exit(len(study.trials) if not stopped else 130)
"""


def start(out: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "STUB": '{"seconds": 0.5}'}
    return subprocess.Popen([sys.executable, "-c", MAIN, str(out)], env=environment)


def trials_of(out: Path) -> Study:
    (path,) = out.rglob("study.json")
    return read_study(path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_search_that_is_killed_half_way_goes_on(
    tmp_path: Path, journal: Path, number: signal.Signals
) -> None:
    out = tmp_path / "tuning"
    first = start(out)
    while sum(story.ended for story in stories(journal).values()) < 6:
        time.sleep(0.05)
    first.send_signal(number)
    assert first.wait() in (-9, 130)
    assert start(out).wait() == 20
    study = trials_of(out)
    assert [trial.number for trial in study.trials] == list(range(20))
    assert {trial.state for trial in study.trials} <= {"done", "pruned"}
    assert all(story.ended <= 1 for story in stories(journal).values())
    assert all(story.overlaps == 0 for story in stories(journal).values())


def test_a_search_killed_while_it_wrote_to_the_journal_goes_on(tmp_path: Path) -> None:
    lock, code = (
        tmp_path / "lock",
        (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from peerlearn.studies.proposals import JournalLock\n"
            "JournalLock(Path(sys.argv[1])).acquire()\n"
            "os.kill(os.getpid(), 9)"
        ),
    )
    lock.mkdir()
    assert subprocess.run([sys.executable, "-c", code, str(lock)], check=False).returncode == -9
    begin = time.monotonic()
    again = JournalLock(lock)
    assert again.acquire()
    again.release()
    assert time.monotonic() - begin < 5


@pytest.mark.slow
def test_two_searches_on_one_folder_share_the_trials(tmp_path: Path, journal: Path) -> None:
    both = [start(tmp_path / "tuning") for _ in range(2)]
    assert [one.wait() for one in both] == [20, 20]
    study = trials_of(tmp_path / "tuning")
    assert len(study.trials) == 20
    assert {trial.state for trial in study.trials} <= {"done", "pruned"}
    assert all(story.overlaps == 0 and story.ended <= 1 for story in stories(journal).values())


def test_the_command_that_evaluates_names_all_that_the_search_was_told() -> None:
    told = search(seeds=(0, 2), root=Path("my data"), plugins=(Path("mine.py"),))
    words = shlex.split(evaluation(told, "a folder/preset.yaml"))
    assert words[:5] == ["peerlearn", "run", "er", "--preset", "a folder/preset.yaml"]
    given = dict(zip(words[5::2], words[6::2], strict=True))
    assert given == {
        "--data": "mini", "--memory": "200", "--root": "my data", "--plugin": "mine.py",
        "--seeds": "1,3,4,5,6",
    }  # fmt: skip


@pytest.mark.slow
def test_a_real_search_and_the_run_of_its_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--data", "mini", "--memory", "20", "--net", "small", "--width", "1"]
    tiny += ["--train-per-class", "2", "--test-per-class", "2"]
    out = ["--trials", "3", "--out", str(tmp_path / "tuning"), "--json"]
    assert main(["tune", "er+ccldc", *tiny, *out]) == 0
    study = json.loads(capsys.readouterr().out)
    assert [trial["state"] for trial in study["trials"]] == ["done"] * 3
    folder = tmp_path / "tuning" / "mini-er+ccldc-m20"
    assert "</html>" in (folder / "tuning.html").read_text()
    assert main(["run", "--preset", str(folder / "preset.yaml"), *tiny, "--threads", "1",
                 "--out", str(tmp_path / "runs")]) == 0  # fmt: skip
    (config,) = (tmp_path / "runs").rglob("config.yaml")
    settings = yaml.safe_load(config.read_text())["settings"]
    best = study["trials"][study["best"]]["settings"]
    chain = settings["collaboration"]["chain"]
    assert chain["magnitude"] == best["collaboration.chain.magnitude"]
    assert settings["stream"]["images"] == "all"


def test_without_the_extra_one_line_says_which_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", "er", "--data", "mini", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == "peerlearn: tune: Optuna is not installed; pip install 'peerlearn[tune]'\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trials", "0"], "--trials: must be from 1"),
        (["--space", "lamda"], "did you mean lambda"),
        (["--space", "lambda"], "er has no setting of lambda"),
        (["--seed", "3"], "--tuning-seeds names its seeds"),
        (["--images", "all"], "a search has its own"),
        (["--lr", "0.1"], "optim.lr: is searched, and given as well"),
        (["--weight-decay", "0.1"], "optim.weight_decay: is searched, and given as well"),
        (["--tuning-seeds", "x"], "--tuning-seeds: 'x' is not a list"),
        (["--preset", "x"], "tune takes settings as flags"),
        (["--storage", "nonsense://x"], "--storage nonsense://x: cannot be used"),
        (["--train-per-class", "100000"], "take fewer --train-per-class"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "er", "--data", "mini", "--out", str(tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not [*tmp_path.rglob("study.json")]
