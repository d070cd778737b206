"""peerlearn reproduce: a table or figure of the paper, published beside measured."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from peerlearn.cli.parsing import Commands, add_command, load_plugins, path
from peerlearn.cli.sweep import add_execution, add_part, make_runs, part_of, show_plan
from peerlearn.errors import UserError
from peerlearn.paper.scales import SCALES
from peerlearn.paper.tables import EXAMPLE, TABLES, table
from peerlearn.units import printable

if TYPE_CHECKING:
    from peerlearn.records.read import RunRecord
    from peerlearn.records.reproduction import Reproduction
    from peerlearn.studies.reproduce import Asked, Planned

ABOUT = "a table or figure of the paper, published beside measured"


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "reproduce",
        ABOUT,
        act,
        epilog="Without a name: what there is. Any setting goes in by its name. See "
        "docs/reproduce.md.",
        usage="%(prog)s [table ...] [--scale lite] [--name value ...] [options]",
    )
    parser.takes_settings = True
    parser.add_argument("tables", nargs="*", metavar="table", help="aa, ablation, schemes, ...")
    parser.add_argument("--scale", default="paper", choices=SCALES, help="paper, lite (paper)")
    parser.add_argument("--only", default="", help="these methods, such as er,er_ace")
    parser.add_argument("--data", default="", help="these data sets, or another, for an ablation")
    parser.add_argument("--memory", default="", help="these memory sizes of the paper")
    parser.add_argument("--seeds", help="such as 0-2 or 0,3,7 (those of the scale)")
    parser.add_argument("--dry-run", action="store_true", help="list the runs, time and memory")
    parser.add_argument("--show", action="store_true", help="what is there; make no run")
    parser.add_argument(
        "--runs", type=path, nargs="+", default=[], help="further runs: folders, results files"
    )
    parser.add_argument("--format", default="text", help="text, markdown, latex or json")
    add_part(parser)
    add_execution(parser)


def act(args: argparse.Namespace) -> int:
    """Do it."""
    if not args.tables:
        print(listing())
        return 0
    from peerlearn.results.reproduced import refuse_unknown_style

    style = "json" if args.json else args.format
    refuse_unknown_style(style)
    if args.show and (args.dry_run or args.part):
        raise UserError("--show: makes no run; leave out --dry-run and --part")
    load_plugins(args.plugins)
    names = list(dict.fromkeys(args.tables))
    wanted = [asked_of(args, name) for name in names if name != EXAMPLE]
    plans = _plans(wanted, args.out)
    code = 0
    if wanted and not args.show:
        code = _make(args, plans)
    if args.dry_run or code == 130:
        return code
    runs = _runs_there(args, plans)
    made = [_judged(asked, plan, runs) for asked, plan in zip(wanted, plans, strict=True)]
    if EXAMPLE in names:
        from peerlearn.results.example import worked_example

        made.append(worked_example())
    made.sort(key=lambda found: names.index(found.name))
    _show(made, style)
    if not args.show:
        for one in made:
            _keep(args, one)
    return code


def listing() -> str:
    """Every table, with what it shows."""
    rows = [(one.name, one.source, one.title) for one in TABLES.values()]
    rows.append((EXAMPLE, "Table 1", "FM and RF of two example learners"))
    lines = [f"  {name:20} {source:10} {title}" for name, source, title in rows]
    end = "peerlearn reproduce aa --scale lite --only er --data cifar10    makes one on a laptop"
    return "\n".join(["Tables and figures of the paper:", *lines, end])


def asked_of(args: argparse.Namespace, name: str) -> "Asked":
    """What of a table was asked for."""
    found = table(name)
    from peerlearn.experiment.resolve import Given
    from peerlearn.experiment.settings import parse_seeds
    from peerlearn.studies.reproduce import Asked, asked_for

    if args.only:
        found = found.only(_words(args.only))
    found, instead = asked_for(found, _words(args.data), _numbers(args.memory))
    given = tuple(Given(flag.name, flag.value, "flag", f"--{flag.name}") for flag in args.given)
    seeds = parse_seeds(args.seeds) if args.seeds is not None else ()
    return Asked(found, args.scale, given, seeds, instead)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    words = _words(text)
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise UserError(f"--memory: {text!r:.60} is not a list such as 500,1000")
    return [int(word) for word in words]


def _plans(wanted: "Sequence[Asked]", out: Path) -> "list[list[Planned]]":
    if not wanted:
        return []
    from peerlearn.studies.reproduce import planned, settled

    plans = []
    for asked in wanted:
        plan, choices = settled(planned(asked), out)
        for choice in choices:
            print(printable(choice), file=sys.stderr)
        plans.append(plan)
    return plans


def _make(args: argparse.Namespace, plans: "Sequence[Sequence[Planned]]") -> int:
    """Finish the runs that --runs does not have, or say what that would take; the exit code."""
    from peerlearn.studies.reproduce import missing, wishes_of

    wanted = part_of(args.part, wishes_of(one for plan in plans for one in plan))
    wishes = missing(wanted, _runs_in(args.runs, plans))
    return show_plan(args, wishes) if args.dry_run else make_runs(args, wishes).code


def _runs_there(
    args: argparse.Namespace, plans: "Sequence[Sequence[Planned]]"
) -> "dict[str, RunRecord]":
    """The finished runs that are there, by their folder below that of all runs."""
    keys = {key for plan in plans for one in plan for key in one.keys.values()}
    here = any((args.out / key / "summary.json").is_file() for key in keys)
    return _runs_in([*([args.out] if here else []), *args.runs], plans)


def _runs_in(
    sources: "Sequence[Path]", plans: "Sequence[Sequence[Planned]]"
) -> "dict[str, RunRecord]":
    from peerlearn.records.folder import run_path
    from peerlearn.records.read import read_runs
    from peerlearn.results.compare import refuse_contradiction

    keys = {key for plan in plans for one in plan for key in one.keys.values()}
    found: dict[str, RunRecord] = {}
    for run in read_runs(sources) if sources else []:
        key = run_path(Path(), run.config).as_posix()
        if run.done and key in keys:
            refuse_contradiction(found.setdefault(key, run), run)
    return found


def _judged(
    asked: "Asked", plan: "Sequence[Planned]", runs: "dict[str, RunRecord]"
) -> "Reproduction":
    from peerlearn.results.verdicts import Measured, refuse_mixed_data, reproduction
    from peerlearn.studies.reproduce import of_run

    found = []
    for one in plan:
        there = {
            wish.run.seed: of_run(wish, runs[key])
            for wish, key in zip(one.wishes, one.keys.values(), strict=True)
            if key in runs
        }
        found.append(Measured(one.line, one.place, one.at, there, one.scale, one.as_published))
    refuse_mixed_data(found)
    profile = str(plan[0].wishes[0].run.run.profile)
    return reproduction(asked.table, found, asked.scale, profile)


def _show(made: "Sequence[Reproduction]", style: str) -> None:
    from peerlearn.results.reproduced import render

    texts = [render(one, style) for one in made]
    if style == "json" and len(texts) > 1:
        print("[\n" + ",\n".join(texts) + "\n]")
    else:
        print("\n\n".join(texts))


def _keep(args: argparse.Namespace, found: "Reproduction") -> None:
    """Write it for the page, under a name of its own where something is unusual."""
    from peerlearn.records.reproduction import FOLDER, write_reproduction
    from peerlearn.results.reproduced import summary

    moved = [row.at_data for row in found.rows[:1] if row.at_data != row.data]
    other = ["other"] if any(row.scale != found.scale for row in found.rows) else []
    authors = [found.profile] if found.profile != "paper" else []
    name = "-".join([found.name, found.scale, *moved, *authors, *other])
    place = args.out / FOLDER / f"{name}.json"
    write_reproduction(place, found)
    print(
        f"{found.name}: {summary(found)}; in {printable(str(place))}, and on the page of "
        f"peerlearn report {printable(str(args.out))}",
        file=sys.stderr,
    )
