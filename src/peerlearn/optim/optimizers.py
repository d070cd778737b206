"""Optimizers: their settings, and how to make one for a peer."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import nn
from typing_extensions import override

from peerlearn.settings import Settings, setting


class Optimizer(Settings):
    """How a peer follows its gradients; made once per peer and never reset.

    Args:
        lr: learning rate.
        weight_decay: how strongly weights are drawn to zero.

    One of your own has a `name` and a `build`, and fields for what else it can be told:

    >>> class RMSprop(Optimizer):
    ...     name = "rmsprop"
    ...     def build(self, parameters):
    ...         return torch.optim.RMSprop(parameters, lr=self.lr, weight_decay=self.weight_decay)
    >>> RMSprop(lr=1e-3).build([nn.Parameter(torch.zeros(2))]).defaults["lr"]
    0.001
    """

    name: ClassVar[str]

    lr: float = setting(5e-4, "learning rate", gt=0)
    weight_decay: float = setting(0.0, "weight decay", ge=0)

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of one peer."""


class Adam(Optimizer):
    """Adam, weight decay as part of the gradient.

    Kingma and Ba, ICLR 2015, https://arxiv.org/abs/1412.6980

    Args:
        lr: learning rate.
        weight_decay: added to the gradient, times the weights.
        beta1: decay rate of the mean gradient.
        beta2: decay rate of the mean squared gradient.

    >>> Adam(beta2=0.99).build([nn.Parameter(torch.zeros(2))]).defaults["betas"]
    (0.9, 0.99)
    """

    name = "adam"
    kind: ClassVar[type[torch.optim.Adam]] = torch.optim.Adam

    beta1: float = setting(0.9, "decay rate of the mean gradient", ge=0, lt=1)
    beta2: float = setting(0.999, "decay rate of the mean squared gradient", ge=0, lt=1)

    @override
    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return self.kind(
            parameters,
            lr=self.lr,
            weight_decay=self.weight_decay,
            betas=(self.beta1, self.beta2),
            fused=True,
        )


class AdamW(Adam):
    """Adam with decoupled weight decay.

    Loshchilov and Hutter, ICLR 2019, https://arxiv.org/abs/1711.05101

    Args:
        lr: learning rate.
        weight_decay: share of the weights, times lr, that each step takes away.
        beta1: decay rate of the mean gradient.
        beta2: decay rate of the mean squared gradient.

    >>> AdamW(lr=1e-3).build([nn.Parameter(torch.zeros(2))]).defaults["lr"]
    0.001
    """

    name = "adamw"
    kind = torch.optim.AdamW

    weight_decay: float = setting(1e-4, "weight decay", ge=0)


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted.

    Args:
        lr: learning rate.
        weight_decay: added to the gradient, times the weights.
        momentum: share of the last step that is taken again.

    >>> SGD(lr=0.1, momentum=0.9).build([nn.Parameter(torch.zeros(2))]).defaults["momentum"]
    0.9
    """

    name = "sgd"

    lr: float = setting(0.1, "learning rate", gt=0)
    momentum: float = setting(0.0, "share of the last step that is taken again", ge=0, lt=1)

    @override
    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters, lr=self.lr, weight_decay=self.weight_decay, momentum=self.momentum
        )
