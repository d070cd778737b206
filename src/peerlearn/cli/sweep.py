"""peerlearn sweep: many runs, in processes of this machine or on a Ray cluster."""

import argparse
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerlearn.cli.parsing import Commands, Parser, add_command, add_plugins, load_plugins, path
from peerlearn.cli.run import files_of, methods_of
from peerlearn.errors import UserError
from peerlearn.files import user_path
from peerlearn.units import printable

if TYPE_CHECKING:
    from peerlearn.studies.grid import Grid, Wish
    from peerlearn.studies.job import Job
    from peerlearn.studies.many import Means, Outcome

ABOUT = "many runs, side by side; a second call does only what is missing"
MOST_JOBS = 4096


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "sweep",
        ABOUT,
        act,
        epilog="Any setting takes a list: --lr 1e-3,5e-4 --memory 200,500. See docs/sweeps.md.",
        usage="%(prog)s [grid.yaml] [method ...] [--name value,value ...] [options]",
        add_help=False,
    )
    parser.takes_settings = True
    parser.add_argument(
        "what", nargs="*", metavar="grid.yaml, method", help="a YAML file; er, gsa+ccldc, ..."
    )
    parser.add_argument("-h", "--help", action="store_true", help="this, with all settings")
    parser.add_argument("--seeds", help="such as 0-2 or 0,3,7 (default 0)")
    parser.add_argument(
        "--preset", type=path, help="YAML file of settings; the grid and flags win over it"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs, time and memory")
    add_part(parser)
    add_execution(parser)
    parser.set_defaults(shown=parser)


def add_execution(parser: Parser, out: str = "runs") -> None:
    """The flags of commands that make many runs."""
    parser.add_argument("--out", type=path, default=Path(out), help=f"folder of all runs ({out})")
    parser.add_argument("--root", type=path, help="folder in which data sets lie")
    parser.add_argument("--jobs", type=_jobs, default=0, help="runs at once (what cores bear)")
    parser.add_argument(
        "--per-run", metavar="SHARE", default="", help="of each, such as cpu=2,gpu=0.25,memory=4G"
    )
    parser.add_argument("--retries", type=_retries, default=3, help="after deaths (3)")
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="on a Ray cluster; auto: the one here, or a new one"
    )
    parser.add_argument(
        "--fetch", action="store_true", help="with --ray: nodes do not see --out, bring files back"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    add_plugins(parser)


def add_part(parser: Parser) -> None:
    """The flag by which machines that share no folder divide the work."""
    parser.add_argument(
        "--part", metavar="K/N", default="", help="a part of all runs, such as 2/4 (all)"
    )


def act(args: argparse.Namespace) -> int:
    """Do it."""
    load_plugins(args.plugins)
    grid = grid_of(args)
    if args.help:
        from peerlearn.experiment.vocabulary import settings_help

        runs = [wish.run for wish in grid.runs()] if grid.methods or grid.include else []
        print(args.shown.format_help() + settings_help(runs, args.options))
        return 0

    from peerlearn.experiment.precision import settle_precision

    wishes = part_of(args.part, grid.runs())
    runs, choices = settle_precision([wish.run for wish in wishes], args.out)
    for choice in choices:
        print(printable(choice), file=sys.stderr)
    wishes = [wish._replace(run=run) for wish, run in zip(wishes, runs, strict=True)]
    if args.dry_run:
        return show_plan(args, wishes)
    outcome = make_runs(args, wishes)
    if args.json:
        print(json.dumps(outcome.to_json(), indent=1))
    elif not outcome.stopped and (outcome.done or outcome.before):
        out = printable(str(args.out))
        print(f"peerlearn table {out}    shows the results, peerlearn report {out} a page")
    return outcome.code


def show_plan(args: argparse.Namespace, wishes: "Sequence[Wish]") -> int:
    """Say what the runs would take; the exit code."""
    from peerlearn.studies.many import dry_run, dry_text

    found = dry_run(_jobs_of(args, wishes), means_of(args))
    print(json.dumps(found, indent=1) if args.json else dry_text(found))
    return 1 if found["total"]["faults"] else 0


def make_runs(args: argparse.Namespace, wishes: "Sequence[Wish]") -> "Outcome":
    """Finish the runs."""
    from peerlearn.studies.many import carry_out

    command = shlex.join(["peerlearn", *args.typed])
    return carry_out(_jobs_of(args, wishes), means_of(args), command)


def _jobs_of(args: argparse.Namespace, wishes: "Sequence[Wish]") -> "list[Job]":
    from peerlearn.studies.job import Job, Place

    place = Place(args.out, args.root, args.plugins)
    return [Job(wish, place) for wish in wishes]


def means_of(args: argparse.Namespace) -> "Means":
    """With what the runs are to be made."""
    from peerlearn.studies.many import Means
    from peerlearn.studies.share import Share

    share = Share.parse(args.per_run) if args.per_run else Share()
    return Means(args.jobs, share, args.retries, args.ray, args.fetch)


def part_of(typed: str, runs: "Sequence[Wish]") -> "list[Wish]":
    """The part of all runs that was asked for, such as "2/5"; all of them for "".

    Dealt out by chance, the same on every machine, since neighbours in a list are often alike in
    cost.
    """
    if not typed:
        return list(runs)
    first, _, count = typed.partition("/")
    sane = first.isdecimal() and count.isdecimal() and max(len(first), len(count)) < 7
    if not sane or not 1 <= int(first) <= int(count):
        raise UserError(f"--part: {typed!r:.40} is not such as 1/4, 2/4, 3/4 or 4/4")
    from peerlearn.records.folder import run_path

    names = [run_path(Path(), wish.run).as_posix().encode() for wish in runs]
    shuffled = sorted(range(len(runs)), key=lambda k: hashlib.sha256(names[k]).digest())
    part = {*shuffled[int(first) - 1 :: int(count)]}
    if not part:
        raise UserError(f"--part: {typed} is empty, there are {len(runs)} runs; take fewer parts")
    return [wish for k, wish in enumerate(runs) if k in part]


def grid_of(args: argparse.Namespace) -> "Grid":
    """What was asked for, in files and by flags."""
    from peerlearn.experiment.config_file import read_file
    from peerlearn.studies.grid import combined, from_flags, with_preset
    from peerlearn.studies.grid_file import from_file

    files = [word for word in args.what if _is_grid(word)]
    methods = [word for word in args.what if word not in files]
    if len(files) > 1:
        raise UserError(f"sweep: takes one grid, not {len(files)}; start one after the other")
    load_plugins(files_of(methods), required=False)
    grid = from_flags(methods, [(flag.name, flag.value) for flag in args.given], args.seeds)
    if files:
        grid = combined(from_file(user_path(files[0])), grid)
        named = [name for one in (grid, *grid.include) for name in one.methods]
        load_plugins(files_of(named), required=False)
    if args.preset:
        preset = read_file(args.preset)
        grid = with_preset(grid, preset)
        grid = grid if grid.methods else replace(grid, methods=tuple(methods_of(preset)))
    return grid


def _is_grid(word: str) -> bool:
    """Whether a word names a file, not a method."""
    if word.lower().endswith((".yaml", ".yml")):
        return True
    if word.endswith((".json", ".toml", ".txt", "/")) or os.path.isfile(word):
        raise UserError(f"{word:.100}: a grid is a YAML file, and its name ends in .yaml")
    return False


def _jobs(typed: str) -> int:
    return _count(typed, 1, MOST_JOBS)


def _retries(typed: str) -> int:
    return _count(typed, 0, 1000)


def _count(typed: str, least: int, most: int) -> int:
    number: Any = int(typed) if typed.isdecimal() and len(typed) < 9 else -1
    if not least <= number <= most:
        wanted = f"must be a whole number from {least} to {most}"
        raise argparse.ArgumentTypeError(f"{wanted}, got {typed!r:.40}")
    return int(number)
