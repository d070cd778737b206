"""Every python block of the documents runs: the blocks of a page in order, in one namespace.

A block that opens with ```python no-run is left out. The site has every page, and every public
name with a docstring that says what it takes and shows how it is used.
"""

import inspect
import re
import runpy
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_house import FLOORS

import peerlearn
from peerlearn import METHODS, augment, memory, metrics, stream
from peerlearn.config.names import REGISTRIES
from peerlearn.data import DATASETS
from peerlearn.distill import WRAPPERS
from peerlearn.settings import Settings, settings_of

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    """The blocks of a page, each moved down to its line there, so that errors point to it."""
    text = page.read_text()
    found = BLOCK.finditer(text)
    return ["\n" * text[: match.start(1)].count("\n") + match[1] for match in found]


PAGES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if blocks(p)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_this_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes goes there
    namespace = {"__name__": "example"}
    with ExitStack() as stack:
        for registry in REGISTRIES:  # what a page adds ends with it
            stack.enter_context(registry.unchanged())
        for source in blocks(page):
            exec(compile(source, str(page), "exec"), namespace)


TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]  # docs_site.py
TOP_FILES = [ROOT / name for name in ("LICENSE", "NOTICE", "CITATION.cff")]


@pytest.mark.parametrize("page", [*TOP, *sorted((ROOT / "docs").rglob("*.md"))], ids=str)
def test_every_link_of_a_page_leads_somewhere_here_and_on_the_site(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    targets = {link: (page.parent / link).resolve() for link in links if "://" not in link}
    assert not [link for link, target in targets.items() if not target.exists()]
    there = [*TOP, *TOP_FILES] if page in TOP else []
    inside = [*(ROOT / "docs").rglob("*.*"), *there]
    assert not [link for link, target in targets.items() if target not in inside]


ENDLESS = ("03_service.py",)  # has a test of its own
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name not in ENDLESS)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.name)
def test_this_example_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))


def test_every_method_has_a_page() -> None:
    pages = {page.stem for page in (ROOT / "docs/methods").glob("*.md")}
    assert pages >= {*METHODS, "ccldc", "README"}


def test_a_block_marked_no_run_is_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python no-run\n1 / 0\n```\n\n```python\nx = 1\n```\n")
    assert [source.strip() for source in blocks(page)] == ["x = 1"]
    assert blocks(page)[0].count("\n") == 8


def pages_of(nav: list[Any]) -> list[str]:
    """The files that a navigation names, those of its branches included."""
    targets = [target for entry in nav for target in entry.values()]
    leaves = [[t] if isinstance(t, str) else pages_of(t) for t in targets]
    return [page for some in leaves for page in some]


def test_the_site_has_every_page_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    docs = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    from_the_top = ["index.md", *(page.name for page in TOP[1:])]
    assert sorted(pages_of(site["nav"])) == sorted([*map(Path.as_posix, docs), *from_the_top])


def test_the_site_asks_no_other_server_for_anything() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert site["theme"]["highlightjs"] is False
    assert "//" not in (ROOT / "docs/site.css").read_text(encoding="utf-8")


def test_contributors_are_shown_the_layout_that_is_tested() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    layout = text.partition("## Package layout")[2]
    shown = re.findall(r"^ {4}(\w+(?: \w+)*) {2,}", layout, re.MULTILINE)
    assert [floor.split() for floor in shown] == FLOORS[:-1]  # without __main__


# ---- the reference ----

REFERENCE = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
WITHOUT_EXAMPLE = {
    "UserError": "raised for the user, not by her",
    "Network": "a protocol; WithHead keeps it",
    "Stream": "a protocol; ClassStream keeps it",
    "Task": "a protocol, likewise",
    "TeacherSettings": "empty",
    "setting": "Settings shows it",
    "about": "a page shows it, add-a-method.md",
    "image_folder": "reads files",
    "huggingface": "needs the extra hf",
}


def thing(path: str) -> Any:
    """What a dotted name of the reference stands for; attributes may be imported at first use."""
    module, _, name = path.rpartition(".")
    return getattr(__import__(module, fromlist=[name]), name)


def arguments(cls: type) -> set[str]:
    """The names of what a class takes: settings, fields, or what its constructor lists."""
    model = settings_of(cls) if hasattr(cls, "Settings") else cls
    fields = {*model.model_fields} if issubclass(model, Settings) else set()
    stated = inspect.signature(cls).parameters.values()
    return fields | {p.name for p in stated if p.kind is not p.VAR_KEYWORD}


def stated_arguments(cls: type) -> set[str]:
    """The names in the sections Args of a class, of those that it extends, of their settings."""
    settings = getattr(cls, "Settings", cls)
    texts = [inspect.cleandoc(base.__doc__ or "") for base in (*cls.__mro__, *settings.__mro__)]
    sections = [re.findall(r"^Args:\n((?:    .*\n?)+)", text, re.MULTILINE) for text in texts]
    found = [re.findall(r"^    (\w+):", one, re.MULTILINE) for some in sections for one in some]
    return {name for names in found for name in names}


def test_the_reference_has_every_public_name() -> None:
    found = {id(thing(path)) for path in REFERENCE}
    packages = (peerlearn, augment, memory, metrics, stream)
    public = [getattr(package, name) for package in packages for name in package.__all__]
    public += [cls for kind in REGISTRIES if kind is not DATASETS for cls in kind.values()]
    public += [kind.base_class for kind in REGISTRIES[:-1] if kind.kind != "network"]
    described = [one for one in public if inspect.isclass(one) or inspect.isfunction(one)]
    assert not {one.__name__ for one in described if id(one) not in found} - {
        "BatchTask", "ImageTask", "UnknownLengthError",  # handed out, not made
    }  # fmt: skip


@pytest.mark.parametrize("path", REFERENCE)
def test_this_name_says_what_it_takes_and_shows_how_it_is_used(path: str) -> None:
    one = thing(path)
    assert one.__doc__
    if one.__name__ in WITHOUT_EXAMPLE:
        return
    assert re.search("^ *>>> ", one.__doc__, re.MULTILINE), f"{path} shows no example"
    unsaid = arguments(one) - stated_arguments(one) if inspect.isclass(one) else set()
    assert not unsaid, f"{path} does not say what these are: {unsaid}"


OWN = ("finetune", "joint")  # references, which no paper brought up
METHODS_OF_PAPERS = [method for name, method in METHODS.items() if name not in OWN]
PUBLISHED = [*METHODS_OF_PAPERS, *WRAPPERS.values(), *memory.MEMORIES.values()]


@pytest.mark.parametrize("cls", PUBLISHED, ids=lambda cls: cls.name)
def test_this_part_links_its_paper(cls: type) -> None:
    assert re.search(r"https://\S+\w", cls.__doc__ or "")
