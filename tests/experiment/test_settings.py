from pathlib import Path

import pytest

from peerlearn.errors import UserError
from peerlearn.experiment.settings import (
    FIELDS,
    convert,
    differences,
    parse_seeds,
    published_combinations,
    read_file,
    resolve,
)


def test_flags_beat_files_beat_presets_beat_defaults() -> None:
    found = resolve({"lr": 0.1}, {"lr": 0.2, "batch": 20})
    assert (found.settings.lr, found.origins["lr"]) == (0.1, "flag")
    assert (found.settings.batch, found.origins["batch"]) == (20, "file")
    assert (found.settings.width, found.origins["width"]) == (16, "preset")
    assert (found.settings.updates, found.origins["updates"]) == (1, "default")


def test_all_published_runs_resolve_to_the_published_settings() -> None:
    combinations = published_combinations()
    assert len(combinations) == len(set(combinations)) == 108
    randaugment = {"cifar10": (3, 15), "cifar100": (3, 15), "tiny": (1, 11), "imagenet100": (3, 11)}
    tasks = {"cifar10": 5, "cifar100": 10, "tiny": 100, "imagenet100": 10}
    weights = {"er": (0.5, 2, 4), "derpp": (0.5, 1, 3), "er_ace": (0.5, 1, 4), "gsa": (0.5, 1, 4)}
    weights |= {"ocm": (0.25, 4, 4), "onpro": (0.25, 1, 4)}
    for data, memory, method in combinations:
        s = resolve({"data": data, "memory": memory, "method": method}).settings
        base, plus, _ = method.partition("+")
        assert (s.tasks, s.batch, s.replay_batch, s.width) == (tasks[data], 10, 64, 64)
        assert (s.lr, s.beta2) == ((1e-3, 0.99) if base == "ocm" else (5e-4, 0.999))
        assert s.weight_decay == 1e-4
        assert s.stem == ("7x7" if data == "imagenet100" else "3x3")
        assert s.pool == ("2x2" if data == "tiny" and base != "onpro" else "global")
        assert s.normalise == (data == "imagenet100")
        assert (s.alpha, s.beta) == ((0.2, 1.0) if base == "derpp" else (None, None))
        if plus:
            assert (s.ops, s.magnitude) == randaugment[data]
            assert (s.label_weight, s.lesson_weight, s.temperature) == weights[base]
            assert (s.peers, s.stages) == (2, 3)
        else:
            assert s.peers is s.ops is s.label_weight is None


def test_a_wrong_key_meets_the_nearest_right_one(tmp_path: Path) -> None:
    (tmp_path / "er.yaml").write_text("memry: 200\n")
    with pytest.raises(UserError, match=r"er.yaml: there is no setting 'memry'; did you mean memo"):
        read_file(tmp_path / "er.yaml")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("memory", "many", "memory must be a whole number, got 'many'"),
        ("memory", "2.5", "memory must be a whole number"),
        ("lr", "fast", "lr must be a number, got 'fast'"),
        ("per_sample", "perhaps", "per_sample must be true or false"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_wanted(name: str, text: str, says: str) -> None:
    with pytest.raises(UserError, match=f"--{name}: {says}"):
        convert(name, text, f"--{name}")


@pytest.mark.parametrize("content", ["- a list", "a: [1", "just words", "\x00"])
def test_a_file_that_holds_no_settings_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(content)
    with pytest.raises(UserError, match=r"x.yaml: (is not YAML|must hold)"):
        read_file(tmp_path / "x.yaml")


def test_nothing_in_a_settings_file_is_executed(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("lr: !!python/object/apply:os.mkdir ['{tmp_path}/made']\n")
    with pytest.raises(UserError, match="is not YAML"):
        read_file(tmp_path / "x.yaml")


def test_differences_leave_out_the_machine() -> None:
    settings = resolve({}).settings
    same = {name: getattr(settings, name) for name in FIELDS}
    assert differences(settings, {**same, "threads": 7, "device": "cuda"}) == []
    assert differences(settings, {**same, "lr": 1.0}) == ["lr 1.0 there, 0.0005 here"]


@pytest.mark.parametrize("text", ["", "a", "3-1", "1--2", "-1", "1.5"])
def test_seeds_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--seeds"):
        parse_seeds(text)
