"""Documents of others: what would blow up, go deep or have no end is refused at once."""

import os
import time
from pathlib import Path

import pytest

from peerlearn import safe_yaml
from peerlearn.files import Unreadable, from_json, read_text
from peerlearn.safe_yaml import from_yaml, yaml_node

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, "over 10000 values"),
        (MERGES, "over 10000 values"),
        ("[" * 5000, "nested too deeply"),
        ("[" * 40 + "]" * 40, "nested too deeply"),
        ("a: " + "{a: " * 40 + "1" + "}" * 40, "nested too deeply"),
        ("- " * 30_000, "nested too deeply"),
        ("? " * 30_000, "nested too deeply"),
        ("a: &a [*a]", "holds itself"),
        ("lr: 1\nlr: 2", "has 'lr' a second time in line 2"),
        ("lr: " + "9" * 400, "over 300 digits"),
        ("lr: " + "9" * 5000, "not YAML"),
        ("day: 2001-99-99", "not YAML"),
        ("day: !!timestamp x", "not YAML"),
        ("truth: !!bool x", "not YAML"),
        ("number: !!int ''", "not YAML"),
        ("!!python/object/apply:os.system [ls]", "not YAML"),
        ("? [1]\n: 2", "not YAML"),
        ("a: b: c", "not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("\0", "not YAML"),
        ("", "is empty"),
    ],
)
def test_yaml_that_is_refused(text: str, why: str) -> None:
    start = time.monotonic()
    with pytest.raises(Unreadable, match=why) as refused:
        from_yaml(text)
    assert time.monotonic() - start < 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" * 40 + "]" * 40, "nested too deeply"),
        ('{"a":' * 40 + "1" + "}" * 40, "nested too deeply"),
        ("9" * 400, "over 300 digits"),
        ("9" * 5000, "not JSON"),
        ("{", "not JSON"),
        ("", "not JSON"),
    ],
)
def test_json_that_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        from_json(text)


def test_what_is_within_bounds_is_read() -> None:
    assert from_json('{"a": [1, 2.5, null, 9007199254740993]}') == {
        "a": [1, 2.5, None, 9007199254740993]
    }
    text = "base: &base {lr: 0.1}\nhere: {<<: *base, width: 16}\nagain: *base"
    assert from_yaml(text)["here"] == {"lr": 0.1, "width": 16}
    assert yaml_node("a: 1\nb: 2").value[1][0].start_mark.line == 1


def test_rows_of_numbers_are_looked_at_too() -> None:
    assert from_json("[[1, 2], [3, 4], [0.5, null]]") == [[1, 2], [3, 4], [0.5, None]]
    for row in ("1, 9{}", "9{}, 0.5", "-9{}, 2", "true, 9{}"):
        with pytest.raises(Unreadable, match="over 300 digits"):
            from_json(f"[[{row.format('9' * 300)}]]")


def test_yaml_has_one_meaning_with_and_without_its_c_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["lr: 0.1\nname: yes", 'name: "\\ud800"', "\ufeffa: 1", "a: 1\u2028b: 2", "- [{}]",
             "a: b: c", "a: *x", "a: \x1b", "a: 1\na: 2", "[", "", "!!binary aGk="]  # fmt: skip

    def outcome(text: str) -> str:
        try:
            return repr(from_yaml(text))
        except Unreadable as error:
            return str(error)

    with_it = [outcome(text) for text in texts]
    monkeypatch.setattr(safe_yaml, "_FAST", None)
    assert [outcome(text) for text in texts] == with_it


def test_a_long_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 100)
    with pytest.raises(Unreadable, match="over 99 bytes"):
        read_text(tmp_path / "long", most=99)
    assert len(read_text(tmp_path / "long", most=100)) == 100
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises((Unreadable, IsADirectoryError), match=r"plain file|directory"):
            read_text(tmp_path / name)
