"""What the commands share: errors in one line, settings by their names, plug-ins."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from typing_extensions import override

from peerlearn.errors import UserError, did_you_mean
from peerlearn.files import user_path
from peerlearn.settings import old_name_note

if TYPE_CHECKING:
    from peerlearn.records.read import RunRecord

SWITCHES = ("--compile", "--realtime", "--realtime-store")  # settings that may stand alone
Commands = Any  # what argparse makes of add_subparsers()


class Flag(NamedTuple):
    """A setting as it was typed."""

    name: str
    value: str


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and sets aside what may be a setting of some part."""

    takes_settings = False

    @override
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")

    @override
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            problem = f"there is no {action.metavar or action.dest} {value!r:.60}"
            raise UserError(did_you_mean(problem, str(value), action.choices))

    def split(self, words: Sequence[str]) -> tuple[list[str], list[Flag]]:
        """The words that the parser knows, and the settings among them: `--name value`.

        Which settings there are depends on the method and on plug-ins, so they are looked at later.
        """
        command = self._commands().get(words[0]) if words else None
        if command is None or not command.takes_settings:
            return list(words), []
        rest, given, waiting = [words[0]], [], _switched(words[1:])
        for word in waiting:
            flag, equals, value = word.partition("=")
            action = command._option_string_actions.get(flag)
            if not word.startswith("--") or action is not None:
                rest.append(word)
                if action is not None and action.nargs != 0 and not equals:
                    rest += [text for text in [next(waiting, None)] if text is not None]
                continue
            if not equals:
                value = next(waiting, "--")
            if value.startswith("--"):
                raise UserError(f"{flag}: needs a value after it; see {command.prog} --help")
            given.append(Flag(flag[2:], value))
            _note_old_name(*given[-1])
        return rest, given

    def _commands(self) -> dict[str, "Parser"]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}


def _note_old_name(name: str, value: str) -> None:
    """Say in one line what a setting is called now; the old name still works."""
    note = old_name_note(
        name.replace("-", "_"), value, lambda name, value: f"--{name.replace('_', '-')} {value}"
    )
    if note:
        print(f"peerlearn: {note}", file=sys.stderr)


def _switched(words: Sequence[str]) -> Iterator[str]:
    """The words, with switches on that stand without a value."""
    for word, after in zip(words, [*words[1:], "--"], strict=False):
        yield f"{word}=true" if word in SWITCHES and after.startswith("--") else word


def add_command(commands: Commands, name: str, about: str, act: Any, **options: Any) -> Parser:
    """A command with what it does, its description and the function that does it."""
    made: Parser = commands.add_parser(
        name, help=about, description=about, allow_abbrev=False, **options
    )
    made.set_defaults(act=act)
    return made


def path(typed: str) -> Path:
    """A file or a folder on the command line."""
    try:
        return user_path(typed)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_plugins(parser: Parser) -> None:
    """The flag for files of others."""
    parser.add_argument(
        "--plugin",
        dest="plugins",
        metavar="FILE.py",
        type=path,
        action="append",
        default=[],
        help="a file with methods, wrappers, networks, ... of yours; may be given again",
    )


def add_runs(parser: Parser) -> None:
    """The arguments of commands that show runs."""
    parser.add_argument(
        "runs",
        type=path,
        nargs="+",
        help="folders that `run --out` wrote, or files of `results export`",
    )
    parser.add_argument(
        "--answers",
        action="store_true",
        help="also AA by nearest class means, and what EMA copies and averages predict, as rows",
    )


def runs_of(args: argparse.Namespace) -> "list[RunRecord]":
    """The runs that were asked for."""
    from peerlearn.records.read import read_runs

    runs = read_runs(args.runs)
    return [one for run in runs for one in run.answered()] if args.answers else runs


def load_plugins(files: Iterable[Path], *, required: bool = True) -> None:
    """Make known what the files hold; if it is required, each must hold something."""
    files = list(files)
    if files:
        from peerlearn.config.names import REGISTRIES
        from peerlearn.registry import load_plugin

        for file in files:
            load_plugin(file, REGISTRIES, required=required)


def refuse_unknown(command: str, flag: str, options: Sequence[str]) -> NoReturn:
    """Say what is nearest to a flag that does not exist."""
    if not flag.startswith("-"):
        raise UserError(f"{command}: {flag!r} is not expected there; names come before flags")
    name, known = flag.split("=")[0], [option for option in options if option.startswith("--")]
    problem, listing = f"{command}: there is no {name:.60}", f"peerlearn {command} --help"
    raise UserError(did_you_mean(problem, name, known, listing))
