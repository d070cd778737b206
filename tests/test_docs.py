"""Every python block of the documents runs: the blocks of a page in order, in one namespace.

A block that opens with ```python no-run is left out.
"""

import re
import runpy
from contextlib import ExitStack
from pathlib import Path

import pytest

from peerlearn import METHODS
from peerlearn.learner.build import REGISTRIES

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


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [x for x in links if "://" not in x and not (page.parent / x).exists()]
    assert not missing


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
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
