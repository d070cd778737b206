"""peerlearn analyse: what trained networks know, as a file of panels."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from peerlearn.analysis import ANALYSES
from peerlearn.cli.parsing import Commands, add_command, add_plugins, load_plugins, path
from peerlearn.errors import UserError
from peerlearn.units import printable

if TYPE_CHECKING:
    from peerlearn.analysis.runs import Row
    from peerlearn.records.analysis import Analysis

MOST_ROWS = 50  # one panel, or one column of pictures, for each
LONGEST = 150  # letters of a row's name


def add(commands: Commands) -> None:
    """Add the command."""
    width = max(map(len, ANALYSES))
    names = "\n".join(f"  {name:{width}}  {about}" for name, about in ANALYSES.items())
    parser = add_command(
        commands,
        "analyse",
        "what trained networks know: entropy, t-SNE, Grad-CAM++, calibration, ...",
        act,
        epilog=f"analyses:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="analysis", choices=ANALYSES, help="one of those below")
    parser.add_argument("runs", type=path, nargs="+", help="folder that `run --out` wrote")
    parser.add_argument("--seed", type=int, help="the run of each row (the lowest that will do)")
    parser.add_argument("--out", type=path, help="file (analysis/NAME.json in the first folder)")
    parser.add_argument("--root", type=path, help="folder in which data sets lie")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    add_plugins(parser)


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.analysis.analyse import analyse
    from peerlearn.analysis.runs import Runs
    from peerlearn.records.analysis import write_analysis

    load_plugins(args.plugins)
    runs = Runs(_rows(args), args.seed, args.root)
    found = analyse(args.name, runs)
    out = args.out or args.runs[0] / "analysis" / f"{args.name}.json"
    write_analysis(out, found)
    for name, why in runs.left_out.items():
        print(printable(f"left out {name}: {why}"), file=sys.stderr)
    print(json.dumps(found.model_dump(), indent=1) if args.json else _summary(found, str(out)))


def _rows(args: argparse.Namespace) -> "list[Row]":
    from peerlearn.analysis.runs import Row
    from peerlearn.records.read import read_runs
    from peerlearn.results.compare import compare

    groups = compare(read_runs(args.runs))
    rows = []
    for group in groups:
        place = f", {group.data} m{group.memory}" if len(groups) > 1 else ""
        for series in group.series:
            if runs := sorted(series.done, key=lambda run: run.seed):
                rows.append(Row(f"{series.name + place:.{LONGEST}}", tuple(runs)))
    if not rows:
        raise UserError(f"{args.runs[0]}: no run there is finished; repeat its command first")
    if len(rows) > MOST_ROWS:
        raise UserError(
            f"analyse: {len(rows)} rows are more than the {MOST_ROWS} that can be shown together; "
            "name the folders of some"
        )
    return rows


def _summary(found: "Analysis", out: str) -> str:
    width = max((len(name) for name in found.facts), default=0)
    facts = [f"  {name:{width}}  {_shown(value)}" for name, value in found.facts.items()]
    return "\n".join([found.title, *map(printable, facts), printable(out)])


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
