"""The example of a service: learns what arrives, answers, comes back after kill -9."""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
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


class Service:
    """One that may be started again after it was killed; its inbox is `home`/inbox."""

    def __init__(self, home: Path) -> None:
        self.home, self.inbox, self.done = home, home / "inbox", home / "inbox.done"
        with socket.socket() as free:
            free.bind(("localhost", 0))
            self.port = free.getsockname()[1]
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, port: int | None = None) -> subprocess.Popen[str]:
        words = [sys.executable, str(SERVICE), str(self.inbox), str(port or self.port)]
        process = subprocess.Popen(
            words, cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return process

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def wait_until_learnt(self, count: int) -> None:
        def is_learnt() -> bool:
            assert self.processes[-1].poll() is None, self.processes[-1].communicate()[1]
            return len([*self.done.glob("*/*")]) == count

        wait_for(is_learnt)

    def ask(self, content: bytes) -> tuple[int, list[object]]:
        try:
            address = f"http://localhost:{self.port}"
            with urlopen(address, data=content, timeout=PATIENCE) as said:
                return said.status, json.load(said)
        except HTTPError as error:
            return error.code, json.load(error)

    def answers(self) -> bool:
        try:
            return bool(self.ask(b"nothing"))
        except URLError:
            return False

    def restored(self) -> OpenLearner:
        return OpenLearner.restore(self.home / "inbox.checkpoint")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.kill()


def test_it_learns_answers_and_comes_back(service: Service) -> None:
    arrive(service.inbox, "red", range(10))
    arrive(service.inbox, "blue", range(10))
    service.start()
    service.wait_until_learnt(20)
    image = (service.done / "red" / "003.png").read_bytes()
    code, (label, *numbers) = service.ask(image)
    assert code == 200
    assert label in ("red", "blue")
    assert len(numbers) == 3
    assert service.ask(b"no image")[0] == 400
    arrive(service.inbox, "green", range(34))
    service.kill()
    service.start()
    service.wait_until_learnt(54)  # the last four too, though they are no whole batch
    wait_for(service.answers)
    assert service.ask(image)[0] == 200
    service.kill()
    for name in ("green/032.png", "green/033.png"):  # as if it had died before it put these away
        (service.done / name).replace(service.inbox / name)
    service.start()
    service.wait_until_learnt(54)
    service.kill()
    restored = service.restored()
    assert restored.classes == ["red", "blue", "green"]  # as they arrived
    assert restored.learner.memory.seen == 54  # none was lost, none came twice
    assert restored.learner.progress.batches <= 7  # of ten, but where a kill or the end came
    assert not [*service.inbox.glob("*/*")]


def test_a_bad_file_keeps_nobody_back(service: Service) -> None:
    red = service.inbox / "red"
    arrive(service.inbox, "red", range(5))
    (red / "005.png").write_text("no image")
    (red / ".#note.png").symlink_to("nowhere")
    (red / "link.png").symlink_to("nowhere")
    (red / ".hidden.png").write_text("a draft")
    (red / "folder").mkdir()
    os.mkfifo(red / "pipe.png")
    (service.inbox / "note.txt").write_text("no label")
    (red / os.fsdecode(b"\xff.png")).write_text("no image, and no name that can be printed")
    arrive(service.inbox, "red", range(6, 12))
    service.start()
    service.wait_until_learnt(11)
    refused = sorted(file.name for file in (service.home / "inbox.refused").glob("*/*"))
    assert refused == ["005.png", os.fsdecode(b"\xff.png")]
    left = {file.name for file in red.iterdir()}
    assert left == {".#note.png", ".hidden.png", "folder", "link.png", "pipe.png"}
    file = io.BytesIO()
    Image.new("1", (15000, 15000)).save(file, "PNG")  # 30 kB that would be 225 million pixels
    code, (why,) = service.ask(file.getvalue())
    assert code == 400
    assert "pixels" in str(why)
    service.kill()
    assert service.restored().learner.memory.seen == 11


def test_files_that_come_and_go_do_no_harm(service: Service) -> None:
    arrive(service.inbox, "red", range(10))
    service.start()
    service.wait_until_learnt(10)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        (service.inbox / "blue").mkdir()
        (service.inbox / "blue" / "draft.png").write_text("soon gone")
        shutil.rmtree(service.inbox / "blue", ignore_errors=True)
        shutil.rmtree(service.home / "inbox.refused", ignore_errors=True)
    arrive(service.inbox, "blue", range(10))
    service.wait_until_learnt(20)


def test_a_second_service_of_an_inbox_is_refused(service: Service) -> None:
    service.start()
    wait_for(service.answers)
    process = service.start(Service(service.home).port)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "inbox: another service learns from it; stop that one" in said
    assert service.answers()
