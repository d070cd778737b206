"""peerlearn figure: an analysis as a file for a paper."""

import argparse
from pathlib import Path

from peerlearn.cli.parsing import Commands, add_command, path
from peerlearn.errors import UserError


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "figure", "an analysis as a figure for a paper", act)
    parser.add_argument("analysis", type=path, metavar="ANALYSIS.json", help="what to draw")
    parser.add_argument(
        "--out", type=path, default=Path("figure.svg"),
        help=".svg, .pdf or .png (figure.svg); its numbers go beside it as .csv",
    )  # fmt: skip
    parser.add_argument(
        "--width", default="column", help="column (3.3 inches), page (6.9) or inches (column)"
    )
    parser.add_argument("--panel", type=int, metavar="K", help="only panel K, counted from 1 (all)")


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.records.analysis import read_analysis
    from peerlearn.report.figure_files import inches, write_figure

    width = inches(args.width)
    analysis = read_analysis(args.analysis)
    try:
        notes = write_figure(analysis, args.out, width=width, panel=args.panel)
    except OSError as error:
        raise UserError(
            f"{args.out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    print(f"{args.out}: {width:g} inches wide, its numbers are in {args.out.with_suffix('.csv')}")
    for note in notes:
        print(f"  {note}")
