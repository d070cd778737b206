"""peerlearn report: one self-contained page."""

import argparse
from pathlib import Path

from peerlearn.cli.parsing import Commands, add_command
from peerlearn.errors import UserError


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "report", "one self-contained page", act)
    parser.add_argument("runs", type=Path, nargs="+", help="folder that `run --out` wrote")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="(report.html)")
    parser.add_argument("--title", default="Peerlearn report")


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.records.read import read_runs
    from peerlearn.report import render

    page = render(read_runs(args.runs), args.title)
    draft = args.out.with_name(f".{args.out.name}.new")
    try:
        draft.write_text(page, encoding="utf-8")
        draft.replace(args.out)
    except OSError as error:
        raise UserError(
            f"{args.out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    print(f"{args.out}: {len(page) / 1e6:.1f} MB, opens in any browser")
