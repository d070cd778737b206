"""A Ctrl-C inside torch leaves none of torch's modes behind in the caller's process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.amp import autocast_mode
from torch.autograd import grad_mode

from peerlearn import ClassStream, build_learner, toy_images
from peerlearn.devices import RestoreTorchModes

SWITCHES = {autocast_mode.__file__, grad_mode.__file__}  # where torch switches its modes


def modes() -> tuple[Any, ...]:
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return nesting, autocast, torch.is_autocast_cache_enabled(), torch.is_grad_enabled()


def interrupted(action: Callable[[], Any], line: int) -> bool:
    """Whether the action was interrupted, at a line of torch's switches."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "line" and frame.f_code.co_filename in SWITCHES:
            lines += 1
            if lines == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


ACTS = ["learn", "rehearse", "predict", "save", "load"]


@pytest.mark.parametrize("act", ACTS)
def test_an_interrupt_leaves_no_mode_behind(act: str, tmp_path: Path) -> None:
    stream = ClassStream(toy_images(num_classes=4), num_tasks=2, batch_size=10, seed=0)
    learner = build_learner("er+ema", stream.info, "small", memory=50, seed=0)
    first, second = list(stream.tasks[0])[:2]
    learner.learn(*first)
    learner.learn(*second)
    learner.save(tmp_path / "first")
    state, before, line = learner.state_dict(), modes(), 0
    state = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
    acts = {
        "learn": lambda: learner.learn(*second),
        "rehearse": learner.rehearse,
        "predict": lambda: learner.predict(second.x),
        "save": lambda: learner.save(tmp_path / "again"),
        "load": lambda: learner.load(tmp_path / "first"),
    }
    while interrupted(acts[act], line := line + 1):
        assert modes() == before
        learner.load_state_dict(state)
    assert line > {"save": 0, "load": 1}.get(act, 20)  # save switches no mode at all


def _change_modes_and_fail() -> None:
    with RestoreTorchModes():
        torch.set_grad_enabled(True)
        torch.autocast("cpu", enabled=False).__enter__()
        raise ZeroDivisionError


def test_modes_of_the_caller_stay_where_nothing_raises() -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = modes()
        with RestoreTorchModes():
            torch.set_grad_enabled(True)
        assert torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        with pytest.raises(ZeroDivisionError):
            _change_modes_and_fail()
        assert modes() == before
