"""Checkpoints: all of a learner as tensors and JSON, never a pickle.

A checkpoint is a folder. `state.json` holds numbers and settings and names the file of tensors
beside it, with its digest. The tensors are written first, to a name that the present `state.json`
does not use; replacing `state.json` is what makes the new checkpoint the valid one. A crash at any
moment leaves the old one whole.
"""

import hashlib
import json
import operator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialized
from safetensors.torch import save as serialized
from torch import Tensor

from peerlearn.config.learner_config import LearnerConfig
from peerlearn.data.user_arrays import MAX_CLASSES
from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.files import (
    MOST_BYTES,
    bytes_if_readable,
    flush_folder,
    from_json,
    read_text,
    replace_file,
    write_file,
)
from peerlearn.learner.resize import resize
from peerlearn.learner.transaction import Transaction
from peerlearn.learner.validation import check_state
from peerlearn.settings import flatten, settings_of
from peerlearn.stream.base import StreamInfo

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

FORMAT = "peerlearn-checkpoint"
SCHEMA = 2
# settings that have had another name
RENAMED = {
    "collaboration.join_groups": "collaboration.merge_groups",
    "collaboration.own_draws": "collaboration.separate_draws",
    "collaboration.lesson_weight": "collaboration.distill_weight",
}
# what came when checkpoints had been written, and theirs
LATER = {"progress.skipped": 0, "progress.rehearsed": 0}
_KEYS = {"tensors": str, "sha256": str, "settings": dict, "state": dict}
MOST_DIFFERENCES = 5  # named in a message
MOST_EXTRA = MOST_BYTES // 2
MOST_HEAD, HEAD_PER_NAME = 1 << 16, 1000  # bytes
_TENSOR_FILES = ("tensors-0.safetensors", "tensors-1.safetensors")


class _LostError(UserError):
    """There is no checkpoint in a folder, or what is left of one."""


def save(learner: "OnlineLearner", folder: Path, extra: Any = None) -> None:
    """Write a checkpoint of the learner into a folder, in place of the one that is there.

    extra: anything JSON can hold, kept with it.
    """
    _check_extra(extra)
    whole = moved(learner.state_dict(), torch.device("cpu"))
    _check_own(learner, whole)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        spare, used = _TENSOR_FILES
        if _tensors_in(folder) == spare:
            spare, used = used, spare
        tensors = {name: t for name, t in whole.items() if isinstance(t, Tensor)}
        content = serialized(_separate(tensors))
        write_file(folder / spare, content)
        state = {
            "format": FORMAT,
            "schema": SCHEMA,
            "tensors": spare,
            "sha256": hashlib.sha256(content).hexdigest(),
            "settings": settings(learner),
            "recipe": None if learner.config is None else learner.config.model_dump(),
            "state": {name: n for name, n in whole.items() if name not in tensors},
            "extra": extra,
        }
        flush_folder(folder)
        replace_file(folder / "state.json", json.dumps(state, indent=1, default=operator.index))
        (folder / used).unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        # What was begun stays as it is: no state.json names it, and the next save overwrites it.
        raise UserError(
            f"checkpoint {folder}: cannot be written ({error}); what was saved before is as it "
            "was. Make room there, or save to another folder"
        ) from error


def _tensors_in(folder: Path) -> str:
    """The file of tensors of the checkpoint that is there, "" if there is none to be lost."""
    if not (folder / "state.json").exists():
        return ""
    try:
        name: str = _read_state(folder)["tensors"]
        return name
    except _LostError:
        return ""
    except UserError:
        raise UserError(
            f"checkpoint {folder}: state.json there is of something else, or of another version; "
            "save to another folder"
        ) from None


def _check_own(learner: "OnlineLearner", state: dict[str, Any]) -> None:
    """Refuse to replace a good checkpoint by one that could not be loaded."""
    try:
        check_state(learner, state)
    except UserError as error:
        raise UserError(
            f"the learner cannot be saved: {error}; load the last checkpoint, or take a smaller lr"
        ) from error


def _check_extra(extra: Any) -> None:
    """Refuse now what could not be read later."""
    try:
        text = json.dumps({"extra": extra}, indent=1)
        if len(text) > MOST_EXTRA:
            raise ValueError(f"over {MOST_EXTRA} bytes")
        from_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"extra: cannot be kept as JSON ({error}); keep less or simpler") from error


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors of which no two share memory (tied weights do), as the format wants."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        separate[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return separate


@torch.inference_mode(mode=False)  # what is made there could never learn
def load(learner: "OnlineLearner", folder: Path) -> Any:
    """Put a learner into the state of a checkpoint; change nothing unless all of it fits.

    Returns what was kept with it.
    """
    state, tensors = _read(folder, MOST_HEAD + HEAD_PER_NAME * len(learner.state_dict()))
    _compare_settings(folder, state["settings"], settings(learner))
    whole = {**LATER, **state["state"], **tensors}
    whole.pop("progress.known_before", None)  # some were written with it
    try:
        with learner.state_lock, Transaction(learner, "images") as transaction:
            if (classes := _classes(whole)) != learner.num_classes:
                resize(learner, classes)
            check_state(learner, whole)
            learner.load_state_dict(whole)
            transaction.commit()
    except Exception as error:  # a part of somebody else's may raise anything
        why = error if isinstance(error, UserError) else f"does not fit ({type(error).__name__})"
        raise UserError(
            f"checkpoint {folder}: {why}; build the learner with the network of the checkpoint, "
            "or take an earlier copy of the folder"
        ) from error
    return state["extra"]


def _classes(state: dict[str, Any]) -> int:
    """How many classes the learner of a state knows."""
    first_met = state.get("progress.first_met")
    if not isinstance(first_met, Tensor) or first_met.ndim != 1:
        raise UserError("progress.first_met should be a number for each class")
    if not 1 <= len(first_met) <= MAX_CLASSES:
        raise UserError(f"progress.first_met is of {len(first_met)} classes")
    return len(first_met)


def settings(learner: "OnlineLearner") -> dict[str, Any]:
    """Everything that decides a learner's numbers, but for its networks' architecture."""
    own = settings_of(type(learner.memory)).model_fields
    of_memory = {name: getattr(learner.memory, name, None) for name in own}
    described = {
        "method": {"name": learner.method.name, **learner.method.settings.model_dump()},
        "augment": learner.method.augment_settings,
        "stream": _told(learner.method.stream),
        "collaboration": {
            # whatever predicts, it learns the same
            **learner.distillation.model_dump(exclude={"predict_with", "teachers"}),
            "teachers": {name: t.settings.model_dump() for name, t in learner.teachers.items()},
        },
        "optim": {"name": learner.optim.name, **learner.optim.model_dump()},
        "memory": {"name": learner.memory.name, "size": learner.memory.capacity, **of_memory},
        "seed": learner.seed,
        "updates": learner.updates,
        "precision": learner.precision,
    }
    text = json.dumps(flatten(described), default=operator.index)  # whole numbers, also of NumPy
    plain: dict[str, Any] = json.loads(text)  # tuples become lists
    return plain


def _told(stream: StreamInfo) -> dict[str, Any]:
    """What a stream tells, but for a number of classes that grows: that is state."""
    return {k: v for k, v in asdict(stream).items() if not (stream.grows and k == "num_classes")}


def config_of(folder: Path) -> LearnerConfig:
    """Return what the learner of a checkpoint is built from."""
    found = _read_state(folder).get("recipe")
    if not isinstance(found, dict):
        raise UserError(
            f"checkpoint {folder}: does not say what its learner was built from, as those do that "
            "build_learner() makes; build it with the same settings, then load()"
        )
    return LearnerConfig.restored(found)


def _read(folder: Path, most_head: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What state.json says, and the tensors that it names.

    most_head: bytes that the names of the tensors may take; hundreds of thousands take seconds.
    """
    before = None
    while True:
        state = _read_state(folder)
        path = folder / state["tensors"]
        content = bytes_if_readable(path)
        if hashlib.sha256(content).hexdigest() == state["sha256"]:
            break
        if state == before:
            raise _damaged(folder, f"{path.name} is missing, cut short or damaged")
        before = state  # a process that saves there may have replaced both: look again
    if int.from_bytes(content[:8], "little") > most_head:
        raise _damaged(folder, f"{path.name} holds far more tensors than this learner has")
    try:
        return state, deserialized(content)
    except Exception as error:  # a doctored file may raise anything
        raise _damaged(folder, f"{path.name} holds no tensors ({type(error).__name__})") from error


def _read_state(folder: Path) -> dict[str, Any]:
    path = folder / "state.json"
    try:
        state = from_json(read_text(path))
    except FileNotFoundError:
        raise _LostError(
            f"checkpoint {folder}: there is no state.json; name a folder that save() wrote"
        ) from None
    except OSError as error:
        raise UserError(
            f"checkpoint {folder}: cannot be read ({error.strerror}); name a folder of save()"
        ) from None
    except ValueError as error:
        raise _damaged(folder, f"state.json is cut short or damaged ({error})") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"checkpoint {folder}: not written by Peerlearn; name a folder of save()")
    if state.get("schema") != SCHEMA:
        raise UserError(
            f"checkpoint {folder}: has schema {state.get('schema')!r:.40}, this version reads "
            f"{SCHEMA}; load it with the version that wrote it"
        )
    for key, kind in _KEYS.items():
        if not isinstance(state.get(key), kind):
            raise _damaged(folder, f"state.json has no {key!r} as it should be")
    if state["tensors"] not in _TENSOR_FILES:
        raise _damaged(folder, "state.json names a strange file of tensors")
    return {"extra": None, **state}


def _damaged(folder: Path, what: str) -> UserError:
    return _LostError(f"checkpoint {folder}: {what}; take an earlier copy of the folder")


def _compare_settings(folder: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    theirs = {RENAMED.get(k, k): v for k, v in theirs.items()}
    ours = {k: v for k, v in ours.items() if k in theirs or v}  # what came later was off there
    differ = [k for k in {**ours, **theirs} if theirs.get(k) != ours.get(k)]
    if differ:
        shown = "; ".join(
            f"{k:.60} {theirs.get(k)!r:.60} there, {ours.get(k)!r:.60} here"
            for k in differ[:MOST_DIFFERENCES]
        )
        raise UserError(
            f"checkpoint {folder}: was written with other settings: {shown}. "
            "Build the learner with the settings of the checkpoint"
        )
