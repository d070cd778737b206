"""The bare loop of a step: the same forwards, backwards and optimizer steps, and nothing else.

One real step is recorded: which network was shown a batch of which shape, with or without a
gradient, which of these went backward together, and who took an optimizer step. The bare loop does
exactly these with copies of the networks, in the same order and memory layout, on images that lie
ready.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from peerlearn.benchmark.learners import Subject
from peerlearn.optim.optimizers import Optimizer
from peerlearn.peer import Peer, PeerModel


class Forward(NamedTuple):
    """A network was shown a batch of this shape."""

    network: int
    answer: str  # logits or features
    shape: tuple[int, ...]
    gradient: bool


class Backward(NamedTuple):
    """The gradient went back through these forwards, by their numbers among the events."""

    forwards: tuple[int, ...]


class Step(NamedTuple):
    """The optimizer of a network took a step."""

    network: int


class Recording(NamedTuple):
    """One step of a learner, as its networks saw it."""

    networks: list[PeerModel]
    events: list[Forward | Backward | Step]
    optim: Optimizer

    @property
    def forwards(self) -> list[Forward]:
        """What the networks were shown."""
        return [event for event in self.events if isinstance(event, Forward)]


def record(subject: Subject) -> Recording:
    """Let a learner whose peers take turns take a step, and write down what its networks do."""
    recorder = _Recorder(subject.learner.optim)
    with recorder.watching():
        subject.step()
    return recorder.found


class _Recorder:
    """Stands between a step and its networks."""

    def __init__(self, optim: Optimizer) -> None:
        self.found = Recording([], [], optim)
        self.reached: list[int] = []  # forwards that the present backward has come to
        self.inside = False  # an answer: what it asks for in turn is not counted again

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what is done inside."""
        watches: dict[tuple[Any, str], Callable[..., Any]] = {
            (PeerModel, "logits"): self.forward,
            (PeerModel, "features"): self.forward,
            (torch.autograd, "backward"): self.backward,
            (torch.autograd, "grad"): self.backward,
            (Peer, "step"): self.step,
        }
        originals = {place: getattr(*place) for place in watches}
        try:
            for place, watch in watches.items():
                setattr(*place, _watched(originals[place], watch))
            yield
        finally:
            for place, original in originals.items():
                setattr(*place, original)

    def forward(self, original: Callable[..., Tensor], network: PeerModel, x: Tensor) -> Tensor:
        """A network is shown x, (B, 3, H, W)."""
        if self.inside:
            return original(network, x)
        events, number = self.found.events, len(self.found.events)
        shown = (self._number(network), original.__name__, tuple(x.shape))
        events.append(Forward(*shown, gradient=torch.is_grad_enabled()))
        self.inside = True
        try:
            answer = original(network, x)
        finally:
            self.inside = False
        if answer.requires_grad:
            answer.register_hook(lambda _: self.reached.append(number))
        return answer

    def backward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A gradient is asked for."""
        found = original(*args, **kwargs)
        self.found.events.append(Backward(tuple(sorted(self.reached))))
        self.reached.clear()
        return found

    def step(self, original: Callable[..., None], peer: Peer) -> None:
        """A peer takes its step."""
        original(peer)
        self.found.events.append(Step(self._number(peer.model)))

    def _number(self, network: PeerModel) -> int:
        known = self.found.networks
        if not any(network is one for one in known):
            known.append(network)
        return next(i for i, one in enumerate(known) if one is network)


def _watched(original: Callable[..., Any], watch: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return watch(original, *args, **kwargs)

    return call


class BareLoop:
    """Does what was recorded, and nothing else.

    Args:
        recording: of one step.
    """

    def __init__(self, recording: Recording) -> None:
        self.events = recording.events
        self.networks = [copy.deepcopy(network) for network in recording.networks]
        learning = [event.network for event in self.events if isinstance(event, Step)]
        self.optimizers = {
            number: recording.optim.build(self.networks[number].parameters())
            for number in learning
        }
        rng = torch.Generator().manual_seed(0)
        self.images: dict[int, Tensor] = {}
        for number, event in enumerate(self.events):
            if isinstance(event, Forward):
                layout = self.networks[event.network].layout
                x = torch.rand(event.shape, generator=rng)
                self.images[number] = x.contiguous(memory_format=layout)
        self.labels = {number: torch.arange(len(x)) % 2 for number, x in self.images.items()}

    def step(self) -> None:
        """Do it all once."""
        answers: dict[int, Tensor] = {}
        for number, event in enumerate(self.events):
            if isinstance(event, Forward):
                with torch.set_grad_enabled(event.gradient):
                    answers[number] = self._answer(event, self.images[number])
            elif isinstance(event, Backward) and event.forwards:
                self._backward({forward: answers.pop(forward) for forward in event.forwards})
            elif isinstance(event, Step):
                self.optimizers[event.network].step()
                self.optimizers[event.network].zero_grad(set_to_none=True)

    def flops(self) -> int:
        """Operations of the networks in a step, which it takes."""
        with FlopCounterMode(display=False) as counter:
            self.step()
        return int(counter.get_total_flops())

    def _answer(self, event: Forward, x: Tensor) -> Tensor:
        model = self.networks[event.network]
        if event.answer == "features":
            return model.net.features(x)
        logits: Tensor = model.net(x) if model.head is None else model.head(model.net.features(x))
        return logits

    def _backward(self, answers: dict[int, Tensor]) -> None:
        """From some loss of all the answers to the weights."""
        losses = [F.cross_entropy(answers[number], self.labels[number]) for number in answers]
        loss = torch.stack(losses).sum()
        asked = [event.network for n in answers if isinstance(event := self.events[n], Forward)]
        if self.optimizers.keys() >= {*asked}:
            loss.backward()
        else:  # a step that is only imagined (MIR)
            weights = [w for number in {*asked} for w in self.networks[number].parameters()]
            torch.autograd.grad(loss, [w for w in weights if w.requires_grad], allow_unused=True)
