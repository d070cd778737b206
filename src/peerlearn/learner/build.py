"""Learners from names and settings: one way, for programs and for the command."""

import warnings
from collections.abc import Callable
from typing import Any

from pydantic.fields import FieldInfo
from torch import nn

from peerlearn.errors import UserError, did_you_mean
from peerlearn.learner.config import MEMORY, NET, LearnerConfig, load_augmentations
from peerlearn.learner.inputs import Devices, Distance, PredictWith, check_net
from peerlearn.learner.online import OnlineLearner
from peerlearn.optim.optimizers import Optimizer
from peerlearn.peer import Layout, Precision
from peerlearn.settings import (
    OLD_NAMES,
    Settings,
    Values,
    fields_of,
    flatten,
    matching,
    old_name_note,
    present_name,
)
from peerlearn.stream.base import StreamInfo


def build_learner(
    name: str,
    stream: StreamInfo,
    net: str | Callable[..., nn.Module] = NET,
    *,
    memory: int,
    seed: int = 0,
    profile: str = "paper",
    optimizer: str | None = None,
    memory_policy: str = MEMORY,
    updates: int | None = None,
    predict_with: PredictWith | None = None,
    ncm_distance: Distance | None = None,
    device: Devices = "cpu",
    precision: Precision = "fp32",
    layout: Layout = "auto",
    compile: bool = False,
    peers_at_once: int = 1,
    **settings: Any,
) -> OnlineLearner:
    """The learner of a name such as "er" or "er+ccldc".

    Args:
        name: a method, and after a plus its wrapper.
        stream: what the stream tells its learner; `ClassStream.info`, or your own.
        net: the name of a network, or a function that makes one, see `OnlineLearner`.
        memory: images kept for replay.
        seed: decides everything that is drawn.
        profile: "paper", or "authors" to differ from it where their code does.
        optimizer: its name; the method's own by default.
        memory_policy: which images stay in memory, by name.
        updates: steps per stream batch; the method's own number by default.
        predict_with: "peers", their EMA copies ("ema"), the "average" of both, or nearest class
            means ("ncm"); the wrapper's own by default. `answer` is its old name.
        ncm_distance: of features to class means: "euclidean", or "cosine", which normalises both;
            the method's own by default.
        device: where it runs; "cuda:0,cuda:1" or a list for a device for each peer.
        precision: fp32, bf16 where the processor can, on CUDA also fp16.
        layout: of images and weights in memory; auto is channels_last where that is safe.
        compile: let torch.compile make the networks' features, see `OnlineLearner`.
        peers_at_once: peers that compute side by side, see `OnlineLearner`.
        settings: of the parts, by any name that means one thing only: alpha=0.5, stages=2; or by
            group: method={"alpha": 0.5}, optim=SGD(lr=0.1), chain=ViewChain(stages=2). Those of the
            augmentation as well: augment="randaugment", randaugment_m=9.

    >>> learner = build_learner("er+ccldc", StreamInfo(num_classes=4), "small", memory=50, lr=1e-3)
    >>> learner.optim.lr, learner.distillation.peers
    (0.001, 2)
    """
    if not isinstance(stream, StreamInfo):
        raise UserError(
            f"stream: need what a stream tells, StreamInfo(num_classes=...), got {stream!r:.60}"
        )
    named = net if isinstance(net, str) else None
    if named is None:
        check_net(net)
    optim = settings.get("optim")
    if isinstance(optim, Optimizer):
        if optimizer not in (None, optim.name):
            raise UserError(
                f"{name}: optim is {optim.name}, optimizer {optimizer}; say one of them"
            )
        optimizer = optim.name
    config = LearnerConfig.of(name, net=named, optimizer=optimizer, memory_policy=memory_policy)
    given = flatten(_as_values(settings))
    predict_with = _present_source(name, predict_with, given)
    given = _with_present_names(name, given)
    config.check_class_means(predict_with, memory, "predict_with ncm")
    preset = config.preset(profile)
    augment = given.get("augment", given.get("method.augment", preset.get("method.augment")))
    if augment is not None:
        config = config.replace(values={"method.augment": augment})
    fields: dict[str, FieldInfo] = {}
    for group, model in config.settings.items():
        fields |= fields_of(model, f"{group}.")
    keys = [*fields]
    values = {key: field.default for key, field in fields.items() if not field.is_required()}
    values |= preset
    for key, value in given.items():
        found = matching(key, keys)
        if not found:
            short = [key.rpartition(".")[2] for key in keys]
            last = key.rpartition(".")[2]
            raise UserError(did_you_mean(f"{name} has no setting {key!r}", last, short))
        if len(found) > 1:
            raise UserError(f"{name}: {key!r} is ambiguous; say {' or '.join(found)}")
        values[found[0]] = value
    load_augmentations(fields, values)
    config = config.replace(
        values=values,
        stream=stream,
        memory=memory,
        seed=seed,
        updates=updates,
        predict_with=predict_with,
        ncm_distance=ncm_distance,
        precision=precision,
        layout=layout,
    )
    return config.build(
        None if isinstance(net, str) else net,
        device=device,
        compile=compile,
        peers_at_once=peers_at_once,
    )


def _present_source(name: str, predict_with: Any, given: dict[str, Any]) -> Any:
    """Return what predicts, also where its old name says so, which is taken out of `given`."""
    old = [key for key in given if OLD_NAMES.get(key) == "predict_with"]
    if len(old) + (predict_with is not None) > 1:
        both = " and ".join([*old, *(["predict_with"] if predict_with is not None else [])])
        raise UserError(f"{name}: {both} are the same setting; give only predict_with")
    key, value = ("predict_with", predict_with) if not old else (old[0], given.pop(old[0]))
    if note := old_name_note(key, value):
        warnings.warn(note, DeprecationWarning, stacklevel=3)
    return present_name(key, value)[1]


def _with_present_names(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return settings by their present names; each old one is noted in a warning."""
    found: dict[str, Any] = {}
    for old, value in given.items():
        key = OLD_NAMES.get(old, old)
        if key in found or (key != old and key in given):
            raise UserError(f"{name}: {old} and {key} are the same setting; give only {key}")
        if note := old_name_note(old, value):
            warnings.warn(note, DeprecationWarning, stacklevel=3)
        found[key] = value
    return found


def _as_values(settings: Values) -> dict[str, Any]:
    return {
        name: value.model_dump() if isinstance(value, Settings) else value
        for name, value in settings.items()
    }
