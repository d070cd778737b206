"""Exports: what they answer, what is refused, and what a crash or a doctored file can do."""

import hashlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import same
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from peerlearn import ResNet18, UserError, build_learner, small_net
from peerlearn.data import mini
from peerlearn.data.pictures import pictures
from peerlearn.export import folding
from peerlearn.export import program as interpreter
from peerlearn.export import write as writer
from peerlearn.export.exported import Exported, digest
from peerlearn.export.program import Program
from peerlearn.export.write import write_export
from peerlearn.methods.pcr import CosineHead
from peerlearn.nets import SmallNet
from peerlearn.peer import PeerModel
from peerlearn.stream import StreamInfo

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SHAPE = (3, 32, 32)
FILES = ["export.json", "model.onnx", "program.pt2", "weights.safetensors"]
RNG = torch.Generator().manual_seed(1)
NOISE = torch.randint(256, (7, *SHAPE), dtype=torch.uint8, generator=RNG)
REAL = mini().test.x[:7]


def alive(net: nn.Module, *, cosine: bool = False) -> PeerModel:
    """A model with statistics of real images and layers that differ, as if it had learnt."""
    model = PeerModel(net)
    if cosine:
        model.use_head(CosineHead(model.feature_dim, len(NAMES), temperature=0.09))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=RNG)
            nn.init.normal_(module.bias, 0.0, 0.3, generator=RNG)
            module.momentum = 0.5
    with torch.no_grad():
        for part in mini().train.x[:128].split(32):
            model.logits(part / 255)
    return model


def expected(models: list[PeerModel], x: Tensor) -> Tensor:
    """The mean of their logits in evaluation mode."""
    modes = [model.training for model in models]
    with torch.no_grad():
        logits = torch.stack([model.eval().logits(x / 255) for model in models]).mean(dim=0)
    for model, mode in zip(models, modes, strict=True):
        model.train(mode)
    return logits


def write(models: list[PeerModel], folder: Path, **more: Any) -> Path:
    write_export(models, folder, **{"image_shape": SHAPE, "labels": NAMES, **more})
    return folder


@contextmanager
def without_onnx() -> Iterator[None]:
    """Quick exports: the packages for ONNX seem not to be there, of which we are warned."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writer, "NEEDED", ("no_such_package",))
        with pytest.warns(UserWarning, match=r"without model\.onnx: no_such_package not installed"):
            yield


@pytest.fixture(scope="module")
def models() -> dict[str, list[PeerModel]]:
    torch.manual_seed(0)
    return {
        "one": [alive(small_net(10))],
        "two": [alive(ResNet18(10, width=16), cosine=True), alive(small_net(10))],
    }


@pytest.fixture(scope="module")
def shipped(models: dict[str, list[PeerModel]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of exports with ONNX, one for each entry of `models`."""
    for package in writer.NEEDED:
        pytest.importorskip(package)
    home = tmp_path_factory.mktemp("shipped")
    for name, own in models.items():
        write(own, home / name, temperature=1.7, about={"method": "pcr", "accuracy": 0.5})
    return home


class Loops(nn.Module):
    """Cannot be traced by torch.fx, for a loop over rows.

    Holds a lock and its last result, and counts its forwards, in place and in any mode.
    """

    feature_dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)
        self.lock, self.count = threading.Lock(), nn.Buffer(torch.zeros(()))
        self.last: Tensor | None = None

    def features(self, x: Tensor) -> Tensor:
        rows = self.norm(self.conv(x)).relu()
        return torch.stack([rows[:, :, row] for row in range(rows.shape[2])]).mean(dim=(0, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        if not torch.compiler.is_exporting():
            self.last = logits
            self.count += 1
        return logits


class Shared(nn.Module):
    """One convolution before two batch-norms: folding it into one would spoil the other."""

    feature_dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.two = nn.Conv2d(3, 8, 4), nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.hooked, self.norm = nn.Conv2d(3, 8, 4), nn.BatchNorm2d(8)
        self.hooked.register_forward_hook(lambda _module, _args, result: 2 * result)
        self.head = nn.Linear(8, 10)

    def features(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        both = self.one(y).relu() + self.two(y).sigmoid() + self.norm(self.hooked(x)).relu()
        pooled: Tensor = both.mean(dim=(2, 3))
        return pooled

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


class Fickle(SmallNet):
    """Answers otherwise while it is traced."""

    def features(self, x: Tensor) -> Tensor:
        return super().features(x * 2 if isinstance(x, torch.fx.Proxy) else x)


@pytest.fixture(scope="module")
def odd_models() -> list[PeerModel]:
    """Networks that cannot be folded, or in part, and one with a head of its method's."""
    torch.manual_seed(0)
    small = alive(small_net(10), cosine=True)
    return [alive(Loops()), alive(Shared()), alive(Fickle(10)), small]


@pytest.fixture(scope="module")
def odd(odd_models: list[PeerModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their export, without ONNX; that nothing of them has changed."""
    for model in odd_models:
        model.logits(REAL / 255)  # a last result with a history, which nobody can copy
    before = [facts(model) for model in odd_models]
    states = [{k: v.clone() for k, v in model.state_dict().items()} for model in odd_models]
    rng = torch.get_rng_state()
    with without_onnx():
        folder = write(odd_models, tmp_path_factory.mktemp("odd") / "export")
    assert [facts(model) for model in odd_models] == before
    for model, state in zip(odd_models, states, strict=True):
        assert same(dict(model.state_dict()), state)
    assert torch.equal(rng, torch.get_rng_state())
    return folder


def facts(model: PeerModel) -> list[Any]:
    """What a model is besides the values of its tensors."""
    modules = [(module.training, [*vars(module)]) for module in model.modules()]
    weights = [(weight.data_ptr(), weight.requires_grad) for weight in model.parameters()]
    return [modules, weights, model.forwards, model.backwards]


@pytest.fixture
def copied(shipped: Path, tmp_path: Path) -> Path:
    """An export that a test may damage."""
    return Path(shutil.copytree(shipped / "one", tmp_path / "one"))


def document(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "export.json").read_text())
    return content


@pytest.mark.parametrize("engine", ["program", "onnx"])
@pytest.mark.parametrize("which", ["one", "two"])
@pytest.mark.parametrize("x", [NOISE, REAL], ids=["noise", "real"])
def test_an_export_answers_as_its_networks_do(
    which: str, engine: Any, x: Tensor, models: dict[str, list[PeerModel]], shipped: Path
) -> None:
    exported = Exported(shipped / which, engine)
    logits = expected(models[which], x)
    if x is REAL:
        assert logits.std(dim=0).max() > 0.05  # else agreement would mean nothing
    for batch in (1, 7):
        torch.testing.assert_close(exported.logits(x[:batch]), logits[:batch], atol=1e-4, rtol=0)
        torch.testing.assert_close(
            exported.probabilities(x[:batch]),
            (logits[:batch] / 1.7).softmax(dim=1),
            atol=1e-4,
            rtol=0,
        )
        best = logits[:batch].argmax(dim=1)
        assert exported.predict(x[:batch]) == [NAMES[number] for number in best]


def test_an_export_says_what_it_is(shipped: Path) -> None:
    exported = Exported(shipped / "two")
    assert (exported.labels, exported.image_shape, exported.temperature) == (NAMES, SHAPE, 1.7)
    assert exported.about == {"method": "pcr", "accuracy": 0.5}
    said = document(shipped / "two")
    assert [(one["folded"], one["left"]) for one in said["batch_norms"]] == [(20, 0), (2, 0)]
    assert sorted(said["files"]) == FILES[1:]
    assert sorted(path.name for path in (shipped / "two").iterdir()) == FILES
    assert sorted(path.name for path in shipped.iterdir()) == ["one", "two"]


def shrunk(x: np.ndarray, size: int) -> np.ndarray:
    """The first axis of x, resized as export.json says in words."""
    scale = len(x) / size
    width = max(1.0, scale)
    rows = []
    for i in range(size):
        away = np.abs(np.arange(len(x)) + 0.5 - (i + 0.5) * scale) / width
        weight = np.maximum(0, 1 - away)
        rows.append(np.tensordot(weight / weight.sum(), x, axes=1))
    return np.floor(np.stack(rows) + 0.5)


@pytest.mark.parametrize("size", [(97, 130), (20, 300), (32, 31), (9, 7), (32, 32)])
def test_the_words_about_resizing_are_enough_to_do_it(size: tuple[int, int], shipped: Path) -> None:
    said = document(shipped / "one")["preprocessing"]["resize_exactly"]
    assert "max(0, 1 - |j + 0.5 - (i + 0.5) s| / max(1, s))" in said
    x = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    widths = shrunk(x.transpose(1, 0, 2).astype(float), 32)  # first along the width
    resized = shrunk(widths.transpose(1, 0, 2), 32)
    first = torch.from_numpy(x).permute(2, 0, 1)[None]
    torchs = nn.functional.interpolate(first, size=(32, 32), mode="bilinear", antialias=True)
    wanted = pictures(x, (32, 32))[0].numpy()
    for found in (resized.transpose(2, 0, 1), torchs[0].numpy().astype(float)):
        assert np.abs(found - wanted).max() <= 1
        assert (found != wanted).mean() < 0.01  # where a half is rounded


def test_the_words_about_grey_alpha_and_16_bits_are_true(shipped: Path) -> None:
    said = document(shipped / "one")["preprocessing"]
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 1 << 16, (32, 32)).astype(np.uint16)
    rgba = rng.integers(0, 256, (32, 32, 4), np.uint8)

    def read(image: Image.Image) -> np.ndarray:
        file = io.BytesIO()
        image.save(file, "PNG")
        return pictures(Image.open(file), (32, 32))[0].permute(1, 2, 0).numpy()

    assert said["grey"] == "repeated as red, green and blue"
    assert said["alpha"] == "left out before resizing; the colours below it stay as they are"
    assert said["16_bits"] == "the upper 8 of them, value >> 8, before resizing"
    assert said["orientation"] == "pixels as they are stored; EXIF's is not applied"
    assert np.array_equal(read(Image.fromarray(deep)), (deep >> 8)[..., None].repeat(3, axis=2))
    assert np.array_equal(read(Image.fromarray(rgba)), rgba[..., :3])


def test_a_program_holds_no_batch_norm_and_no_path_of_its_sources(shipped: Path) -> None:
    with zipfile.ZipFile(shipped / "two" / "program.pt2") as archive:
        names = {name.partition("/")[2]: name for name in archive.namelist()}
        text = archive.read(names["models/model.json"]).decode()
        assert archive.read(names["data/sample_inputs/model.pt"]) == b""  # would be a pickle
    assert "aten.convolution" in text
    assert "batch_norm" not in text
    for name in FILES:
        content = (shipped / "two" / name).read_bytes()
        assert b"site-packages" not in content
        assert str(Path(writer.__file__).parent).encode() not in content


def test_torch_can_load_a_program_that_it_may_trust(
    models: dict[str, list[PeerModel]], shipped: Path
) -> None:
    module = torch.export.load(shipped / "one" / "program.pt2").module()
    for x in (REAL[:1], REAL):
        torch.testing.assert_close(module(x)[0], expected(models["one"], x), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_the_page_shows_how_to_answer_without_peerlearn(shipped: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "own-stream.md").read_text()
    blocks = re.findall(r"^```python no-run\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    alone = [block for block in blocks if "export.json" in block]
    assert ["onnxruntime" in block for block in alone] == [True, False]
    assert all(len(block.splitlines()) <= 8 for block in alone)
    code = "\n".join([*alone, "import sys", 'assert "peerlearn" not in sys.modules'])
    shutil.copytree(shipped / "one", tmp_path / "shipped")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    black = torch.zeros(1, *SHAPE, dtype=torch.uint8)
    assert done.stdout.split() == 2 * Exported(shipped / "one").predict(black)


def test_a_learner_ships_its_networks_as_the_page_says(tmp_path: Path) -> None:
    learner = build_learner("er+ccldc", StreamInfo(num_classes=10), "small", memory=20)
    learner.learn(REAL, torch.arange(7))
    with without_onnx():
        write([peer.model for peer in learner.peers], tmp_path / "export")
    found = Exported(tmp_path / "export").logits(REAL)
    torch.testing.assert_close(found, learner.logits(REAL), atol=1e-4, rtol=0)


def test_the_weights_are_those_of_the_networks_unfolded(
    models: dict[str, list[PeerModel]], shipped: Path
) -> None:
    weights = load_file(shipped / "two" / "weights.safetensors")
    own = {
        f"{number}.{name}": tensor
        for number, model in enumerate(models["two"])
        for name, tensor in model.state_dict().items()
    }
    assert weights.keys() == own.keys()
    assert all(torch.equal(weights[name], own[name]) for name in own)


def test_many_images_and_arrays_are_answered_alike(shipped: Path) -> None:
    exported = Exported(shipped / "one")
    many = mini().test.x[:600]
    apart = torch.cat([exported.logits(part) for part in many.split(100)])
    torch.testing.assert_close(exported.logits(many), apart)
    assert torch.equal(exported.logits(REAL.numpy()), exported.logits(REAL))


def test_networks_of_every_kind_are_answered_for(odd_models: list[PeerModel], odd: Path) -> None:
    exported, logits = Exported(odd), expected(odd_models, REAL)
    assert logits.std(dim=0).max() > 0.05
    for batch in (1, 7):
        found = exported.logits(REAL[:batch])
        torch.testing.assert_close(found, logits[:batch], atol=1e-4, rtol=0)


def test_what_cannot_be_folded_is_exported_unfolded_and_that_is_said(odd: Path) -> None:
    loops, shared, fickle, small = document(odd)["batch_norms"]
    assert (loops["folded"], loops["left"]) == (0, 1)
    assert loops["why"].startswith("cannot be traced: ")
    assert shared == {"folded": 0, "left": 3, "why": ""}  # no one of them could be folded alone
    assert (fickle["folded"], fickle["left"]) == (0, 2)
    assert fickle["why"].startswith("would answer otherwise, by ")
    assert small == {"folded": 2, "left": 0, "why": ""}


@pytest.mark.usefixtures("odd")
def test_exporting_changes_nothing_of_the_models(odd_models: list[PeerModel]) -> None:
    assert all(module.training for model in odd_models for module in model.modules())


def test_without_its_packages_onnx_is_left_out_and_that_is_said(odd: Path) -> None:
    assert sorted(path.name for path in odd.iterdir()) == [*FILES[:1], *FILES[2:]]
    assert "peerlearn[onnx]" in document(odd)["left_out"]["model.onnx"]
    with pytest.raises(UserError, match=r"has no model\.onnx \(no_such_package not installed"):
        Exported(odd, "onnx")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_folded_convolution_does_what_both_did(bias: bool, affine: bool, groups: int) -> None:
    conv = nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=bias, groups=groups)
    norm = nn.BatchNorm2d(6, affine=affine)
    x = torch.randn(8, 4, 9, 9, generator=RNG)
    norm(conv(x * 3 + 1))
    before = conv.weight.clone()
    together = norm.eval()(conv(x))
    torch.testing.assert_close(folding.fold(conv, norm)(x), together, atol=1e-5, rtol=0)
    assert torch.equal(conv.weight, before)


class Undecided(Loops):
    """Whose answer depends on a value."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2 if x.mean() > 0.5 else 1)


def test_a_network_that_has_no_program_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"network: cannot be exported .*depend on values"):
        write([alive(Undecided())], tmp_path / "export")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"labels": NAMES[:9]}, r"labels: there are 9 of them, for logits \(6, 10\)"),
        ({"labels": [{1, 2}] * 10}, "labels: cannot be kept as JSON"),
        ({"labels": [(1, 2)] * 10}, "labels: JSON would change them"),
        ({"about": {"accuracy": float("nan")}}, "about: cannot be kept as JSON"),
        ({"temperature": 0}, "temperature must be a number above 0, got 0"),
        ({"temperature": float("nan")}, "temperature must be a number above 0, got nan"),
        ({"image_shape": (1, 32, 32)}, r"image_shape must be \(3, height, width\)"),
        ({"models": []}, "models: need one PeerModel or more"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_words(
    wrong: dict[str, Any], says: str, models: dict[str, list[PeerModel]], tmp_path: Path
) -> None:
    given = {"models": models["one"], "folder": tmp_path / "export", **wrong}
    with pytest.raises(UserError, match=says):
        write(**given)
    assert not [*tmp_path.iterdir()]


def test_networks_whose_answers_are_not_finite_are_refused(tmp_path: Path) -> None:
    net = small_net(10)
    nn.init.constant_(net.head.bias, float("inf"))
    with pytest.raises(UserError, match="logits are not finite"):
        write([PeerModel(net)], tmp_path / "export")


@pytest.mark.parametrize(
    "x",
    [
        REAL.float() / 255,
        REAL[0],
        REAL[:0],
        REAL[:, :1],
        REAL[:, :, :16],
        np.zeros((2, 32, 32, 3), np.uint8),
        [[1]],
        torch.tensor(1, dtype=torch.uint8),
    ],
)
def test_images_of_another_kind_are_refused_in_words(x: Any, shipped: Path) -> None:
    with pytest.raises(UserError, match=r"uint8 of shape \(batch, 3, 32, 32\), got .*antialias"):
        Exported(shipped / "one").predict(x)


def test_an_engine_that_is_not_there_is_refused_in_words(shipped: Path) -> None:
    with pytest.raises(UserError, match="did you mean program"):
        Exported(shipped / "one", "programm")  # type: ignore[arg-type]


ASKED = {"program": "program.pt2", "onnx": "model.onnx"}  # by engine


@pytest.mark.parametrize("engine", ASKED)
@pytest.mark.parametrize("which", ["document", "file"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "removed", "empty"])
def test_damage_of_what_answers_is_found(
    which: str, damage: str, engine: Any, copied: Path
) -> None:
    name = "export.json" if which == "document" else ASKED[engine]
    path = copied / name
    content = bytearray(path.read_bytes())
    if damage == "removed":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        left = {"cut": content[:-100], "flipped": content, "empty": bytearray()}[damage]
        path.write_bytes(left)
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        Exported(copied, engine)


@pytest.mark.parametrize("engine", ASKED)
def test_export_json_and_one_file_are_enough_to_answer(engine: Any, copied: Path) -> None:
    whole = Exported(copied, engine).logits(REAL)
    for name in {*FILES} - {"export.json", ASKED[engine]}:
        (copied / name).unlink()
    assert torch.equal(Exported(copied, engine).logits(REAL), whole)


@pytest.mark.parametrize("engine", ASKED)
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"labels": NAMES[:9]}, r"export\.json has 9 labels for answers of shape \(1, 10\)"),
        ({"labels": [*NAMES, "bat"]}, "has 11 labels"),
        ({"image_shape": [4, 32, 32]}, "cannot be used"),
        ({"image_shape": [3, 10**9, 10**9]}, "cannot be used"),
    ],
)
def test_labels_and_sizes_that_do_not_fit_are_found_when_it_is_read(
    changed: dict[str, Any], says: str, engine: Any, copied: Path
) -> None:
    redone(copied, **changed)
    with pytest.raises(UserError, match=says):
        Exported(copied, engine)


def test_a_label_that_was_changed_by_hand_is_found(copied: Path) -> None:
    path = copied / "export.json"
    path.write_text(path.read_text().replace('"cat"', '"bat"'))
    with pytest.raises(UserError, match=r"export\.json was changed after it was written"):
        Exported(copied)


def redone(folder: Path, **changed: Any) -> None:
    """Change export.json as somebody would who knows the format."""
    said = {**document(folder), **changed}
    (folder / "export.json").write_text(json.dumps({**said, "sha256": digest(said)}))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": "other"}, "not written by Peerlearn"),
        ({"schema": 2}, "has schema 2, this version reads 1"),
        ({"labels": "abc"}, "has no 'labels' as it should be"),
        ({"image_shape": [3, "x", 1]}, "has an image_shape of"),
        ({"files": {"../../etc/passwd": ""}}, "names other files than an export has"),
    ],
)
def test_a_folder_of_something_else_is_not_read(
    changed: dict[str, Any], says: str, copied: Path
) -> None:
    redone(copied, **changed)
    with pytest.raises(UserError, match=says):
        Exported(copied)


def doctored(folder: Path, change: Callable[[str, bytes], bytes]) -> None:
    """Change the records of a program, and all digests with them."""
    path, made = folder / "program.pt2", io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name.partition("/")[2], old.read(name)))
    path.write_bytes(made.getvalue())
    files = {**document(folder)["files"], path.name: hashlib.sha256(made.getvalue()).hexdigest()}
    redone(folder, files=files)


class Opens:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_a_doctored_program_runs_no_code(copied: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    whole = Exported(copied).logits(REAL)

    def change(name: str, content: bytes) -> bytes:
        if name == "data/sample_inputs/model.pt":
            return pickle.dumps(Opens(trap))
        if name == "models/model.json":
            text = json.dumps(f"open({str(trap)!r}, 'w')")
            program = json.loads(content)
            program["guards_code"] = [json.loads(text)]
            return json.dumps(program).replace('"Symbol(', f"{text[:-1]} or (").encode()
        return content

    doctored(copied, change)
    assert torch.equal(Exported(copied).logits(REAL), whole)  # what would run is not even read
    assert not trap.exists()


def to_pickle(_: str, content: bytes) -> bytes:
    return content.replace(b'"use_pickle": false', b'"use_pickle": true')


def to_target(target: str) -> Callable[[str, bytes], bytes]:
    def change(_: str, content: bytes) -> bytes:
        return content.replace(b"torch.ops.aten.relu.default", target.encode())

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (to_pickle, "holds a pickle, which could run code"),
        (to_target("torch.os.system"), r"asks for torch\.os\.system"),
        (to_target("torch.ops.aten.from_file.default"), r"asks for torch\.ops\.aten\.from_file"),
        (to_target("torch.ops.aten.__class__.mro"), "asks for"),
        (to_target("torch.ops.aten.atan2.out"), "asks for"),
        (to_target("torch.ops.aten.embedding_dense_backward.default"), "asks for"),
        (to_target("_operator.attrgetter"), r"asks for _operator\.attrgetter"),
        (lambda _, content: content[:-1], "cannot be used"),
        (lambda name, content: b"[]" if name.endswith("json") else content, "cannot be used"),
        (lambda _, content: content.replace(b'"sizes": [{', b'"sizes": [{"as_int": 9}, {'), "used"),
    ],
)
def test_a_doctored_program_is_refused_in_words(change: Any, says: str, copied: Path) -> None:
    doctored(copied, change)
    with pytest.raises(UserError, match=says):
        Exported(copied)


def test_a_program_frees_what_nobody_asks_for_any_more(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program((shipped / "two" / "program.pt2").read_bytes())
    keep, held = interpreter._keep, []

    def watched(names: Any, result: Any, values: dict[str, Any]) -> None:
        keep(names, result, values)
        held.append(len({*values} - {*program._fixed}))

    monkeypatch.setattr(interpreter, "_keep", watched)
    program(REAL)
    assert len(held) > 60
    assert max(held) < 10


def test_reading_needs_no_code_that_learns(shipped: Path) -> None:
    code = f"""
import sys, torch
from peerlearn.export.exported import Exported
Exported({str(shipped / "one")!r}).predict(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
print(*(name for name in sys.modules if name.startswith("peerlearn")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} <= {
        "peerlearn",
        "peerlearn.errors",
        "peerlearn.export",
        "peerlearn.export.agreement",
        "peerlearn.export.exported",
        "peerlearn.export.program",
        "peerlearn.lazy",
        "peerlearn.files",
    }


@pytest.mark.parametrize("content", ["notes.txt", "export.json", "program.pt2"])
def test_a_folder_of_somebody_else_is_not_replaced(
    content: str, models: dict[str, list[PeerModel]], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / content).write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        write(models["one"], tmp_path / "mine")
    assert (tmp_path / "mine" / content).read_text() == "mine"
    with pytest.raises(UserError, match=r"mine: "):
        Exported(tmp_path / "mine")


def test_an_export_with_files_of_others_is_not_replaced(
    models: dict[str, list[PeerModel]], copied: Path
) -> None:
    (copied / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds 'notes\.txt', which is no export"):
        write(models["one"], copied)
    assert (copied / "notes.txt").exists()
    Exported(copied)  # which they do not disturb


def test_a_file_is_not_replaced(models: dict[str, list[PeerModel]], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "export"):
        with pytest.raises(UserError, match="is no folder that can be read"):
            write(models["one"], path)


class DiedError(BaseException):
    """The process is gone: nothing that it would do later is done."""


OLD, NEW = {"method": "old"}, {"method": "new"}


@pytest.fixture
def rewrite(
    shipped: Path, models: dict[str, list[PeerModel]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path, dict[str, Any]], None]:
    """Write the same files, which are made once, with other words about them."""
    said = document(shipped / "one")
    contents = {name: (shipped / "one" / name).read_bytes() for name in said["files"]}
    monkeypatch.setattr(writer, "_contents", lambda *_: (dict(contents), {"left_out": {}}))

    def again(folder: Path, about: dict[str, Any]) -> None:
        write(models["one"], folder, about=about)

    return again


class Stopped:
    """Lets so many calls of the system through; then one fails, or nothing happens any more."""

    def __init__(self, after: int, dies: bool) -> None:
        self.left, self.dies = after, dies

    def watch(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0 and self.dies:
                raise DiedError
            if self.left == -1:
                raise OSError(28, "No space left on device")
            return real(*args, **more)

        return call


@pytest.mark.parametrize("dies", [True, False], ids=["died", "failed"])
def test_a_crash_at_any_moment_leaves_a_whole_export(
    dies: bool, rewrite: Callable[[Path, dict[str, Any]], None], tmp_path: Path
) -> None:
    folder, found = tmp_path / "export", [True]
    for moment in range(100):
        if found[-1]:
            rewrite(folder, OLD)
        stopped = Stopped(moment, dies)
        with pytest.MonkeyPatch.context() as patched, suppress(DiedError, UserError):
            for name in ("write_file", "flush_folder"):
                patched.setattr(writer, name, stopped.watch(getattr(writer, name)))
            patched.setattr(shutil, "rmtree", stopped.watch(shutil.rmtree))
            for name in ("rename", "mkdir"):
                patched.setattr(os, name, stopped.watch(getattr(os, name)))
            rewrite(folder, NEW)
        if stopped.left >= 0:
            break  # it came to its end
        about = Exported(folder).about
        assert about in (OLD, NEW)
        assert dies or folder.exists()  # for those who look there themselves
        assert len([*tmp_path.glob(".export*.new")]) <= 1
        found.append(about == NEW)
    del found[0]
    assert found.count(False) >= 6
    assert Exported(folder).about == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    if dies:
        assert found == sorted(found)  # once it is the new one, it stays that


def test_two_who_write_at_once_take_turns(
    rewrite: Callable[[Path, dict[str, Any]], None], tmp_path: Path
) -> None:
    folder, failed = tmp_path / "export", []

    def write_some(who: str) -> None:
        for number in range(8):
            try:
                rewrite(folder, {"who": who, "number": number})
            except UserError as error:
                failed.append(error)

    threads = [threading.Thread(target=write_some, args=(who,)) for who in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert Exported(folder).about["number"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_an_empty_folder_and_one_that_is_not_there_yet_are_written_to(
    rewrite: Callable[[Path, dict[str, Any]], None], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "a" / "b"):
        rewrite(folder, NEW)
        assert Exported(folder).about == NEW
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "a"}


def test_an_export_can_be_read_while_it_is_being_replaced(
    rewrite: Callable[[Path, dict[str, Any]], None], tmp_path: Path
) -> None:
    folder, done = tmp_path / "export", threading.Event()
    rewrite(folder, {"number": 0})

    def replace() -> None:
        for number in range(1, 12):
            rewrite(folder, {"number": number})
        done.set()

    thread = threading.Thread(target=replace)
    thread.start()
    seen = []
    try:
        while not done.is_set():
            seen.append(Exported(folder).about["number"])
    finally:
        thread.join()
    assert seen == sorted(seen)
