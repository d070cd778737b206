"""Networks that were exported: read, checked and asked, without any code that learns.

Nothing from the folder is executed: programs are run by `Program`, and ONNX Runtime is given no
library of operators.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from peerlearn.errors import UserError, did_you_mean
from peerlearn.export.agreement import brief
from peerlearn.export.program import OUTPUTS, Program
from peerlearn.files import bytes_if_readable, from_json, read_text, user_path

FORMAT = "peerlearn-export"
SCHEMA = 1
DOCUMENT, WEIGHTS, PROGRAM, ONNX = "export.json", "weights.safetensors", "program.pt2", "model.onnx"
INPUT = "images"
BATCH = 250  # images per forward

Engine = Literal["program", "onnx"]
Array = Tensor | np.ndarray[Any, Any]
Answers = Callable[[Tensor], list[Tensor]]  # uint8 (B, 3, H, W) -> logits, probabilities; (B, C)
_FILES: dict[str, str] = {"program": PROGRAM, "onnx": ONNX}
_KEYS = {
    "labels": list,
    "image_shape": list,
    "temperature": float,
    "about": dict,
    "files": dict,
    "left_out": dict,
}


class Exported:
    """Networks that `write_export` has written, ready to answer.

    Needs export.json and the file of its engine, which are compared with their digests; the others
    may be missing. May be asked from several threads at once.

    Args:
        folder: of the export.
        engine: "program" computes with PyTorch, "onnx" with ONNX Runtime.

    `write_export` shows one that answers; engines are these two:

    >>> Exported("pets", engine="tensorrt")
    Traceback (most recent call last):
    peerlearn.errors.UserError: engine: none is 'tensorrt'; known: program, onnx
    """

    def __init__(self, folder: str | PathLike[str], engine: Engine = "program") -> None:
        if engine not in _FILES:
            raise UserError(did_you_mean(f"engine: none is {engine!r:.40}", str(engine), _FILES))
        path = user_path(folder).absolute()
        document, content = _read(path, _FILES[engine])
        self.labels: list[Any] = document["labels"]
        self.image_shape: tuple[int, ...] = tuple(document["image_shape"])
        self.temperature: float = document["temperature"]
        self.about: dict[str, Any] = document["about"]
        try:
            self._run = ENGINES[engine](content)
            answers = self._answers(torch.zeros(1, *self.image_shape, dtype=torch.uint8))
        except UserError:
            raise
        except Exception as error:  # a doctored file may raise anything
            raise _damaged(path, f"{_FILES[engine]} cannot be used ({brief(error)})") from error
        for answer in answers:
            if answer.shape != (1, len(self.labels)):
                count, shape = len(self.labels), tuple(answer.shape)
                raise _damaged(path, f"{DOCUMENT} has {count} labels for answers of shape {shape}")

    def predict(self, x: Array) -> list[Any]:
        """The label of each image. x: (B, 3, H, W) uint8."""
        return [self.labels[best] for best in self.logits(x).argmax(dim=1).tolist()]

    def probabilities(self, x: Array) -> Tensor:
        """(B, C), each row adds up to 1. x: (B, 3, H, W) uint8."""
        return self._answers(x)[1]

    def logits(self, x: Array) -> Tensor:
        """(B, C), the mean over the networks. x: (B, 3, H, W) uint8."""
        return self._answers(x)[0]

    @torch.no_grad()
    def _answers(self, x: Array) -> list[Tensor]:
        parts = [self._run(part) for part in self._checked(x).split(BATCH)]
        return [torch.cat(own) for own in zip(*parts, strict=True)]

    def _checked(self, x: Array) -> Tensor:
        images = torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x
        plain = isinstance(images, Tensor) and images.dtype == torch.uint8 and len(images.shape) > 0
        if not plain or tuple(images.shape[1:]) != self.image_shape or not len(images):
            got = f"{getattr(x, 'dtype', type(x).__name__)} {tuple(getattr(x, 'shape', ()))}"
            raise UserError(
                f"images: need uint8 of shape (batch, {', '.join(map(str, self.image_shape))}), "
                f"got {got}; resize whole images, bilinear with antialias as {DOCUMENT} says, and "
                "do not divide them by 255"
            )
        return images.detach().cpu()


class OnnxModel:
    """A model of ONNX, run by ONNX Runtime in as many threads as PyTorch takes.

    Args:
        content: of the file.
    """

    def __init__(self, content: bytes) -> None:
        if find_spec("onnxruntime") is None:
            raise UserError(
                'engine "onnx" needs ONNX Runtime: pip install "peerlearn[onnx]", or take "program"'
            )
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # what goes wrong is raised, and need not be printed too
        self._session = runtime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Logits and probabilities."""
        found = self._session.run(list(OUTPUTS), {INPUT: images.numpy()})
        return [torch.from_numpy(array) for array in found]


ENGINES: dict[str, Callable[[bytes], Answers]] = {"program": Program, "onnx": OnnxModel}


def former(folder: Path) -> Path:
    """Where the export of a folder is while another takes its place."""
    return folder.parent / f".{folder.name}.old"


def digest(document: Mapping[str, Any]) -> str:
    """The digest of what export.json says, but for the digest itself.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1, "sha256": "..."})
    True
    """
    rest = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read(folder: Path, wanted: str) -> tuple[dict[str, Any], bytes]:
    """What export.json says, and the content of one of the files that it names.

    Somebody may be replacing the folder meanwhile, so what fails is looked at again until it fails
    the same way twice.
    """
    before = ""
    while True:
        try:
            return _read_once(folder, wanted)
        except _LostError as error:
            if str(error) == before:
                raise
            before = str(error)


class _LostError(UserError):
    """An export is not there, or not whole."""


def _read_once(folder: Path, wanted: str) -> tuple[dict[str, Any], bytes]:
    places = (folder, former(folder), folder)  # the writer renames the old one, then the new one
    place = next((place for place in places if isfile(place / DOCUMENT)), folder)
    document = read_document(place)
    if wanted not in document["files"]:
        why = document["left_out"].get(wanted, "it was not written")
        raise UserError(f"export {folder}: has no {wanted} ({why}); take another engine")
    content, expected = bytes_if_readable(place / wanted), document["files"][wanted]
    if hashlib.sha256(content).hexdigest() != expected:
        what = f"{wanted} is missing, cut short or damaged (its digest was {expected:.8})"
        raise _damaged(folder, what)
    return document, content


def read_document(folder: Path) -> dict[str, Any]:
    """What export.json in a folder says; refused unless all of it is as it was written."""
    try:
        document = from_json(read_text(folder / DOCUMENT))
    except OSError as error:
        raise _LostError(
            f"export {folder}: {DOCUMENT} cannot be read ({error.strerror}); name a folder that "
            "write_export() wrote"
        ) from None
    except ValueError as error:
        raise _damaged(folder, f"{DOCUMENT} is cut short or damaged ({brief(error)})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(
            f"export {folder}: not written by Peerlearn; name a folder that write_export() wrote"
        )
    if document.get("schema") != SCHEMA:
        raise UserError(
            f"export {folder}: has schema {document.get('schema')!r:.40}, this version reads "
            f"{SCHEMA}; read it with the version that wrote it"
        )
    if document.get("sha256") != digest(document):
        raise _damaged(folder, f"{DOCUMENT} was changed after it was written")
    _check(folder, document)
    return document


def _check(folder: Path, document: Mapping[str, Any]) -> None:
    """Refuse what nobody wrote who keeps to the format."""
    for key, kind in _KEYS.items():
        if not isinstance(document.get(key), kind):
            raise _damaged(folder, f"{DOCUMENT} has no {key!r} as it should be")
    shape, files = document["image_shape"], document["files"]
    if len(shape) != 3 or any(type(size) is not int or size < 1 for size in shape):
        raise _damaged(folder, f"{DOCUMENT} has an image_shape of {shape!r:.60}")
    if not {WEIGHTS, PROGRAM} <= {*files} <= {WEIGHTS, PROGRAM, ONNX}:
        raise _damaged(folder, f"{DOCUMENT} names other files than an export has")


def _damaged(folder: Path, what: str) -> UserError:
    return _LostError(f"export {folder}: {what}; take another copy of the folder, or export again")
