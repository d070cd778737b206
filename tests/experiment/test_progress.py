import io
from typing import Any

import pytest

from peerlearn.experiment.progress import Console, TensorBoard
from peerlearn.records.schema import Config

RUN = Config(data="mini", method="er+ccldc", memory=200, seed=0, settings={})

SUMMARY: dict[str, Any] = {
    "AA": 0.5,
    "LA": 0.6,
    "FM": None,
    "RF": 0.1,
    "cost": {"train_seconds": 9},
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tell(console: Console) -> None:
    console.begin(RUN, "the card", batches=10, done=0)
    console.shown = 0.0
    console.step(1, 0, {"base": 2.5})
    console.task(0, SUMMARY)
    console.end(SUMMARY)
    console.close()


def test_a_file_gets_a_line_per_task() -> None:
    out = io.StringIO()
    tell(Console(out))
    assert out.getvalue().splitlines() == [
        "er+ccldc mini m200 seed 0: task 1 done, batch 1/10, AA 50.0 LA 60.0, 9.0 s",
        "er+ccldc mini m200 seed 0: done, AA 50.0 LA 60.0 FM - RF 10.0",
    ]


def test_a_terminal_gets_the_card_and_a_line_that_changes() -> None:
    out = Terminal()
    tell(Console(out))
    assert "the card" in out.getvalue()
    assert "task 1, batch 1/10, loss 2.50" in out.getvalue()


def test_tensorboard_gets_losses_and_metrics(tmp_path: Any) -> None:
    pytest.importorskip("tensorboard")
    tell(TensorBoard(tmp_path, io.StringIO()))
    assert len(list(tmp_path.rglob("events.*"))) == 1
