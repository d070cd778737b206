"""Optuna: what it remembers of a search, and what it would try next.

https://optuna.org. A journal in the folder of the search, or any other storage of Optuna.
"""

import json
import secrets
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from peerlearn.errors import UserError
from peerlearn.files import write_file
from peerlearn.leases import leased
from peerlearn.records.schema import later_settings
from peerlearn.records.study import Range
from peerlearn.studies.search import Search
from peerlearn.studies.space import applies, combinations

STARTUP = 10  # trials drawn at random before TPE learns from them
FEWEST = 4  # trials from which the importance of settings is computed


def open_study(search: Search, folder: Path, fingerprint: str) -> Any:
    """The search as Optuna keeps it, new or begun before. fingerprint: of its images."""
    try:
        import optuna
        from optuna.exceptions import OptunaError
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        raise UserError("tune: Optuna is not installed; pip install 'peerlearn[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        storage: Any = search.storage
        if not storage:
            lock = JournalLock(_made(folder / "trials" / "journal"))
            storage = JournalStorage(JournalFileBackend(str(folder / "journal.log"), lock_obj=lock))
        with leased(_made(folder / "trials" / "ask")):
            study = optuna.create_study(
                storage=storage,
                study_name=folder.name,
                direction="maximize",
                load_if_exists=True,
            )
            begun = len(study.get_trials(deepcopy=False))
            # a seed of its own each time: else a search that goes on would draw the same again
            seed = search.seeds[0] + begun
            study.sampler = optuna.samplers.TPESampler(
                n_startup_trials=STARTUP, seed=seed, constant_liar=True
            )
            _declare(search, study, folder, fingerprint)
    except UserError:
        raise
    except (OSError, ValueError, ImportError, OptunaError, SQLAlchemyError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        place = f"--storage {search.storage:.60}" if search.storage else f"{folder}/journal.log"
        raise UserError(f"{place}: cannot be used ({why:.200})") from error
    return study


class JournalLock:
    """Lets one process at a time write to Optuna's journal; Optuna's own would outlive its holder.

    Args:
        folder: that whoever holds it has leased.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._held = folder, ExitStack()

    def acquire(self) -> bool:
        """Wait for it."""
        self._held.enter_context(leased(self._folder, look=0.02))
        return True

    def release(self) -> None:
        """Give it back."""
        self._held.close()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _of_today(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """What was declared, with settings that came later as they were then."""
    later = later_settings(ours["method"])
    later = {key: value for key, value in later.items() if key in ours["settings"]}
    return {**theirs, "settings": {**later, **theirs.get("settings", {})}}


def _declare(search: Search, study: Any, folder: Path, fingerprint: str) -> None:
    """Write down what is searched; what goes on must be the same, in the same folder."""
    ours = json.loads(json.dumps(search.declaration(fingerprint)))
    theirs, token = study.user_attrs.get("declared"), folder / "trials" / "token"
    if theirs is None:
        write_file(token, secrets.token_hex(16))
        study.set_user_attr("token", token.read_text())
        study.set_user_attr("declared", ours)
    elif differ := [key for key in ours if ours[key] != _of_today(theirs, ours).get(key)]:
        raise UserError(
            f"{folder}: holds a search with other {' and '.join(differ)}; choose another --out"
        )
    elif not token.exists() or token.read_text() != study.user_attrs.get("token"):
        raise UserError(
            f"{folder}: the trials of this search have their files in another folder; give an "
            "--out that all machines see"
        )
    if search.by == "grid":
        there = [trial.system_attrs.get("fixed_params") for trial in study.get_trials()]
        for point in islice(combinations(search.space, search.run), search.trials):
            if point not in there:
                study.enqueue_trial(point)


def suggested(trial: Any, search: Search) -> dict[str, Any]:
    """The settings of a new trial, as Optuna proposes them."""
    chosen: dict[str, Any] = {}
    run = search.run
    for key, values in search.space.items():
        if not applies(key, chosen, run):
            continue
        if not isinstance(values, Range):
            chosen[key] = trial.suggest_categorical(key, list(values))
        elif values.whole:
            step = int(values.step or 1)
            high = int(values.low) + (int(values.high) - int(values.low)) // step * step
            chosen[key] = trial.suggest_int(key, int(values.low), high, step=step, log=values.log)
        else:
            rest = {"log": values.log, "step": values.step}
            chosen[key] = trial.suggest_float(key, values.low, values.high, **rest)
    return chosen


def importance(study: Any, done: int) -> dict[str, float]:
    """The share of each setting in what trials differ by; none where it cannot be told."""
    if done < FEWEST:
        return {}
    import optuna

    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    with suppress(ValueError, RuntimeError, ZeroDivisionError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(share) for name, share in found.items()}
    return {}
