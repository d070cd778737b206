"""peerlearn predict: from a learner's export to a line for a person."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from peerlearn import OpenLearner, UserError
from peerlearn.cli import main
from peerlearn.data import toy_images
from peerlearn.export import Exported


@pytest.fixture(scope="module")
def learner() -> OpenLearner:
    learner = OpenLearner("er+ccldc-ema", memory=40, net="small", width=4)
    images = toy_images(num_classes=4).train
    for x, y in zip(images.x.split(10), images.y.split(10), strict=True):
        learner.learn(x, [f"class {int(k)}" for k in y])
    return learner


@pytest.fixture(scope="module")
def shipped(learner: OpenLearner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "shipped"
    learner.export(folder)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, pixels in enumerate(toy_images(num_classes=4).test.x[:6]):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    return folder


def test_every_image_of_a_folder_has_a_line(
    learner: OpenLearner, shipped: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(shipped), str(photos)]) == 0
    lines = capsys.readouterr().out.splitlines()
    files = sorted(photos.iterdir())
    for line, file, label in zip(lines, files, learner.predict(files), strict=True):
        assert line.startswith(f"{file}: {label} ")
        assert line.endswith(" %")


@pytest.mark.parametrize("engine", ["program", "onnx"])
def test_as_json_it_is_what_the_learner_says(
    engine: str, learner: OpenLearner, shipped: Path, photos: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pytest.importorskip("onnxruntime")
    file = photos / "0.png"
    words = ["predict", str(shipped), str(file), "--top", "9", "--json", "--engine", engine]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    expected = dict(zip(learner.classes, learner.predict_proba(file)[0].tolist(), strict=True))
    assert found["file"] == str(file)
    assert {one["label"]: one["probability"] for one in found["answers"]} == pytest.approx(
        expected, abs=1e-4
    )
    chances = [one["probability"] for one in found["answers"]]
    assert chances == sorted(chances, reverse=True)


def test_an_image_that_cannot_be_read_does_not_keep_the_others_back(
    shipped: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_text("not an image")
    words = [str(photos / "0.png"), str(broken), str(tmp_path / "none.png"), str(photos / "1.png")]
    assert main(["predict", str(shipped), *words]) == 2
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert "broken.png: not a readable image" in said.err
    assert "none.png: no such file" in said.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--top", "0"], "--top: must be at least 1"),
        (["--engine", "tpu"], "there is no engine 'tpu'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], error: str, shipped: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(shipped), str(photos), *words]) == 2
    assert error in capsys.readouterr().err


def test_a_folder_without_images_and_one_that_is_no_export_are_refused(
    shipped: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(shipped), str(tmp_path)]) == 2
    assert "holds no images" in capsys.readouterr().err
    assert main(["predict", str(photos), str(photos)]) == 2
    assert "export.json" in capsys.readouterr().err


class TestWhatIsExported:
    def test_is_the_choice_and_says_so(self, learner: OpenLearner, tmp_path: Path) -> None:
        test = toy_images(num_classes=4).test
        names = [f"class {int(k)}" for k in test.y]
        inner = learner.learner
        expected = {
            "ensemble": inner.logits(test.x),
            "peer": inner.logits(test.x, peer=0),
            "ema": inner.snapshot("ema").logits(test.x),
            "average": inner.snapshot("average").logits(test.x),
        }
        for what, logits in expected.items():
            about = learner.export(tmp_path / what, what, test=(test.x, names))  # type: ignore[arg-type]
            exported = Exported(tmp_path / what)
            torch.testing.assert_close(exported.logits(test.x), logits, atol=1e-4, rtol=0)
            right = [said == name for said, name in zip(exported.predict(test.x), names)]  # noqa: B905
            assert about["accuracy"] == pytest.approx(sum(right) / len(right))
            assert exported.about == about
            assert (about["method"], about["wrapper"], about["what"]) == ("er", "ccldc-ema", what)
            assert exported.labels == learner.classes
        assert not torch.allclose(expected["peer"], expected["ensemble"])

    def test_has_the_temperature(self, learner: OpenLearner, tmp_path: Path) -> None:
        x = toy_images(num_classes=4).test.x[:5]
        learner.temperature = 2.5
        try:
            learner.export(tmp_path / "warm")
            probabilities = learner.predict_proba(x)
        finally:
            learner.temperature = 1.0
        found = Exported(tmp_path / "warm").probabilities(x)
        torch.testing.assert_close(found, probabilities, atol=1e-4, rtol=0)

    def test_must_be_there(self, tmp_path: Path) -> None:
        single = OpenLearner("er", memory=10, net="small", width=4)
        with pytest.raises(UserError, match="nothing has been learnt"):
            single.export(tmp_path / "early")
        single.learn(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), ["a", "b", "a", ("c", 1)])
        with pytest.raises(UserError, match=r"'average'; .* EMA copies; take ensemble or peer$"):
            single.export(tmp_path / "slow", "average")
        for odd in ("best", "peers", None, ["peer"]):
            with pytest.raises(UserError, match=r"what: there is no .*; take ensemble or peer$"):
                single.export(tmp_path / "odd", odd)  # type: ignore[arg-type]
        for pair in (torch.rand(2, 3, 8, 8), (torch.rand(2, 3, 8, 8),), "ab"):
            with pytest.raises(UserError, match=r"test: needs a pair \(images, labels\), got"):
                single.export(tmp_path / "bare", test=pair)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="test: 1 labels for 2 images"):
            single.export(tmp_path / "few", test=(torch.rand(2, 3, 8, 8), ["a"]))
        single.export(tmp_path / "whole")
        assert Exported(tmp_path / "whole").labels == ["a", "b", "('c', 1)"]
