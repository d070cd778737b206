"""Learners from names and settings: one way, for programs and for the command."""

from collections.abc import Callable
from typing import Any

from torch import nn

from peerlearn.config.learner_config import LearnerConfig
from peerlearn.config.names import MEMORY, NET, PREDICT_WITH, PredictWith
from peerlearn.errors import UserError
from peerlearn.learner.online import OnlineLearner
from peerlearn.methods.class_means import Distance
from peerlearn.nets.base import check_net
from peerlearn.nets.processor import Devices, Precision
from peerlearn.optim import Optimizer
from peerlearn.peer import Layout
from peerlearn.settings import check_choice
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
        profile: "paper", or "authors" to differ from it where their code does.
        optimizer: its name; the method's own by default.
        memory_policy: which images stay in memory, by name.
        seed: as for `OnlineLearner`, and so are all but the last that follow.
        updates: steps per stream batch.
        predict_with: networks that predict, or "ncm".
        ncm_distance: of features to class means.
        device: a name, several, or a list.
        precision: fp32, bf16 or fp16.
        layout: of images and weights in memory.
        compile: whether torch.compile makes the networks' features.
        peers_at_once: peers that compute side by side.
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
    if predict_with is not None:
        if not isinstance(predict_with, str):
            check_choice("predict_with", predict_with, PREDICT_WITH)
        settings["predict_with"] = predict_with
    config = LearnerConfig.of(name, net=named, optimizer=optimizer, memory_policy=memory_policy)
    config = config.with_settings(name, settings, profile)
    config.check_class_means(config.predict_with, memory, "predict_with ncm")
    config = config.replace(
        stream=stream,
        memory=memory,
        seed=seed,
        updates=updates,
        ncm_distance=ncm_distance,
        precision=precision,
        layout=layout,
    )
    return OnlineLearner.from_config(
        config,
        None if isinstance(net, str) else net,
        device=device,
        compile=compile,
        peers_at_once=peers_at_once,
    )
