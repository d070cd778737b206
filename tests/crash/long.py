"""The long form of the tests of crashes.

    python tests/crash/long.py --what io                     # kills at every call of the system
    python tests/crash/long.py --what random --kills 500     # kills at random moments
    python tests/crash/long.py --what soak --steps 5000      # does anything grow?

Prints how it goes on, and at the end one line of JSON. The exit code is 1 if a run that was killed
ended with other files than one that was not, or if something grew.
"""

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS)]

from crash.chance import kill_by_chance  # noqa: E402
from crash.everywhere import kill_everywhere  # noqa: E402
from crash.soak import soak  # noqa: E402


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python tests/crash/long.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--what", choices=["io", "random", "soak"], required=True)
    parser.add_argument("--kills", type=int, default=500, help="at random moments")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--steps", type=int, default=5000, help="of the soak")
    parser.add_argument("--jobs", type=int, default=1, help="kills at every call at a time")
    args = parser.parse_args(words)
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {text}", file=sys.stderr, flush=True)

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        work = {
            "io": partial(kill_everywhere, args.jobs),
            "random": partial(kill_by_chance, args.kills, args.seed),
            "soak": partial(soak, args.steps),
        }[args.what]
        found = work(Path(folder), say)
    seconds = round(time.monotonic() - start)
    print(json.dumps({"what": args.what, **found, "seconds": seconds}), flush=True)
    return int(bool(found["faults"]))


if __name__ == "__main__":
    sys.exit(main())
