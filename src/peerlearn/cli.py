"""The command: peerlearn run | table | report | data | list.

Nothing here imports torch before a command needs it, so that help and tables come at once.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from peerlearn import __version__
from peerlearn.errors import UserError, did_you_mean
from peerlearn.experiment.settings import (
    DATA,
    FIELDS,
    convert,
    parse_seeds,
    published_combinations,
    read_file,
    resolve,
    unread,
)

STYLES = ("text", "markdown", "latex", "csv", "json")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UserError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0: done, 1: a failure of the program, 2: something to mend, 130: stopped."""
    parser = _parser()
    try:
        args, unknown = parser.parse_known_args(arguments)
        if unknown:
            _refuse_unknown(args, unknown[0])
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


def _refuse_unknown(args: argparse.Namespace, flag: str) -> NoReturn:
    known = [action for action in args.options if action.startswith("--")]
    name = flag.split("=")[0]
    if not flag.startswith("-"):
        raise UserError(f"{args.command}: {flag!r} is not expected there; names come before flags")
    raise UserError(did_you_mean(f"{args.command}: there is no {name}", name, known))


def _parser() -> Parser:
    parser = Parser(
        prog="peerlearn",
        description="Online continual learning on image streams, by peers that teach each other.",
        epilog="To begin: peerlearn run er er+ccldc --data mini && peerlearn table runs",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"peerlearn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, about: str, act: Callable[[argparse.Namespace], int | None]) -> Parser:
        made: Parser = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        made.set_defaults(act=act)
        return made

    run = command("run", "train and evaluate; a second call resumes or reuses", _run)
    run.add_argument("methods", nargs="+", metavar="method", help="er, gsa+ccldc, ...")
    run.add_argument("--seeds", default="0", help="such as 0-2 or 0,3,7 (default 0)")
    run.add_argument("--out", type=Path, default=Path("runs"), help="folder of all runs (runs)")
    run.add_argument("--config", type=Path, help="YAML file of settings; flags win over it")
    run.add_argument("--root", type=Path, help="folder in which data sets lie")
    run.add_argument("--tensorboard", metavar="FOLDER", help="write logs for TensorBoard there")
    run.add_argument("--json", action="store_true", help="print the summaries as JSON")
    group = run.add_argument_group("settings, each by its name")
    for name, field in FIELDS.items():
        if name not in ("method", "seed"):
            shown = "" if field.default is None else f" ({field.default})"
            flags = dict.fromkeys(("--" + name.replace("_", "-"), "--" + name))
            about = field.metadata["about"].replace("%", "%%") + shown
            group.add_argument(*flags, dest=name, metavar="X", help=about)

    table = command("table", "mean and spread over seeds, gain over the baseline, cost", _table)
    table.add_argument("runs", type=Path, nargs="+", help="folder that `run --out` wrote")
    table.add_argument("--format", choices=STYLES, default="text")
    table.add_argument("--json", dest="format", action="store_const", const="json")

    report = command("report", "one self-contained page", _report)
    report.add_argument("runs", type=Path, nargs="+", help="folder that `run --out` wrote")
    report.add_argument("--out", type=Path, default=Path("report.html"), help="(report.html)")
    report.add_argument("--title", default="Peerlearn report")

    data = command("data", "what data is there, how to get it, is it whole", _data)
    data.add_argument("what", choices=("list", "get", "check"))
    data.add_argument("name", nargs="?", help="data set, or the path of a folder")
    data.add_argument("--root", type=Path, help="folder in which data sets lie")

    listing = command("list", "methods, collaborations, data sets and presets", _list)
    listing.add_argument("what", nargs="?", choices=("presets",), help="all published runs")
    for made in commands.choices.values():
        made.set_defaults(options=list(made._option_string_actions))
    return parser


def _run(args: argparse.Namespace) -> int:
    given = {name: value for name in FIELDS if (value := getattr(args, name, None)) is not None}
    flags = {name: convert(name, value, f"--{name}") for name, value in given.items()}
    file = read_file(args.config) if args.config else {}
    seeds = parse_seeds(args.seeds)
    for name in flags:
        if all(name in unread(method) for method in args.methods):
            raise UserError(
                f"--{name}: {' and '.join(args.methods)} cannot use it; leave it out, or choose "
                "a method that can"
            )
    wanted = [
        resolve({**flags, "method": method, "seed": seed}, file)
        for seed in seeds
        for method in dict.fromkeys(args.methods)
    ]
    from peerlearn.experiment.files import RunFolder
    from peerlearn.experiment.run import Stopped, run
    from peerlearn.experiment.watch import Console, TensorBoard

    for one in wanted:  # a folder with other settings is refused before hours of work
        RunFolder(args.out, one.settings).settle(one)
    watcher = TensorBoard(args.tensorboard) if args.tensorboard else Console()
    try:
        summaries = [run(one, args.out, watcher, args.root) for one in wanted]
    except Stopped:
        print("\npeerlearn: stopped and saved; the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        watcher.close()
    if args.json:
        print(json.dumps(summaries, indent=1))
    else:
        print(
            f"peerlearn table {args.out}    shows the results, peerlearn report {args.out} a page"
        )
    return 0


def _table(args: argparse.Namespace) -> None:
    from peerlearn.report.formats import render
    from peerlearn.report.reading import read_runs
    from peerlearn.report.tables import summarise

    print(render(summarise([run for root in args.runs for run in read_runs(root)]), args.format))


def _report(args: argparse.Namespace) -> None:
    from peerlearn.report import read_runs, render

    page = render([run for root in args.runs for run in read_runs(root)], args.title)
    draft = args.out.with_name(f".{args.out.name}.new")
    try:
        draft.write_text(page, encoding="utf-8")
        draft.replace(args.out)
    except OSError as error:
        raise UserError(
            f"{args.out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    print(f"{args.out}: {len(page) / 1e6:.1f} MB, opens in any browser")


def _data(args: argparse.Namespace) -> None:
    from peerlearn.data import SOURCES, check, find, get

    if args.what == "list":
        for name, source in SOURCES.items():
            place = find(name, args.root)
            print(f"{name:12} {source.summary}; {place or f'not here: peerlearn data get {name}'}")
        return
    if args.name is None:
        raise UserError(f"data {args.what}: name a data set, one of {', '.join(SOURCES)}")
    if args.what == "check":
        print(check(args.name, args.root))
        return
    print(f"{args.name}: {get(args.name, args.root, _bytes_shown)}")


def _bytes_shown(done: int, total: int) -> None:
    if sys.stderr.isatty():
        share = f" of {total / 1e6:.0f}" if total else ""
        print(f"\r{done / 1e6:.0f}{share} MB", end="", file=sys.stderr, flush=True)


def _list(args: argparse.Namespace) -> None:
    if args.what == "presets":
        for data, memory, method in published_combinations():
            print(f"peerlearn run {method} --data {data} --memory {memory} --seeds 0-9")
        return
    from peerlearn.data import SOURCES
    from peerlearn.learner.presets import PRESETS
    from peerlearn.methods import METHODS

    print("Methods")
    for name, chosen in METHODS.items():
        print(f"  {name:24}{(chosen.__doc__ or '').splitlines()[0]}")
    print("Collaborations, after a plus: er+ccldc")
    for name, preset in PRESETS.items():
        print(f"  {name:24}{preset.about}")
    print("Data sets, with the memory sizes of the paper")
    for name, source in SOURCES.items():
        sizes = ", ".join(str(size) for size in DATA[name].memories)
        print(f"  {name:24}{source.summary}; memory {sizes}")
    print("Presets")
    count = len(published_combinations())
    print(f"  {count} published runs: peerlearn list presets")


if __name__ == "__main__":
    sys.exit(main())
