"""What the site needs beyond docs/; `mkdocs build` calls both parts, see mkdocs.yml."""

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FILES = ("LICENSE", "NOTICE", "CITATION.cff")
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # up to the next empty line


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the repository; README.md is the site's first page.

    Their links into docs/ lose that prefix, since docs/ is the top of the site.
    """
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        page = "index.md" if name == "README.md" else name
        files.append(File.generated(config, page, content=text))
    for name in FILES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


class FencedExamples(griffe.Extension):  # type: ignore[misc]
    """Examples in docstrings as blocks of code; Markdown would take them for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change a docstring before it is rendered."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
