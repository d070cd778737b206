"""The long form of the fuzzer: many mutated files, and what the program made of them.

    python tests/fuzz/long.py                                   # all kinds, 20,000 of each
    python tests/fuzz/long.py checkpoints --cases 100000        # seeds 0 to 99,999
    python tests/fuzz/long.py folders --seed 4711 --cases 1     # one case again

Prints how it goes on, a line for each fault, and at the end of each kind one line of JSON. The exit
code is 1 if any case ended its process, raised, or took more than two seconds.
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "learner"), str(TESTS / "experiment")]

from fuzz.harness import watch  # noqa: E402

KINDS = ("checkpoints", "folders", "pickles")
FAULTS = {"signal": "signals", "traceback": "tracebacks", "slow": "slow"}
PROGRESS_SECONDS = 10.0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python tests/fuzz/long.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", nargs="?", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--cases", type=int, default=20_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    args = parser.parse_args(words)
    kinds = KINDS if args.kind == "all" else (args.kind,)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        found = [fuzz(kind, args.cases, args.seed, args.jobs, Path(folder)) for kind in kinds]
    return int(any(one["failures"] for one in found))


def fuzz(kind: str, cases: int, first: int, jobs: int, folder: Path) -> dict[str, Any]:
    """Run the cases of one kind, print and return what was found."""
    case = importlib.import_module(f"fuzz.{kind}").case
    counts: Counter[str] = Counter()
    failures, slowest = [], (0.0, first)
    start = said = time.monotonic()
    for report in watch(case, range(first, first + cases), folder, jobs):
        counts[report.outcome] += 1
        slowest = max(slowest, (report.seconds, report.seed))
        if report.failed:
            failures.append(report.seed)
            print(f"{kind} seed {report.seed}: {report.outcome} {report.what}", flush=True)
        if time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            done = f"{counts.total():,} of {cases:,} cases in {said - start:.0f} s"
            print(f"{kind}: {done}, {len(failures)} faults", file=sys.stderr, flush=True)
    found = {
        "kind": kind,
        "cases": counts.total(),
        "read": counts["read"],
        "refused": counts["refused"],
        **{title: counts[outcome] for outcome, title in FAULTS.items()},
        "slowest": {"seconds": round(slowest[0], 3), "seed": slowest[1]},
        "seconds": round(time.monotonic() - start, 1),
        "failures": sorted(failures),
    }
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
