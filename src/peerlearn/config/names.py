"""Names of the parts of a learner: where each kind is looked up, and how names are read."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic.fields import FieldInfo

from peerlearn.augment import AUGMENTATIONS
from peerlearn.augment.naming import names_augmentation
from peerlearn.data import DATASETS
from peerlearn.distill import TEACHERS, WRAPPERS
from peerlearn.errors import UserError
from peerlearn.memory import MEMORIES
from peerlearn.methods import METHODS
from peerlearn.nets import NETWORKS
from peerlearn.optim import OPTIMIZERS
from peerlearn.registry import Registry
from peerlearn.settings import Values

Profile = Literal["paper", "authors"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
PredictWith = Literal["peers", "ema", "average", "ncm"]
PREDICT_WITH: tuple[PredictWith, ...] = get_args(PredictWith)
NET, MEMORY = "resnet18", "reservoir"  # unless others are chosen
# the group of settings that each kind of part has, and where its name is looked up
KINDS: Mapping[str, Registry[Any]] = {
    "method": METHODS,
    "collaboration": WRAPPERS,
    "net": NETWORKS,
    "optim": OPTIMIZERS,
    "memory": MEMORIES,
    "augment": AUGMENTATIONS,
}

REGISTRIES: Sequence[Registry[Any]] = (*KINDS.values(), TEACHERS, DATASETS)


def load_augmentations(fields: Mapping[str, FieldInfo], values: Values) -> None:
    """Make known the augmentations that settings name by their places: `path/to/file.py:name`."""
    for key, field in fields.items():
        place = values.get(key)
        if names_augmentation(field) and isinstance(place, str) and ":" in place:
            AUGMENTATIONS[place]  # looked up, it is loaded


def split_name(name: str) -> tuple[str, str, str]:
    """Return a method's name, the plus, and the wrapper's name; a path may hold a plus itself.

    >>> split_name("er+ccldc"), split_name("my+code.py:Mine")
    (('er', '+', 'ccldc'), ('my+code.py:Mine', '', ''))
    """
    if not isinstance(name, str):
        raise UserError(
            f'name: need a method, and after a plus its wrapper, such as "er" or "er+ccldc", '
            f"got {name!r:.60}"
        )
    place, colon, rest = name.rpartition(":")
    base, plus, wrapper = rest.partition("+")
    return f"{place}{colon}{base}", plus, wrapper
