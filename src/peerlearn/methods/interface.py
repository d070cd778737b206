"""What a method is.

A method is one short class that says what a step trains on (`draw`), with which loss (`loss`), and
on which images peers teach each other (`groups`). It owns no network, no optimizer and no loop, and
does not know whether there is another peer. A class with these three and a `name` has every
wrapper, checkpoints and a place in every command. What must outlive a step is kept elsewhere, so
that it is saved and resumed without further code: what concerns the stream in `Progress`, what
belongs to one network in `peer.buffers`, what goes with a stored image in a column of the memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from peerlearn.augment import AUGMENTATIONS, Augment
from peerlearn.augment.naming import names_augmentation
from peerlearn.devices import moved
from peerlearn.errors import UserError
from peerlearn.losses import LabelledImages as LabelledImages  # methods of others find them here
from peerlearn.losses import Mix as Mix
from peerlearn.losses import classification_loss as classification_loss
from peerlearn.losses import joined as joined
from peerlearn.memory.base import Memory
from peerlearn.methods import METHODS
from peerlearn.optim.optimizers import AdamW, Optimizer
from peerlearn.peer import Peer, PeerModel, State, part, prefixed
from peerlearn.settings import Settings, setting, settings_of
from peerlearn.stream.base import StreamInfo


def images(x: Tensor) -> Tensor:
    """uint8 pixels as the networks see them: (B, 3, H, W) float in [0, 1]."""
    return x.float().div_(255)


def replayed(rows: Mapping[str, Tensor]) -> LabelledImages:
    """Rows of a memory as a group, all of it on the device of the images.

    >>> rows = {"x": torch.full((2, 3, 8, 8), 255, dtype=torch.uint8), "y": torch.tensor([0, 1])}
    >>> replayed(rows).x.max()
    tensor(1.)
    """
    x = images(rows["x"])
    return LabelledImages(x, moved(rows["y"], x.device))


class ForwardOutput(NamedTuple):
    """A batch as a peer saw it, with its logits.

    Args:
        x: images, (B, 3, H, W).
        logits: (B, C).

    >>> ForwardOutput(torch.rand(2, 3, 8, 8), torch.zeros(2, 10)).logits.shape
    torch.Size([2, 10])
    """

    x: Tensor
    logits: Tensor


class StepOutput(NamedTuple):
    """The loss of a method for one peer, and what it keeps of the step.

    With several peers, what they store and carry is averaged.

    Args:
        loss: a number with its graph.
        outputs: on the batches that the classification trained on.
        store: columns that go into the memory beside the stream batch, each (B, ...).
        carry: found in `Progress.carry` by the next draw.

    >>> x, logits = torch.rand(2, 3, 8, 8), torch.zeros(2, 10)
    >>> StepOutput(logits.sum(), [ForwardOutput(x, logits)], store={"logits": logits}).carry
    {}
    """

    loss: Tensor
    outputs: list[ForwardOutput]
    store: Mapping[str, Tensor] = {}
    carry: Mapping[str, Tensor] = {}


COUNTS = ("task", "step", "batches", "skipped", "rehearsed")  # of a `Progress`

# of what is kept, without the rows: numbers, "classes", "features" (their length), "projection"
Shape = tuple[int | str, ...]


def _none() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Progress:
    """Where the stream stands, the present batch included. The learner keeps it.

    Args:
        first_met: (C,), the task in which each class was first learnt, -1 before that; on the
            CPU, like all that decides what is drawn.
        task: number of the present task, from 0.
        step: batches of this task that were learnt before the present one.
        batches: batches of all tasks before the present one.
        skipped: batches of this task that passed without being learnt.
        rehearsed: steps of all tasks that were taken on the memory alone.
        carry: what the last step left for this one, see `StepOutput`.
        classes: (K,), those of the present batch, ascending, on the CPU: `batch.y.unique()` would
            wait for the device.

    >>> progress = Progress(torch.full((4,), -1)).meeting(torch.tensor([0, 2, 2]))
    >>> progress.classes.tolist(), progress.seen.tolist(), progress.after_task().old.tolist()
    ([0, 2], [True, False, True, False], [True, False, True, False])
    """

    first_met: Tensor
    task: int = 0
    step: int = 0
    batches: int = 0
    skipped: int = 0
    rehearsed: int = 0
    carry: Mapping[str, Tensor] = field(default_factory=dict)
    classes: Tensor = field(default_factory=_none)

    @property
    def seen(self) -> Tensor:
        """(C,) bool: classes met so far."""
        return self.first_met >= 0

    @property
    def old(self) -> Tensor:
        """(C,) bool: classes met before this task."""
        return self.seen & (self.first_met < self.task)

    def meeting(self, labels: Tensor) -> "Progress":
        """Where it stands while a batch with these labels, (B,) on the CPU, is learnt."""
        first_met, classes = self.first_met.clone(), labels.unique()
        first_met[classes[first_met[classes] < 0]] = self.task
        return replace(self, first_met=first_met, classes=classes)

    def after_batch(self, carry: Mapping[str, Tensor]) -> "Progress":
        """Where it stands once the present batch is done."""
        step, batches = self.step + 1, self.batches + 1
        return replace(self, step=step, batches=batches, carry=dict(carry), classes=_none())

    def after_skip(self) -> "Progress":
        """Where it stands once the present batch has passed without being learnt."""
        skipped, batches = self.skipped + 1, self.batches + 1
        return replace(self, skipped=skipped, batches=batches, classes=_none())

    def after_rehearsal(self) -> "Progress":
        """Return where the stream stands after one more step on the memory alone."""
        return replace(self, rehearsed=self.rehearsed + 1)

    def after_task(self) -> "Progress":
        """Where it stands at the start of the next task."""
        return replace(self, task=self.task + 1, step=0, skipped=0)

    def state_dict(self) -> State:
        """All of it, by name."""
        numbers = {name: getattr(self, name) for name in COUNTS}
        return {"first_met": self.first_met, **numbers, **prefixed("carry", self.carry)}

    @classmethod
    def from_state(cls, state: State, device: torch.device) -> "Progress":
        """The one whose `state_dict()` this was, with what it carries on `device`."""
        numbers = {name: state[name] for name in COUNTS}
        carry = {name: tensor.to(device) for name, tensor in part("carry", state).items()}
        return cls(state["first_met"].cpu(), carry=carry, **numbers)


class MethodSettings(Settings):
    """What every method can be told.

    Args:
        replay_batch: memory images per step.

    >>> class Settings(MethodSettings):
    ...     alpha: float = setting(0.2, "weight of the stored logits", ge=0)
    >>> Settings(alpha=1)
    Settings(replay_batch=64, alpha=1.0)
    """

    replay_batch: int = setting(64, "memory images per step", ge=1, le=1_000_000)


class Answers(Protocol):
    """What a method may ask of the networks to predict with; see `peerlearn.learner.Snapshot`."""

    def logits(self, x: Tensor) -> Tensor:
        """(B, C): the mean of the peers' logits. x: (B, 3, H, W) uint8."""
        ...

    def features(self, x: Tensor) -> Tensor:
        """(B, D): the mean of the peers' features."""
        ...

    def nearest_mean(self, x: Tensor) -> Tensor:
        """(B,): the class whose mean feature, over the images in memory, is nearest."""
        ...

    def memory_features(self) -> tuple[Tensor, Tensor]:
        """Return the features (N, D) and the labels (N,) of all images in memory."""
        ...


D = TypeVar("D")


class Method(ABC, Generic[D]):
    """Base of all methods; D is the type of what `draw` hands to `loss`.

    Settings of a method's own are fields of its class `Settings`: each is a flag of the command,
    is recorded with a run, and is part of what tells one run from another. One that is called
    `augment`, of the type `Augmentation`, holds the name of an augmentation, which the method calls
    as `self.augment(x, rng)`.

    Args:
        stream: what the stream tells before its first batch.
        values: the settings, by their names.

    A method that trains on the stream alone:

    >>> class Plain(Method[LabelledImages]):
    ...     name = "plain"
    ...     def draw(self, batch, memory, progress, rng):
    ...         return batch
    ...     def loss(self, peer, draw):
    ...         logits = peer.logits(draw.x)
    ...         loss = torch.nn.functional.cross_entropy(logits, draw.y)
    ...         return StepOutput(loss, [ForwardOutput(draw.x, logits)])
    ...     def groups(self, draw, rng):
    ...         return [draw]
    >>> Plain(StreamInfo(num_classes=10)).settings
    MethodSettings(replay_batch=64)
    """

    Settings: ClassVar[type[MethodSettings]] = MethodSettings
    settings: MethodSettings
    augment: Augment  # the one that the setting `augment` names, where there is this setting

    name: ClassVar[str]
    optim: ClassVar[Optimizer] = AdamW()
    authors: ClassVar[Mapping[str, Any]] = {}  # settings that the authors' code has otherwise
    needs_boundaries: ClassVar[bool] = False
    needs_task_labels: ClassVar[bool] = False  # labels in task order, equally many per task
    is_plain_cross_entropy: ClassVar[bool] = False  # of `groups`, augmented, and keeps nothing
    gives_logits: ClassVar[bool] = True  # False: there is no classifier that could be taught
    images_per_sample: ClassVar[int] = 1  # images in the graph of a loss per image of a step, about
    stores: ClassVar[Mapping[str, Shape]] = {}  # of a `StepOutput`: {"logits": ("classes",)}
    carries: ClassVar[Mapping[str, Shape]] = {}  # what a `StepOutput` may carry
    fill_values: ClassVar[Mapping[str, float]] = {}  # stands in these for classes that came later
    uses_memory: ClassVar[bool] = True  # False: no image is kept, whatever the size of the memory
    preset: ClassVar[Mapping[str, Any]] = {}  # settings of its runs: {"updates": 10}
    fixed: ClassVar[Mapping[str, Any]] = {}  # the same, which no flag or file can change
    no_rehearsal: ClassVar[str] = "it does not define draw_rehearsal()"  # why rehearse() is refused

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """One with a loss of its own has to say for itself what it is."""
        super().__init_subclass__(**kwargs)
        if "loss" in cls.__dict__ and "is_plain_cross_entropy" not in cls.__dict__:
            cls.is_plain_cross_entropy = False

    def __init__(self, stream: StreamInfo, **values: Any) -> None:
        """Take what the stream tells, and settings by their names."""
        self.settings = self.Settings(**values)
        self.augment_settings: dict[str, Any] = {}
        if self.names_augmentation():
            self.choose_augmentation()
        if self.needs_boundaries and not stream.boundaries:
            raise UserError(
                f"{self.name} must be told where tasks end, and this stream does not tell: pass "
                "StreamInfo(boundaries=True) and call end_task(), or take "
                f"{methods_without_tasks()}"
            )
        if self.needs_task_labels and stream.classes_per_task is None and not stream.grows:
            raise UserError(
                f"{self.name} must know the classes of each task, and this stream does not tell: "
                "pass StreamInfo(classes_per_task=...) with labels numbered in order of arrival, "
                f"or take {methods_without_tasks()}"
            )
        self.stream = stream

    @classmethod
    def names_augmentation(cls) -> bool:
        """Whether its setting `augment` holds the name of an augmentation."""
        return names_augmentation(cls.Settings.model_fields.get("augment"))

    def choose_augmentation(self, **values: Any) -> None:
        """Take the augmentation that `settings.augment` names. values: its settings, by name."""
        function = AUGMENTATIONS[self.settings.augment]  # type: ignore[attr-defined]
        self.augment_settings = settings_of(function)(**values).model_dump()
        if not hasattr(type(self), "augment"):  # else the method has another use for the name
            self.augment = partial(function, **self.augment_settings)

    def check(self, batch: LabelledImages, progress: Progress) -> None:
        """Refuse a batch that this method cannot take now, before anything has changed.

        Its labels are on the CPU: looking at them waits for no device.
        """
        if not self.needs_boundaries or self.stream.classes_per_task is None:
            return
        slots = self.slots(progress.task)
        stray = batch.y[(batch.y < slots.start) | (batch.y >= slots.stop)]
        if len(stray):
            raise UserError(
                f"{self.name}: label {int(stray[0])} is not of task {progress.task}, which holds "
                f"{slots.start} to {slots.stop - 1}: call end_task() where a task ends, or take "
                f"{methods_without_tasks()}"
            )

    def slots(self, task: int) -> slice:
        """The labels of a task, where the stream numbers them in order of arrival."""
        assert self.stream.classes_per_task is not None
        return slice(task * self.stream.classes_per_task, (task + 1) * self.stream.classes_per_task)

    def setup_peer(self, peer: Peer) -> None:
        """Give a new peer what this method needs it to have: a head, a projection, buffers."""

    def end_task(self, peer: Peer) -> None:
        """Do what this method does for a peer at the end of a task."""

    @abstractmethod
    def draw(
        self, batch: LabelledImages, memory: Memory, progress: Progress, rng: torch.Generator
    ) -> D | None:
        """What this step trains on, the same for all peers; None: take no step this time."""

    def draw_for(
        self,
        _peers: Sequence[Peer],
        /,
        batch: LabelledImages,
        memory: Memory,
        progress: Progress,
        rng: torch.Generator,
    ) -> D | None:
        """`draw` for a method that looks at the peers while it draws (MIR): one for all of them."""
        return self.draw(batch, memory, progress, rng)

    def draw_rehearsal(
        self,
        memory: Memory,  # noqa: ARG002
        progress: Progress,  # noqa: ARG002
        rng: torch.Generator,  # noqa: ARG002
    ) -> D:
        """Return what a step on the memory alone trains on; the memory holds at least one image.

        Optional: a method that does not define it cannot rehearse. What `loss` then wants to store
        or carry is ignored.
        """
        raise UserError(
            f"rehearse: {self.name} cannot take steps on the memory alone, as {self.no_rehearsal}"
        )

    @classmethod
    def can_rehearse(cls) -> bool:
        """Return whether the method defines `draw_rehearsal`."""
        return cls.draw_rehearsal is not Method.draw_rehearsal

    @abstractmethod
    def loss(self, peer: Peer, draw: D) -> StepOutput:
        """The loss of one peer on what was drawn."""

    @abstractmethod
    def groups(self, draw: D, rng: torch.Generator) -> list[LabelledImages]:
        """The unaugmented images on which peers teach each other in this step."""

    def predict(self, answers: Answers, x: Tensor) -> Tensor:
        """The class of each image, (B,): the largest logit, unless a method has another rule."""
        return answers.logits(x).argmax(dim=1)


def methods_without_tasks() -> str:
    """The methods that any stream will do for, as advice."""
    *names, last = sorted(name for name, one in METHODS.items() if not one.needs_boundaries)
    return f"{', '.join(names)} or {last}, which need no tasks"


def check_declared(output: StepOutput, method: Method[Any], model: PeerModel, rows: int) -> None:
    """Refuse what a method keeps and has not declared; checkpoints are checked against that.

    rows: images of the stream batch.
    """
    if output.store.keys() != method.stores.keys():
        raise UserError(
            f"{method.name}: stores {[*output.store]}, its `stores` says {[*method.stores]}"
        )
    if not output.carry.keys() <= method.carries.keys():
        raise UserError(
            f"{method.name}: carries {[*output.carry]}, its `carries` {[*method.carries]}"
        )
    for name, value in output.store.items():
        what = f"{method.name}: what it stores as {name!r}"
        check_kept(what, value, method, model, method.stores[name], rows)
    for name, value in output.carry.items():
        what = f"{method.name}: what it carries as {name!r}"
        check_kept(what, value, method, model, method.carries[name])


def check_kept(
    name: str,
    value: Any,
    method: Method[Any],
    model: PeerModel,
    shape: Shape,
    rows: int | None = None,
) -> None:
    """Refuse what a method stores with an image, or carries, if it is not of the declared shape."""
    sizes = {
        "classes": method.stream.num_classes,
        "features": model.feature_dim,
        "projection": model.projection.out_features if model.projection is not None else None,
    }
    own = tuple(sizes[size] if isinstance(size, str) else size for size in shape)
    wanted = own if rows is None else (rows, *own)
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != wanted:
        is_tensor = isinstance(value, Tensor)
        form = f"{value.dtype} {tuple(value.shape)}" if is_tensor else type(value).__name__
        raise UserError(f"{name} should be floats {wanted} and is {form}")


def check_progress(
    state: State, method: Method[Any], model: PeerModel, shape: tuple[int, ...] | None
) -> None:
    """Refuse the state of a `Progress` that cannot be. shape: of the images so far, if any."""
    task, step, batches, skipped, rehearsed = (
        check_count(f"progress.{name}", state[name]) for name in COUNTS
    )
    impossible = step + skipped > batches or (batches == 0 and rehearsed > 0)
    if impossible or (batches == 0) != (shape is None):
        raise UserError("progress: counts of tasks, steps and batches contradict each other")
    first_met: Tensor = state["first_met"].cpu()
    if not bool(((first_met >= -1) & (first_met <= task)).all()):
        raise UserError("progress.first_met names tasks that have not been")
    if method.needs_boundaries and (per_task := method.stream.classes_per_task) is not None:
        own_task = torch.arange(len(first_met)) // per_task
        if not bool(((first_met == -1) | (first_met == own_task)).all()):
            raise UserError("progress.first_met: some classes came in a task that is not theirs")
    carry = part("carry", state)
    if unknown := carry.keys() - method.carries.keys():
        raise UserError(f"progress.carry.{min(unknown)} is nothing that {method.name} carries")
    for name, value in carry.items():
        check_kept(f"progress.carry.{name}", value, method, model, method.carries[name])


def check_count(name: str, value: Any, most: int = 2**53) -> int:
    """Return a value that is a count; refuse others."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise UserError(f"{name} should be a whole number from 0 on and is {value!r:.40}")
    return value
