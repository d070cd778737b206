"""Networks as a folder that answers without them: weights, a program for PyTorch, and ONNX.

`peerlearn.export.Exported` reads it. `program.pt2` and `model.onnx` hold the whole way
from pixels to probabilities. PyTorch does not promise to read a `.pt2` of another version for
ever; `weights.safetensors`, which is as the networks are, and ONNX outlive it.
"""

import hashlib
import io
import json
import logging
import math
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import save as serialized
from torch import Tensor, nn

from peerlearn import __version__
from peerlearn.errors import UserError
from peerlearn.export.agreement import TRIPS, brief, close, distance
from peerlearn.export.answer import Answer, Logits, pixels
from peerlearn.export.exported import (
    DOCUMENT,
    ENGINES,
    FORMAT,
    INPUT,
    ONNX,
    PROGRAM,
    SCHEMA,
    WEIGHTS,
    digest,
    former,
    read_document,
)
from peerlearn.export.folding import folded
from peerlearn.export.program import OUTPUTS
from peerlearn.files import flush_folder, from_json, locked, user_path, write_file
from peerlearn.methods.interface import images
from peerlearn.peer import PeerModel

TRIED = 3  # images of noise, and as many of large patches, on which all of it must agree
NEEDED = ("onnx", "onnxscript", "onnxruntime")  # for ONNX: to write it, and to try it
PREPROCESSING = {
    "input": "uint8 (B, 3, H, W), the channels red, green, blue, 0 to 255",
    "grey": "repeated as red, green and blue",
    "alpha": "left out before resizing; the colours below it stay as they are",
    "16_bits": "the upper 8 of them, value >> 8, before resizing",
    "other_kinds": "as Pillow's convert('RGB') has them; of several frames the first",
    "orientation": "pixels as they are stored; EXIF's is not applied",
    "resize": "the whole image to (H, W), whatever its proportions, bilinear with antialias: "
    "Pillow's BILINEAR, or PyTorch's interpolate(mode='bilinear', antialias=True) of uint8",
    "resize_exactly": "along the width, then along the height, each time rounded to whole levels: "
    "where n pixels become m, pixel i is the mean of all pixels j, weighted by "
    "max(0, 1 - |j + 0.5 - (i + 0.5) s| / max(1, s)), s = n / m",
    "divided_by": 255,
    "divided": "inside the program; divide nothing before",
}


def write_export(
    models: Sequence[PeerModel],
    folder: str | os.PathLike[str],
    *,
    image_shape: tuple[int, int, int],
    labels: Sequence[Any],
    temperature: float = 1.0,
    about: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write networks into a folder, whole or not at all, in place of the export that is there.

    Batch-norms are folded into the convolutions before them where that can be traced, and the
    arithmetic is fp32 whatever the models' is. What was written is tried on a few images first,
    by the code that reads it. Without the packages of the extra `onnx` there is no `model.onnx`,
    which export.json and a warning say.

    Args:
        models: those who answer; the mean of their logits is the answer. They stay as they are.
        folder: to write; must be new or empty, or hold an export.
        image_shape: (3, H, W).
        labels: the name of each class in the order of the logits, of a kind that JSON has.
        temperature: probabilities are softmax(logits / temperature).
        about: anything JSON can hold: the method, the accuracy that was measured.

    >>> import tempfile
    >>> from peerlearn import small_net
    >>> from peerlearn.export.exported import Exported
    >>> model = PeerModel(small_net(2))
    >>> with tempfile.TemporaryDirectory() as home:
    ...     write_export([model], Path(home) / "pets", image_shape=(3, 8, 8), labels=["cat", "dog"])
    ...     pets = Exported(Path(home) / "pets")
    >>> pets.probabilities(torch.zeros(5, 3, 8, 8, dtype=torch.uint8)).shape
    torch.Size([5, 2])
    """
    path = _resolved(folder)
    _refuse_foreign(path)
    shape = _checked_shape(image_shape)
    _check(models, temperature)
    document = {
        "format": FORMAT,
        "schema": SCHEMA,
        "peerlearn": __version__,
        "torch": torch.__version__,
        "labels": [*labels],
        "image_shape": [*shape],
        "preprocessing": PREPROCESSING,
        "input": INPUT,
        "outputs": [*OUTPUTS],
        "temperature": float(temperature),
        "about": dict(about),
    }
    _check_json(document)
    contents, found = _contents(models, shape, len(labels), float(temperature))
    document |= found
    document["files"] = {name: hashlib.sha256(own).hexdigest() for name, own in contents.items()}
    document["sha256"] = digest(document)
    try:
        _place({**contents, DOCUMENT: json.dumps(document, indent=1)}, path)
    except OSError as error:
        raise UserError(
            f"export {path}: cannot be written ({error}); what was there before is as it was. "
            "Make room there, or export to another folder"
        ) from error
    for name, why in found["left_out"].items():
        warnings.warn(f"export {path}: is without {name}: {why}", stacklevel=2)


def _resolved(folder: str | os.PathLike[str]) -> Path:
    try:
        return user_path(folder).resolve()
    except (OSError, RuntimeError) as error:
        raise UserError(f"export {folder}: cannot be found ({error}); name another") from error


def _refuse_foreign(path: Path) -> None:
    """Refuse to take the place of what is not an export, or of more than one."""
    try:
        names = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(
            f"export {path}: is no folder that can be read ({error.strerror}); name another"
        ) from error
    foreign = names - {DOCUMENT, WEIGHTS, PROGRAM, ONNX}
    if names and (foreign or DOCUMENT not in names):
        raise UserError(
            f"export {path}: is there already and holds {min(foreign or names)!r:.60}, which is no "
            "export; name a new folder"
        )
    if names:
        try:
            read_document(path)
        except UserError as error:
            raise UserError(
                f"export {path}: is there already, and not as this version writes it; remove it, "
                "or name a new folder"
            ) from error


def _checked_shape(image_shape: Sequence[int]) -> tuple[int, int, int]:
    match [*image_shape]:
        case [3, int(height), int(width)] if min(height, width) > 0:
            return 3, height, width
    raise UserError(f"image_shape must be (3, height, width), got {image_shape!r:.60}")


def _check(models: Sequence[PeerModel], temperature: float) -> None:
    if not models or not all(isinstance(model, PeerModel) for model in models):
        raise UserError(f"models: need one PeerModel or more, got {models!r:.60}")
    number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if not number or not 0 < temperature < math.inf:
        raise UserError(f"temperature must be a number above 0, got {temperature!r:.60}")


def _check_json(document: Mapping[str, Any]) -> None:
    """Refuse what would come back as something else, or not at all."""
    for key in ("labels", "about"):
        try:
            back = from_json(json.dumps({key: document[key]}, allow_nan=False))[key]
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(
                f"{key}: cannot be kept as JSON ({error}); take simpler ones"
            ) from error
        if back != document[key] and key == "labels":
            raise UserError("labels: JSON would change them; take texts or numbers")


def _contents(
    models: Sequence[PeerModel], shape: tuple[int, ...], classes: int, temperature: float
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files but for export.json, and what that is to say of them."""
    tried = _tried(shape)
    with torch.no_grad(), _quiet():
        own = [Logits(model) for model in models]
        expected = _answered(Answer(own, temperature), tried, classes)
        plain, foldings = zip(*(folded(one, images(tried)) for one in own), strict=True)
        program = _exported(Answer(plain, temperature), tried)
        contents = {WEIGHTS: _weights(models), PROGRAM: _archive(program)}
        off = {PROGRAM: _difference("program", contents[PROGRAM], tried, expected)}
        if not close(off[PROGRAM], expected):
            raise UserError(
                f"network: its program answers otherwise, by {off[PROGRAM]:.1g}; it may draw "
                "at random or keep something between forwards, which no program can"
            )
        left_out = {}
        try:
            contents[ONNX] = _onnx(program)
            off[ONNX] = _difference("onnx", contents[ONNX], tried, expected)
            if not close(off[ONNX], expected):
                raise RuntimeError(f"it answers otherwise, by {off[ONNX]:.1g}")
        except (ImportError, *TRIPS) as error:
            contents.pop(ONNX, None)
            off.pop(ONNX, None)
            left_out[ONNX] = brief(error)
    return contents, {
        "batch_norms": [one._asdict() for one in foldings],
        "arithmetic": "fp32",
        "largest_difference": off,
        "left_out": left_out,
    }


def _tried(shape: tuple[int, ...]) -> Tensor:
    """Images (2 * TRIED, 3, H, W): noise, which layers average out, and patches, which they see."""
    rng = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (TRIED, *shape), generator=rng)
    patches = torch.randint(256, (TRIED, shape[0], 2, 2), generator=rng).float()
    large = nn.functional.interpolate(patches, size=shape[1:], mode="nearest")
    return torch.cat([noise, large]).to(torch.uint8)


def _answered(answer: Answer, tried: Tensor, classes: int) -> Tensor:
    """The logits that are to come out, (B, C)."""
    try:
        said = [network(pixels(tried)) for network in answer.networks]
        logits: Tensor = torch.stack(said).mean(dim=0)
    except Exception as error:  # a network of somebody else's may raise anything
        raise UserError(
            f"network: cannot answer for images of {tuple(tried.shape[1:])} ({brief(error)}); "
            "give the image_shape it has learnt"
        ) from error
    if logits.shape != (len(tried), classes):
        raise UserError(f"labels: there are {classes} of them, for logits {tuple(logits.shape)}")
    if not torch.isfinite(logits).all():
        raise UserError("network: its logits are not finite; export one that has learnt")
    return logits


def _exported(answer: Answer, tried: Tensor) -> torch.export.ExportedProgram:
    """The program of core operators, for batches of any size."""
    answer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sizes = ({0: torch.export.Dim("batch", min=1)},)
    try:
        program = torch.export.export(answer, (tried,), dynamic_shapes=sizes, strict=False)
        core: torch.export.ExportedProgram = program.run_decompositions()
    except Exception as error:  # a network of somebody else's may raise anything
        raise UserError(
            f"network: cannot be exported ({brief(error)}); let its forward not depend on values "
            "of tensors or on the size of the batch"
        ) from error
    for node in core.graph.nodes:  # where the sources lay is nobody's business
        node.meta = {key: own for key, own in node.meta.items() if key == "val"}
    return core


def _archive(program: torch.export.ExportedProgram) -> bytes:
    """A `.pt2` without sample inputs, which would be a pickle."""
    program.example_inputs = None
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _onnx(program: torch.export.ExportedProgram) -> bytes:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f'{", ".join(missing)} not installed; pip install "peerlearn[onnx]"')
    made = torch.onnx.export(
        program, dynamo=True, verbose=False, input_names=[INPUT], output_names=[*OUTPUTS]
    )
    assert made is not None, "programs are converted by the exporter that returns one"
    for node in made.model.graph:
        node.metadata_props.clear()  # where the sources lay
    content: bytes = made.model_proto.SerializeToString()
    return content


def _weights(models: Sequence[PeerModel]) -> bytes:
    """The tensors of all models as they are; those of the second begin with "1."."""
    return serialized(
        {
            f"{number}.{name}": own.detach().to("cpu", copy=True).contiguous()
            for number, model in enumerate(models)
            for name, own in model.state_dict().items()
            if isinstance(own, Tensor)
        }
    )


def _difference(engine: str, content: bytes, tried: Tensor, expected: Tensor) -> float:
    """How far an engine's logits are off at most, for a batch and for a single image."""
    try:
        run = ENGINES[engine](content)
        batch, single = run(tried)[0], run(tried[:1])[0]
    except Exception as error:  # whatever a network of somebody else's has led to
        raise UserError(
            f"network: what it computes cannot be exported ({brief(error)}); write it with "
            "ordinary operators of PyTorch"
        ) from error
    return max(distance(batch, expected), distance(single, expected[:1]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to ourselves what exporters say about themselves."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _place(contents: Mapping[str, bytes | str], path: Path) -> None:
    """Make a folder of these files, in place of the one that is there; one writer at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.parent / f".{path.name}.lock"
    with locked(lock):
        try:
            _replace(contents, path)
        finally:
            with suppress(OSError):  # Windows removes it when it is let go
                lock.unlink()  # those who wait for it notice, and make another


def _replace(contents: Mapping[str, bytes | str], path: Path) -> None:
    """A crash at any moment leaves a whole export, there or where `Exported` then looks.

    It leaves one draft at most, which the next writer removes.
    """
    draft, old = path.parent / f".{path.name}.new", former(path)
    _restore(path)
    _refuse_foreign(path)
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for name, content in contents.items():
            write_file(draft / name, content)
        flush_folder(draft)
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            os.rename(path, old)
        os.rename(draft, path)
        flush_folder(path.parent)
    finally:
        _restore(path)
        shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _restore(path: Path) -> None:
    """Give an export its name back if its writer was stopped between two renames."""
    if former(path).exists() and not path.exists():
        os.rename(former(path), path)
