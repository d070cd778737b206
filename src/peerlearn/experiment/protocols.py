"""The published runs: which data sets, memory sizes and methods the paper's tables have."""

from collections.abc import Sequence

from peerlearn.data import DATASETS

METHODS_OF_THE_PAPER = ("er", "derpp", "er_ace", "ocm", "gsa", "onpro")


def published_combinations() -> Sequence[tuple[str, int, str]]:
    """Data set, memory and method of every run in the paper's main tables: 108 of them."""
    return [
        (data, memory, method + kind)
        for data, source in DATASETS.items()
        if source.protocol.published
        for memory in source.protocol.memories
        for method in METHODS_OF_THE_PAPER
        for kind in ("", "+ccldc")
    ]
