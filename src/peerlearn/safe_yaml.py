"""YAML that others may have written: bounded before it is believed."""

import re
from contextlib import suppress
from typing import Any

import yaml

from peerlearn.files import DEEPEST, Unreadable, check_bounds

MOST_YAML_BYTES = 1 << 16  # YAML is read slowly
MOST_YAML_NODES = 10_000  # aliases followed
MOST_BRACKETS = 100  # open at once: for thousands the reader of YAML takes seconds
# where PyYAML was built with its C library
_FAST: "type[yaml.CSafeLoader] | None" = getattr(yaml, "CSafeLoader", None)
# what its constructors raise for tags that promise too much, such as !!timestamp x
_TRIPS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
          ValueError)  # fmt: skip


def from_yaml(text: str) -> Any:
    """The value of a YAML text."""
    return value_of(yaml_node(text))


def yaml_node(text: str) -> yaml.Node:
    """A YAML text as a tree whose nodes know their lines; small also once aliases are followed."""
    _refuse_brackets(text)
    try:
        node = _composed(text)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except (ValueError, yaml.YAMLError) as error:
        raise Unreadable(f"is not YAML ({_first_line(error)})") from None
    if node is None:
        raise Unreadable("is empty")
    _count_nodes(node, {}, 0)
    return node


def value_of(node: yaml.Node) -> Any:
    """The value of a tree."""
    try:
        content = yaml.constructor.SafeConstructor().construct_document(node)
    except _TRIPS as error:
        raise Unreadable(f"is not YAML ({_first_line(error)})") from None
    check_bounds(content)
    return content


def _refuse_brackets(text: str) -> None:
    opened = 0
    for bracket in re.findall(r"[][{}]", text):
        opened += 1 if bracket in "[{" else -1
        if opened > MOST_BRACKETS:
            raise Unreadable("is nested too deeply")


def _composed(text: str) -> yaml.Node | None:
    """The tree of a text, by the C library if it can: it takes a tenth of the time."""
    node: yaml.Node | None
    with suppress(ValueError, yaml.YAMLError):  # the other says why, and takes lone surrogates
        if _FAST is not None and _is_flat(text, _FAST):
            node = yaml.compose(text, Loader=_FAST)
            return node
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return node


def _is_flat(text: str, loader: "type[yaml.CSafeLoader]") -> bool:
    """Whether a tree is not too deep: the C library builds it by recursion, without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST + 1:
            return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _count_nodes(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """How many nodes there are below a node, one that has several aliases counted at each."""
    if id(node) in known:
        count = known[id(node)]
        if count == 0:
            raise Unreadable("holds itself")
        return count
    if depth > DEEPEST:
        raise Unreadable("is nested too deeply")
    known[id(node)] = 0  # being counted
    count = 1
    if isinstance(node, yaml.MappingNode):
        _refuse_double_keys(node)
        for pair in node.value:
            count += sum(_count_nodes(part, known, depth + 1) for part in pair)
    elif isinstance(node, yaml.SequenceNode):
        count += sum(_count_nodes(part, known, depth + 1) for part in node.value)
    if count > MOST_YAML_NODES:
        raise Unreadable(f"holds over {MOST_YAML_NODES} values once its aliases are followed")
    known[id(node)] = count
    return count


def _refuse_double_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if key.value in seen:
                line = key.start_mark.line + 1
                raise Unreadable(f"has {key.value!r:.60} a second time in line {line}")
            seen.add(key.value)
