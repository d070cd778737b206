"""A service: learns images as they arrive, answers over HTTP, and comes back after kill -9.

python examples/03_service.py inbox 8000       # move images, whole, to inbox/LABEL/NEW_NAME
curl --data-binary @photo.png localhost:8000   # label, probability, entropy, disagreement
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

from PIL import Image

from peerlearn import OpenLearner, UserError

INBOX, PORT = Path(sys.argv[1]), int(sys.argv[2])
DONE, CHECKPOINT = Path(f"{INBOX}.done"), Path(f"{INBOX}.checkpoint")
BATCH, MINUTE = 10, 60.0
there = (CHECKPOINT / "state.json").exists()
learner = OpenLearner.restore(CHECKPOINT) if there else OpenLearner(net="small", size=32)


class Answers(BaseHTTPRequestHandler):
    """Says of an image that is posted what the learner makes of it, also while that learns."""

    def do_POST(self) -> None:
        """Answer with JSON."""
        try:
            content = BytesIO(self.rfile.read(int(self.headers["Content-Length"])))
            said = learner.predict([Image.open(content, formats=["PNG", "JPEG"])], details=True)
            numbers = (said.probability, said.entropy, said.disagreement)
            code, answer = 200, [said.labels[0], *(float(number) for number in numbers)]
        except (UserError, OSError, TypeError, ValueError) as error:
            code, answer = 400, [str(error)]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def put_away(names: list[str], where: Path = DONE) -> None:
    """Move what a checkpoint knows out of the inbox; after a crash in between, at the start."""
    for name in names:
        if (INBOX / name).exists():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            (INBOX / name).replace(where / name)


Thread(target=ThreadingHTTPServer(("localhost", PORT), Answers).serve_forever, daemon=True).start()
put_away(learner.extra or [])
learnt, saved = list[str](), time.monotonic()
while True:
    files = sorted(INBOX.glob("*/*"), key=lambda file: (file.stat().st_mtime_ns, file))
    waiting = [str(file.relative_to(INBOX)) for file in files]
    batch = [name for name in waiting if name not in learnt][:BATCH]
    if len(batch) == BATCH:
        try:
            learner.learn([INBOX / name for name in batch], [Path(n).parts[0] for n in batch])
            learnt += batch
        except UserError as error:  # such as a file that is no image: set the batch aside
            print(error, flush=True)
            put_away(batch, Path(f"{INBOX}.refused"))
    if learnt and (time.monotonic() - saved > MINUTE or len(batch) < BATCH):
        learner.save(CHECKPOINT, extra=learnt)
        put_away(learnt)
        learnt, saved = [], time.monotonic()
        print(f"{len(learner.classes)} classes, {100 * learner.recent:.0f} % right", flush=True)
    time.sleep(0 if len(batch) == BATCH else 1)
