"""The command: peerlearn run | sweep | status | tune | table | report | ...; a file each.

Nothing here imports torch before a command needs it, so that help and tables come at once.
"""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from peerlearn import __version__
from peerlearn.cli import (
    analyse,
    benchmark,
    data,
    figure,
    listing,
    predict,
    report,
    reproduce,
    results,
    run,
    status,
    sweep,
    table,
    tune,
)
from peerlearn.cli.parsing import Parser, refuse_unknown
from peerlearn.errors import UserError, out_of_memory

COMMANDS = (
    *(run, sweep, status, tune, table, report, reproduce, analyse, figure, results),
    *(predict, data, listing, benchmark),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0: done, 1: the program failed, 2: something to put right, 130: stopped."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # no name may fail in a narrow encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    for name in ("stdout", "stderr"):  # closed by the caller
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        typed = list(sys.argv[1:] if arguments is None else arguments)
        parser = _parser()
        words, given = parser.split(typed)
        args, unknown = parser.parse_known_args(words)
        if unknown:
            refuse_unknown(args.command, unknown[0], args.options)
        args.given, args.typed = given, typed
        code = int(args.act(args) or 0)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _refused(str(error))
    except KeyboardInterrupt:
        print("\npeerlearn: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # of the world outside, wherever nobody thought of it
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        why = error.strerror or str(error) or type(error).__name__
        return _refused(f"{place}{why}; see to the file or the folder, or name another")
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return _refused("the memory does not suffice; take a smaller --memory, --width or --batch")


def _refused(what: str) -> int:
    with suppress(OSError):  # the exit code says it too
        print(f"peerlearn: {UserError(what)}", file=sys.stderr)
    return 2


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
