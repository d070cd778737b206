"""Image sets from folders: Tiny-ImageNet, ImageNet-100 and your own."""

import os
from collections.abc import Collection, Iterator, Sequence
from os import PathLike
from pathlib import Path, PurePath

import torch

from peerlearn.data.cache import cached_images, cached_text, content_key
from peerlearn.data.decode import (
    DECODER,
    MIXED,
    SUFFIXES,
    check_size,
    decode,
    image_sizes,
    size_note,
)
from peerlearn.data.images import Dataset, ImageSet
from peerlearn.data.places import Progress, imagenet100_classes, legible
from peerlearn.errors import UserError

TINY = "tiny-imagenet-200"
TINY_AGAIN = f"delete {TINY} and run peerlearn data get tiny"
HELD_OUT = 5  # one image in five is for testing where there is no test part
PARTS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})

Files = list[list[Path]]  # by class


def tiny_imagenet(folder: str | PathLike[str], progress: Progress | None = None) -> Dataset:
    """Read Tiny-ImageNet: 200 classes, (3, 64, 64) images, ids in the order of `wnids.txt`.

    `folder` is `tiny-imagenet-200` or the folder that holds it. The published test part has no
    labels: the validation part, 10,000 images, is the test set. Grey images get three channels.
    """
    folder = Path(folder)
    root = folder / TINY if (folder / TINY).is_dir() else folder
    wnids = _wnids(root / "wnids.txt")
    words = dict(line.split("\t", 1) for line in _lines(root / "words.txt") if "\t" in line)
    train = [_images(root / "train" / wnid, TINY_AGAIN) for wnid in wnids]
    names = [words.get(wnid, wnid).split(",")[0] for wnid in wnids]
    return _dataset("tiny", root, names, train, _tiny_test(root, wnids), 64, progress)


def imagenet100(folder: str | PathLike[str], progress: Progress | None = None) -> Dataset:
    """Read 100 classes of ImageNet, resized to (3, 224, 224); ids by sorted folder name.

    `folder` holds `train/<wnid>/` and `val/<wnid>/`, of these classes or of all 1000; `val` is the
    test set. Resizing is plain: nothing is cut off, height and width may scale differently.
    """
    root = Path(folder)
    wnids = imagenet100_classes()
    remedy = "an ImageNet folder needs train/<wnid>/*.JPEG and val/<wnid>/*.JPEG; add this class"
    train, test = ([_images(root / part / n, remedy) for n in wnids] for part in ("train", "val"))
    return _dataset("imagenet100", root, wnids, train, test, 224, progress)


def image_folder(
    folder: str | PathLike[str], size: int | None = None, progress: Progress | None = None
) -> Dataset:
    """Read `train/<class>/*` and `test/<class>/*` (or `val`), or `<class>/*` alone.

    Classes are the folders, sorted by name. Without a test part, every fifth image of a class by
    sorted name is for testing; of a class with fewer than five, the last. Images become
    (3, size, size); without `size` they keep theirs if all agree, else size is 64. What was
    decided, and what was left out, is said in the `notes` of the data set.

    Grey and palette images get three channels, 16 bits become 8, transparency is left out, and of
    several frames the first is taken.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; name one that holds a folder of images per class")
    check_size(str(root), size)
    has_train = (root / "train").is_dir()
    base = root / "train" if has_train else root
    held_out = next((p for p in (root / "test", root / "val") if p.is_dir()), None)
    names = _class_folders(base)
    files = [_images(base / name, "add some or remove the folder") for name in names]
    if has_train and held_out:
        train, test, notes = files, _test_part(held_out, names), []
    else:
        train, test = _split(files)
        counts = f"{sum(map(len, test))} of {sum(map(len, files))}"
        notes = [f"no test/ folder: every fifth image of a class is for testing ({counts})"]
    parts = [part for part in (base, held_out) if part] if has_train else [root]
    notes += _not_used(root, parts, {path for of_class in (*train, *test) for path in of_class})
    return _dataset(root.resolve().name, root, names, train, test, size, progress, notes)


def _dataset(
    name: str,
    root: Path,
    names: Sequence[str],
    train: Files,
    test: Files,
    size: int | None,
    progress: Progress | None,
    notes: Sequence[str] = (),
) -> Dataset:
    for strange in (n for n in names if not n.isprintable()):
        raise UserError(f"{root}: the name of class {strange!r} cannot be printed; rename it")
    files = [path for of_class in (*train, *test) for path in of_class]
    key = content_key(root, files, f"{DECODER}, size {size}")
    x = cached_images(key, len(files), lambda: decode(files, size, progress))
    if size is None and x.shape[2:] == (MIXED, MIXED):  # theirs, or what became of mixed ones

        def about_sizes() -> str:
            return size_note([_shown(p.relative_to(root)) for p in files], image_sizes(files))

        notes = [cached_text(f"{key}.sizes", about_sizes), *notes]
    cut, classes = sum(map(len, train)), tuple(names)

    def labels(part: Files) -> torch.Tensor:
        return torch.arange(len(part)).repeat_interleave(torch.tensor([len(p) for p in part]))

    return Dataset(
        ImageSet(x[:cut], labels(train), classes),
        ImageSet(x[cut:], labels(test), classes),
        name,
        tuple(note for note in notes if note),
    )


def _wnids(path: Path) -> list[str]:
    wnids: dict[str, None] = {}
    for number, wnid in enumerate(_lines(path), 1):
        if PurePath(wnid).parts != (wnid,) or wnid == ".." or wnid in wnids:
            raise UserError(f"{path}: line {number} names no class of its own; {TINY_AGAIN}")
        wnids[wnid] = None
    return list(wnids)


def _tiny_test(root: Path, wnids: Sequence[str]) -> Files:
    annotations, images = root / "val" / "val_annotations.txt", root / "val" / "images"
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    there = {path.name for path in _images(images, TINY_AGAIN)}
    files: Files = [[] for _ in wnids]
    for number, line in enumerate(_lines(annotations), 1):
        name, wnid = [*line.split("\t"), ""][:2]
        if wnid not in label_of:
            raise UserError(f"{annotations}: line {number} names no class; {TINY_AGAIN}")
        if name not in there:
            raise UserError(f"{images / name}: the file is missing; {TINY_AGAIN}")
        files[label_of[wnid]].append(images / name)
    return files


def _class_folders(root: Path) -> list[str]:
    names = _folders(root)
    for name in names:
        if name.lower() in PARTS and root.name != "train":
            raise UserError(
                f"{root / name}: a part, not a class; call the parts {root}/train and {root}/test, "
                "with a folder per class in each"
            )
    if len(names) < 2:
        found = f"one folder, {names[0]}, is one class" if names else "there are no folders in it"
        raise UserError(f"{root}: {found}; put the images of each class into a folder of its own")
    return names


def _test_part(root: Path, names: Sequence[str]) -> Files:
    for strange in sorted({*_folders(root)} - {*names}):
        raise UserError(
            f"{root / strange}: this class has no training images; add some or remove the folder"
        )
    return [_images(root / name, "every class needs test images; add some") for name in names]


def _split(files: Files) -> tuple[Files, Files]:
    for only in (of_class[0] for of_class in files if len(of_class) == 1):
        raise UserError(
            f"{only}: the only image of its class cannot both train and test; add more of them"
        )
    rows = [min(HELD_OUT, len(of_class)) for of_class in files]
    train = [[p for i, p in enumerate(f, 1) if i % n] for f, n in zip(files, rows, strict=True)]
    test = [[p for i, p in enumerate(f, 1) if not i % n] for f, n in zip(files, rows, strict=True)]
    return train, test


def _not_used(root: Path, parts: Sequence[Path], used: Collection[Path]) -> list[str]:
    """Say which files were left out: of other kinds, outside a class, or in other folders."""
    others = {root / name for name in _folders(root)} if root not in parts else set()
    inside = {Path(path) for part in parts for path in _walk(part)}
    left = sorted((others - {*parts}) | inside.difference(used))
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return [f"not used: {_shown(path.relative_to(root))}{more}" for path in left[:1]]


def _folders(root: Path) -> list[str]:
    with legible():
        return sorted(p.name for p in root.iterdir() if p.is_dir() and not _hidden(p.name))


def _images(folder: Path, remedy: str) -> list[Path]:
    """Return the image files at any depth, sorted by name."""
    there = list(_walk(folder)) if folder.is_dir() else []
    found = [path for path in there if os.path.splitext(path)[1].lower() in SUFFIXES]
    if not found:
        seen = f", only files like {_shown(Path(there[0]))}" if there else ""
        raise UserError(f"{folder}: no images here{seen}; {remedy}")
    return [Path(path) for path in sorted(found)]


def _walk(folder: str | Path) -> Iterator[str]:
    """Yield all files at any depth but those that systems hide; no folder that is a link."""
    waiting = [str(folder)]
    while waiting:
        with legible(), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if _hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry.path


def _hidden(name: str) -> bool:
    return name.startswith((".", "__")) or name.lower() in ("thumbs.db", "desktop.ini")


def _shown(path: PurePath) -> str:
    text = path.as_posix()
    return text if text.isprintable() else repr(text)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError):
        raise UserError(f"{path}: missing or not readable; {TINY_AGAIN}") from None
