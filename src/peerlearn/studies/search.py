"""What is searched, and on what: a stream without test images, in class orders of its own."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from peerlearn.experiment.images import Loader
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.settings import for_tuning
from peerlearn.records.schema import MACHINE
from peerlearn.records.study import Range
from peerlearn.studies.grid import Wish
from peerlearn.studies.space import Space, as_given

FIRST_SEED = 1_000_000  # of tuning: class orders that no evaluation has by default


class Search(NamedTuple):
    """What is searched, and on what.

    Args:
        method: such as "er+ccldc".
        given: settings that hold for all trials.
        space: what is searched.
        by: how it goes on.
        title: of the space, in the name of the folder; "" for the usual one.
        trials: how many, at most.
        seeds: of the tuning stream; a trial is as good as the mean over them.
        storage: an Optuna storage; "": a journal in the folder of the search.
        root: where data sets lie.
        plugins: files of others.
    """

    method: str
    given: tuple[Given, ...]
    space: Space
    by: Literal["tpe", "grid"]
    trials: int
    seeds: tuple[int, ...]
    title: str = ""
    storage: str = ""
    root: Path | None = None
    plugins: tuple[Path, ...] = ()

    @property
    def run(self) -> Resolved:
        """The run from which trials depart."""
        return resolve(self.method, self._given({}), seed=self.seeds[0])

    def _given(self, chosen: Mapping[str, Any], where: str = "") -> list[Given]:
        tuning = Given("stream.images", "tuning", "flag", "tune")
        return [*self.given, tuning, *as_given(chosen, where)]

    def wishes(self, number: int, chosen: Mapping[str, Any]) -> list[Wish]:
        """The runs of a trial, one for each seed."""
        given = tuple(self._given(chosen, f"trial {number}"))
        return [
            Wish(self.method, given, seed, resolve(self.method, given, seed=seed))
            for seed in self.seeds
        ]

    def folder(self, out: Path) -> Path:
        """Where a search has its files."""
        run = self.run
        name = f"{run.data}-{run.method}-m{run.memory}" + (f"-{self.title}" if self.title else "")
        return out / re.sub(r"[^A-Za-z0-9._+-]", "-", name)

    def declaration(self, fingerprint: str) -> dict[str, Any]:
        """What must be the same if a search goes on. fingerprint: of its images."""
        values = self.run.values
        given = {key: value for key, value in values.items() if key not in (*MACHINE, "seed")}
        return {
            "method": self.method,
            "settings": {**given, "data": self.run.data},
            "space": {
                key: one.model_dump() if isinstance(one, Range) else list(one)
                for key, one in self.space.items()
            },
            "search": self.by,
            "tuning seeds": list(self.seeds),
            "images": fingerprint,
        }


def tuning_stream(search: Search) -> dict[str, Any]:
    """What a search may see, in numbers and words; nothing is begun if it cannot be."""
    run = search.run
    images = Loader(search.root)(run, lambda *_: None)
    settings, whole = run.stream, images.data.train
    train, test = for_tuning(whole, settings.train_per_class, settings.test_per_class)
    sizes = [int((whole.y == k).sum()) for k in range(whole.num_classes)]
    used = [min(settings.train_per_class or size, size) for size in sizes]
    last = [size - int((test.y == k).sum()) for k, size in enumerate(sizes)]
    first = [end - int((train.y == k).sum()) for k, end in enumerate(last)]
    rows = list(zip(used, first, last, strict=True))
    shared = sum(max(0, min(n, end) - start) for n, start, end in rows)
    tested = sum(max(0, n - end) for n, _, end in rows)
    return {
        "seeds": ", ".join(map(str, search.seeds)),
        "class orders": "those of these seeds",
        "training images": len(train),
        "test images": f"{len(test)}, all of them training images of the data set",
        "training images that a run with the same settings learns from too": shared,
        "test images that such a run learns from": tested,
        "test images of the data set that were used": 0,
        "fingerprint": images.fingerprint,
    }
