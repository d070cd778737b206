"""Data sets by name: one class each says where it is, how it is got, read and used.

Nothing here imports torch or numpy before a data set is read, so that a listing comes at once.
"""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from typing_extensions import override

from peerlearn.data import DATASETS
from peerlearn.data.places import SHEET, Progress, imagenet100_classes, legible, places, target
from peerlearn.errors import UserError
from peerlearn.files import user_path

if TYPE_CHECKING:
    from peerlearn.data.images import Dataset


class Archive(NamedTuple):
    """What is published, and the folder it unpacks to."""

    url: str
    md5: str  # as published; guards against damage
    folder: str

    @property
    def file(self) -> str:
        """Return the name of the archive's file."""
        return self.url.rpartition("/")[2]


class Protocol(NamedTuple):
    """How experiments use a data set; settings go by their dotted names.

    >>> tiny = DATASETS["tiny"].protocol
    >>> tiny.settings["net.pool"], tiny.for_method("onpro")["net.pool"]
    ('2x2', 'global')
    """

    memories: tuple[int, ...] = ()  # sizes that are reported; the first one is the default
    settings: Mapping[str, Any] = {}  # for all methods ...
    by_method: Mapping[str, Mapping[str, Any]] = {}  # ... and what some methods have instead
    published: bool = False  # whether the paper has it

    def for_method(self, name: str) -> dict[str, Any]:
        """The settings for a method."""
        return {**self.settings, **self.by_method.get(name, {})}


class Source(ABC):
    """A data set that has a name.

    The first line of its docstring says what it is. Other packages add theirs by an entry point
    of the group `peerlearn.datasets`, programs by `DATASETS.add`:

    >>> class Pets(Source):
    ...     '''Cats and dogs of 64 x 64.'''
    ...
    ...     name = "pets"
    ...     folders = ("pets-v1",)  # in one of the places where data sets are looked for
    ...     protocol = Protocol(memories=(100,), settings={"stream.tasks": 2})
    ...
    ...     def read(self, folder, progress):
    ...         return image_folder(folder, size=64, progress=progress)
    >>> print(Pets().find([Path("nowhere")]))
    None
    """

    name: ClassVar[str]
    folders: ClassVar[tuple[str, ...]] = ()  # names of its folder, besides that of the archive
    marks: ClassVar[tuple[str, ...]] = ()  # files in it by which it is recognised
    is_image_folder: ClassVar[bool] = False  # whether a path to it is read as any image folder is
    train: ClassVar[int | None] = None  # images, if published
    test: ClassVar[int | None] = None
    archive: ClassVar[Archive | None] = None
    by_hand: ClassVar[str] = "there is no download: put its folder ({folders}) into {root}"
    protocol: ClassVar[Protocol] = Protocol()

    @abstractmethod
    def read(self, folder: Path, progress: Progress | None) -> "Dataset":
        """Read it from the folder where it was found."""

    def get_by_hand(self, root: Path) -> str:
        """Say what to do where there is no archive; `root` is where to put it."""
        return self.by_hand.format(root=root, folders=" or ".join(self.folders))

    def is_at(self, folder: Path) -> bool:
        """Whether what is in a folder, whatever its name, is this data set."""
        return bool(self.marks) and all((folder / mark).is_file() for mark in self.marks)

    def find(self, places: Sequence[Path]) -> Path | None:
        """Return the first folder that has the right name or content; None if there is none."""
        names = (*self.folders, *([self.archive.folder] if self.archive else []))
        for place in places:
            for folder in (place / name for name in names):
                if folder.is_dir():
                    return folder
            if self.is_at(place):
                return place
        return None


class Mini(Source):
    """10 classes of 32 x 32, real CIFAR-10 images; comes with the package."""

    name = "mini"
    train, test = 3_000, 1_000
    by_hand = "it comes with the package: use it without getting it"
    protocol = Protocol(
        memories=(200,),
        settings={
            "stream.tasks": 5,
            "net.width": 16,
            "collaboration.chain.ops": 3,
            "collaboration.chain.magnitude": 15,
            "collaboration.shadow.alpha": 0.05,  # a stream of 300 steps
        },
    )

    @override
    def find(self, places: Sequence[Path]) -> Path:
        return SHEET

    @override
    def read(self, folder: Path, progress: Progress | None) -> "Dataset":
        from peerlearn.data.embedded import mini

        return mini()


class Cifar10(Source):
    """10 classes of 32 x 32."""

    name = "cifar10"
    marks = ("batches.meta",)
    train, test = 50_000, 10_000
    archive = Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
    )
    protocol = Protocol(
        memories=(500, 1000),
        settings={
            "stream.tasks": 5,
            "collaboration.chain.ops": 3,
            "collaboration.chain.magnitude": 15,
        },
        published=True,
    )

    @override
    def read(self, folder: Path, progress: Progress | None) -> "Dataset":
        from peerlearn.data.cifar import cifar10

        return cifar10(folder)


class Cifar100(Source):
    """100 classes of 32 x 32."""

    name = "cifar100"
    marks = ("meta", "train")
    train, test = 50_000, 10_000
    archive = Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
    )
    protocol = Protocol(
        memories=(1000, 2000, 5000),
        settings={
            "stream.tasks": 10,
            "collaboration.chain.ops": 3,
            "collaboration.chain.magnitude": 15,
        },
        published=True,
    )

    @override
    def read(self, folder: Path, progress: Progress | None) -> "Dataset":
        from peerlearn.data.cifar import cifar100

        return cifar100(folder)


class TinyImageNet(Source):
    """Tiny-ImageNet: 200 classes of 64 x 64."""

    name = "tiny"
    marks = ("wnids.txt",)
    train, test = 100_000, 10_000
    archive = Archive(
        url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        md5="90528d7ca1a48142e341f4ef8d21d0de",
        folder="tiny-imagenet-200",
    )
    protocol = Protocol(
        memories=(2000, 5000, 10000),
        settings={
            "stream.tasks": 100,
            "net.pool": "2x2",
            "collaboration.chain.ops": 1,
            "collaboration.chain.magnitude": 11,
        },
        by_method={"onpro": {"net.pool": "global"}},
        published=True,
    )

    @override
    def read(self, folder: Path, progress: Progress | None) -> "Dataset":
        from peerlearn.data.folders import tiny_imagenet

        return tiny_imagenet(folder, progress)


class ImageNet100(Source):
    """100 classes of ImageNet, resized to 224 x 224."""

    name = "imagenet100"
    folders = ("imagenet100", "imagenet")
    is_image_folder = True
    test = 5_000
    by_hand = (
        "its licence forbids a download: register at https://image-net.org/download.php, "
        "get ILSVRC2012 and lay it out as {root}/imagenet/train/<wnid>/*.JPEG and "
        "{root}/imagenet/val/<wnid>/*.JPEG (the classes in peerlearn/data/imagenet100.txt do)"
    )
    protocol = Protocol(
        memories=(5000,),
        settings={
            "stream.tasks": 10,
            "net.stem": "7x7",
            "net.normalise": True,
            "collaboration.chain.ops": 3,
            "collaboration.chain.magnitude": 11,
        },
        published=True,
    )

    @override
    def is_at(self, folder: Path) -> bool:
        return (folder / "train" / imagenet100_classes()[0]).is_dir()

    @override
    def read(self, folder: Path, progress: Progress | None) -> "Dataset":
        from peerlearn.data.folders import imagenet100

        return imagenet100(folder, progress)


def load(
    data: str | PathLike[str],
    root: str | PathLike[str] | None = None,
    *,
    size: int | None = None,
    progress: Progress | None = None,
) -> "Dataset":
    """Read a data set by its name, or an image folder by its path.

    Named sets are looked for in `root` if it is given, else in $PEERLEARN_DATA, ./data and the
    cache folder. `size` resizes an image folder (see `image_folder`). `progress(done, all)` is
    called while images are decoded for the first time.

    >>> load("mini").train.num_classes
    10
    """
    named = str(data) in DATASETS
    if named and size is not None:
        raise UserError(f"{data}: images keep their size; leave out size {size}")
    with legible():
        if named:
            return _read(str(data), where(str(data), root), progress)
        return _load_folder(user_path(data), size, progress)


def find(name: str, root: str | PathLike[str] | None = None) -> Path | None:
    """Return the folder (for `mini`, the file) of a named data set, or None if it is not there."""
    with legible():
        return known(name).find(places(root))


def where(name: str, root: str | PathLike[str] | None = None) -> Path:
    """Return the folder of a named data set; an error says how to get it."""
    found, source = find(name, root), known(name)
    if found is None:
        looked = " or ".join(str(place) for place in places(root))
        how = source.get_by_hand(target(root))
        if source.archive:
            option = f" --root {root}" if root else ""
            how = f"run: peerlearn data get {name}{option}, or put {source.archive.folder} there"
        raise UserError(f"{name}: not found in {looked}; {how}")
    return found


def known(name: str) -> Source:
    """Return the source of this name; an error names the nearest one."""
    if name in DATASETS:
        return DATASETS[name]()
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(DATASETS)}"
    raise UserError(f"no data set and no folder {name!r}; {hint}")


def _load_folder(path: Path, size: int | None, progress: Progress | None) -> "Dataset":
    from peerlearn.data.folders import image_folder

    if not path.is_dir():
        if path.exists():
            raise UserError(f"{path}: not a folder; name one with a folder of images per class")
        known(str(path))
    for name in DATASETS if size is None else ():
        source = known(name)
        if source.is_at(path) and not source.is_image_folder:
            return _read(name, path, progress)
    return image_folder(path, size, progress)


def _read(name: str, folder: Path, progress: Progress | None) -> "Dataset":
    return replace(known(name).read(folder, progress), name=name)
