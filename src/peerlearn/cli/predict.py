"""peerlearn predict: what an export says of some images."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerlearn.cli.parsing import Commands, add_command, path
from peerlearn.errors import UserError
from peerlearn.units import printable

if TYPE_CHECKING:
    from peerlearn.export import Exported


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "predict", "what exported networks say of images", act)
    parser.add_argument("export", type=path, metavar="EXPORT", help="folder of learner.export()")
    parser.add_argument(
        "images", type=path, nargs="+", metavar="IMAGE", help="files, or folders of files"
    )
    parser.add_argument("--top", type=int, default=1, metavar="K", help="labels of each image (1)")
    parser.add_argument(
        "--engine", choices=("program", "onnx"), default="program",
        help="who computes: PyTorch, or ONNX Runtime (program)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="a line of JSON for each image")


def act(args: argparse.Namespace) -> int:
    """Do it; 2 if an image could not be read, after all others have been."""
    from peerlearn.export import Exported

    if args.top < 1:
        raise UserError(f"--top: must be at least 1, got {args.top}")
    exported = Exported(args.export, args.engine)
    code = 0
    for file in [*_files(args.images)]:
        try:
            print(_line(file, _answer(exported, file, args.top), args.json))
        except UserError as error:
            code = 2
            print(f"peerlearn: {error}", file=sys.stderr)
    return code


def _files(places: Sequence[Path]) -> Iterator[Path]:
    from peerlearn.data.decode import SUFFIXES

    for place in places:
        if place.is_dir():
            found = [file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES]
            if not found:
                raise UserError(f"{place}: holds no images; name files, or another folder")
            yield from sorted(found)
        else:
            yield place


def _answer(exported: "Exported", file: Path, top: int) -> list[tuple[Any, float]]:
    """The likeliest labels with their probabilities."""
    from peerlearn.data.pictures import pictures

    _, height, width = exported.image_shape
    chances = exported.probabilities(pictures(file, (height, width)))[0]
    best = chances.topk(min(top, len(chances)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(exported.labels[number], chance) for number, chance in pairs]


def _line(file: Path, found: list[tuple[Any, float]], as_json: bool) -> str:
    if as_json:
        said = [{"label": label, "probability": chance} for label, chance in found]
        return json.dumps({"file": str(file), "answers": said})
    answers = ", ".join(f"{printable(str(label))} {100 * chance:.1f} %" for label, chance in found)
    return f"{printable(str(file))}: {answers}"
