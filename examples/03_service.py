"""A service: learns images as they arrive, answers over HTTP, and comes back after kill -9.

python examples/03_service.py inbox 8000       # move images, whole, to inbox/LABEL/NEW_NAME
curl --data-binary @photo.png localhost:8000   # label, probability, entropy, disagreement
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from glob import glob
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

from filelock import FileLock, Timeout
from PIL import Image
from torch import Tensor

from peerlearn import OpenLearner, UserError
from peerlearn.data.pictures import pictures

INBOX, PORT = Path(sys.argv[1]).resolve(), int(sys.argv[2])
DONE, REFUSED, CHECKPOINT = (Path(f"{INBOX}.{end}") for end in ("done", "refused", "checkpoint"))
BATCH, PAUSE, MINUTE = 10, 2.0, 60.0  # images; seconds
try:
    (lock := FileLock(f"{INBOX}.lock", fallback_to_soft=False)).acquire(timeout=0)
except Timeout:
    sys.exit(f"{INBOX}: another service learns from it; stop that one, or name another inbox")
there = (CHECKPOINT / "state.json").exists()
learner = OpenLearner.restore(CHECKPOINT) if there else OpenLearner(net="small", size=32)


class Answers(BaseHTTPRequestHandler):
    """Says of an image that is posted what the learner makes of it, also while that learns."""

    def do_POST(self) -> None:
        """Answer with JSON."""
        try:
            content = BytesIO(self.rfile.read(int(self.headers["Content-Length"])))
            said = learner.predict([Image.open(content, formats=["PNG", "JPEG"])], details=True)
            code, answer = 200, [said.labels[0], *map(float, said[1:4])]
        except (UserError, OSError, TypeError, ValueError, Image.DecompressionBombError) as error:
            code, answer = 400, [str(error)]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def arrived() -> Iterator[tuple[int, str]]:
    """When each file came, and its name; what is hidden stays so, and some may go meanwhile."""
    for name in glob("*/*", root_dir=INBOX):
        with suppress(OSError):
            if (INBOX / name).is_file():
                yield (INBOX / name).stat().st_mtime_ns, name


def read(names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """Those that are images, with their pixels; others are set aside."""
    for name in names:
        try:
            yield name, pictures(INBOX / name, learner.size)
        except UserError as error:
            print(error, flush=True)
            put_away([name], REFUSED)


def put_away(names: Iterable[str], where: Path = DONE) -> None:
    """Move what a checkpoint knows out of the inbox; after a crash in between, at the start."""
    for name in names:
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            (INBOX / name).replace(where / name)


Thread(target=ThreadingHTTPServer(("localhost", PORT), Answers).serve_forever, daemon=True).start()
put_away(learner.extra or [])
learnt, waiting, saved = set[str](), list[str](), time.monotonic()
while True:
    before, waiting = waiting, [name for _, name in sorted(arrived()) if name not in learnt]
    is_due = len(waiting) >= BATCH or waiting == before  # no more have come
    if batch := dict(read(waiting[:BATCH]) if is_due else ()):
        learner.learn([*batch.values()], [Path(name).parts[0] for name in batch])
        learnt |= batch.keys()
    if learnt and (time.monotonic() - saved > MINUTE or not batch):
        learner.save(CHECKPOINT, extra=sorted(learnt))
        put_away(learnt)
        learnt, saved = set(), time.monotonic()
        print(f"{len(learner.classes)} classes, {100 * learner.recent:.0f} % right", flush=True)
    time.sleep(0 if batch else PAUSE)
