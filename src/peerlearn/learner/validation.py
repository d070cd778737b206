"""Is this a state that a learner may take? Looked at name by name before any of it is applied.

A checkpoint may come from anywhere. What is admitted has the names, types and shapes of this
learner's own state, finite numbers, whole counts, known labels, and an optimizer that can go on.
"""

import math
import re
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from peerlearn.devices import check_generator_state
from peerlearn.errors import UserError
from peerlearn.learner.snapshot import Snapshot
from peerlearn.methods.interface import check_count, check_kept, check_progress
from peerlearn.nets.base import classifier_of
from peerlearn.optim.optimizers import Optimizer
from peerlearn.peer import Peer, State, part, prefixed
from peerlearn.settings import nest
from peerlearn.stream.base import StreamInfo

if TYPE_CHECKING:
    from peerlearn.learner.online import OnlineLearner

LARGEST_SIDE = 2**16  # pixels
# what comes with rows and steps: not there in a learner that was just built
_GROWS = re.compile(r"memory\.|progress\.carry\.|peer\d+\.(optimizer|buffers)\.")
_INSIDE = re.compile(r"(peer\d+\.(model|snapshot)|teacher\.[^.]+\.\d+)\.")  # a network
_COUNTS = re.compile(_INSIDE.pattern + "counts")
_UPDATES = re.compile(r"teacher\.[^.]+\.updates")
_SCALER = re.compile(r"peer\d+\.scaler")
# for each peer the forms of its parameters, and of what its optimizer gathers for them
_PROBED: WeakKeyDictionary[Peer, tuple[list[str], dict[str, dict[str, str]]]] = WeakKeyDictionary()
_RNG = re.compile(r"rng\.\w+|peer\d+\.rng")
_NOT_NEGATIVE = re.compile(
    r"peer\d+\.optimizer\.\d+\.(step|.*_sq)|.*\.(running_var|num_batches_tracked)"
)


def check_state(learner: "OnlineLearner", state: State) -> None:
    """Raise a `UserError` that says what does not fit, in a few words, or pass."""
    own = learner.state_dict()
    own |= _snapshots(learner, own, state)
    for name in {**own, **state}:
        if not _GROWS.match(name):
            _check_like(name, own, state)
    learnt = {n for n, p in learner.peers[0].model.named_parameters() if p.requires_grad}
    peers = tuple(f"peer{i}." for i in range(len(learner.peers)))
    for name, value in state.items():
        if name.startswith("peer") and not name.startswith(peers):
            raise UserError(f"{name:.60} is of a peer that this learner does not have")
        if isinstance(value, Tensor) and name not in _may_be_absent(learner):
            _check_numbers(name, value, learnt)
    for name in filter(_RNG.fullmatch, state):
        check_generator_state(name, state[name])
    shape = _check_image_shape(state["image_shape"])
    check_progress(part("progress", state), learner.method, learner.peers[0].model, shape)
    _check_memory(learner, part("memory", state), shape)
    for i, peer in enumerate(learner.peers):
        _check_peer(f"peer{i}", peer, learner.optim, part(f"peer{i}", state))


def _may_be_absent(learner: "OnlineLearner") -> set[str]:
    """Columns of the memory that hold no number where a class came later than the image."""
    absent = {name for name, fill in learner.method.fill_values.items() if math.isnan(fill)}
    return {f"memory.columns.{name}" for name in absent} if learner.method.stream.grows else set()


def _snapshots(learner: "OnlineLearner", own: State, found: State) -> State:
    """What a peer would have had it taken a snapshot, where the state has one and it has not."""
    expected: State = {}
    for i in range(len(learner.peers)):
        there = (any(n.startswith(f"peer{i}.snapshot.") for n in state) for state in (own, found))
        if [*there] == [False, True]:
            expected |= prefixed(f"peer{i}.snapshot", part(f"peer{i}.model", own))
    return expected


def _check_like(name: str, own: State, found: State) -> None:
    """A value has to be of the kind that the learner has itself."""
    expected, got = (_form(state[name]) if name in state else "nothing" for state in (own, found))
    if expected != got and not (name == "image_shape" and name in found):
        raise UserError(f"{name:.60} should be {expected:.200} and is {got:.200}")
    if _COUNTS.fullmatch(name):
        forwards, backwards = (check_count(name, n) for n in found[name])
        if backwards > forwards:
            raise UserError(f"{name}: more images went backward than forward")
    elif _UPDATES.fullmatch(name):
        check_count(name, found[name])
    elif _SCALER.fullmatch(name) and not all(map(_not_negative, found[name].values())):
        raise UserError(f"{name} holds a number that cannot be")


def _form(value: Any) -> str:
    """Return the kind of a value: of a tensor its type and shape, of others their types."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_form(inner)}' for key, inner in sorted(value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_form, value))}]"
    return type(value).__name__


def _not_negative(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def _check_numbers(name: str, value: Tensor, learnt: Set[str]) -> None:
    """Finite, but in buffers of a network's own, such as a mask. learnt: names of parameters."""
    inside = _INSIDE.match(name)
    within = name[inside.end() :] if inside else ""
    of_ours = not inside or within in learnt or within.endswith(("running_mean", "running_var"))
    if of_ours and not bool(torch.isfinite(value).all()):
        raise UserError(f"{name} holds numbers that are not finite")
    if _NOT_NEGATIVE.fullmatch(name) and bool((value < 0).any()):
        raise UserError(f"{name} holds negative numbers")


def _check_image_shape(shape: Any) -> tuple[int, ...] | None:
    if shape is None:
        return None
    if not isinstance(shape, list | tuple) or len(shape) != 3 or shape[0] != 3:
        raise UserError(f"image_shape should be [3, height, width] and is {shape!r:.40}")
    return tuple(check_count("image_shape", side, LARGEST_SIDE) for side in shape)


def _check_memory(learner: "OnlineLearner", state: State, shape: tuple[int, ...] | None) -> None:
    columns = part("columns", state)
    check_count("memory.seen", state.get("seen"))
    if (state["seen"] == 0) != (shape is None):
        raise UserError("memory.seen contradicts the count of batches")
    wanted = {"x", "y", *learner.method.stores} if shape is not None else set()
    if columns.keys() != wanted:
        raise UserError(f"memory has the columns {sorted(columns)!s:.80} and not {sorted(wanted)}")
    if shape is not None:
        if not all(isinstance(column, Tensor) and column.ndim for column in columns.values()):
            raise UserError("memory has a column that is not of rows")
        x, y = columns["x"], columns["y"]
        if x.dtype != torch.uint8 or tuple(x.shape[1:]) != shape:
            raise UserError(f"memory.columns.x should be images of {shape} and is {_form(x)}")
        if y.dtype != torch.int64 or y.ndim != 1:
            raise UserError(f"memory.columns.y should be labels and is {_form(y)}")
        if not bool(((y >= 0) & (y < learner.method.stream.num_classes)).all()):
            raise UserError("memory.columns.y holds labels that do not exist")
        for name, kept in learner.method.stores.items():
            place, model = f"memory.columns.{name}", learner.peers[0].model
            check_kept(place, columns[name], learner.method, model, kept, rows=len(y))
    learner.memory.check_state(nest(state), learner.method.stream.num_classes)


def check_networks(learner: "OnlineLearner", x: Tensor) -> None:
    """Every network takes such images, (1, 3, H, W), and answers as many classes as needed."""
    now = Snapshot(learner)
    for i in range(len(learner.peers)):
        try:
            answered = tuple(now.all_logits(x, peer=i).shape)
        except RuntimeError as error:
            raise UserError(
                f"network: does not take images of {tuple(x.shape[1:])} ({error}); see to its "
                "layers and feature_dim"
            ) from error
        check_rows(answered, learner.method.stream)
    if any(classifier_of(peer.model.net) is not None for peer in learner.peers):
        _check_classifiers(learner, x)


def check_rows(answered: tuple[int, ...], stream: StreamInfo) -> None:
    """Answers, (B, C), are of as many classes as there are. answered: their shape."""
    classes = stream.num_classes
    if answered[1:] != (classes,):
        hint = f"make it with num_classes={classes}"
        if stream.grows:
            hint = "net must use the number that it is given, as in lambda n: small_net(n)"
        raise UserError(
            f"network: answers {answered[-1]} classes, the stream has {classes}; {hint}"
        )


def _check_classifiers(learner: "OnlineLearner", x: Tensor) -> None:
    """A network's `classify` is what it answers with. x: (1, 3, H, W)."""
    now = Snapshot(learner)
    problem = UserError(
        "network: forward(x) must be classify(features(x)); if classify means something else, "
        "give it another name"
    )
    try:
        said = torch.stack(now.outputs(x).logits).mean(dim=0)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise problem from error
    says = now.logits(x)
    if said.shape != says.shape or not said.allclose(says, equal_nan=True):
        raise problem


def _check_peer(prefix: str, peer: Peer, optim: Optimizer, state: State) -> None:
    buffers = part("buffers", state)
    for name, own in peer.buffers.items():
        if _form(buffers.get(name)) != _form(own):
            found = _form(buffers[name]) if name in buffers else "nothing"
            raise UserError(f"{prefix}.buffers.{name} should be {_form(own)} and is {found}")
    if not all(isinstance(value, Tensor) for value in buffers.values()):
        raise UserError(f"{prefix}.buffers holds what is not a tensor")
    moments = part("optimizer", state)
    own_groups = peer.state_dict()["optimizer.groups"]
    _check_groups(f"{prefix}.optimizer.groups", own_groups, moments.pop("groups", None))
    _check_moments(f"{prefix}.optimizer", peer, optim, moments)


def _check_groups(name: str, own: list[State], found: Any) -> None:
    """A schedule may have moved numbers and left some of its own, such as `initial_lr`."""
    if not isinstance(found, list) or len(found) != len(own):
        raise UserError(f"{name} should be {len(own)} groups of options and is {found!r:.40}")
    for ours, theirs in zip(own, found, strict=True):
        if not isinstance(theirs, dict):
            raise UserError(f"{name} holds {theirs!r:.40}")
        for key in {**ours, **theirs}:
            if key not in theirs:
                raise UserError(f"{name} has no {key}")
            value = theirs[key]
            good = _same_option(key, ours[key], value) if key in ours else _not_negative(value)
            if not good:
                raise UserError(f"{name}: {key} is {value!r:.40}")


def _same_option(key: str, own: Any, found: Any) -> bool:
    """Whether an option of an optimizer can be."""
    if _form(own) != _form(found):
        return False
    if isinstance(own, list | tuple):
        return all(_same_option(key, *pair) for pair in zip(own, found, strict=True))
    if isinstance(own, float) and key == "lr":
        return bool(math.isfinite(found) and found >= 0)
    if isinstance(own, float):
        return bool(min(0.0, own) <= found and (found < 1 or found <= own))
    return bool(own == found)


def _check_moments(name: str, peer: Peer, optim: Optimizer, moments: State) -> None:
    """What the optimizer has gathered for a parameter: nothing, or all that it would gather."""
    found: dict[str, dict[str, str]] = {}
    for key, value in moments.items():
        number, _, moment = key.partition(".")
        found.setdefault(number, {})[moment] = _form(value)
    wanted = _forms_of_moments(optim, peer) if found else {}
    for number, forms in found.items():
        if forms != wanted.get(number):
            raise UserError(
                f"{name}.{number:.20} should be {wanted.get(number, 'nothing')!s:.200} and is "
                f"{forms!s:.200}"
            )


def _forms_of_moments(optim: Optimizer, peer: Peer) -> dict[str, dict[str, str]]:
    """What an optimizer gathers for each parameter, seen by letting it take a step on zeros."""
    parameters = [*peer.model.parameters()]
    forms = [_form(parameter) for parameter in parameters]
    if peer not in _PROBED or _PROBED[peer][0] != forms:
        probes = [nn.Parameter(torch.zeros_like(parameter)) for parameter in parameters]
        for probe in probes:
            probe.grad = torch.zeros_like(probe)
        optimizer = optim.build(probes)
        optimizer.step()
        _PROBED[peer] = forms, {
            str(number): {name: _form(value) for name, value in moments.items()}
            for number, moments in optimizer.state_dict()["state"].items()
        }
    return _PROBED[peer][1]
