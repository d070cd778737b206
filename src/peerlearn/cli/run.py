"""peerlearn run: train and evaluate; a second call resumes or reuses."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerlearn.cli.parsing import Commands, add_command, add_plugins, load_plugins, path
from peerlearn.errors import UserError
from peerlearn.files import user_path
from peerlearn.units import printable

if TYPE_CHECKING:
    from peerlearn.experiment.resolve import Given, Resolved


def add(commands: Commands) -> None:
    """Add the command."""
    about = "train and evaluate; a second call resumes or reuses"
    parser = add_command(commands, "run", about, act, add_help=False)
    parser.takes_settings = True
    parser.add_argument("methods", nargs="*", metavar="method", help="er, gsa+ccldc, file.py:Mine")
    parser.add_argument("-h", "--help", action="store_true", help="this, with all settings")
    parser.add_argument("--seeds", help="such as 0-2 or 0,3,7 (default 0)")
    parser.add_argument("--out", type=path, default=Path("runs"), help="folder of all runs (runs)")
    parser.add_argument("--preset", type=path, help="YAML file that `peerlearn tune` wrote")
    parser.add_argument("--config", type=path, help="YAML file of settings; flags win over it")
    parser.add_argument(
        "--import",
        dest="imported",
        metavar="FILE",
        type=path,
        help="YAML file of the CCL-DC authors' release; flags win over it",
    )
    parser.add_argument("--root", type=path, help="folder in which data sets lie")
    parser.add_argument(
        "--tensorboard", metavar="FOLDER", type=path, help="write logs for TensorBoard there"
    )
    parser.add_argument("--json", action="store_true", help="print the summaries as JSON")
    add_plugins(parser)
    parser.set_defaults(shown=parser)


def act(args: argparse.Namespace) -> int:
    """Do it."""
    load_plugins(args.plugins)
    load_plugins(files_of(args.methods), required=False)
    from peerlearn.experiment.authors_file import Imported, read_authors_file

    imported = read_authors_file(args.imported) if args.imported else Imported()
    if args.help:
        from peerlearn.experiment.vocabulary import settings_help

        runs = plan(args, imported.given) if args.methods else []
        print(args.shown.format_help() + settings_help(runs, args.options))
        return 0

    from peerlearn.experiment.identity import folder_of, reconcile
    from peerlearn.experiment.precision import settle_precision
    from peerlearn.experiment.progress import Console, TensorBoard
    from peerlearn.experiment.run import Stopped, run_all

    runs, choices = settle_precision(plan(args, imported.given), args.out)
    for one in runs:  # a folder with other settings is refused before hours of work
        reconcile(folder_of(one, args.out), one)
    methods = [one.method for one in runs]
    watcher = Console(runs=methods)
    if args.tensorboard:
        watcher = TensorBoard(args.tensorboard, runs=methods)
    for note in (*imported.notes, *choices):
        watcher.note(note)
    try:
        summaries = run_all(runs, args.out, watcher, args.root)
    except Stopped:
        print("\npeerlearn: stopped and saved; the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        watcher.close()
    if args.json:
        print(json.dumps(summaries, indent=1))
    else:
        out = printable(str(args.out))
        print(f"peerlearn table {out}    shows the results, peerlearn report {out} a page")
    return 0


def plan(args: argparse.Namespace, imported: "Sequence[Given]") -> "list[Resolved]":
    """Every run that was asked for, all its settings known and checked."""
    from peerlearn.experiment.config_file import read_file
    from peerlearn.experiment.resolve import Given, resolve
    from peerlearn.experiment.settings import parse_seeds
    from peerlearn.experiment.vocabulary import refuse_unused

    files = [file for file in (args.preset, args.config) if file]
    given = [*imported, *(item for file in files for item in read_file(file))]
    methods = list(dict.fromkeys(args.methods)) or methods_of(given)
    if not methods:
        raise UserError("run: name a method, such as er or er+ccldc; see peerlearn run --help")
    given += [Given(flag.name, flag.value, "flag", f"--{flag.name}") for flag in args.given]
    if args.seeds is not None and any(flag.name == "seed" for flag in args.given):
        raise UserError("--seed: is given beside --seeds; say one of them")
    seeds: Sequence[int | None] = parse_seeds(args.seeds) if args.seeds is not None else [None]
    runs = [resolve(method, given, seed=seed) for seed in seeds for method in methods]
    refuse_unused(runs)
    for run in runs:
        run.check()
    return runs


def files_of(methods: Sequence[str]) -> list[Path]:
    """The files of methods that are named by their place, file.py:Mine."""
    places = [name.rpartition(":")[0] for name in methods]
    return [user_path(place) for place in places if place.endswith(".py")]


def methods_of(given: "Sequence[Given]") -> list[str]:
    """The method that a file names."""
    named: dict[str, Any] = {item.name: item.value for item in given}
    if "method.name" not in named:
        return []
    wrapper = named.get("collaboration.name")
    return [f"{named['method.name']}+{wrapper}" if wrapper else str(named["method.name"])]
