"""Long form: a thousand stubs on two nodes of Ray; real runs whose processes are killed.

python tests/studies/long.py scale --runs 1080 --deaths 0.1
python tests/studies/long.py kills --seeds 6
python tests/studies/long.py throughput
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from peerlearn.studies.cluster import Cluster
from peerlearn.studies.share import Share
from peerlearn.studies.sweep import sweep
from studies.jobs import Silent, jobs_of, stories
from studies.nodes import two_nodes
from studies.stub import command

KILLED = 0.3  # the share of workers that are killed
TINY = (
    *("--data", "mini", "--memory", "50", "--width", "4"),
    *("--train-per-class", "30", "--test-per-class", "10"),
)
METHODS = ("er", "er_ace+ccldc")


def scale(args: argparse.Namespace) -> dict[str, Any]:
    """Stubs of a second on two nodes; what of their time was not theirs."""
    with tempfile.TemporaryDirectory() as place, two_nodes(args.cpus) as address:
        out, journal = Path(place) / "runs", Path(place) / "journal"
        jobs, view = jobs_of(out, args.runs), Silent()
        options = {"seconds": args.seconds, "deaths": args.deaths}
        executor = Cluster(address, Share(), command=command(journal, **options))
        begin = time.monotonic()
        whole = sweep(jobs, executor, view, retries=20)
        wall = time.monotonic() - begin
        told = stories(journal)
        slots = 2 * args.cpus
        return {
            "runs": args.runs,
            "done": sum(one.how == "done" for one in whole.results.values()),
            "in the journal once": sum(story.ended == 1 for story in told.values()),
            "worked on by two at once": sum(story.overlaps for story in told.values()),
            "saved steps done again": sum(story.lost for story in told.values()),
            "deaths": dict(view.whys),
            "at once": slots,
            "wall seconds": round(wall, 1),
            "overhead per run, seconds of a slot": round(
                wall * slots / args.runs - args.seconds, 2
            ),
            "wall seconds per run": round(wall / args.runs, 3),
        }


def kills(args: argparse.Namespace) -> dict[str, Any]:
    """Real runs: undisturbed, workers killed, sweeps killed, two at once; the same bytes."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        assert _sweep(whole, args.seeds).wait() == 0
        wanted = _accuracies(whole)
        for name, work in {"workers": _workers, "sweep": _sweeps, "two sweeps": _two}.items():
            for attempt in (1, 2):
                out = Path(place) / f"{name}{attempt}"
                killed = work(out, args.seeds, random.Random(attempt))
                made = _accuracies(out)
                found[f"{name}, {attempt}"] = {
                    "runs": len(made),
                    "equal": sum(made[key] == wanted[key] for key in made),
                    "killed": killed,
                }
                print(name, attempt, found[f"{name}, {attempt}"], file=sys.stderr)
                assert made == wanted
    return found


def _workers(out: Path, seeds: int, rng: random.Random) -> int:
    """Kill a share of all workers, each at a random moment of its life."""
    one = _sweep(out, seeds)
    with _killing(rng) as killed:
        assert one.wait() == 0
    return len(killed)


def _sweeps(out: Path, seeds: int, rng: random.Random) -> int:
    """Kill the sweep itself twice, and workers as well."""
    killed = 0
    for _ in range(2):
        one = _sweep(out, seeds)
        with _killing(rng) as workers:
            with suppress(subprocess.TimeoutExpired):
                one.wait(rng.uniform(8, 20))
            one.kill()
            one.wait()
        killed += 1 + len(workers)
    assert _sweep(out, seeds).wait() == 0
    return killed


def _two(out: Path, seeds: int, rng: random.Random) -> int:
    """Two sweeps on one folder, and workers killed."""
    both = [_sweep(out, seeds) for _ in range(2)]
    with _killing(rng) as killed:
        assert [one.wait() for one in both] == [0, 0]
    return len(killed)


@contextmanager
def _killing(rng: random.Random) -> Iterator[list[int]]:
    """Kill a share of the workers that come to life meanwhile, each after a random time."""
    over, killed, fates = threading.Event(), [], {}  # type: ignore[var-annotated]

    def work() -> None:
        while not over.wait(0.1):
            now = time.monotonic()
            for pid in _worker_pids():
                if pid not in fates:
                    doomed = rng.random() < KILLED
                    fates[pid] = now + rng.uniform(0, 12) if doomed else None
                if (fates[pid] or now + 1) < now:
                    fates[pid] = None
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _worker_pids() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"peerlearn.studies.worker" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def _peerlearn(*words: str) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-m", "peerlearn", *words], stdout=null, stderr=null, stdin=null
    )


def _sweep(out: Path, seeds: int, *words: str) -> subprocess.Popen[bytes]:
    chosen = ("--seeds", f"0-{seeds - 1}", "--out", str(out), "--retries", "20")
    return _peerlearn("sweep", *METHODS, *TINY, *chosen, *words)


def _accuracies(out: Path) -> dict[str, bytes]:
    return {
        path.parent.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("accuracy.json")
    }


def throughput(args: argparse.Namespace) -> dict[str, Any]:
    """Eight small runs as a sweep, and one after another with two threads each, by turns."""
    chosen = ("--data", "mini", "--memory", "200", "--train-per-class", str(args.images))
    words = ("er", *chosen, "--test-per-class", "50", "--width", str(args.width), "--seeds", "0-7")
    taken: dict[str, list[float]] = {"sweep": [], "in turn": []}
    for number in range(args.rounds):
        for way in sorted(taken, reverse=bool(number % 2)):
            with tempfile.TemporaryDirectory() as place:
                extra: Sequence[str] = ("--out", place)
                if way == "in turn":
                    extra = (*extra, "--threads", "2", "--peer-threads", "2")
                begin = time.monotonic()
                command = "sweep" if way == "sweep" else "run"
                assert _peerlearn(command, *words, *extra).wait() == 0
                taken[way].append(time.monotonic() - begin)
                print(way, f"{taken[way][-1]:.1f} s", file=sys.stderr)
    ratios = [b / a for a, b in zip(taken["sweep"], taken["in turn"], strict=True)]
    return {
        "width": args.width, "images per class": args.images, "seconds": taken, "ratios": ratios,
        "median ratio": statistics.median(ratios),
    }  # fmt: skip


def tune(_: argparse.Namespace) -> dict[str, Any]:
    """A real search of 20 trials, killed when ten have begun, and gone on with."""
    small = ("--train-per-class", "20", "--test-per-class", "20", "--width", "8")
    with tempfile.TemporaryDirectory() as place:
        words = ("tune", "er+ccldc", "--data", "mini", "--memory", "100", *small)
        words = (*words, "--trials", "20", "--out", place)
        first = _peerlearn(*words)
        while len([*Path(place).glob("*/trials/[0-9]*")]) < 10:
            time.sleep(0.5)
        first.kill()
        first.wait()
        folder = next(Path(place).iterdir())
        at_kill = json.loads((folder / "study.json").read_text())["trials"]
        code = _peerlearn(*words).wait()
        study = json.loads((folder / "study.json").read_text())
        return {
            "exit code": code,
            "states when killed": [trial["state"] for trial in at_kill],
            "trials": len(study["trials"]),
            "states": [trial["state"] for trial in study["trials"]],
            "best": study["best"],
            "preset": (folder / "preset.yaml").read_text().splitlines()[3:],
            "seeds": sorted({path.name for path in folder.rglob("seed*")}),
            "stream": study["stream"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("scale", "kills", "throughput", "tune"))
    parser.add_argument("--runs", type=int, default=1080)
    parser.add_argument("--cpus", type=int, default=8, help="declared cores of each node")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--deaths", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--images", type=int, default=30)
    args = parser.parse_args()
    work = {"scale": scale, "kills": kills, "throughput": throughput, "tune": tune}[args.what]
    print(json.dumps(work(args), indent=1))


if __name__ == "__main__":
    main()
