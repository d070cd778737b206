"""peerlearn results: finished runs in one file, to hand on and to add to."""

import argparse
import sys

from peerlearn.cli.parsing import Commands, add_command, path
from peerlearn.errors import UserError

MOST_NAMED = 5  # of the runs that are left out


def add(commands: Commands) -> None:
    """Add the command."""
    about = "finished runs in one file, which `table` and others take as they take folders"
    parser = add_command(commands, "results", about, act)
    parser.add_argument("what", metavar="action", choices=("export",), help="export")
    parser.add_argument(
        "runs", type=path, nargs="+", help="folders that `run --out` wrote, or such files"
    )
    parser.add_argument(
        "--out", type=path, required=True, metavar="FILE.json", help="made, or added to"
    )
    parser.add_argument(
        "--replace", action="store_true", help="take the new numbers of runs that it has already"
    )


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.records.read import read_runs
    from peerlearn.records.results_file import add_runs

    if args.out.suffix != ".json":
        raise UserError(f"--out: {args.out} must end in .json, by which other commands know it")
    runs = read_runs(args.runs)
    rest = [run for run in runs if not run.done]
    if len(rest) == len(runs):
        raise UserError(f"results export: none of {len(runs)} runs is done; finish one of them")
    if rest:
        named = [f"{run.folder} ({run.state})" for run in rest[:MOST_NAMED]]
        named += [f"{len(rest) - MOST_NAMED} more"] if len(rest) > MOST_NAMED else []
        print(f"left out, for they are not done: {', '.join(named)}", file=sys.stderr)
    added = add_runs(args.out, runs, replace=args.replace)
    parts = [f"{added.new} added"]
    parts += [f"{added.replaced} replaced"] if added.replaced else []
    parts += [f"{added.there} there before"] if added.there else []
    cost = f" ({added.remeasured} at another cost; --replace takes the new one)"
    print(f"{args.out}: {', '.join(parts)}{cost if added.remeasured else ''}")
