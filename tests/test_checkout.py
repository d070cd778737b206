"""No test depends on where the project was cloned to, or on the name of that folder."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
OF_PATHS = ("filename", "__file__", "path", "folder", "cwd", "home", "root")
SEARCHES = {"find", "index", "count", "startswith", "endswith", "search", "match", "fullmatch"}


def names_the_project(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and "peerlearn" in part.value
        for part in ast.walk(node)
    )


def is_a_path(node: ast.AST) -> bool:
    return any(word in ast.unparse(node).lower() for word in OF_PATHS)


def looks_for_the_name(source: str) -> list[int]:
    """The lines on which a path is searched for the project's name."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if names_the_project(node.left) and is_a_path(node.comparators[0]):
                lines.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = node.func.attr in SEARCHES and any(map(names_the_project, node.args))
            searched = [node.func.value, *node.args]
            if found and any(is_a_path(own) for own in searched):
                lines.append(node.lineno)
    return lines


def test_no_test_searches_a_path_for_the_name_of_the_project() -> None:
    found = [
        f"{file.relative_to(TESTS)}:{line}"
        for file in sorted(TESTS.rglob("*.py"))
        for line in looks_for_the_name(file.read_text(encoding="utf-8"))
    ]
    assert not found, "compare with the folder of the imported package instead"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('if event == "line" and "peerlearn" in _frame.f_code.co_filename: pass', [1]),
        ('own = "/peerlearn/" not in str(path)', [1]),
        ('own = frame.f_code.co_filename.find("peerlearn")', [1]),
        ('own = re.search("peerlearn", module.__file__)', [1]),
        ('own = "peerlearn" in Path.cwd().parts', [1]),
        ('assert "peerlearn" not in sys.modules', []),
        ('own = name.startswith("peerlearn.")', []),
        ("own = file.startswith(PACKAGE)", []),
    ],
)
def test_a_search_for_the_name_is_found(source: str, lines: list[int]) -> None:
    assert looks_for_the_name(source) == lines
