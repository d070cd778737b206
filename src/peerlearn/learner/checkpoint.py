"""Checkpoints: all of a learner as tensors and JSON, never a pickle.

A checkpoint is a folder. `state.json` holds numbers and settings and names the file of tensors
beside it, with its digest. The tensors are written first, to a name that the present `state.json`
does not use; replacing `state.json` is what makes the new checkpoint the valid one. A crash at any
moment leaves the old one whole.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from peerlearn.errors import UserError
from peerlearn.methods.base import Progress
from peerlearn.peer import Brain, Peer

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

FORMAT = "peerlearn-checkpoint"
SCHEMA = 1
_KEYS = (
    *("schema", "tensors", "sha256", "settings"),
    *("task", "step", "batches", "image_shape", "memory_seen", "counts", "scalers", "extra"),
)
_TENSOR_FILES = ("tensors-0.safetensors", "tensors-1.safetensors")


def save(learner: "OnlineLearner", folder: Path, extra: Any = None) -> None:
    """Write a checkpoint of the learner into a folder, in place of the one that is there.

    extra: anything JSON can hold, kept with it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        spare, used = _TENSOR_FILES
        if (folder / "state.json").exists() and _read_state(folder)["tensors"] == spare:
            spare, used = used, spare
        save_file(_separate(_tensors(learner)), folder / spare)
        _flush(folder / spare)
        state = {
            "format": FORMAT,
            "schema": SCHEMA,
            "tensors": spare,
            "sha256": _digest(folder / spare),
            "settings": settings(learner),
            **_numbers(learner),
            "extra": extra,
        }
        draft = folder / "state.json.new"
        draft.write_text(json.dumps(state, indent=1))
        _flush(draft)
        os.replace(draft, folder / "state.json")
        _flush(folder)
        (folder / used).unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        # What was begun stays as it is: no state.json names it, and the next save overwrites it.
        raise UserError(
            f"checkpoint {folder}: cannot be written ({error}); the last one that was is still "
            "valid. Free some space, or save to another folder"
        ) from error


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors of which no two share memory (tied weights do), as the format wants."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        separate[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return separate


def load(learner: "OnlineLearner", folder: Path) -> Any:
    """Put a learner into the state of a checkpoint; change nothing unless all of it fits.

    Returns what was kept with it.
    """
    state = _read_state(folder)
    _compare_settings(folder, state["settings"], settings(learner))
    path = folder / state["tensors"]
    if not path.exists() or _digest(path) != state["sha256"]:
        raise UserError(
            f"checkpoint {folder}: {path.name} is missing, cut short or damaged; "
            "take an earlier copy of the folder"
        )
    tensors = load_file(path)
    _compare_tensors(folder, learner, tensors)
    _apply(learner, state, tensors)
    return state["extra"]


def settings(learner: "OnlineLearner") -> dict[str, Any]:
    """Everything that decides a learner's numbers, but for its networks' architecture."""
    described = {
        "method": learner.method.name,
        **{f"method.{k}": v for k, v in learner.method.settings().items()},
        **{f"stream.{k}": v for k, v in asdict(learner.method.stream).items()},
        **{f"collaboration.{k}": v for k, v in asdict(learner.collaboration).items()},
        **{f"optim.{k}": v for k, v in asdict(learner.optim).items()},
        "memory": learner.memory.capacity,
        "seed": learner.seed,
        "updates": learner.updates,
        "precision": learner.precision,
    }
    plain: dict[str, Any] = json.loads(json.dumps(described))  # tuples become lists, as on disk
    return plain


def _numbers(learner: "OnlineLearner") -> dict[str, Any]:
    return {
        "task": learner.progress.task,
        "step": learner.progress.step,
        "batches": learner.progress.batches,
        "image_shape": learner.image_shape,
        "memory_seen": learner.memory.seen,
        "counts": {name: [b.forwards, b.backwards] for name, b in _brains(learner).items()},
        "scalers": [peer.scaler.state_dict() for peer in learner.peers],
    }


def _brains(learner: "OnlineLearner") -> dict[str, Brain]:
    brains = {f"peer{i}.brain": peer.brain for i, peer in enumerate(learner.peers)}
    for i, peer in enumerate(learner.peers):
        if peer.snapshot is not None:
            brains[f"peer{i}.snapshot"] = peer.snapshot
    if learner.frozen is not None:
        brains["frozen"] = learner.frozen
    return brains


def _tensors(learner: "OnlineLearner") -> dict[str, Tensor]:
    return {
        **_fixed(learner),
        **{f"memory.{name}": learner.memory[name] for name in learner.memory.columns},
        **{f"notes.{name}": note for name, note in learner.progress.notes.items()},
        **{name: t for i, peer in enumerate(learner.peers) for name, t in _moments(i, peer)},
    }


def _fixed(learner: "OnlineLearner") -> dict[str, Tensor]:
    """The tensors whose names and shapes the settings decide."""
    tensors = {"progress.first_met": learner.progress.first_met}
    tensors |= {f"rng.{purpose}": rng.get_state() for purpose, rng in learner.rngs.items()}
    for prefix, brain in _brains(learner).items():
        tensors |= {f"{prefix}.{name}": t for name, t in brain.state_dict().items()}
    for i, peer in enumerate(learner.peers):
        tensors[f"peer{i}.rng"] = peer.rng.get_state()
        tensors |= {f"peer{i}.kept.{name}": t for name, t in peer.kept.items()}
    return tensors


def _moments(index: int, peer: Peer) -> Iterator[tuple[str, Tensor]]:
    """What the optimizer has gathered; nothing before the first step."""
    for number, values in peer.optimizer.state_dict()["state"].items():
        for name, value in values.items():
            yield f"peer{index}.optim.{number}.{name}", value


def _read_state(folder: Path) -> dict[str, Any]:
    path = folder / "state.json"
    if not path.exists():
        raise UserError(
            f"checkpoint {folder}: there is no state.json; name a folder that save() wrote"
        )
    try:
        state = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(
            f"checkpoint {folder}: state.json is cut short or damaged ({error}); "
            "take an earlier copy of the folder"
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"checkpoint {folder}: not written by Peerlearn; name a folder of save()")
    if state.get("schema") != SCHEMA:
        raise UserError(
            f"checkpoint {folder}: has schema {state.get('schema')}, this version reads {SCHEMA}; "
            "load it with the version that wrote it"
        )
    missing = [key for key in _KEYS if key not in state]
    if missing:
        raise UserError(f"checkpoint {folder}: state.json has no {missing[0]!r}; take another copy")
    if state["tensors"] not in _TENSOR_FILES:
        raise UserError(f"checkpoint {folder}: state.json names a strange file of tensors")
    return state


def _compare_settings(folder: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    differ = [k for k in [*ours, *theirs] if theirs.get(k) != ours.get(k)]
    if differ:
        shown = "; ".join(
            f"{k} {theirs.get(k)!r} there, {ours.get(k)!r} here" for k in dict.fromkeys(differ)
        )
        raise UserError(
            f"checkpoint {folder}: was written with other settings: {shown}. "
            "Build the learner with the settings of the checkpoint"
        )


def _compare_tensors(folder: Path, learner: "OnlineLearner", found: dict[str, Tensor]) -> None:
    for name, ours in _fixed(learner).items():
        theirs = found.get(name)
        if theirs is None or theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            what = "nothing" if theirs is None else f"{theirs.dtype} {tuple(theirs.shape)}"
            raise UserError(
                f"checkpoint {folder}: {name} should be {ours.dtype} {tuple(ours.shape)} and is "
                f"{what}; build the learner with the network of the checkpoint"
            )
    known = _fixed(learner).keys()
    free = ("memory.", "notes.", *(f"peer{i}.optim." for i in range(len(learner.peers))))
    strangers = [name for name in found if name not in known and not name.startswith(free)]
    if strangers:
        raise UserError(
            f"checkpoint {folder}: holds {strangers[0]}, which this learner does not have; "
            "build the learner with the network of the checkpoint"
        )


def _apply(learner: "OnlineLearner", state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    def part(prefix: str) -> dict[str, Tensor]:
        return {k[len(prefix) :]: t for k, t in tensors.items() if k.startswith(prefix)}

    device = learner.device
    notes = {name: t.to(device) for name, t in part("notes.").items()}
    first_met = tensors["progress.first_met"].to(device)
    where = {k: state[k] for k in ("task", "step", "batches")}
    learner.progress = Progress(first_met, notes=notes, **where)
    shape = state["image_shape"]
    learner.image_shape = None if shape is None else tuple(shape)
    learner.memory.restore(part("memory."), state["memory_seen"], device)
    for purpose, rng in learner.rngs.items():
        rng.set_state(tensors[f"rng.{purpose}"])
    for prefix, brain in _brains(learner).items():
        brain.load_state_dict(part(f"{prefix}."))
        brain.forwards, brain.backwards = state["counts"][prefix]
    for i, peer in enumerate(learner.peers):
        peer.rng.set_state(tensors[f"peer{i}.rng"])
        peer.kept = {name: t.to(device) for name, t in part(f"peer{i}.kept.").items()}
        peer.scaler.load_state_dict(state["scalers"][i])
        _restore_optimizer(peer, part(f"peer{i}.optim."))


def _restore_optimizer(peer: Peer, moments: dict[str, Tensor]) -> None:
    """Give every moment the memory layout of its parameter, so that a step rounds as before."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = list(peer.brain.parameters())
    for key, value in moments.items():
        number, name = key.split(".")
        moment = value
        if name != "step":
            moment = torch.empty_like(parameters[int(number)]).copy_(value)
        state.setdefault(int(number), {})[name] = moment
    groups = peer.optimizer.state_dict()["param_groups"]
    peer.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
