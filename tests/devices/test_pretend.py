"""The pretend accelerator is as strict as a real one."""

from collections.abc import Callable

import pretend
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from peerlearn.devices import moved

HERE, THERE = "pretend:0", "pretend:1"


def x() -> Tensor:
    return torch.arange(4.0, device=HERE)


STRANGE: dict[str, Callable[[], object]] = {
    "the cpu's in arithmetic": lambda: x() + torch.ones(4),
    "the other device's in arithmetic": lambda: x() + torch.ones(4, device=THERE),
    "the other device's number": lambda: x() + torch.ones((), device=THERE),
    "a number of the cpu in a stack": lambda: torch.stack([x()[0], torch.ones(())]),
    "the cpu's as the index of a gather": lambda: x().gather(0, torch.zeros(1, dtype=torch.long)),
    "the device's as the index of the cpu's": lambda: torch.ones(4)[x().long()],
    "the cpu's generator": lambda: x().uniform_(generator=torch.Generator()),
    "a third device": lambda: torch.zeros(1, device="pretend:2"),
}


@pytest.mark.parametrize("meeting", STRANGE)
def test_what_is_not_of_the_device_is_refused(meeting: str) -> None:
    with pytest.raises(RuntimeError, match=r"several devices meet|generator|there are 2 devices"):
        STRANGE[meeting]()


def test_numbers_and_indices_of_the_cpu_may_come_in() -> None:
    found = (x() * torch.tensor(2.0))[torch.tensor([1, 3])]
    assert str(found.device) == HERE
    assert found.tolist() == [2.0, 6.0]


def test_tensors_that_are_made_there_have_the_shapes_of_the_cpu() -> None:
    made = [torch.arange(4, device=THERE), torch.eye(3, 2, device=THERE), x().new_zeros(2)]
    assert [tuple(one.shape) for one in made] == [(4,), (3, 2), (2,)]
    assert [str(one.device) for one in made] == [THERE, THERE, HERE]


WAITING: dict[str, Callable[[], object]] = {
    "item": lambda: x().sum().item(),
    "float": lambda: float(x()[1]),
    "if": lambda: bool(x()[1] > 0),
    "tolist": lambda: x().tolist(),
    "cpu": lambda: x().cpu(),
    "copy_": lambda: torch.zeros(4).copy_(x()),
    "equal": lambda: torch.equal(x(), x()),
    "nonzero": lambda: x().nonzero(),
    "unique": lambda: x().unique(),
    "bincount": lambda: x().long().bincount(minlength=4),
    "mask": lambda: x()[x() > 1],
    "assignment by a mask": lambda: x().__setitem__(x() > 1, 0.0),
    "a copy from the cpu": lambda: torch.ones(4).to(HERE),
    "an index of the cpu": lambda: x()[torch.tensor([1])],
}


@pytest.mark.parametrize("asked", WAITING)
def test_what_the_host_has_to_wait_for_is_noted(asked: str) -> None:
    pretend.waits.clear()
    WAITING[asked]()
    assert len(pretend.waits) == 1


def test_nothing_else_is_noted() -> None:
    pretend.waits.clear()
    y = (x() * 2).to(THERE)
    y[moved(torch.tensor([0, 2]), y.device)] = 1.0
    F.one_hot(y.long(), 8).sum(dim=0)
    assert pretend.waits == []


@pytest.mark.parametrize("device", [HERE, THERE])
def test_gradients_are_those_of_the_cpu(device: str) -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    v = w.detach().to(device).requires_grad_()
    for one in (w, v):
        one.square().sum().backward()
    assert w.grad is not None
    assert v.grad is not None
    assert str(v.grad.device) == device
    assert v.grad.tolist() == w.grad.tolist()
