"""peerlearn report: one self-contained page."""

import argparse
import os
import stat
import sys
from pathlib import Path

from peerlearn.cli.parsing import Commands, add_command, add_runs, path, runs_of
from peerlearn.errors import UserError
from peerlearn.files import replace_file


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "report", "one self-contained page", act)
    add_runs(parser)
    parser.add_argument(
        "--out", type=path, default=Path("report.html"), help="(report.html); - prints the page"
    )
    parser.add_argument("--title", default="Peerlearn report")


def act(args: argparse.Namespace) -> None:
    """Do it."""
    from peerlearn.report import render
    from peerlearn.report.analyses import analyses_in
    from peerlearn.report.published import reproductions_in

    analyses, tables = analyses_in(args.runs), reproductions_in(args.runs)
    page = render(runs_of(args), args.title, analyses, tables)
    try:
        printed = _write(args.out, page)
    except BrokenPipeError:
        raise  # whoever read it has gone
    except OSError as error:
        raise UserError(
            f"{args.out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    said = f"{args.out}: {len(page) / 1e6:.1f} MB, opens in any browser"
    print(said, file=sys.stderr if printed else sys.stdout)


def _write(out: Path, page: str) -> bool:
    """Write the page; whether it went to standard output.

    A file is replaced as a whole, also one that a link leads to. A device or a pipe is written to.
    """
    found = _found(out)
    if str(out) == "-" or (found and os.path.samestat(found, os.fstat(1))):
        sys.stdout.flush()
        sys.stdout.buffer.write(page.encode())
        return True
    if found is None or stat.S_ISREG(found.st_mode):
        replace_file(Path(os.path.realpath(out)), page)
        if found is not None:  # who may read it is for its owner to say
            out.chmod(stat.S_IMODE(found.st_mode))
    else:
        out.write_text(page, encoding="utf-8")
    return False


def _found(out: Path) -> os.stat_result | None:
    """What is there already, links followed; nothing for `-`."""
    try:
        return out.stat()
    except FileNotFoundError:
        return None
