"""The published combinations by name: `er+ccldc`, `gsa+sdc`, ..."""

import difflib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from torch import nn

from peerlearn.augment import ViewChain, partial_shared
from peerlearn.errors import UserError
from peerlearn.learner.collaboration import (
    OWN,
    Collaboration,
    easy_to_hard,
    hard_to_easy,
    level,
)
from peerlearn.learner.online import OnlineLearner
from peerlearn.methods import METHODS
from peerlearn.stream import StreamInfo

Profile = Literal["paper", "authors"]


class Weights(NamedTuple):
    """lambda1, lambda2 and tau, as the authors chose them on CIFAR-100 with 2000 images kept."""

    label: float
    lesson: float
    temperature: float


WEIGHTS = {
    "er": Weights(0.5, 2, 4),
    "derpp": Weights(0.5, 1, 3),
    "er_ace": Weights(0.5, 1, 4),
    "ocm": Weights(0.25, 4, 4),
    "gsa": Weights(0.5, 1, 4),
    "onpro": Weights(0.25, 1, 4),
}
UNPUBLISHED = Weights(0.5, 1, 4)  # for a method of your own, to begin with


def _ccldc(n: int) -> Collaboration:
    return Collaboration(peers=2, edges=level(0) + hard_to_easy(n))


def _ccldc_easy_to_hard(n: int) -> Collaboration:
    return Collaboration(peers=2, edges=level(0) + easy_to_hard(n))


def _ccldc_same_difficulty(n: int) -> Collaboration:
    return Collaboration(peers=2, edges=level(*range(n + 1)))


def _sdc(n: int) -> Collaboration:
    return Collaboration(edges=hard_to_easy(n), teacher="self")


def _sdc_easy_to_hard(n: int) -> Collaboration:
    return Collaboration(edges=easy_to_hard(n), teacher="self")


def _multiview(n: int) -> Collaboration:  # noqa: ARG001
    return Collaboration()


# One line each: what `peerlearn list` shows, and the edges for a chain of n stages.
COLLABORATIONS: dict[str, tuple[str, Callable[[int], Collaboration]]] = {
    "ccldc": ("two peers, the teacher has the harder view (CCL-DC)", _ccldc),
    "ccldc-easy-to-hard": ("two peers, the teacher has the easier view", _ccldc_easy_to_hard),
    "ccldc-same-difficulty": ("two peers, both have the same view", _ccldc_same_difficulty),
    "ccl": ("two peers, lessons on the images themselves only", _ccldc),
    "sdc": ("one network that teaches itself, from its harder view", _sdc),
    "sdc-easy-to-hard": (
        "one network that teaches itself, from its easier view",
        _sdc_easy_to_hard,
    ),
    "multiview": ("one network, labels on every view, no lessons", _multiview),
    "untrained": ("one network and a teacher that never learns", _multiview),
}


def collaboration(
    preset: str, method: str, *, chain: ViewChain | None = None, profile: Profile = "paper"
) -> Collaboration:
    """The collaboration of a name such as "ccldc" with the published weights of a method."""
    chain = chain or ViewChain()
    if preset not in COLLABORATIONS:
        raise UserError(_unknown("collaboration", preset, COLLABORATIONS))
    if preset == "untrained":  # its weight and temperature are not published
        return Collaboration(edges=level(OWN), teacher="frozen", lesson_weight=1, chain=chain)
    if preset == "ccl":
        chain = replace(chain, stages=0)
    made = COLLABORATIONS[preset][1](chain.stages)
    weights = WEIGHTS.get(method, UNPUBLISHED)
    made = replace(
        made,
        chain=chain,
        label_weight=weights.label,
        lesson_weight=weights.lesson,
        temperature=weights.temperature,
    )
    if profile == "authors":
        made = _as_in_the_authors_code(made, method)
    return made


def _as_in_the_authors_code(c: Collaboration, method: str) -> Collaboration:
    """The lesson on equal views looks at the hardest one, and ER's own loss has lambda1 too."""
    last = c.chain.stages
    edges = tuple(level(last)[0] if edge == (0, 0) else edge for edge in c.edges)
    return replace(c, edges=edges, base_weight=c.label_weight if method == "er" else 1.0)


def build_learner(
    name: str,
    stream: StreamInfo,
    net: Callable[[], nn.Module],
    *,
    memory: int,
    seed: int = 0,
    chain: ViewChain | None = None,
    profile: Profile = "paper",
    method: dict[str, Any] | None = None,
    **settings: Any,
) -> OnlineLearner:
    """The learner of a name such as "er" or "er+ccldc".

    Args:
        name: a method, and after a plus how it collaborates.
        stream: what the stream tells its learner; `ClassStream.info`, or your own.
        net: makes a network; called once per peer.
        memory: images kept for replay.
        seed: decides everything that is drawn.
        chain: the views; the default is the paper's for CIFAR.
        profile: "paper", or "authors" to differ from it where their code does.
        method: settings of the method, such as {"alpha": 0.5} for derpp.
        settings: further settings of `OnlineLearner`.
    """
    base, _, preset = name.partition("+")
    if base not in METHODS:
        raise UserError(_unknown("method", base, METHODS))
    if profile not in ("paper", "authors"):
        raise UserError(f"profile must be paper or authors, got {profile!r}")
    options: dict[str, Any] = {}
    if profile == "authors" and base in ("derpp", "er_ace"):
        options["augment"] = partial_shared
    if profile == "authors" and base == "er_ace":
        options["unseen"] = "first_batch_ids"
    made = METHODS[base](stream, **(options | (method or {})))
    c = collaboration(preset, base, chain=chain, profile=profile) if preset else Collaboration()
    return OnlineLearner(made, net, c, memory=memory, seed=seed, **settings)


def _unknown(what: str, name: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"there is no {what} {name!r}; {hint}"
