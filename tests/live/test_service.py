"""The example of a service: learns what arrives, answers, comes back after kill -9."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from PIL import Image

from peerlearn import OpenLearner

SERVICE = Path(__file__).parents[2] / "examples" / "03_service.py"
PATIENCE = 90  # seconds; it takes a few
COLOURS = {"red": (220, 30, 30), "blue": (20, 40, 220), "green": (30, 200, 50)}


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def arrive(inbox: Path, label: str, numbers: range) -> None:
    """Images come whole: they are written elsewhere, and moved."""
    (inbox / label).mkdir(parents=True, exist_ok=True)
    for number in numbers:
        draft = inbox.parent / "draft.png"
        shade = tuple(min(255, value + 3 * (number % 8)) for value in COLOURS[label])
        Image.new("RGB", (20 + number % 3, 20), shade).save(draft)
        draft.replace(inbox / label / f"{number:03}.png")


def test_it_learns_answers_and_comes_back(tmp_path: Path) -> None:
    inbox, done = tmp_path / "inbox", tmp_path / "inbox.done"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]

    def start() -> subprocess.Popen[str]:
        words = [sys.executable, str(SERVICE), str(inbox), str(port)]
        return subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)

    def learnt(count: int) -> Callable[[], bool]:
        return lambda: len([*done.glob("*/*")]) == count

    def ask(content: bytes) -> tuple[int, list[object]]:
        try:
            with urlopen(f"http://localhost:{port}", data=content, timeout=PATIENCE) as said:
                return said.status, json.load(said)
        except HTTPError as error:
            return error.code, json.load(error)

    def answers() -> bool:
        try:
            return bool(ask(b"nothing"))
        except URLError:
            return False

    arrive(inbox, "red", range(10))
    arrive(inbox, "blue", range(10))
    process = start()
    try:
        wait_for(learnt(20))
        image = (done / "red" / "003.png").read_bytes()
        code, (label, *numbers) = ask(image)
        assert code == 200
        assert label in ("red", "blue")
        assert len(numbers) == 3
        assert ask(b"no image")[0] == 400
        arrive(inbox, "green", range(30))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = start()
        wait_for(learnt(50))
        wait_for(answers)
        assert ask(image)[0] == 200
    finally:
        process.kill()
        process.wait()
    restored = OpenLearner.restore(tmp_path / "inbox.checkpoint")
    assert restored.classes == ["red", "blue", "green"]  # as they arrived
    assert restored.learner.memory.seen == 50  # none was lost, none came twice
    assert not [*inbox.glob("*/*")]
