"""peerlearn tune: search for settings on a stream of its own."""

import argparse
import sys
from itertools import islice
from pathlib import Path

from peerlearn.cli.parsing import Commands, add_command, load_plugins
from peerlearn.cli.run import files_of
from peerlearn.cli.sweep import add_execution, means_of
from peerlearn.errors import UserError
from peerlearn.units import printable

USUAL_TRIALS = 50


def add(commands: Commands) -> None:
    """Add the command."""
    about = "search for settings, on a stream without the test images of evaluations"
    parser = add_command(
        commands,
        "tune",
        about,
        act,
        epilog="Any setting given holds for all trials. See docs/tuning.md.",
    )
    parser.takes_settings = True
    parser.add_argument("method", help="such as er+ccldc")
    parser.add_argument("--trials", type=int, help=f"at most ({USUAL_TRIALS}; grid: all)")
    parser.add_argument(
        "--search", choices=("tpe", "grid"), default="tpe", help="tpe, with early stops, or grid"
    )
    parser.add_argument(
        "--space", help="baseline, lambda, randaugment, a YAML file, or several, by commas"
    )
    parser.add_argument("--tuning-seeds", help="of the tuning stream (1000000)")
    parser.add_argument(
        "--storage", default="", help="an Optuna storage URL, for several machines (a journal here)"
    )
    add_execution(parser, "tuning")


def act(args: argparse.Namespace) -> int:
    """Do it."""
    load_plugins(args.plugins)
    load_plugins(files_of([args.method]), required=False)

    from peerlearn.experiment.resolve import Given, resolve
    from peerlearn.experiment.vocabulary import refuse_unused
    from peerlearn.files import replace_file
    from peerlearn.records.study import MOST_TRIALS
    from peerlearn.report.tuning import render_study
    from peerlearn.studies.found import evaluation
    from peerlearn.studies.search import Search
    from peerlearn.studies.space import checked, combinations, space_of
    from peerlearn.studies.tune import tune

    given = tuple(Given(f.name, f.value, "flag", f"--{f.name}") for f in args.given)
    for item in given:
        if item.name in ("seed", "seeds", "images"):
            raise UserError(f"{item.where}: a search has its own; --tuning-seeds names its seeds")
        if item.name in ("config", "preset"):
            raise UserError(f"{item.where}: tune takes settings as flags: --lr 0.001 --width 16")
    run = resolve(args.method, given)
    refuse_unused([run])
    names = args.space.split(",") if args.space else []
    space = checked(args.method, given, space_of(run, names))
    points = USUAL_TRIALS
    if args.search == "grid":
        points = sum(1 for _ in islice(combinations(space, run), MOST_TRIALS + 1))
    trials = points if args.trials is None else args.trials
    if not 1 <= trials <= MOST_TRIALS:
        raise UserError(f"--trials: must be from 1 to {MOST_TRIALS}, got {trials}; shrink --space")
    search = Search(
        args.method, given, space, args.search,
        min(trials, points) if args.search == "grid" else trials,
        _seeds(args.tuning_seeds), "-".join(Path(name).stem for name in names),
        args.storage, args.root, tuple(args.plugins),
    )  # fmt: skip
    study, folder, stopped = tune(search, args.out, means_of(args))
    if args.json:
        print((folder / "study.json").read_text(), end="")
    preset = "preset.yaml" if study.best is not None else ""
    replace_file(folder / "tuning.html", render_study(study, preset=preset), shared=True)
    place = printable(str(folder))
    done = sum(trial.state != "running" for trial in study.trials)
    print(f"{done} of {study.wanted} trials; {place}/tuning.html shows them", file=sys.stderr)
    if stopped:
        print("stopped and saved; the same command goes on", file=sys.stderr)
    elif study.best is not None and not args.json:
        print(printable(evaluation(search, f"{place}/{preset}")))
    return 130 if stopped else 0 if study.best is not None else 1


def _seeds(typed: str | None) -> tuple[int, ...]:
    from peerlearn.experiment.settings import parse_seeds
    from peerlearn.studies.search import FIRST_SEED

    try:
        return parse_seeds(typed) if typed else (FIRST_SEED,)
    except UserError as error:
        raise UserError(f"--tuning-seeds: {str(error).removeprefix('--seeds: ')}") from None
