"""peerlearn data: what data is there, how to get it, is it whole."""

import argparse
import sys

from peerlearn.cli.parsing import Commands, add_command, add_plugins, load_plugins, path
from peerlearn.errors import UserError


def add(commands: Commands) -> None:
    """Add the command."""
    about = "what data is there, how to get it, is it whole"
    parser = add_command(commands, "data", about, act)
    parser.add_argument(
        "what", metavar="action", choices=("list", "get", "check"), help="list, get or check"
    )
    parser.add_argument("name", nargs="?", help="data set, or the path of a folder")
    parser.add_argument("--root", type=path, help="folder in which data sets lie")
    parser.add_argument(
        "--image-size", type=int, metavar="N", help="check a folder as images of N x N"
    )
    add_plugins(parser)


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.data import DATASETS, find

    load_plugins(args.plugins)
    if args.what == "list":
        for name in DATASETS:
            place = find(name, args.root) or f"not here: peerlearn data get {name}"
            print(f"{name:12} {DATASETS.summary(name).rstrip('.')}; {place}")
    elif args.image_size is not None and args.what != "check":
        raise UserError(f"--image-size: is for data check, not for data {args.what}; leave it out")
    elif args.name is None:
        raise UserError(f"data {args.what}: name a data set, one of {', '.join(DATASETS)}")
    elif args.what == "check":
        from peerlearn.data import check

        print(check(args.name, args.root, size=args.image_size))
    else:
        from peerlearn.data import get

        print(f"{args.name}: {get(args.name, args.root, _bytes_shown)}")


def _bytes_shown(done: int, total: int) -> None:
    if sys.stderr.isatty():
        share = f" of {total / 1e6:.0f}" if total else ""
        print(f"\r{done / 1e6:.0f}{share} MB", end="", file=sys.stderr, flush=True)
