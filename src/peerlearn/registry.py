"""Names and what they stand for: ours, those of installed packages, those of plug-in files."""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, NamedTuple, TypeVar

from peerlearn.errors import UnknownNameError, UserError, did_you_mean

T = TypeVar("T")
PROGRAM = "given by the program"  # origin of what is added without a file or package


class Entry(NamedTuple):
    """Where a name leads."""

    target: str  # module:attribute
    origin: str  # "" for ours; else the package and its version, or the file and its digest


class Registry(Mapping[str, T], Generic[T]):
    """What can be named in a command, by kind.

    Our own entries are the classes in the modules of `home` that state a `name`, and the functions
    under a decorator that is called as the kind is; they are found by reading the sources, so that
    a listing imports nothing. Packages of others add theirs by an entry point of the group
    `peerlearn.methods` and so on, single files through `load_plugin`.
    """

    def __init__(self, kind: str, home: str, base: str | None, *, functions: bool = False) -> None:
        """Look in the package or module `home` for subclasses of `base` (module:attribute).

        base: None where all of this kind are functions. functions: whether a function may stand
        for a class.
        """
        self.kind, self.home, self.base = kind, home, base
        self.functions = functions or base is None
        self.group = f"peerlearn.{kind.removesuffix('y')}{'ies' if kind[-1] == 'y' else 's'}"
        self._added: dict[str, Entry] = {}
        self._objects: dict[str, T] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def __contains__(self, name: object) -> bool:
        return name in self._entries()

    def __getitem__(self, name: str) -> T:
        """What a name stands for: a known one, `package.module:name` or `path/to/file.py:name`."""
        if name not in self._objects:
            self._objects[name] = self._load(name)
        return self._objects[name]

    def add(self, thing: T, name: str | None = None, origin: str = PROGRAM) -> T:
        """Make a class or function known under its `name`, or the one given; returns it."""
        name = name or str(getattr(thing, "name", "") or getattr(thing, "__name__", ""))
        place = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', name)}"
        new, known = Entry(place, origin), self._entries().get(name)
        if known and not _replaces(new, known):
            owner = known.origin or "Peerlearn itself"
            raise UserError(
                f"{origin}: there is a {self.kind} {name!r} already, of {owner}; take another name"
            )
        self._added[name], self._objects[name] = new, thing
        return thing

    def canonical(self, name: str) -> str:
        """The name by which a thing is recorded: its own, also where its place was given."""
        if name in self._entries():
            return name
        thing, (place, _, attribute) = self[name], name.rpartition(":")
        own = getattr(thing, "name", None)
        if isinstance(own, str):
            return own
        return f"{Path(place).name}:{attribute}" if place.endswith(".py") else name

    def known(self, name: str) -> str:
        """As `canonical`, but refuses what would have to be loaded from its place first."""
        if name in self._objects:
            return self.canonical(name)
        self.origin(name)  # says which is nearest
        return name

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What is added inside is forgotten outside; for tests and notebooks."""
        added, objects = dict(self._added), dict(self._objects)
        try:
            yield
        finally:
            self._added, self._objects = added, objects

    def origin(self, name: str) -> str:
        """Whose it is: "" for ours, else a package and its version, or a file and its digest."""
        entries = self._entries()
        if name not in entries:
            problem = f"there is no {self.kind} {name!r:.60}"
            raise UnknownNameError(did_you_mean(problem, name, entries, "peerlearn list"))
        return entries[name].origin

    @property
    def base_class(self) -> type | None:
        """What every class of this kind extends; None where all are functions."""
        if self.base is None:
            return None
        module, _, attribute = self.base.partition(":")
        found: type = getattr(import_module(module), attribute)
        return found

    def summary(self, name: str) -> str:
        """The first line of what its docstring says, read from its source."""
        if name in self._objects:
            text = getattr(self._objects[name], "__doc__", None) or ""
        else:
            module, _, attribute = self._entries()[name].target.partition(":")
            classes = _definitions(module)
            node = classes.get(attribute)
            text = (ast.get_docstring(node) if node else None) or ""
        return text.splitlines()[0] if text else ""

    def _entries(self) -> dict[str, Entry]:
        return {**_of_home(self.home, self.kind), **_of_packages(self.group), **self._added}

    def _load(self, name: str) -> T:
        entries = self._entries()
        if name not in entries and ":" in name:
            return self._load_from(name)
        owner = self.origin(name)
        target = entries[name].target
        if owner and name in _of_home(self.home, self.kind):
            raise UserError(f"{owner} calls a {self.kind} {name!r}, as one of ours is; rename it")
        module, _, attribute = target.partition(":")
        try:
            found: T = self._fitting(getattr(import_module(module), attribute), target)
        except (ImportError, AttributeError) as error:
            if not owner:
                raise
            raise UserError(f"{owner}: {self.kind} {name!r} cannot be loaded ({error})") from error
        if owner and getattr(found, "name", name) != name:
            raise UserError(
                f"{owner}: the entry point {name!r} leads to a {self.kind} that calls itself "
                f"{getattr(found, 'name', '')!r}; give both the same name"
            )
        return found

    def _load_from(self, target: str) -> T:
        """Load what is named by its place, and know it by its name from now on."""
        place, _, attribute = target.rpartition(":")
        try:
            module = load_file(Path(place)) if place.endswith(".py") else import_module(place)
        except (ImportError, ValueError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"{self.kind} {target!r}: cannot be loaded ({error}); write package.module:name of "
                "what is installed, or path/to/file.py:name"
            ) from error
        if not hasattr(module, attribute):
            known = [key for key in vars(module) if not key.startswith("_")]
            raise UserError(did_you_mean(f"{place} has no {attribute!r}", attribute, known))
        found: T = self._fitting(getattr(module, attribute), target)
        self._objects[target] = found
        file = getattr(module, "__file__", None)
        origin = _mark(Path(file)) if file and Path(file).is_file() else place
        return self.add(found, name=self.canonical(target), origin=origin)

    def _fitting(self, thing: Any, target: str) -> Any:
        base = self.base_class
        if base and isinstance(thing, type) and issubclass(thing, base):
            return thing
        if self.functions and callable(thing) and (base or not isinstance(thing, type)):
            return thing
        must = f"a class that extends {base.__name__}" if base else "a function"
        raise UserError(f"{target}: is no {self.kind}; it must be {must}")


def load_plugin(
    path: Path, registries: Iterable[Registry[Any]], *, required: bool = True
) -> list[str]:
    """Run a file and make known what in it has a `name`; returns which, such as "method pcr".

    A class belongs to the first registry whose base it extends, a function to the one whose
    decorator it has, such as `@augmentation`. required: that there is one.
    """
    module, mark, registries = load_file(path), _mark(path), list(registries)
    added = []
    for thing in list(vars(module).values()):
        if not isinstance(thing, type | FunctionType) or thing.__module__ != module.__name__:
            continue
        if not isinstance(name := thing.__dict__.get("name"), str):
            continue
        for registry in registries:
            if _belongs(thing, registry):
                registry.add(thing, origin=mark)
                added.append(f"{registry.kind} {name}")
                break
    if required and not added:
        raise UserError(
            f"--plugin {path}: holds nothing to add; give a class of yours a `name`, such as "
            'name = "mine", and let it extend what it is: Method, Wrapper, torch.nn.Module, ...; '
            "a function that augments is marked by @augmentation"
        )
    return added


def _belongs(thing: Any, registry: Registry[Any]) -> bool:
    base = registry.base_class
    if isinstance(thing, type):
        return base is not None and issubclass(thing, base)
    return bool(thing.__dict__.get("kind") == registry.kind)


def load_file(path: Path) -> Any:
    """Run a Python file as a module, once per content."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise UserError(f"{path}: is not a plain file; name a Python file")
        mark = _mark(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a Python file") from error
    name = f"peerlearn_plugin_{path.stem}_{mark.rpartition(' ')[2]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise UserError(f"{path}: fails when it is run ({why}); put that right") from error
    return module


def _replaces(new: Entry, known: Entry) -> bool:
    """Whether a thing may take a name that is taken: the same one, or a later state of its file."""
    same_owner = new.origin == known.origin == PROGRAM
    same_file = bool(known.origin) and new.origin.split()[0] == known.origin.split()[0]
    return same_owner or (same_file and _class(new) == _class(known))


def _class(entry: Entry) -> str:
    return entry.target.partition(":")[2]


def _mark(path: Path) -> str:
    """A file and its content in a few characters."""
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


@cache
def _of_home(home: str, kind: str) -> dict[str, Entry]:
    """What states a name, by name, in the modules of a package or in one module."""
    found = {}
    for module in _modules(home):
        for attribute, node in _definitions(module).items():
            name = _stated_name(node, kind)
            if name is not None:
                found[name] = Entry(f"{module}:{attribute}", "")
    return found


def _modules(home: str) -> list[str]:
    spec = _spec(home)
    if spec is None or spec.submodule_search_locations is None:
        return [home]
    folder = Path(spec.submodule_search_locations[0])
    return [f"{home}.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem[0] != "_"]


@cache
def _definitions(module: str) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    """The classes and functions of a module, read from its source."""
    spec = _spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return {}
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None


def _stated_name(node: ast.ClassDef | ast.FunctionDef, kind: str) -> str | None:
    if isinstance(node, ast.FunctionDef):
        marked = any(isinstance(d, ast.Name) and d.id == kind for d in node.decorator_list)
        return node.name if marked else None
    for line in node.body:
        match line:
            case (
                ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant(value=str(text)))
                | ast.AnnAssign(target=ast.Name(id="name"), value=ast.Constant(value=str(text)))
            ):
                return text
    return None


@cache
def _of_packages(group: str) -> dict[str, Entry]:
    found = {}
    for point in entry_points(group=group):
        owner = f"{point.dist.name} {point.dist.version}" if point.dist else point.module
        found[point.name] = Entry(point.value, owner)
    return found
