"""Published figures: means and spreads, by metric, method, data set and memory."""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple


class Published(NamedTuple):
    """A mean over runs and their standard deviation, in [0, 1].

    The paper does not say which standard deviation; it is taken for that of a sample.
    """

    mean: float
    std: float
    n: int


def published(
    metric: str, method: str, data: str, memory: int, by: str = "ensemble"
) -> Published | None:
    """What the paper has for this; None if nothing.

    by: who answers, of ensemble, independent (a peer alone) and ncm (nearest class means).

    >>> published("AA", "er+ccldc", "cifar100", 2000)
    Published(mean=0.4445, std=0.0104, n=10)
    """
    known = _content()
    found = known["values"].get(metric, {}).get(by, {}).get(method, {}).get(f"{data} m{memory}")
    if found is None:
        return None
    mean, std = (round(value / 100, 6) for value in found)
    return Published(mean, std, known["runs"])


# published rows that contradict the others of the same run: RF is about d / (AA + d) with
# d = FM (T - 1) / T in all other rows
DOUBTFUL = {
    ("FM", "onpro+ccldc", "cifar100"): "about twice what AA and RF of the same rows imply",
    ("FM", "ocm", "imagenet100"): "not what AA and RF of the same row imply",
}


def doubt(metric: str, method: str, data: str) -> str:
    """Why a published figure is not to be relied on; "" if it is.

    >>> doubt("FM", "onpro+ccldc", "cifar100")
    'about twice what AA and RF of the same rows imply'
    """
    return DOUBTFUL.get((metric, method, data), "")


@cache
def _content() -> dict[str, Any]:
    text = resources.files("peerlearn.paper").joinpath("published.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
