import io
import os
import pty
import re
import struct
import termios
from fcntl import ioctl
from typing import Any

import pytest

from peerlearn.experiment import progress
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


def live_lines(text: str) -> list[str]:
    """What stood on the line that changes, one after the other."""
    return [part for part in re.split(r"\r\x1b\[K|\n", text) if " left" in part]


@pytest.mark.parametrize("columns", [200, 80, 40, 20, 5])
def test_the_line_that_changes_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    tell(Console(out, runs=["er+ccldc"] * 36))
    shown = [part for part in re.split(r"\r\x1b\[K|\n", out.getvalue()) if part][1]
    assert len(shown) < columns
    if columns == 200:
        assert shown.startswith("run 1 of 36, er+ccldc mini m200 seed 0: task 1, batch 1/10")
    if columns == 80:
        assert re.fullmatch(r"run 1 of 36, er\+ccldc.*: .*batch 1/10, .* s left, ~.*", shown)
    if columns == 40:
        assert re.fullmatch(r"er\+ccldc: batch 1/10, .* s left", shown)


def test_the_width_is_that_of_the_terminal_it_is_shown_on() -> None:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    with os.fdopen(slave, "w") as terminal:
        tell(Console(terminal, runs=["er+ccldc"] * 36))
        text = ""
        while ": done, " not in text:  # a busy system hands it over in parts
            text += os.read(master, 10_000).decode()
        shown = live_lines(text)
    os.close(master)
    assert [len(line) < 60 for line in shown] == [True]
    assert "er+ccldc" in shown[0]


def test_several_runs_are_numbered_also_in_a_file() -> None:
    out = io.StringIO()
    console = Console(out, runs=["er+ccldc"] * 3)
    tell(console)
    console.reuse(RUN, SUMMARY)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("run 1 of 3, er+ccldc mini m200 seed 0: task 1 done")
    assert lines[2].startswith("run 2 of 3, er+ccldc mini m200 seed 0: was done before")


def test_the_time_left_in_all_counts_the_runs_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = Terminal()
    console = Console(out, runs=["er+ccldc"] * 3)
    for _ in range(2):
        console.begin(RUN, "the card", batches=10, done=0)
        now[0] += 40
        console.step(4, 0, {})
        now[0] += 60
        console.step(10, 0, {})
        console.end(SUMMARY)
    first, _, second, _ = live_lines(out.getvalue())
    assert first.endswith("1 min 0 s left, ~4 min 20 s for all runs")  # two more like this one
    assert second.endswith("1 min 0 s left, ~2 min 40 s for all runs")


def test_runs_of_a_method_that_was_not_seen_yet_are_not_guessed_at() -> None:
    out = Terminal()
    console = Console(out, runs=["er+ccldc", "er"])
    console.begin(RUN, "the card", batches=10, done=0)
    console.shown = 0.0
    console.step(1, 0, {})
    assert live_lines(out.getvalue())
    assert "all runs" not in out.getvalue()


def test_one_run_has_no_number_and_no_time_in_all() -> None:
    out = Terminal()
    tell(Console(out))
    assert "run 1" not in out.getvalue()
    assert "all runs" not in out.getvalue()


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_notes_on_the_data_are_told_once(out: io.StringIO) -> None:
    console = Console(out, runs=["er+ccldc"] * 2)
    for _ in range(2):
        console.note("images differ in size: all are 64 x 64")
        console.begin(RUN, "the card", batches=10, done=0)
    assert out.getvalue().count("images differ in size: all are 64 x 64\n") == 1


def test_a_name_cannot_steer_the_terminal() -> None:
    out = io.StringIO()
    console = Console(out)
    console.reuse(RUN.model_copy(update={"data": "a\x1b[2J\nb"}), SUMMARY)
    console.note("folder a\x1b[2J\nb")
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 2
