"""Documents on the disk: a mapping with a schema, read with suspicion and written whole."""

import json
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from peerlearn.errors import UserError
from peerlearn.files import Unreadable, from_json, read_text, replace_file
from peerlearn.records.schema import Record, without_nan
from peerlearn.safe_yaml import from_yaml

R = TypeVar("R", bound=Record)
Refuse = Callable[[Path, str], UserError]  # what to say of a file, and what to do next
BRIEF = reprlib.Repr()
BRIEF.maxstring = BRIEF.maxother = 60


def damaged(path: Path, what: str) -> UserError:
    """What to say of a file that cannot be taken."""
    return UserError(
        f"{path}: {what}; restore it, or delete {path.parent} "
        "and repeat its `peerlearn run` command"
    )


def read_document(path: Path, model: type[R], schema: int, most: int, refuse: Refuse) -> R:
    """What a file of at most so many bytes says, once every value of it has been looked at."""
    content = mapping_in(path, most, refuse=refuse)
    check_schema(path, content, (schema,), refuse)
    return checked(path, model, content, refuse)


def write_document(
    path: Path, record: Record, schema: int, *, indent: int | None = 1, new_folder: bool = False
) -> None:
    """Write a record as JSON; a crash at any moment leaves the old file whole.

    new_folder: whether its folder is made if it is not there.
    """
    try:
        if new_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, document(record, schema, indent) + "\n", shared=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(
            f"{path}: cannot be written ({why}); free space or rights there, then repeat the same "
            "command"
        ) from error


def document(record: Record, schema: int, indent: int | None = 1) -> str:
    """A record as JSON."""
    return json.dumps({"schema": schema, **without_nan(record.model_dump())}, indent=indent)


def mapping_in(
    path: Path, most: int, *, optional: bool = False, refuse: Refuse = damaged
) -> dict[str, Any]:
    """The mapping in a JSON or YAML file of at most so many bytes."""
    try:
        text = text_in(path, most, optional=optional, refuse=refuse)
        if text is None:
            return {}
        content = from_yaml(text) if path.suffix == ".yaml" else from_json(text)
    except UnicodeDecodeError:
        raise refuse(path, "the file is not text") from None
    except Unreadable as error:
        raise refuse(path, f"the file {error}") from None
    if not isinstance(content, dict):
        raise refuse(path, "the file holds no mapping")
    return {str(name): value for name, value in content.items()}


def text_in(path: Path, most: int, *, optional: bool, refuse: Refuse = damaged) -> str | None:
    """What a file holds; None for an optional one that is not there."""
    try:
        return read_text(path, most)
    except (FileNotFoundError, NotADirectoryError):
        if optional:
            return None
        raise MissingError(str(refuse(path, "the file is missing"))) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it readable") from None


def check_schema(
    path: Path, content: Mapping[str, Any], known: tuple[int, ...], refuse: Refuse = damaged
) -> None:
    """Refuse a file whose layout is not known here."""
    schema = content.get("schema")
    if isinstance(schema, int) and schema > max(known):
        newer = f"schema {brief(schema)} is newer than {max(known)}"
        raise UserError(f"{path}: {newer}; update peerlearn")
    if schema not in known:
        raise refuse(path, f"schema is {brief(schema)}, not {max(known)}")


def checked(path: Path, model: type[R], content: object, refuse: Refuse = damaged) -> R:
    """What a file holds, once every value has been looked at."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in fault["loc"] if part != "metrics") or "it"
        if fault["type"] == "value_error":
            raise refuse(path, str(fault["ctx"]["error"])) from None
        kinds = {"string": "a text", "int": "a whole number", "float": "a number"}
        kinds |= {"list": "a list", "dict": "a mapping", "model": "a mapping"}
        limits = {"greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}"}
        limits |= {"too_long": "at most {max_length} parts", "too_short": "{min_length} parts"}
        limits["literal_error"] = "one of {expected}"
        want = kinds.get(fault["type"].partition("_")[0], "what it should be")
        if fault["type"] in limits:
            want = limits[fault["type"]].format(**fault["ctx"])
            want = want.replace("'", "").replace(" or ", ", ")
        got = None if fault["type"] == "missing" else fault["input"]
        raise refuse(path, f"{name:.80} is {brief(got)}, not {want}") from None


def brief(value: object) -> str:
    """A value in a few characters, however large it is."""
    return f"{BRIEF.repr(value):.60}"


class MissingError(UserError):
    """A file that a run must have is not there."""
