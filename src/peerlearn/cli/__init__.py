"""The command: peerlearn run | table | report | data | list; a file each.

Nothing here imports torch before a command needs it, so that help and tables come at once.
"""

import os
import sys
from collections.abc import Sequence

from peerlearn import __version__
from peerlearn.cli import data, listing, report, run, table
from peerlearn.cli.parsing import Parser, refuse_unknown
from peerlearn.errors import UserError

COMMANDS = (run, table, report, data, listing)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0: done, 1: the program failed, 2: something to put right, 130: stopped."""
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        parser = _parser()
        words, given = parser.split(words)
        args, unknown = parser.parse_known_args(words)
        if unknown:
            refuse_unknown(args.command, unknown[0], args.options)
        args.given = given
        code = int(args.act(args) or 0)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"peerlearn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\npeerlearn: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parser() -> Parser:
    parser = Parser(
        prog="peerlearn",
        description="Online continual learning on image streams, by peers that teach each other.",
        epilog="To begin: peerlearn run er er+ccldc --data mini && peerlearn table runs",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"peerlearn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        command.add(commands)
    for made in commands.choices.values():
        made.set_defaults(options=list(made._option_string_actions))
    return parser
