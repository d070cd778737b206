"""peerlearn status: where the runs of a sweep stand, from another terminal."""

import argparse
import json
import os
import shutil
import sys
import time

from peerlearn.cli.parsing import Commands, add_command, path

SECONDS = 2.0  # between two pictures


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "status", "where the runs of a sweep stand", act)
    parser.add_argument("out", type=path, help="folder that `sweep --out` writes")
    parser.add_argument(
        "--follow", action="store_true", help="show every change, until no run is left"
    )
    parser.add_argument(
        "--json", action="store_true", help="every run, as JSON; with --follow a line per change"
    )


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.studies.picture import ENDLESS, picture, rows
    from peerlearn.studies.state import State, plans, slots_at_work, states

    live = sys.stdout.isatty() and not args.json
    found: list[State] = []
    drawn: list[str] = []
    while True:
        asked, slots = plans(args.out), slots_at_work(args.out)
        runs = {run.key: run for plan in asked for run in plan.runs}
        found = states(args.out, runs.values(), found, busy=slots > 0)
        left = {one.run.key for one in found if one.kind == "left"}
        if args.json:
            lines = [json.dumps(rows(found), indent=None if args.follow else 1)]
        else:
            size = shutil.get_terminal_size() if live else os.terminal_size((ENDLESS, ENDLESS))
            commands = [p.command for p in asked if p.command and left & {r.key for r in p.runs}]
            lines = picture(found, slots, list(dict.fromkeys(commands)), size.columns - 1)
            lines = lines[: size.lines - 1] if args.follow else lines
        if lines != drawn:
            back = f"\x1b[{len(drawn)}A\r\x1b[J" if drawn and live else ""
            print(back + "\n".join(lines), flush=True)
        drawn = lines
        if not args.follow or not (left or any(one.kind == "running" for one in found)):
            return
        time.sleep(SECONDS)
