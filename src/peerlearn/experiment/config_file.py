"""Settings from a YAML file."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from peerlearn.errors import UserError
from peerlearn.experiment.resolve import ALIASES, Given
from peerlearn.files import Unreadable, read_text
from peerlearn.safe_yaml import MOST_YAML_BYTES, value_of, yaml_node
from peerlearn.settings import OLD_NAMES, flatten, old_name_note


def read_file(path: Path) -> list[Given]:
    """Settings from a YAML file, nested or with dotted names; a run's config.yaml will do."""
    content, lines = read_mapping(path)
    origins = content.get("origins")
    if isinstance(content.get("settings"), dict):  # the record of a run
        content = content["settings"]
        lines = {key.removeprefix("settings."): line for key, line in lines.items()}
    else:
        note_old_names(flatten(content), lambda key: f"{path}, line {lines.get(key, 1)}")
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


def note_old_names(settings: Mapping[str, Any], where: Callable[[str], str]) -> None:
    """Say in one line each what settings of a file are called now; the old names still work.

    where: tells the place of a key. A setting under its old and its present name is refused.
    """
    for name, value in settings.items():
        present = OLD_NAMES.get(name, name)
        if present != name and present in settings:
            raise UserError(f"{where(name)}: {name} is {present}, which is there too; say it once")
        if note := old_name_note(name, value, "{}: {}".format):
            print(f"peerlearn: {where(name)}: {note}", file=sys.stderr)


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
