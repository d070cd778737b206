"""peerlearn benchmark: what steps, evaluation, checkpoints and starts cost on this machine."""

import argparse
import json
import sys
from collections.abc import Callable

from peerlearn.cli.parsing import Commands, add_command, add_plugins, load_plugins
from peerlearn.errors import UserError, did_you_mean

TAKES = "Takes some six minutes on two quiet cores, growth two; busy ones tell little."
MOST_WIDTH, MOST_THREADS, MOST_ROUNDS = 4096, 1024, 10_000


def add(commands: Commands) -> None:
    """Add the command."""
    about = "what steps, evaluation, checkpoints and starts cost here, next to the bare arithmetic"
    parser = add_command(commands, "benchmark", about, act, epilog=TAKES)
    parser.add_argument(
        "what",
        nargs="*",
        metavar="part or method",
        help="parts (roof, steps, shadow, peers, evaluation, along, checkpoint, startup, run, "
        "auto; growth) and learners such as er+ccldc; all but growth, and all methods with and "
        "without CCL-DC, unless given",
    )
    parser.add_argument(
        "--width", type=_widths, default=(16,), help="of the network, such as 16 or 16,64 (16)"
    )
    parser.add_argument(
        "--threads",
        type=_count(MOST_THREADS),
        default=0,
        help="for all but auto, which compares several (what a run of er would choose now)",
    )
    parser.add_argument(
        "--rounds", type=_count(MOST_ROUNDS), default=0, help="times of each (as many as fit)"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    add_plugins(parser)


def act(args: argparse.Namespace) -> None:
    """Do it."""
    load_plugins(args.plugins)

    from peerlearn.benchmark.auto import usual_threads
    from peerlearn.benchmark.report import PARTS, USUAL_PARTS, Asked, benchmark
    from peerlearn.benchmark.timing import Effort
    from peerlearn.config.learner_config import LearnerConfig
    from peerlearn.config.names import split_name
    from peerlearn.methods import METHODS
    from peerlearn.runtime import available_threads, keep_freed_memory

    names = tuple(dict.fromkeys(name for name in args.what if name not in PARTS))
    parts = [name for name in PARTS if name in args.what] or list(USUAL_PARTS)
    if "growth" in parts and len(args.width) > 1:
        raise UserError("growth: is measured for one --width; name one of them")
    for name in names:
        base = split_name(name)[0]
        if base not in METHODS and ":" not in base:
            problem = f"there is no part or method {base!r:.60}"
            listing = "peerlearn benchmark --help, and peerlearn list"
            raise UserError(did_you_mean(problem, base, [*PARTS, *METHODS], listing))
        LearnerConfig.of(name)
    if sys.stderr.isatty() and not args.what:
        print(TAKES, file=sys.stderr)
    keep_freed_memory()
    asked = Asked(
        names,
        args.width,
        args.threads or usual_threads(args.width[0]).threads.each,
        args.threads or available_threads(),
        Effort(args.rounds),
    )
    found = benchmark(parts, asked, None if args.json else sys.stdout)
    if args.json:
        print(json.dumps(found, indent=1))


def _widths(typed: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_count(MOST_WIDTH)(text) for text in typed.split(",")))


def _count(most: int) -> Callable[[str], int]:
    def count(typed: str) -> int:
        try:
            number = int(typed)
        except ValueError:
            number = 0
        if not 1 <= number <= most:
            wanted = f"must be a whole number from 1 to {most}"
            raise argparse.ArgumentTypeError(f"{wanted}, got {typed!r:.40}")
        return number

    return count
