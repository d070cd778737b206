"""The map from paper to code: what it names is there, and no part of the paper is left out."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from peerlearn.cli import _parser
from peerlearn.cli.reproduce import asked_of
from peerlearn.experiment.resolve import Given, resolve
from peerlearn.experiment.vocabulary import refuse_unused
from peerlearn.paper.scales import LITE
from peerlearn.paper.tables import EXAMPLE, TABLES
from peerlearn.records.reproduction import Verdict
from peerlearn.studies.reproduce import Asked, planned, wishes_of

ROOT = Path(__file__).parents[1]
CODE = ROOT / "src/peerlearn"
MAP = (ROOT / "docs/paper-to-code.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")

# in the order in which the paper and its supplement have them
EQUATIONS = ("LA", "FM of a task", "FM", "RF of a task", "RF", "AA", "for a task", "on means",
             "CCL", "DC", "the whole loss")  # fmt: skip
NUMBERED = (
    *(f"Eq. {n}" for n in range(1, len(EQUATIONS) + 1)),
    *(f"Table {n}" for n in range(1, 13)),
    *(f"Figure {n}" for n in range(1, 13)),
)
LINES = (  # of the pseudo-code
    "`model1`, `model2`", "`optim1`", "`cls`", "`for x, y in dataloader`", "`loss_baseline`",
    "`x1`", "`x2`, `x3`", "`ls`, `ls1`, `ls2`, `ls3`", "`lt`, `lt1`, `lt2`, `lt3`", "`loss_cls`",
    "`loss_ccl`", "`loss_dc`", "`loss_ours`", "`loss`", "`optim1.zero_grad()`", "`loss.backward()`",
    "`optim1.step()`",
)  # fmt: skip
BASELINES = ("ER", "DER++", "ER-ACE", "OCM", "GSA", "OnPro")

FILE = re.compile(r"`([\w/]+\.py|\w+/[\w/]+\.(?:json|yaml))`")
PLACE = re.compile(r"`([\w/]+\.py)`: (`[\w.]+`(?:, `[\w.]+`)*)")
COMMAND = re.compile(r"`(peerlearn [^`]+)`|^ {4}(peerlearn .+)$", re.MULTILINE)


def rows(page: str) -> list[list[str]]:
    """The cells of every row of every table, without heads."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def of(page: str, first: str) -> list[str]:
    """The one row that begins so."""
    found = [row for row in rows(page) if row[0] == first]
    assert len(found) == 1, f"{first}: {len(found)} rows"
    return found[0]


def places() -> list[tuple[str, str]]:
    """Every file that the map names, with each name beside it."""
    found = [(file, names.split(", ")) for file, names in PLACE.findall(MAP)]
    return sorted({(file, name.strip("`")) for file, names in found for name in names})


@cache
def defined(file: str) -> frozenset[str]:
    """What a file defines: functions, classes, constants; what is in a class, as Class.name."""
    return frozenset(_names(ast.parse((CODE / file).read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in _names(node.body))
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def commands() -> list[str]:
    found = [one or other for one, other in COMMAND.findall(MAP + "\n" + GUIDE)]
    return sorted({one.partition("  #")[0].strip() for one in found if "NAME" not in one})


# ---- where it is ----


def test_every_file_is_there_and_has_a_name_beside_it() -> None:
    named = FILE.findall(MAP)
    assert not [file for file in named if not (CODE / file).is_file()]
    scripts = [file for file in named if file.endswith(".py")]
    assert len(scripts) == len(PLACE.findall(MAP))


@pytest.mark.parametrize(("file", "name"), places(), ids=lambda part: part)
def test_this_name_is_defined_there(file: str, name: str) -> None:
    assert name in defined(file)


def test_no_line_number_is_given() -> None:
    assert not re.search(r"\.py`?[:#]L?\d|\blines? \d", MAP)


# ---- all of the paper ----


@pytest.mark.parametrize("part", [*NUMBERED, *LINES, *BASELINES])
def test_this_part_of_the_paper_has_a_row_with_its_place(part: str) -> None:
    row = of(MAP, part)
    assert len(row) >= 4
    assert PLACE.search(" ".join(row))
    assert row[-1]  # where it differs, or a dash


@pytest.mark.parametrize(("number", "what"), [*enumerate(EQUATIONS, start=1)])
def test_this_equation_is_the_one_of_that_number(number: int, what: str) -> None:
    assert of(MAP, f"Eq. {number}")[1].startswith(what)


@pytest.mark.parametrize("name", TABLES)
def test_this_table_stands_beside_the_command_that_makes_it(name: str) -> None:
    row = " ".join(of(MAP, TABLES[name].source))
    assert re.search(rf"`peerlearn reproduce {name}[ `]", row)
    assert TABLES[name].source in of(GUIDE, f"`{name}`")


def test_the_worked_example_does_too() -> None:
    assert f"`peerlearn reproduce {EXAMPLE}`" in " ".join(of(MAP, "Table 1"))
    assert "Table 1" in of(GUIDE, f"`{EXAMPLE}`")


# ---- commands ----


@pytest.mark.parametrize("command", commands())
def test_this_command_is_understood(command: str) -> None:
    parser = _parser()
    words, given = parser.split(shlex.split(command)[1:])
    args, unknown = parser.parse_known_args(words)
    assert not unknown
    args.given = given
    if args.command == "reproduce":
        for name in args.tables:
            assert name == EXAMPLE or planned(asked_of(args, name))
    if args.command in ("run", "tune"):
        methods = args.methods if args.command == "run" else [args.method]
        flags = [Given(flag.name, flag.value, "flag", f"--{flag.name}") for flag in given]
        runs = [resolve(method, flags) for method in methods]
        refuse_unused(runs)
        for run in runs:
            run.check()


@pytest.mark.parametrize("flags", sorted({*re.findall(r"`(--\w[^`]*)`", MAP)}))
def test_these_settings_are_understood(flags: str) -> None:
    _, given = _parser().split(["run", "er+ccldc", *shlex.split(flags)])
    run = resolve("er+ccldc", [Given(f.name, f.value, "flag", f"--{f.name}") for f in given])
    refuse_unused([run])
    run.check()


@pytest.mark.parametrize("name", sorted({*re.findall(r"`(\w+\+[\w-]+)`", MAP + GUIDE)}))
def test_this_method_exists(name: str) -> None:
    resolve(name, [])


def test_there_are_commands_of_every_kind() -> None:
    kinds = {command.split()[1] for command in commands() if " " in command}
    assert kinds >= {"run", "tune", "reproduce", "analyse", "results", "table"}


# ---- the guide ----


@pytest.mark.parametrize("name", TABLES)
def test_the_guide_counts_the_runs_of_this_table(name: str) -> None:
    plans = [planned(Asked(TABLES[name], scale)) for scale in ("paper", "lite")]
    counts = [len(plans[0]), *(len(wishes_of(plan)) for plan in plans)]
    assert of(GUIDE, f"`{name}`")[-3:] == [str(count) for count in counts]


def test_the_guide_counts_all_runs() -> None:
    for scale, said in (("paper", "1,910 runs at scale `paper`"), ("lite", "847 at `lite`")):
        plans = [one for table in TABLES.values() for one in planned(Asked(table, scale))]
        assert f"{len(wishes_of(plans)):,}" == said.split()[0]
        assert said in GUIDE


@pytest.mark.parametrize("data", LITE)
def test_the_guide_says_what_is_shortened_on_this_data_set(data: str) -> None:
    short = LITE[data]
    tasks, train, heavy, test, memories = of(GUIDE, f"`{data}`")[1:6]
    assert [int(n) for n in (train, heavy, test)] == [short.train, short.heavy, short.test]
    assert memories == ", ".join(f"{ours} for {theirs}" for theirs, ours in short.memories.items())
    run = resolve("er", [Given("data", data, "flag", "--data")])
    usual = run.values["stream.tasks"]
    assert tasks == f"{short.settings.get('stream.tasks', usual)} of {usual}"


@pytest.mark.parametrize("verdict", [word for word in get_args(Verdict) if word])
def test_the_guide_explains_this_verdict(verdict: str) -> None:
    assert any(f"`{verdict}`" in row[0] for row in rows(GUIDE))
