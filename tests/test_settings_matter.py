"""Every setting of every part changes a number; one that does not would be an option for nobody."""

from typing import Any

import pytest
import torch
from conftest import Build, learn_some

from peerlearn import METHODS, ClassStream
from peerlearn.distill import WRAPPERS
from peerlearn.memory import MEMORIES
from peerlearn.optim import OPTIMIZERS
from peerlearn.settings import fields_of, settings_of

OTHER: dict[str, Any] = {
    "replay_batch": 7, "augment": "crop_flip_shared", "alpha": 0.7, "beta": 0.3,
    "unseen": "first_batch_ids", "similarity_weight": 2.0, "temperature": 0.7, "candidates": 12,
    "virtual_lr": 3.0, "peers": 3, "label_weight": 0.2, "distill_weight": 0.3,
    "equal_view": "hardest", "scale_base": True, "chain.stages": 1, "chain.ops": 1,
    "chain.magnitude": 3, "chain.per_sample": True, "lr": 0.02, "weight_decay": 0.3,
    "beta1": 0.5, "beta2": 0.5, "momentum": 0.5, "base_weight": 0.4, "chain.first": "full",
    "chain.aligned": True, "aligned_crop": True, "direction": "easy-to-hard",
    "view": "crop_flip", "form": "paper", "shadow_weight": 3.0, "shadow.alpha": 0.3,
    "shadow.start": "zero", "shadow.buffers": "own", "shadow.broadcast_every": 2,
    "shadow.broadcast_share": 0.3,
}  # fmt: skip
NEEDS = {
    "candidates": {"replay_batch": 8}, "virtual_lr": {"replay_batch": 8},  # a choice to make
    "shadow.broadcast_share": {"broadcast_every": 2},
    "shadow.buffers": {"predict_with": "ema"},  # the only one who has them
}  # fmt: skip
SPECIAL = {
    ("ccldc-easy-to-hard", "direction"),  # has the other direction by default; see ccldc
    ("sdc-easy-to-hard", "direction"),
    ("ccl", "equal_view"),  # without a chain the hardest view is the image itself
    ("ema", "shadow.buffers"),  # a copy that is shown nothing has no statistics of its own
    ("finetune", "replay_batch"),  # replays nothing; says what its cost is compared with
    ("joint", "replay_batch"),
    ("er_ace", "unseen"),  # differs for more classes than images in a batch; see test_golden_steps
}


def settings(kinds: Any) -> list[tuple[str, str]]:
    return [(name, key) for name in kinds for key in fields_of(settings_of(kinds[name]))
            if (name, key) not in SPECIAL]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "group", "key"),
    [
        *((f"{name}", "method", key) for name, key in settings(METHODS)),
        *((f"er_ace+{name}", "collaboration", key) for name, key in settings(WRAPPERS)),
        *((f"er {name}", "optim", key) for name, key in settings(OPTIMIZERS)),
    ],
)  # fmt: skip
def test_this_setting_changes_what_is_learnt(
    words: str, group: str, key: str, build: Build, stream: ClassStream
) -> None:
    name, *optimizer = words.split()
    usual: dict[str, Any] = {"memory": 24, "optimizer": optimizer[0] if optimizer else None}
    usual |= NEEDS.get(key, {})
    plain = build(name, **usual)
    changed = build(name, **usual, **{f"{group}.{key}": OTHER[key]})
    losses = [learn_some(learner, stream, 3) for learner in (plain, changed)]
    if key.startswith("shadow."):  # may change what is answered, not learnt
        said = [learner.logits(stream.test_sets[0].x) for learner in (plain, changed)]
        assert losses[0] != losses[1] or not torch.equal(*said)
    else:
        assert losses[0] != losses[1]


def test_no_memory_policy_has_a_setting_yet() -> None:
    assert not settings(MEMORIES)
