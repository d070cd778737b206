"""Mutated checkpoints: refused with nothing changed, or taken by a learner that can go on."""

import hashlib
import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor

from peerlearn import ClassStream, OnlineLearner, UserError, build_learner, small_net, toy_images
from peerlearn.peer import State

STREAM = ClassStream(toy_images(num_classes=4, size=8), num_tasks=2, batch_size=6, seed=0)
NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 2**31, 2**63, -(2**63), 10**30, 10**299, 10**400, 0.5, -0.5,
    1e308, float("nan"), float("inf"), -float("inf"), "", "1", "nan", "\0", "../..", "a" * 5000,
    [], [1], [[]], [None], [1, 2, 3], [3, 8, 8], {}, {"a": 1}, {"": None}, [[[[1]]]],
    "tensors-1.safetensors",
]  # fmt: skip
NUMBERS = [0.0, -0.0, -1.0, 1e-45, 1e30, 3e38, float("nan"), float("inf"), -float("inf")]
KINDS = [torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8,
         torch.bool, torch.bfloat16, torch.complex64]  # fmt: skip


class Template(NamedTuple):
    """A checkpoint that is whole, a learner to load it into, and that learner's own state."""

    state: dict[str, Any]  # of state.json
    tensors: dict[str, Tensor]
    learner: OnlineLearner
    before: State


def copied(state: State) -> State:
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in state.items()}


def same(a: State, b: State) -> bool:
    def equal(x: Any, y: Any) -> bool:
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x.dtype == y.dtype and torch.equal(x, y)
        return bool(x == y)

    return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)


def template(name: str, folder: Path, batches: int, **settings: Any) -> Template:
    """A learner that has come into the second task, saved; and another that has learnt a little."""
    make = partial(
        build_learner, name, STREAM.info, partial(small_net, 4, width=2), memory=6, **settings
    )
    saved, victim = make(), make()
    for batch in list(STREAM.tasks[0])[:3]:
        saved.learn(*batch)
    saved.end_task()
    for batch in list(STREAM.tasks[1])[:2]:
        saved.learn(*batch)
    saved.save(folder, {"note": [1, 2]})
    for batch in list(STREAM.tasks[0])[:batches]:
        victim.learn(*batch)
    state = json.loads((folder / "state.json").read_text())
    tensors = load((folder / state["tensors"]).read_bytes())
    return Template(state, tensors, victim, copied(victim.state_dict()))


def templates() -> list[Template]:
    import tempfile

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folders = (Path(place) / str(number) for number in range(100))
        return [
            template("er+ccldc", next(folders), 0),
            template("er", next(folders), 2, optimizer="sgd", momentum=0.9),
            template("derpp", next(folders), 3, memory_policy="class_balanced"),
            template("gsa", next(folders), 2),
            template("ocm", next(folders), 1),
            template("onpro+ccldc", next(folders), 0),
            template("er+untrained", next(folders), 1),
        ]


TEMPLATES = templates()


def case(seed: int, folder: Path) -> str:
    """Write a mutated checkpoint and load it."""
    rng = random.Random(seed)
    chosen = rng.choice(TEMPLATES)
    folder = folder / "checkpoint"
    folder.mkdir()
    rng.choice(WAYS)(chosen, rng, folder)
    learner = chosen.learner
    files = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    try:
        learner.load(folder)
        refused = ""
    except UserError as error:
        refused = str(error)
    if not refused:
        go_on(learner)
        with suppress(UserError):  # a step may have led to numbers that cannot be saved
            learner.save(folder)
            learner.load(folder)
        learner.load_state_dict(copied(chosen.before))
        return "read"
    assert "\n" not in refused, "the message has several lines"
    assert same(learner.state_dict(), chosen.before), "what was refused has changed something"
    assert all(path.read_bytes() == content for path, content in files.items())
    return "refused"


def go_on(learner: OnlineLearner) -> None:
    """What was taken can be used: a step is taken, or refused with nothing changed."""
    task = STREAM.tasks[min(learner.progress.task, 1)]
    batch = list(task)[-1]
    learner.predict(batch.x)
    before = copied(learner.state_dict())
    try:
        learner.learn(*batch)
    except UserError:
        assert same(learner.state_dict(), before), "a refused step has changed something"


# --- ways to spoil a checkpoint


def write(folder: Path, state: Any, tensors: dict[str, Tensor] | bytes, *, digest: bool) -> None:
    content = tensors if isinstance(tensors, bytes) else save(tensors)
    name = state.get("tensors") if isinstance(state, dict) else None
    if digest and isinstance(state, dict):
        state = {**state, "sha256": hashlib.sha256(content).hexdigest()}
    name = (
        name
        if name in ("tensors-0.safetensors", "tensors-1.safetensors")
        else "tensors-0.safetensors"
    )
    (folder / name).write_bytes(content)
    (folder / "state.json").write_text(json.dumps(state))


def spoil_tree(tree: Any, rng: random.Random) -> Any:
    """Change, drop, double or add a value somewhere in a tree of dicts and lists."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = tree
        while isinstance(place, dict | list) and place:
            key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.9:
                place = place[key]
                continue
            how = rng.random()
            if how < 0.6:
                place[key] = deepcopy(rng.choice(NASTY))
            elif how < 0.75:
                del place[key]
            elif isinstance(place, dict):
                another = rng.choice((f"{key}x", "peer0.rng", "memory.columns.z", "9"))
                place[another] = deepcopy(place[key])
            else:
                place.insert(key, deepcopy(rng.choice(NASTY)))
            break
    return tree


def spoil_text(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double or overwrite bytes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[at:]
        elif how == 2:
            data[at:at] = data[rng.randrange(len(data) + 1) :][:40]
        elif how == 3:
            data[at : at + rng.randrange(20)] = rng.randbytes(rng.randrange(20))
        else:
            word = rng.choice((b"[" * 3000, b'{"a":' * 2000, b"1e999", b"9" * 400, b"NaN", b"\xff"))
            data[at:at] = word
    return bytes(data)


def spoil_tensors(tensors: dict[str, Tensor], rng: random.Random) -> dict[str, Tensor]:
    """Give tensors other values, types, shapes or names."""
    made = dict(tensors)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not made:
            break
        name = rng.choice(list(made))
        tensor, how = made[name].clone(), rng.randrange(8)
        if how <= 2 and tensor.numel():
            flat = tensor.view(-1)
            spots = [rng.randrange(len(flat)) for _ in range(rng.choice((1, len(flat))))]
            if tensor.is_floating_point():
                flat[spots] = rng.choice(NUMBERS)
            else:
                flat[spots] = rng.choice((0, 1, 2, 3, 200)) if tensor.dtype == torch.uint8 else (
                    torch.tensor(rng.choice((-1, 0, 1, 3, 4, 7, -(2**63), 2**62))).to(tensor.dtype)
                )  # fmt: skip
            made[name] = tensor
        elif how == 3:
            made[name] = tensor.to(rng.choice(KINDS))
        elif how == 4:
            shapes = [
                (),
                (0,),
                (1,),
                (2, 2),
                (*tensor.shape, 1),
                (*tensor.shape[:-1], 3),
                (1, *tensor.shape),
            ]
            made[name] = torch.zeros(rng.choice(shapes), dtype=tensor.dtype)
        elif how == 5:
            del made[name]
        elif how == 6:
            made[rng.choice(list(tensors))] = tensor
        else:
            extra = ("x", "peer0.buffers.new", "peer7.rng", "memory.columns.w", "progress.task",
                     "progress.carry.new", "peer0.optimizer.99.exp_avg", "image_shape")  # fmt: skip
            made[rng.choice(extra)] = tensor
    return made


def by_tree(chosen: Template, rng: random.Random, folder: Path) -> None:
    write(folder, spoil_tree(chosen.state, rng), chosen.tensors, digest=False)


def by_state(chosen: Template, rng: random.Random, folder: Path) -> None:
    state = {**chosen.state, "state": spoil_tree(chosen.state["state"], rng)}
    write(folder, state, chosen.tensors, digest=False)


def by_text(chosen: Template, rng: random.Random, folder: Path) -> None:
    write(folder, chosen.state, chosen.tensors, digest=False)
    file = rng.choice(list(folder.iterdir()))
    file.write_bytes(spoil_text(file.read_bytes(), rng))


def by_bytes_with_their_digest(chosen: Template, rng: random.Random, folder: Path) -> None:
    content = save(chosen.tensors)
    head = 8 + int.from_bytes(content[:8], "little")
    spoilt = spoil_text(content[:head], rng) + content[head:]
    write(
        folder,
        chosen.state,
        spoilt if rng.random() < 0.8 else spoil_text(content, rng),
        digest=True,
    )


def by_tensors(chosen: Template, rng: random.Random, folder: Path) -> None:
    write(folder, chosen.state, spoil_tensors(chosen.tensors, rng), digest=True)


def by_files(chosen: Template, rng: random.Random, folder: Path) -> None:
    write(folder, chosen.state, chosen.tensors, digest=False)
    file = rng.choice(list(folder.iterdir()))
    file.unlink()
    how = rng.randrange(5)
    if how == 0:
        file.mkdir()
    elif how == 1:
        file.symlink_to(file.name)
    elif how == 2:
        os.mkfifo(file)
    elif how == 3:
        file.write_bytes(b"")


Way = Callable[[Template, random.Random, Path], None]
WAYS: list[Way] = [by_tree, by_state, by_state, by_text, by_bytes_with_their_digest, by_tensors,
                   by_tensors, by_tensors, by_tensors, by_files]  # fmt: skip
