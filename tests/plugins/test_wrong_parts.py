"""What is not the part that it should be is refused in one line; what it is made of is recorded."""

from pathlib import Path

import pytest
from outside import SHORT, outside, run  # noqa: F401

WRONG = """
import torch
class Foo: pass
x = 3
def net(num_classes, *, depth):
    from peerlearn import small_net
    return small_net(num_classes, width=depth)
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("./wrong.py:Foo", "is no method; it must be a class that extends Method"),
        ("./wrong.py:x", "is no method"),
        ("er+./wrong.py:Foo", "er+./wrong.py"),
        ("er --net ./wrong.py:x", "is no network"),
        ("er --net ./wrong.py:net", "depth must be given"),
        ("er --optimizer ./wrong.py:Foo", "is no optimizer"),
        ("er --plugin leaves.py", "fails when it is run (SystemExit: 3)"),
    ],
)
def test_it_is_refused_in_one_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.py").write_text(WRONG)
    Path("leaves.py").write_text("import sys\nsys.exit(3)\n")
    assert run(*words.split(), "--out", "runs") == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not Path("runs").exists()


def test_a_keyword_that_must_be_given_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.py").write_text(WRONG)
    words = ("er", "--net", "./wrong.py:net", "--depth", "2", "--out", "runs")
    assert run(*words, *SHORT) == 0
    assert "done" in capsys.readouterr().err


TEACHER = """
from peerlearn.distill.teachers.base import OtherPeers
class Loud(OtherPeers):
    name = "loud"
    factor = 1.0
    def logits(self, views, given):
        return [{v: self.factor * z for v, z in one.items()}
                for one in super().logits(views, given)]
"""
WRAPPER = """
from peerlearn.distill import Edge
from peerlearn.distill.distillation import Wrapper
class Shout(Wrapper):
    name = "shout"
    def edges(self):
        return (Edge(0, 0, by="loud"),)
"""
DATA = """
from peerlearn.data import toy_images
from peerlearn.data.sources import Source, Protocol
class Dots(Source):
    name = "dots"
    protocol = Protocol(settings={"stream.tasks": 2})
    def find(self, places):
        return "."
    def read(self, folder, progress):
        return toy_images(num_classes=4, train_per_class=20, size=8)
"""


@pytest.mark.parametrize("changed", ["teacher.py", "data.py"])
def test_changed_code_of_a_teacher_or_a_data_set_is_not_passed_off_as_the_old(
    changed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("teacher.py", TEACHER), ("wrapper.py", WRAPPER), ("data.py", DATA)):
        Path(name).write_text(text)
    plugins = [word for f in ("teacher.py", "wrapper.py", "data.py") for word in ("--plugin", f)]
    words = ("er+shout", *plugins, "--data", "dots", "--net", "small", "--out", "runs")
    assert run(*words) == 0
    assert run(*words) == 0
    assert "was done before" in capsys.readouterr().err
    text = Path(changed).read_text()
    Path(changed).write_text(text.replace("factor = 1.0", "factor = 2.0").replace("=20", "=21"))
    assert run(*words) == 2
    assert f"{changed} " in capsys.readouterr().err


def test_two_files_cannot_have_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.py", "b.py"):
        text = 'from peerlearn.methods import ER\nclass Mine(ER):\n    name = "mine"\n'
        Path(name).write_text(text)
    assert run("mine", "--plugin", "a.py", "--plugin", "b.py", "--out", "runs") == 2
    assert "there is a method 'mine' already, of a.py" in capsys.readouterr().err


def test_a_method_named_by_its_place_brings_all_of_its_file() -> None:
    Path("whole.py").write_text(
        "from peerlearn import AdamW\nfrom peerlearn.methods import ER\n"
        'class Slow(AdamW):\n    name = "slow"\n'
        'class Mine(ER):\n    name = "mine"\n    optim = Slow(lr=1e-4)\n'
    )
    words = ("./whole.py:Mine", "--net", "small", "--width", "1", *SHORT, "--out", "runs")
    assert run(*words) == 0
    assert len(list(Path("runs/mini/mine").rglob("config.yaml"))) == 1


def test_the_same_network_by_another_spelling_is_the_same_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("wrong.py").write_text(WRONG)
    for place in ("wrong.py", "./wrong.py", str(Path("wrong.py").resolve())):
        words = ("er", "--net", f"{place}:net", "--depth", "2", "--out", "runs")
        assert run(*words, *SHORT) == 0
    assert len(list(Path("runs").rglob("config.yaml"))) == 1
    assert capsys.readouterr().err.count("was done before") == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def net(): ...", "must take the number of classes"),
        ("def net(n, *, act: object = None): ...", "network"),
        ("def net(n, *, name: str = ''): ...", "a setting cannot be called 'name'"),
        ("raise RuntimeError('one\\ntwo')", "RuntimeError: one); put that right"),
    ],
)
def test_a_network_that_cannot_be_made_is_refused_in_one_line(
    text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("odd.py").write_text(text)
    assert run("er", "--net", "odd.py:net", *SHORT, "--out", "runs") == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_annotations_may_be_texts() -> None:
    Path("late.py").write_text(
        "from __future__ import annotations\nfrom peerlearn import small_net\n"
        "def net(num_classes: int, *, width: int = 1):\n"
        "    return small_net(num_classes, width=width)\n"
    )
    assert run("er", "--net", "late.py:net", "--width", "2", *SHORT, "--out", "runs") == 0
