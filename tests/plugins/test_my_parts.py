"""The other parts of docs/add-a-method.md, as a single file, through the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from outside import SHORT, TINY, outside, run  # noqa: F401

from peerlearn import small_net
from peerlearn.cli import main
from peerlearn.peer import PeerModel


def config() -> dict[str, Any]:
    (found,) = Path("runs").rglob("config.yaml")
    record: dict[str, Any] = yaml.safe_load(found.read_text())
    return record


@pytest.mark.parametrize(
    ("words", "group", "settings", "origin"),
    [
        (
            "er --optimizer rmsprop --smoothing 0.9",
            "optim",
            {"name": "rmsprop", "lr": 0.0005, "weight_decay": 0.0, "smoothing": 0.9},
            "optimizer rmsprop",
        ),
        (
            "er --memory-policy newest --every 2",
            "memory",
            {"name": "newest", "size": 20, "every": 2},
            "memory newest",
        ),
        (
            "er+trio --distill-weight 2",
            "collaboration",
            {"name": "trio", "peers": 3, "label_weight": 0.5, "distill_weight": 2.0}
            | {"temperature": 4.0},
            "wrapper trio",
        ),
    ],
)
def test_a_part_of_a_plugin_works_in_a_run_with_its_settings_as_flags(
    words: str, group: str, settings: dict[str, Any], origin: str
) -> None:
    assert run(*words.split(), "--plugin", "my_parts.py", *TINY, "--out", "runs") == 0
    record = config()
    assert record["settings"][group] == settings
    assert record["plugins"][origin].startswith("my_parts.py ")


def test_a_wrapper_tells_its_teacher_what_it_was_told() -> None:
    for decay in ("0.9", "0.1"):
        words = ("er+slow", "--decay", decay, "--plugin", "my_parts.py")
        assert run(*words, *TINY, "--out", "runs") == 0
    slow, fast = (json.loads(p.read_text()) for p in sorted(Path("runs").rglob("summary.json")))
    assert slow["cost"]["kept_bytes"]["networks"] == 2 * networks_alone()
    losses = [p.read_text() for p in sorted(Path("runs").rglob("steps.jsonl"))]
    assert json.loads(losses[0])["losses"] != json.loads(losses[1])["losses"]
    assert slow["cost"]["forward_per_image"] == fast["cost"]["forward_per_image"]


def networks_alone() -> int:
    """Bytes of one network of the size in TINY."""
    model = PeerModel(small_net(10, width=1))
    return sum(tensor.nbytes for tensor in model.state_dict().values())


def test_a_function_that_makes_a_network_works_by_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("er", "--net", "./my_parts.py:one_layer", "--channels", "3", "--out", "runs")
    assert run(*words, *SHORT) == 0
    record = config()
    assert record["settings"]["net"] == {"name": "my_parts.py:one_layer", "channels": 3}
    assert record["plugins"]["network my_parts.py:one_layer"].startswith("my_parts.py ")
    assert run(*words, *SHORT) == 0
    assert "was done before" in capsys.readouterr().err
    assert run("er", "--net", "./my_parts.py:one_layer", "--channels", "0", *SHORT) == 2
    assert "--channels: channels must be at least 1, got '0'" in capsys.readouterr().err


def test_a_function_of_an_importable_module_makes_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    words = ("er", "--net", "my_parts:one_layer", "--channels", "3", "--out", "runs")
    assert run(*words, *SHORT) == 0
    assert config()["settings"]["net"]["channels"] == 3


def test_a_data_set_of_a_plugin_brings_its_protocol() -> None:
    words = ("--plugin", "my_parts.py", "--data", "blobs", "--net", "small", "--width", "1")
    assert run("er", *words, "--threads", "1", "--out", "runs") == 0
    settings = config()["settings"]
    assert (settings["data"], settings["memory"]["size"]) == ("blobs", 40)
    assert settings["stream"]["tasks"] == 2
    assert (Path("runs") / "blobs" / "er" / "m40").is_dir()


def test_all_parts_of_a_plugin_work_together() -> None:
    words = "er er+trio --data blobs --optimizer rmsprop --memory-policy newest --threads 1"
    net = ("--net", "./my_parts.py:one_layer", "--channels", "3")
    assert run(*words.split(), *net, "--plugin", "my_parts.py", "--out", "runs") == 0
    assert len([*Path("runs").rglob("accuracy.json")]) == 2


def test_all_parts_of_a_plugin_are_listed_with_their_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "--plugin", "my_parts.py"]) == 0
    listed = capsys.readouterr().out.splitlines()
    for name, summary in {
        "rmsprop": "Gradients over the root of their mean square",
        "newest": "The newest images, or every n-th of them",
        "trio": "Three peers that follow their mean, on the image itself",
        "blobs": "4 classes of 16 x 16, coloured blobs; made on the spot; memory 40",
    }.items():
        (line,) = [line for line in listed if line.split()[:1] == [name]]
        assert summary in line
        assert "[my_parts.py " in line
    assert main(["data", "list", "--plugin", "my_parts.py"]) == 0
    assert "blobs " in capsys.readouterr().out
