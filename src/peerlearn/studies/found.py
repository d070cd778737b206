"""What a search has found: its record, and the preset of its best trial."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from peerlearn import __version__
from peerlearn.records.study import Range, State, Study, Trial
from peerlearn.settings import nest
from peerlearn.studies.job import Job, Place
from peerlearn.studies.search import Search
from peerlearn.units import percent, printable

STATES: dict[str, State] = {
    "COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running",
}  # fmt: skip


def record(
    search: Search, trials: Sequence[Trial], stream: dict[str, Any], importance: dict[str, float]
) -> Study:
    """The record of a search. stream: what it could see. importance: of each setting."""
    done = [trial for trial in trials if trial.state == "done" and trial.value is not None]
    best = max(done, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)
    run = search.run
    return Study(
        method=run.method,
        data=run.data,
        memory=run.memory,
        search=search.by,
        space={k: v if isinstance(v, Range) else list(v) for k, v in search.space.items()},
        stream=stream,
        evaluation=(
            "the test images of the data set, and all seeds but the tuning seeds; no run of this "
            "search has used them"
        ),
        trials=list(trials),
        wanted=search.trials,
        best=best.number if best else None,
        importance=importance,
        importance_by="PED-ANOVA of Optuna, over the trials that came to their end",
        peerlearn=__version__,
        command=[Path(sys.argv[0]).name, *sys.argv[1:]],
    )


def trial_of(search: Search, trial: Any) -> Trial:
    """The record of a trial that Optuna keeps."""
    steps = trial.intermediate_values
    wishes = search.wishes(trial.number, trial.params)
    return Trial(
        number=trial.number,
        state=STATES[trial.state.name],
        value=trial.value if trial.state.name == "COMPLETE" else None,
        settings=dict(trial.params),
        running=[steps[k] for k in sorted(steps)],
        seconds=trial.user_attrs.get("seconds"),
        runs=[Job(wish, Place(Path("runs"))).folder.path.as_posix() for wish in wishes],
        why=trial.user_attrs.get("why", ""),
    )


def evaluation(search: Search, preset: str) -> str:
    """The command that evaluates what was found, on other seeds and with the test images."""
    given = {item.name: str(item.value) for item in search.given}
    usual = {"data": str(search.run.values["data"]), "memory": str(search.run.memory)}
    flags = [word for name, value in {**usual, **given}.items() for word in (f"--{name}", value)]
    flags += ["--root", str(search.root)] if search.root else []
    flags += [word for path in search.plugins for word in ("--plugin", str(path))]
    seeds = [seed for seed in range(len(search.seeds) + 5) if seed not in search.seeds][:5]
    flags += ["--seeds", ",".join(map(str, seeds))]
    return shlex.join(["peerlearn", "run", search.method, "--preset", preset, *flags])


def preset(search: Search, study: Study) -> str:
    """The best settings as a file that `peerlearn run --preset` takes."""
    best = study.best_trial
    assert best is not None
    method, _, wrapper = study.method.partition("+")
    names = {"method.name": method, **({"collaboration.name": wrapper} if wrapper else {})}
    done = sum(trial.state == "done" for trial in study.trials)
    head = (
        f"# Found by peerlearn tune on {study.data}, memory {study.memory}: trial {best.number}, "
        f"AA {percent(best.value)}\n# on the tuning stream, the best of {done}. Being the best it "
        "flatters itself; other seeds and images tell:\n"
        f"#   {printable(evaluation(search, 'preset.yaml'))}\n"
    )
    settings = {key: _plain(value) for key, value in best.settings.items()}
    return head + yaml.safe_dump(nest({**names, **settings}), sort_keys=False)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
