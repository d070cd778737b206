"""Package layout: which module may import which, and what stays without torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1] / "src" / "peerlearn"
FLOORS = [  # from the ground up; a floor imports those below it, never a neighbour
    ["errors"],
    ["files"],
    ["units", "settings", "safe_yaml", "leases", "paper"],
    ["lazy", "registry", "runtime", "devices", "threads"],
    ["data"],
    ["stream"],
    ["augment", "losses", "memory", "nets", "optim"],
    ["peer"],
    ["methods"],
    ["distill"],
    ["config"],
    ["learner"],
    ["export"],
    ["checks"],
    ["metrics"],
    ["live"],
    ["adapters"],
    ["records"],
    ["experiment"],
    ["benchmark"],
    ["studies"],
    ["analysis"],
    ["results"],
    ["report"],
    ["cli"],
    ["__main__"],
]
HEIGHT = {name: floor for floor, names in enumerate(FLOORS) for name in names}
WITHOUT_TORCH = ("paper", "records", "results", "report", "cli")


def modules() -> list[str]:
    paths = [path.relative_to(HOME).with_suffix("") for path in sorted(HOME.rglob("*.py"))]
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


def imports(module: str) -> Iterator[str]:
    """Modules of the package that a module names, `if TYPE_CHECKING` and functions included."""
    path = HOME.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("peerlearn"):
            yield (node.module or "").removeprefix("peerlearn").lstrip(".")
        elif isinstance(node, ast.Import):
            yield from (
                name.name.removeprefix("peerlearn.")
                for name in node.names
                if name.name.startswith("peerlearn.")
            )


@pytest.mark.parametrize("module", [m for m in modules() if m != "__init__"])
def test_imports_point_down(module: str) -> None:
    own = module.partition(".")[0]
    for found in imports(module):
        other = found.partition(".")[0]
        if other and other != own:  # "" is the package itself: its version
            assert HEIGHT[other] < HEIGHT[own], f"{module} must not import {found}"


def test_every_part_of_the_package_has_its_floor() -> None:
    parts = {module.partition(".")[0] for module in modules()} - {"__init__"}
    assert parts == set(HEIGHT)


def test_an_upward_import_would_be_found() -> None:
    assert HEIGHT["learner"] > HEIGHT["distill"] > HEIGHT["methods"] > HEIGHT["peer"]
    assert "optim.optimizers" in imports("methods.interface")
    assert "learner.online" in imports("learner.checkpoint")  # under TYPE_CHECKING


def test_records_results_pages_and_the_command_come_without_torch() -> None:
    light = [m for m in modules() if m.partition(".")[0] in WITHOUT_TORCH]
    names = ", ".join(f"peerlearn.{module}" for module in light)
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nodes_of_a_cluster_and_status_do_without_torch() -> None:
    names = "peerlearn.studies.cluster, peerlearn.studies.picture, peerlearn.studies.state"
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
