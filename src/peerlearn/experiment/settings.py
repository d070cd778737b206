"""The settings of a run that no part of a learner has: the run itself, its stream, the machine."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Literal, Self, cast

import torch
from pydantic import create_model, model_validator

from peerlearn.config.names import PredictWith, Profile
from peerlearn.data.images import Dataset, ImageSet
from peerlearn.errors import UserError
from peerlearn.methods.class_means import Distance
from peerlearn.nets.processor import Precision
from peerlearn.peer import Layout
from peerlearn.records.schema import MOST_TASKS
from peerlearn.settings import Settings, about, setting, settings_of
from peerlearn.stream.base import Stream
from peerlearn.stream.dataset import BlurryStream, ClassStream
from peerlearn.stream.iblurry import IBlurryStream, SiBlurryStream
from peerlearn.stream.schedules import GaussianStream, HalfNormalStream

MOST_SEEDS = 10_000
LARGEST_SEED = 2**32 - 1


class RunSettings(Settings):
    """What concerns the run as a whole."""

    data: str = setting("mini", "data set, or the path of an image folder")
    seed: int = setting(0, "decides everything that is drawn", ge=0, le=LARGEST_SEED)
    profile: Profile = setting(
        "paper", "presets of the paper, or of the authors' code where it differs"
    )
    updates: int = setting(1, "steps per stream batch", ge=1, le=10_000)
    predict_with: PredictWith = setting(
        "peers", "networks that predict: peers, their EMA copies, the average; or class means (ncm)"
    )
    ncm_distance: Distance = setting(
        "euclidean", "distance of features to class means; cosine normalises both"
    )
    rehearse: int = setting(
        0, "steps on the memory alone at the end of each task", ge=0, le=10_000_000
    )
    rehearse_every: int = setting(
        0, "stream images after which --rehearse steps are taken, instead of at ends of tasks", ge=0
    )
    realtime: bool = setting(
        False, "the stream does not wait: a step that costs k of er's takes the time of k batches"
    )
    realtime_store: bool = setting(
        False, "keep images of batches for which there was no time in memory all the same"
    )
    budget: float | None = setting(
        None, "FLOPs that learning may take; then images are kept and predicted only", gt=0
    )

    @model_validator(mode="after")
    def _store_in_real_time(self) -> Self:
        if self.realtime_store and not self.realtime:
            raise ValueError("realtime_store needs realtime, or there is time for all batches")
        return self

    @model_validator(mode="after")
    def _rehearse_a_number_of_steps(self) -> Self:
        if self.rehearse_every and not self.rehearse:
            raise ValueError("rehearse_every needs rehearse, the number of steps to take")
        if self.rehearse and self.realtime:
            raise ValueError("rehearse needs pauses, and with realtime the stream does not wait")
        return self

    def rehearsals(self, images: int, tasks: int) -> int:
        """Return the steps on the memory alone that are due after so many images and tasks.

        >>> RunSettings(rehearse=5).rehearsals(100, 2)
        10
        >>> RunSettings(rehearse=5, rehearse_every=30).rehearsals(100, 2)
        15
        """
        return self.rehearse * (images // self.rehearse_every if self.rehearse_every else tasks)


class MemorySettings(Settings):
    """What every memory is told; a policy may have settings of its own."""

    size: int = setting(200, "images kept for replay; 0 for none", ge=0, le=100_000_000)


class MachineSettings(Settings):
    """Where a run takes place; a run that is resumed stays as it began."""

    device: str = setting("cpu", "cpu or cuda; cuda:0,cuda:1: a device for each peer")
    precision: Literal[Precision, "auto"] = setting(
        "fp32", "of the networks; fp16 on cuda only; auto: bf16 if it is 1.15 times as fast"
    )
    layout: Layout = setting(
        "auto", "of images and weights in memory; auto: channels_last where that is safe"
    )
    compile: bool = setting(False, "compile networks with torch.compile, on cuda with CUDA graphs")
    threads: int = setting(0, "in all; 0: try at the start, keep the fastest", ge=0, le=1024)
    peer_threads: int = setting(0, "threads per peer; 0: all of them shared out", ge=0, le=1024)

    @model_validator(mode="after")
    def _suffice(self) -> Self:
        if 0 < self.threads < self.peer_threads:
            raise ValueError(
                f"peer_threads of each peer cannot be more than threads, which are in all; got "
                f"{self.peer_threads} and {self.threads}: give one of them, or more threads"
            )
        return self


class ProbeSettings(Settings):
    """What a run writes down about itself on the way; changes nothing that is learnt."""

    current_loss: int = setting(
        0, "batches between losses over the current task, to probes.jsonl; 0: none", ge=0
    )
    disagreement: int = setting(
        0, "batches between shares of test images that peers dispute; 0: none", ge=0
    )


class EvaluationSettings(Settings):
    """How a run is evaluated along the stream, beside ends of tasks; changes nothing learnt."""

    evaluate_every: int = setting(
        0, "stream images between evaluations inside tasks, for A_AUC; 0: none", ge=0
    )
    probe: int = setting(10, "test images per class in an evaluation inside tasks", ge=1)
    prequential: int = setting(
        0,
        "images in the window of accuracy before learning; 0: off, 1000 with realtime, budget",
        ge=0,
        le=1_000_000,
    )


def class_stream(
    data: Dataset,
    tasks: int,
    batch: int,
    seed: int,
    epochs: int,
    *,
    blur: Annotated[
        float,
        about("share of images dealt out to other tasks; above 0 hides boundaries", ge=0, lt=1),
    ] = 0.0,
) -> Stream:
    """Disjoint tasks or, with a blur, our own that overlap."""
    if blur:
        return BlurryStream(data, tasks, batch, seed, blur, epochs)
    return ClassStream(data, tasks, batch, seed, epochs)


CLASS = "class"
StreamName = Literal["class", "i-blurry", "si-blurry", "half-normal", "gaussian"]
# what deals the images; its keyword-only arguments are settings that this stream alone has
STREAMS: Mapping[str, Callable[..., Stream]] = {
    CLASS: class_stream,
    **{
        kind.name: kind
        for kind in (IBlurryStream, SiBlurryStream, HalfNormalStream, GaussianStream)
    },
}


class StreamTasks(Settings):
    """What every stream has, and names of folders begin with."""

    name: StreamName = setting(CLASS, "how images are dealt to tasks, see docs/streams.md")
    tasks: int = setting(5, "tasks that the classes are divided into", ge=1, le=MOST_TASKS)
    batch: int = setting(10, "stream batch", ge=1, le=1_000_000)


class StreamSettings(StreamTasks):
    """How a data set becomes a stream; `stream_settings` adds what the named one alone has."""

    epochs: int = setting(
        1, "passes over each task before the next; above 1 is offline", ge=1, le=1000
    )
    train_per_class: int | None = setting(
        None, "take only the first N training images of each class", ge=1
    )
    test_per_class: int | None = setting(
        None, "take only the first N test images of each class", ge=1
    )
    images: Literal["all", "tuning"] = setting(
        "all", "tuning: no test images; the last training images of each class, divided in two"
    )
    image_size: int | None = setting(
        None, "resize the images of a folder to N x N pixels", ge=1, le=4096
    )

    def stream(self, data: Dataset, seed: int) -> Stream:
        """The stream of a run."""
        if self.images == "tuning":
            train, test = for_tuning(data.train, self.train_per_class, self.test_per_class)
        else:
            train, test = data.train, data.test
            if self.train_per_class is not None:
                train = train.first_per_class(self.train_per_class)
            if self.test_per_class is not None:
                test = test.first_per_class(self.test_per_class)
        part = Dataset(train, test, data.name)
        own = self.model_dump(exclude={*StreamSettings.model_fields})
        return STREAMS[self.name](part, self.tasks, self.batch, seed, self.epochs, **own)


@cache
def stream_settings(name: str) -> type[StreamSettings]:
    """The settings of a stream; for an unknown name those of `class`, which refuse it."""
    own = settings_of(STREAMS.get(name, class_stream))
    # in this order of bases its own come after `batch`: `blur` always stood there in folders' names
    made = create_model("StreamSettings", __base__=(StreamSettings, own, StreamTasks))
    return cast(type[StreamSettings], made)


def for_tuning(
    images: ImageSet, train: int | None = None, test: int | None = None
) -> tuple[ImageSet, ImageSet]:
    """Training and test images of a search for settings, out of training images alone.

    Of each class the last images are for testing, a fifth unless `test` says how many, and those
    right before them for training, all others unless `train` says how many. A run that takes the
    first images of each class so shares as few with the search as can be.
    """
    by_class = [(images.y == k).nonzero()[:, 0] for k in range(images.num_classes)]
    fewest = min(map(len, by_class), default=0)
    if (train or 1) + (test or max(fewest // 5, 1)) > fewest:
        raise UserError(
            f"{train or 1} training and {test or max(fewest // 5, 1)} test images are more than "
            f"the {fewest} that some class has for tuning; take fewer --train-per-class"
        )
    first, second = [], []
    for rows in by_class:
        tested = test or max(len(rows) // 5, 1)
        end = len(rows) - tested
        first.append(rows[end - (train or end) : end])
        second.append(rows[end:])
    taken = [images.take(torch.cat(part).sort().values) for part in (first, second)]
    return taken[0], taken[1]


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds as a person writes them.

    >>> parse_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"--seeds: {text!r:.60} is not a list such as 0-2 or 0,3,7")
        if max(len(first), len(last)) > len(str(LARGEST_SEED)):
            raise UserError(f"--seeds: {part:.60} is beyond the largest seed, {LARGEST_SEED}")
        run = range(int(first), int(last if dash else first) + 1)
        if len(seeds) + len(run) > MOST_SEEDS:
            raise UserError(f"--seeds: {text!r:.60} holds more than {MOST_SEEDS} seeds; take fewer")
        seeds += run
    if not seeds:
        raise UserError(f"--seeds: {text!r:.60} holds no seed; write the lower one first")
    return tuple(dict.fromkeys(seeds))
