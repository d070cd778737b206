"""Settings from a YAML file."""

from pathlib import Path
from typing import Any

import yaml

from peerlearn.errors import UserError
from peerlearn.experiment.resolve import ALIASES, Given
from peerlearn.settings import flatten


def read_file(path: Path) -> list[Given]:
    """Settings from a YAML file, nested or with dotted names; a run's config.yaml will do."""
    try:
        text = path.read_text(encoding="utf-8")
        node, content = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a YAML file") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        line = str(error).splitlines()[0]
        raise UserError(f"{path}: is not YAML ({line}); write `name: value` lines") from error
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}: must hold `name: value` lines")
    lines, origins = _lines(node), content.get("origins")
    if isinstance(content.get("settings"), dict):  # the record of a run
        content = content["settings"]
        lines = {key.removeprefix("settings."): line for key, line in lines.items()}
    origins = origins if isinstance(origins, dict) else {}
    return [
        Given(
            ALIASES.get(key, key),
            value,
            "file",
            f"{path}, line {lines.get(key, 1)}",
            usual=origins.get(key) in ("default", "preset"),
        )
        for key, value in _flat(content).items()
    ]


def _flat(content: dict[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in flatten(content).items()}


def _lines(node: yaml.MappingNode, prefix: str = "") -> dict[str, int]:
    found = {}
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        found[name] = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            found |= _lines(value, f"{name}.")
    return found
