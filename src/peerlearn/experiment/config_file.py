"""Settings from a YAML file."""

from pathlib import Path
from typing import Any

import yaml

from peerlearn.documents import MOST_YAML_BYTES, Unreadable, read_text, value_of, yaml_node
from peerlearn.errors import UserError
from peerlearn.experiment.resolve import ALIASES, Given
from peerlearn.settings import flatten


def read_file(path: Path) -> list[Given]:
    """Settings from a YAML file, nested or with dotted names; a run's config.yaml will do."""
    content, lines = read_mapping(path)
    origins = content.get("origins")
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
        for key, value in flatten(content).items()
    ]


def read_mapping(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """What a YAML file holds, and the lines of its keys, by dotted names."""
    try:
        node = yaml_node(read_text(path, MOST_YAML_BYTES))
        content = value_of(node)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a YAML file") from error
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not text; name a YAML file") from None
    except Unreadable as error:
        raise UserError(f"{path}: {error}; write `name: value` lines") from None
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}: must hold `name: value` lines")
    return {str(key): value for key, value in content.items()}, _lines(node)


def _lines(node: yaml.MappingNode, prefix: str = "") -> dict[str, int]:
    found = {}
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        found[name] = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            found |= _lines(value, f"{name}.")
    return found
