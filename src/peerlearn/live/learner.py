"""A learner for a stream of one's own."""

import copy
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from peerlearn.config.names import NET, PredictWith, split_name
from peerlearn.data.decode import check_size
from peerlearn.data.pictures import Pictures, pictures
from peerlearn.errors import UserError
from peerlearn.files import user_path
from peerlearn.learner import checkpoint
from peerlearn.learner.build import build_learner
from peerlearn.learner.online import OnlineLearner
from peerlearn.learner.snapshot import Snapshot
from peerlearn.live.labels import Label, LabelMap
from peerlearn.live.record import MOST_WINDOW, Boundaries, DriftRecord, OpenRecord
from peerlearn.live.shipping import What, ship
from peerlearn.live.signals import Details, disagreement, entropy
from peerlearn.methods import METHODS
from peerlearn.methods.interface import methods_without_tasks
from peerlearn.metrics.along import Prequential
from peerlearn.metrics.calibration import Fit, RecentSureness
from peerlearn.metrics.drift import DriftHint
from peerlearn.stream.base import StreamInfo

Size = int | tuple[int, int]
Counted = tuple[Prequential, DriftHint, RecentSureness]
LEAST = 100  # images to calibrate on


class OpenLearner:
    """Learns batches of labelled images as they come, of classes that nobody announced.

    Images may be arrays, tensors, PIL images or paths of files, of any size (`pictures` says how
    they are read); labels may be strings, numbers or tuples. Predictions can be asked for at any
    time and from any thread: they never wait for a step, and change nothing that is learnt.

    Args:
        name: a method, and after a plus its wrapper.
        memory: images kept for replay.
        net: the name of a network, or a function that makes one for a number of classes.
        size: height and width of images in the network, or one number for both. None: those of the
            first batch, or 64 where these differ.
        boundaries: "none"; "told": you call `end_task()`; "new classes": a batch with an unknown
            label begins a task. OCM, GSA and OnPro need one of the latter.
        labels: classes that are known before the first batch.
        window: images over which prequential accuracy is taken: each batch is predicted before it
            is learnt. 0: not at all.
        seed: decides everything that is drawn.
        settings: of `build_learner`, such as lr=1e-3, device="cuda".

    >>> import torch
    >>> learner = OpenLearner("er", memory=50, net="small")
    >>> x = torch.rand(10, 3, 8, 8)
    >>> losses = learner.learn(x, ["cat", "dog"] * 5)
    >>> losses = learner.learn(x, ["cat", "bird"] * 5)
    >>> learner.classes, learner.predict(x)[0] in learner.classes
    (['cat', 'dog', 'bird'], True)
    """

    def __init__(
        self,
        name: str = "er+ema-chain",
        *,
        memory: int = 1000,
        net: str | Callable[..., nn.Module] = NET,
        size: Size | None = None,
        boundaries: Boundaries = "none",
        labels: Iterable[Label] = (),
        window: int = 1000,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if boundaries not in (known := ("none", "told", "new classes")):
            raise UserError(f"boundaries: must be one of {known}, got {boundaries!r:.40}")
        if not isinstance(window, int) or isinstance(window, bool) or window < 0:
            raise UserError(f"window: must be images, or 0 for none, got {window!r:.40}")
        if window > MOST_WINDOW:
            raise UserError(f"window: must be at most {MOST_WINDOW} images, got {window!r:.40}")
        method = METHODS[split_name(name)[0]]
        if boundaries == "none" and method.needs_boundaries:
            raise UserError(
                f'{method.name} must be told where tasks end: take boundaries="new classes", or '
                f'boundaries="told" and call end_task(); or take {methods_without_tasks()}'
            )
        if "stream" in settings:
            raise UserError("stream: an OpenLearner makes its own; give boundaries= and labels=")
        sides = _sides(size)
        self.labels = LabelMap(labels)
        stream = StreamInfo(
            num_classes=len(self.labels), grows=True, boundaries=boundaries != "none"
        )
        learner = build_learner(name, stream, net, memory=memory, seed=seed, **settings)
        self._begin(learner, sides, boundaries, window)

    def _begin(
        self,
        learner: OnlineLearner,
        size: tuple[int, int] | None,
        boundaries: Boundaries,
        window: int,
    ) -> None:
        self.learner = learner
        self.size = size
        self.boundaries: Boundaries = boundaries
        self.temperature = 1.0
        self._window = window
        self._announced = len(self.labels)
        self._counted = Prequential(window), DriftHint(), RecentSureness(window or 1)
        self._turn = threading.RLock()  # of those who learn, save or calibrate

    # --- learning

    def learn(self, images: Pictures, labels: Any) -> dict[str, float]:
        """Learn a batch of labelled images, and return the losses by name.

        labels: one for each image, in a list, tuple, array or tensor. The first batch of all may be
        kept alone, without a step: there is nothing to replay yet. If it fails, nothing has
        changed.
        """
        with self._turn:
            x = pictures(images, self.size)
            known, y = self.labels.numbered(labels)
            if len(y) != len(x):
                raise UserError(f"labels: {len(y)} for {len(x)} images; give one for each")
            counted = self._judged(x, y) if self._window else self._counted
            before, learnt = (self.labels, self.size), self.learner.progress.batches
            new_task = self._begins_task(known)
            try:
                self.labels, self.size = known, (x.shape[2], x.shape[3])  # before networks know
                return self.learner.learn(x, y, new_task=new_task)
            finally:
                if self.learner.progress.batches > learnt:  # an interrupt may have come after that
                    self._counted = counted
                else:
                    self.labels, self.size = before

    def rehearse(self, steps: int = 1) -> dict[str, float]:
        """Take steps on the images in memory alone, while the stream pauses; returns the losses.

        Each step is taken whole or not at all; if one fails, those before it stay.
        """
        return self.learner.rehearse(steps)

    def end_task(self) -> None:
        """Say that a task has ended, to a learner that was built with boundaries="told"."""
        if self.boundaries != "told":
            raise UserError(
                f'end_task(): this learner was built with boundaries="{self.boundaries}"; build it '
                'with boundaries="told"'
            )
        self.learner.end_task()

    def _begins_task(self, known: LabelMap) -> bool:
        progress = self.learner.progress
        had_some = progress.step + progress.skipped > 0
        return self.boundaries == "new classes" and known is not self.labels and had_some

    def _judged(self, x: Tensor, y: Tensor) -> Counted:
        """What is counted, with these images; one of a new class is never predicted right."""
        prequential, drift, sureness = counted = _twins(self._counted)
        right = [False] * len(y)
        if self.labels:
            if self.learner.image_shape is None:
                self.learner.check_images(x[:1])
            snapshot, method = self.learner.snapshot(), self.learner.method
            logits = snapshot.logits(x).cpu() if method.gives_logits else None
            if logits is None or snapshot.by_means or snapshot.has_own_rule:
                right = (snapshot.predict(x).cpu() == y).tolist()
            else:
                right = (logits.argmax(dim=1) == y).tolist()
            if logits is not None:
                known = (y < snapshot.num_classes) & ~logits.isnan().any(dim=1)
                known &= logits.gather(1, (y * known)[:, None]).isfinite()[:, 0]
                sureness.add(logits[known], y[known])
        prequential.add(right)
        drift.add(right)
        return counted

    @property
    def _prequential(self) -> Prequential:
        return self._counted[0]

    @property
    def _drift(self) -> DriftHint:
        return self._counted[1]

    @property
    def _sureness(self) -> RecentSureness:
        return self._counted[2]

    @property
    def classes(self) -> list[Label]:
        """The labels so far, in order of arrival."""
        return list(self._known(self.learner.snapshot()))

    @property
    def prequential(self) -> float:
        """The share of all images so far that were predicted right before they were learnt."""
        return self._prequential.total

    @property
    def recent(self) -> float:
        """The same over the last images, as many as the window holds."""
        return self._prequential.recent

    @property
    def drift_hints(self) -> list[int]:
        """After how many images predictions became suddenly worse; see `DriftHint`."""
        return list(self._drift.at)

    # --- answering

    @overload
    def predict(
        self,
        images: Pictures,
        *,
        predict_with: PredictWith | None = None,
        answer: PredictWith | None = None,
        details: Literal[False] = False,
    ) -> list[Label]: ...

    @overload
    def predict(
        self,
        images: Pictures,
        *,
        predict_with: PredictWith | None = None,
        answer: PredictWith | None = None,
        details: Literal[True],
    ) -> Details: ...

    def predict(
        self,
        images: Pictures,
        *,
        predict_with: PredictWith | None = None,
        answer: PredictWith | None = None,
        details: bool = False,
    ) -> list[Label] | Details:
        """Return the label of each image; with details also how far it can be trusted.

        predict_with: "peers", "ema", "average" or "ncm", as for `OnlineLearner.predict`. answer:
        its old name.
        """
        source = answer if predict_with is None else predict_with
        snapshot = self.learner.snapshot(source)
        labels = self._predictable(snapshot)
        x = self._read(images, snapshot)
        if not details:
            return [labels[number] for number in snapshot.predict(x).tolist()]
        self._need_logits("details")
        probabilities = self._probabilities(snapshot.logits(x))
        probability, best = probabilities.max(dim=1)
        sources = [source for source in self.learner.sources if source != "average"]
        every = [snapshot.using(source).outputs(x, features=False) for source in sources]
        return Details(
            [labels[number] for number in best.tolist()],
            probability,
            entropy(probabilities),
            disagreement([one / self.temperature for found in every for one in found.logits]),
            probabilities,
            list(labels),
        )

    def predict_proba(
        self,
        images: Pictures,
        *,
        predict_with: PredictWith | None = None,
        answer: PredictWith | None = None,
    ) -> Tensor:
        """Return the probability of each class, (B, C), in the order of `classes`."""
        self._need_logits("predict_proba")
        snapshot = self.learner.snapshot(answer if predict_with is None else predict_with)
        self._predictable(snapshot)
        return self._probabilities(snapshot.logits(self._read(images, snapshot)))

    def calibrate(self) -> Fit:
        """Divide logits from now on by the temperature that suits the last answers.

        These are the answers to images of known classes before they were learnt, about as many as
        the window holds. Returns the temperature, and the expected calibration error of these
        answers without it and with it.
        """
        with self._turn:
            self._need_logits("calibrate")
            self._predictable(self.learner.snapshot())
            if not self._window:
                raise UserError(
                    "calibrate: with window=0 no image is predicted before it is learnt, and those "
                    "that have been learnt would make answers too sure; build it with a window"
                )
            found = self._sureness.fit()
            if found.images < LEAST:
                raise UserError(
                    f"calibrate: answers to {found.images} images of known classes are not enough; "
                    f"learn until there are {LEAST}, with a window of as many or more"
                )
            self.temperature = found.temperature
            return found

    def _known(self, snapshot: Snapshot) -> tuple[Label, ...]:
        """Return the labels that these networks know."""
        count = self._announced if snapshot.image_shape is None else snapshot.num_classes
        return tuple(self.labels[:count])

    def _predictable(self, snapshot: Snapshot) -> tuple[Label, ...]:
        """Return the labels that these networks can predict, at least one."""
        if not (labels := self._known(snapshot)):
            raise UserError("predict: nothing has been learnt yet; learn() a batch first")
        return labels

    def _need_logits(self, what: str) -> None:
        method = self.learner.method
        if not method.gives_logits:
            raise UserError(f"{what}: {method.name} has no probabilities; take predict")

    def _read(self, images: Pictures, snapshot: Snapshot) -> Tensor:
        """Return images of the size that these networks know: a first batch may be under way."""
        shape = snapshot.image_shape
        return pictures(images, self.size if shape is None else (shape[1], shape[2]))

    def _probabilities(self, logits: Tensor) -> Tensor:
        return (logits / self.temperature).softmax(dim=1)

    # --- keeping

    def save(self, path: str | Path, extra: Any = None) -> None:
        """Write a checkpoint folder; a crash while writing leaves the one before it whole.

        extra: anything JSON can hold; `restored.extra` has it again.
        """
        with self._turn:
            record = OpenRecord(
                labels=self.labels.to_json(),
                size=None if self.size is None else list(self.size),
                boundaries=self.boundaries,
                window=self._window,
                right=self._prequential.right,
                count=self._prequential.count,
                last=list(self._prequential.last),
                drift=DriftRecord(**vars(self._drift)),
                sureness=self._sureness.sums.tolist(),
                temperature=self.temperature,
                extra=extra,
            )
            self.learner.save(path, {"open": record.model_dump()})

    def export(
        self,
        path: str | Path,
        what: What = "ensemble",
        *,
        test: tuple[Pictures, Any] | None = None,
    ) -> dict[str, Any]:
        """Write a folder that answers on a CPU without any code that learns.

        `Exported` and `peerlearn predict` read it; it holds weights, a program for PyTorch, ONNX if
        its extra is installed, labels and how images are to be prepared. A label that is a tuple
        becomes a text. Returns what it says of itself.

        what: "ensemble": the networks that predict; "peer": the first network alone; "ema" or
            "average": its EMA copies, or the average of both, where there are some.
        test: images with their labels, on which the choice is measured.
        """
        with self._turn:
            return ship(self, path, what, test)

    @classmethod
    def restore(
        cls, path: str | Path, *, net: Callable[..., nn.Module] | None = None, **options: Any
    ) -> "OpenLearner":
        """The learner of a checkpoint, from that alone; it goes on exactly where it was saved.

        net, options: as for `OnlineLearner.restore`.
        """
        config = checkpoint.config_of(user_path(path))
        inner = OnlineLearner.from_config(config, net, **options)
        found = inner.load(path)
        try:
            record = OpenRecord.model_validate(found["open"])
            labels = LabelMap.from_json(record.labels)
            if not max(1, len(labels)) == inner.num_classes:
                raise ValueError(f"{len(labels)} labels for {inner.num_classes} classes")
            if inner.image_shape is not None and record.size != [*inner.image_shape[1:]]:
                raise ValueError(f"size {record.size} of images {inner.image_shape}")
            if (record.boundaries != "none") != inner.method.stream.boundaries:
                raise ValueError(f"boundaries {record.boundaries!r} of a stream without, or with")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"checkpoint {path}: was not written by an OpenLearner, or is damaged "
                f"({str(error).splitlines()[0]:.60}); OnlineLearner.restore takes the others"
            ) from error
        learner = cls.__new__(cls)
        learner.labels = labels
        size = None if record.size is None else (record.size[0], record.size[1])
        learner._begin(inner, size, record.boundaries, record.window)
        learner._prequential.right = record.right
        learner._prequential.count = record.count
        learner._prequential.last.extend(record.last)
        vars(learner._drift).update(record.drift.model_dump())
        learner._sureness.sums.copy_(torch.tensor(record.sureness, dtype=torch.float64))
        learner.temperature = record.temperature
        learner.extra = record.extra
        return learner

    extra: Any = None


def _twins(counted: Counted) -> Counted:
    """Copies that can be added to without a change to what they are copies of."""
    twins = copy.copy(counted[0]), copy.copy(counted[1]), copy.copy(counted[2])
    for twin in twins:
        vars(twin).update({name: copy.copy(value) for name, value in vars(twin).items()})
    return twins


def _sides(size: Size | None) -> tuple[int, int] | None:
    """Height and width, refused before anything is built if they cannot be meant."""
    if size is None:
        return None
    try:
        height, width = map(operator.index, size if isinstance(size, Sequence) else (size, size))
    except (TypeError, ValueError):
        raise UserError(
            f"size: need (height, width) in pixels, or one number for both, not {size!r:.40}"
        ) from None
    check_size("size", height)
    check_size("size", width)
    return height, width
