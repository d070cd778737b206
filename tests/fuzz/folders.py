"""Mutated run folders and configuration files: whatever is in them, they are read or refused."""

import json
import os
import random
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from fabricate import fabricate

from peerlearn.cli.run import plan
from peerlearn.errors import UserError
from peerlearn.experiment.identity import reconcile
from peerlearn.experiment.progress import Console
from peerlearn.experiment.resolve import Given, Resolved, resolve
from peerlearn.experiment.run import _Run
from peerlearn.files import from_json, read_text
from peerlearn.records.folder import RunFolder
from peerlearn.records.read import read_runs
from peerlearn.report import render as page
from peerlearn.results.formats import STYLES
from peerlearn.results.formats import render as table

PAGES = 20  # one case in so many draws the page as well
LONGEST = 6000  # letters of a message
Tree = Any
NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 2**31, 2**53 + 1, 2**63, -(2**63), 10**18, 10**99, 10**299,
    10**400, -(10**400), 0.5, -0.5, 1.0, 1e15, 1e99, 1e101, 1e308, -1e308, 5e-324, float("nan"),
    float("inf"), -float("inf"), "", " ", "0", "1", "nan", "null", "er", "er+ccldc", "mini", "+",
    "../..", "/", ".", "~", "~nosuchuser", "\0", "a\nb", "\x1b[2J", "\ud800", "\u202e", "<b>", "|",
    "a" * 300, "b" * 20_000, [], [[]], [None], [1, 2], [0.5, 0.5, 0.5], ["a", ["b", ["c"]]], {},
    {"": None}, {"a": {"b": {"c": 1}}}, {"1": [{}]}, [[0.1], [0.2, 0.3]], [[0.1, None], [0.2]],
    [[[[[[[[[[1]]]]]]]]]], "pixels-", "done", "running", "failed", "2001-01-01", "file", "preset",
]  # fmt: skip
YAML = [  # what only YAML knows
    "2001-01-01", "2001-01-01 01:02:03", "0o17", "1_000", "0x1F", "1:30", ".inf", ".nan", "~",
    "!!binary aGk=", "!!set {a, b}", "!!omap [a: 1]", "!!timestamp 2001-01-01", "!!float abc",
    "!!int x", "!!str 5", "!!python/object/apply:os.getcwd []", "!own 5", "? a\n: b", "<<: {a: 1}",
    "&a [*a]", "&a {b: *a}", "*nowhere", "{? [1, 2] : 3}", "{? {a: b} : 3}", "'", '"', "%YAML 9.9",
    "- - - - -", "[" * 60, "{a: " * 60, "--- a\n--- b", "\ufeff", "\t", "|2\n  a", "!!null x",
    "&a [x, x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(3)), "9" * 5000,
    "&a [x]\n" + "".join(f"k{i}: &k{i} [{'*a, ' * 9}*a]\n" for i in range(9)).replace("*a", "*a"),
]  # fmt: skip


# What is mutated


class Template:
    """Two runs, by the names of their files; the same for every case."""

    def __init__(self) -> None:
        place = Path(tempfile.mkdtemp(prefix="peerlearn-fuzz-"))
        try:
            for method in ("er", "er+ccldc"):
                fabricate(place, method, tasks=2, classes=4, memory=8)
            self.files = {
                str(path.relative_to(place)): path.read_bytes()
                for path in sorted(place.rglob("*"))
                if path.is_file()
            }
        finally:
            shutil.rmtree(place)
        folders = list(dict.fromkeys(os.path.dirname(name) for name in self.files))
        for folder in folders:
            self.files[f"{folder}/checkpoint/state.json"] = json.dumps({"extra": EXTRA}).encode()
        self.trees = {name: self._tree(name) for name in self.files if "steps" not in name}
        self.folders = {"er": folders[0], "er+ccldc": folders[1]}

    def _tree(self, name: str) -> Tree:
        text = self.files[name].decode()
        return yaml.safe_load(text) if name.endswith(".yaml") else json.loads(text)


EXTRA = {
    "scores": {"ensemble": [[0.5, None], [0.25, 0.75]], "peers": [], "ncm": None},
    "memory_classes": [[4, 4, 0, 0], [2, 2, 2, 2]],
    "seconds": [1.5, 0.5],
    "peak": 1000,
    "log_bytes": 200,
}


@cache
def template() -> Template:
    return Template()


@cache
def resolved(method: str) -> Resolved:
    """Settings of a run that may lie in one of the folders."""
    given = {"tasks": 2, "memory": 8, "width": 16}
    return resolve(method, [Given(name, value, "flag", name) for name, value in given.items()])


# Mutations of trees and of texts


def mutated(tree: Tree, rng: random.Random) -> Tree:
    """A tree with one thing in it changed, at a place that is drawn level by level."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.12:
        return deepcopy(rng.choice(NASTY))
    keys: list[Any] = [*tree] if isinstance(tree, dict) else [*range(len(tree))]
    key = rng.choice(keys)
    deed = rng.random()
    if deed < 0.5:
        tree[key] = mutated(tree[key], rng)
    elif deed < 0.65:
        tree[key] = deepcopy(rng.choice(NASTY))
    elif deed < 0.75:
        del tree[key]
    elif isinstance(tree, list):
        tree.insert(rng.randrange(len(tree) + 1), deepcopy(tree[rng.choice(keys)]))
    elif deed < 0.85:
        tree[_name(rng, keys)] = tree[rng.choice(keys)]
    else:
        tree[rng.choice(keys)], tree[key] = tree[key], tree[rng.choice(keys)]
    return tree


def _name(rng: random.Random, keys: list[Any]) -> str:
    strange = [text for text in NASTY if isinstance(text, str)]
    return str(rng.choice([*strange, f"{rng.choice(keys)}.x", "AA", "peers", "schema", "data"]))


def spoilt(text: bytes, rng: random.Random) -> bytes:
    """A text with some of its bytes changed, cut, doubled or put in."""
    at, to = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    junk = rng.choice([
        rng.randbytes(3), b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"}", b"]", b"{", b"[", b'"', b":",
        b"-", b"\n", b"\r", b"\t", b"\xe2\x80\xa8", b"9" * 400, b"1e999", b"NaN", b"[" * 40,
        b"[" * 5000, b'{"a":' * 5000, b"null", b"&a *a", b"<<: *a\n",
        rng.choice(YAML).encode(errors="surrogatepass"),
    ])  # fmt: skip
    deed = rng.randrange(6)
    if deed == 0:
        return text[:at]
    if deed == 1:
        return text[:at] + text[to:]
    if deed == 2:
        return text[:to] + text[at:to] * rng.choice((1, 1, 40)) + text[to:]
    if deed == 3 and text:
        place = min(at, len(text) - 1)
        changed = bytes([text[place] ^ (1 << rng.randrange(8))])
        return text[:place] + changed + text[place + 1 :]
    if deed == 4:
        return text[:at] + junk + text[to:]
    return text[:at] + junk + text[at:]


def written(tree: Tree, rng: random.Random, *, as_yaml: bool) -> bytes:
    """A tree as a file; YAML holds JSON, and tricks of its own."""
    if not as_yaml:
        return json.dumps(tree).encode()
    if rng.random() < 0.5:
        try:
            text = yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False)
        except (yaml.YAMLError, UnicodeEncodeError):
            text = json.dumps(tree)
    else:
        text = json.dumps(tree)
    if rng.random() < 0.4:
        lines = text.split("\n") if "\n" in text[:-1] else text.split(", ")
        place, trick = rng.randrange(len(lines)), rng.choice(YAML)
        head = lines[place].partition(":")[0]
        lines[place] = rng.choice([f"{head}: {trick}", trick, f"{lines[place]}\n{trick}"])
        text = ("\n" if "\n" in text[:-1] else ", ").join(lines)
    return text.encode(errors="surrogatepass")


def mutated_file(name: str, rng: random.Random) -> bytes:
    whole, tree = template().files[name], template().trees.get(name)
    if tree is None or rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 2, 3))):
            whole = spoilt(whole, rng)
        return whole
    tree = deepcopy(tree)
    if name.endswith("state.json"):
        tree["extra"] = mutated(tree["extra"], rng)
    else:
        for _ in range(rng.choice((1, 1, 2, 3))):
            tree = mutated(tree, rng)
    return written(tree, rng, as_yaml=name.endswith(".yaml"))


def put_aside(path: Path, rng: random.Random) -> None:
    """Put in place of a file what is none."""
    path.unlink()
    deed = rng.randrange(6)
    if deed == 0:
        os.mkfifo(path)
    elif deed == 1:
        path.mkdir()
    elif deed == 2:
        path.symlink_to(path.name)
    elif deed == 3:
        path.symlink_to("/dev/zero")
    elif deed == 4:
        path.symlink_to("nowhere")


# What is done with them


def case(seed: int, folder: Path) -> str:
    """Write mutated files into `folder` and hand them to the program: "read" or "refused"."""
    rng = random.Random(seed)
    name, act = (write_config(folder, rng) if rng.random() < 0.25 else write_runs(folder, rng))
    before = content_of(folder)
    try:
        act()
        outcome = "read"
    except UserError as error:
        text = str(error).replace(str(folder), "")
        if len(text.splitlines()) != 1 or "\x1b" in text or len(text) > LONGEST:
            raise AssertionError(f"{name}: no line for a person: {text!r:.300}") from error
        outcome = "refused"
    if content_of(folder) != before:
        raise AssertionError(f"{name}: reading changed a file")
    return outcome


def write_runs(folder: Path, rng: random.Random) -> tuple[str, Callable[[], None]]:
    """One or two runs, one file or more of them mutated."""
    whole, methods = template(), rng.choice((["er"], ["er+ccldc"], ["er", "er+ccldc"]))
    names = [n for n in whole.files if any(f"/{method}/" in n for method in methods)]
    chosen = {rng.choice(names) for _ in range(rng.choice((1, 1, 1, 2, 3)))}
    for method in methods:
        (folder / whole.folders[method] / "checkpoint").mkdir(parents=True)
    for name in names:
        content = mutated_file(name, rng) if name in chosen else whole.files[name]
        (folder / name).write_bytes(content)
    if rng.random() < 0.05:
        put_aside(folder / rng.choice(names), rng)
    method, style, draw = rng.choice(methods), rng.choice(STYLES), rng.randrange(PAGES) == 0
    place = folder / whole.folders[method]
    if rng.random() < 0.3:
        return "runs", lambda: go_on(place, method)

    def show() -> None:
        runs = read_runs(folder)
        text = table(runs, style)
        if style == "text" and text.count("\n") > 40:
            raise AssertionError("a row is more than a line")
        for run in runs:  # what a table does not open
            _ = run.accuracy, run.environment, run.memory_classes
        if draw:
            page(runs)

    return "runs", show


def go_on(place: Path, method: str) -> None:
    """What `peerlearn run` does with a folder before it changes anything."""
    run = RunFolder(place)
    config = reconcile(run, resolved(method))
    run.finished(tasks=2)
    run.truncate_log = lambda _: None  # type: ignore[method-assign]
    info = SimpleNamespace(num_classes=4)
    learner: Any = SimpleNamespace(
        peers=[None],
        sources=("peers",),
        predict_with="peers",
        progress=SimpleNamespace(batches=4),
        method=SimpleNamespace(stream=info),
        load=extra_of_checkpoint,
    )
    stream: Any = SimpleNamespace(tasks=[range(2), range(2)], info=info, test_sets=[])
    lease: Any = SimpleNamespace()
    _Run(config, run, stream, learner, Console(), "", lease)._restore()


def extra_of_checkpoint(folder: Path) -> Any:
    """What a learner gives back that has loaded a checkpoint; it looks at all but the extra."""
    try:
        return from_json(read_text(folder / "state.json"))["extra"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"refused by the learner: {type(error).__name__}") from error


def write_config(folder: Path, rng: random.Random) -> tuple[str, Callable[[], None]]:
    """A file for `peerlearn run er --config`, which is not run."""
    name = f"{template().folders['er+ccldc']}/config.yaml"
    path = folder / "my.yaml"
    if rng.random() < 0.5:
        path.write_bytes(mutated_file(name, rng))
    else:
        own = {"lr": 0.01, "memory": 100, "net": {"name": "small", "width": 4}, "stream.tasks": 2}
        path.write_bytes(written(mutated(own, rng), rng, as_yaml=True))
    if rng.random() < 0.02:
        put_aside(path, rng)
    methods = rng.choice((["er"], ["er+ccldc", "derpp"], []))
    args = Namespace(preset=None, config=path, methods=methods, given=[], seeds=None)
    return "config", lambda: [run.data for run in plan(args, ())] and None


def content_of(folder: Path) -> dict[str, bytes | int]:
    """Every file below a folder; of what is no plain file, what kind of thing it is."""
    found: dict[str, bytes | int] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            kind = os.lstat(path).st_mode
            if kind & 0o170000 == 0o100000:
                with open(path, "rb") as file:
                    found[path] = file.read()
            else:
                found[path] = kind
    return found
