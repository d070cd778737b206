"""At which scale a table is made: as published, or shortened for a laptop."""

from collections.abc import Mapping
from typing import Any, NamedTuple

SCALES = ("paper", "lite")
HEAVY = ("ocm", "onpro")  # show their networks thousands of rotated images in every step
WIDTH = 16


class Short(NamedTuple):
    """A shortened protocol of a data set.

    Args:
        memories: in place of each published size.
        train: training images of each class.
        heavy: the same for methods whose steps cost many times as much.
        test: test images of each class.
        settings: what else differs.
    """

    memories: Mapping[int, int]
    train: int
    heavy: int
    test: int
    settings: Mapping[str, Any] = {}


LITE = {
    "cifar10": Short({500: 200, 1000: 500}, train=200, heavy=25, test=200),
    "cifar100": Short({1000: 200, 2000: 500, 5000: 1000}, train=20, heavy=3, test=20),
    "tiny": Short({2000: 200, 5000: 300, 10000: 500}, 5, 2, 5, {"stream.tasks": 20}),
    "imagenet100": Short({5000: 500}, 20, 2, 10, {"stream.image_size": 64, "net.stem": "3x3"}),
}


def settings_at(scale: str, method: str, data: str, memory: int) -> dict[str, Any]:
    """What a run has at this scale beside its preset; memory: as published.

    >>> settings_at("paper", "er", "cifar10", 500)
    {'memory': 500}
    >>> settings_at("lite", "er", "cifar10", 500)["memory"]
    200
    """
    if scale == "paper" or data not in LITE:
        return {"memory": memory}
    short = LITE[data]
    heavy = method.partition("+")[0] in HEAVY
    return {
        "memory": short.memories.get(memory, memory),
        "stream.train_per_class": short.heavy if heavy else short.train,
        "stream.test_per_class": short.test,
        "net.width": WIDTH,
        **short.settings,
    }


def seeds_at(scale: str, method: str) -> tuple[int, ...]:
    """The seeds of a method at this scale, unless somebody gives others."""
    if scale == "paper":
        return tuple(range(10))
    return tuple(range(2 if method.partition("+")[0] in HEAVY else 5))
