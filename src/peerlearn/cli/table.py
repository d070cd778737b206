"""peerlearn table: means and spreads over seeds, gains over baselines, cost."""

import argparse

from peerlearn.cli.parsing import Commands, add_command, add_runs, runs_of


def add(commands: Commands) -> None:
    """Add the command."""
    about = "mean and spread over seeds, gain over the baseline, cost"
    parser = add_command(commands, "table", about, act)
    add_runs(parser)
    parser.add_argument(
        "--against", metavar="ROW", help="the row that all are compared with (each its baseline)"
    )
    parser.add_argument("--format", default="text", help="text, markdown, latex, csv or json")
    parser.add_argument("--json", dest="format", action="store_const", const="json")


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.results.compare import against, compare
    from peerlearn.results.formats import render

    groups = compare(runs_of(args))
    groups = against(groups, args.against) if args.against else groups
    print(render(groups, args.format, answers=args.answers))
