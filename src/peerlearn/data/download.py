"""Data sets from their official places: resumed, verified, and installed whole or not at all."""

import gzip
import hashlib
import http.client
import logging
import lzma
import shutil
import ssl
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path, PurePosixPath

from peerlearn.data.places import Progress, target
from peerlearn.data.sources import known
from peerlearn.errors import UserError
from peerlearn.files import locked

CHUNK = 1 << 20  # bytes
PATIENCE = 30  # seconds without an answer
_NETWORK = (
    urllib.error.URLError,
    http.client.HTTPException,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError),
    *(RuntimeError, ValueError, OverflowError),  # a password, a way of packing, a number, a time
)
MAX_RATIO = 100  # images hardly shrink: what grows more is no data set ...
SMALL = 1 << 27  # bytes ... unless it is small


def get(
    name: str, root: str | PathLike[str] | None = None, progress: Progress | None = None
) -> Path:
    """Download a data set, unless it is there, and return its folder.

    It goes to `root`, else $PEERLEARN_DATA, else the cache folder. A download that broke off goes
    on where it stopped. An archive that already lies in `root` is used, and kept.
    `progress(done, all)` is called with bytes; `all` is 0 while the server does not say.
    """
    source, place = known(name), target(root)
    archive = source.archive
    if archive is None:
        raise UserError(f"{name}: {source.get_by_hand(place)}")
    folder, file = place / archive.folder, place / archive.file
    with _cannot_write(place):
        place.mkdir(parents=True, exist_ok=True)
        with locked(place / f".{archive.file}.lock", _waiting):
            if folder.is_dir():
                return folder
            if file.is_file():
                _verify(file, archive.md5, f"delete it and run: peerlearn data get {name}")
                _install(file, folder)
                return folder
            part = place / f"{archive.file}.part"
            _download(archive.url, part, file, progress)
            try:
                _verify(part, archive.md5, "it was removed; run the same command again")
                _install(part, folder)
            except UserError:  # it will not get better; a download that broke off stays
                part.unlink(missing_ok=True)
                raise
            part.unlink(missing_ok=True)
            return folder


def _waiting() -> None:
    logging.getLogger(__name__).warning("another process gets this data set; waiting for it")


def _download(url: str, part: Path, file: Path, progress: Progress | None) -> None:
    """Fetch `url` into `part`, going on where an earlier attempt stopped."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    by_hand = f"check the network and run the same command again, or fetch it by hand to {file}"
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            if not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {done}-"):
                done = 0  # the server sends all of it
            length = int(answer.headers.get("Content-Length") or 0)
            total = done + length if length else 0
            with part.open("r+b" if done else "wb") as out:
                out.seek(done)
                while chunk := answer.read(CHUNK):
                    out.write(chunk)
                    done += len(chunk)
                    if progress:
                        progress(done, total)
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:  # nothing is left to send: the checksum decides
            return
        raise UserError(f"{url}: the server answered {error.code}; {by_hand}") from error
    except _NETWORK as error:
        why = str(getattr(error, "reason", error)) or type(error).__name__
        raise UserError(f"{url}: cannot be fetched ({why}); {by_hand}") from error
    if done < total:
        raise UserError(f"{url}: broke off after {done} of {total} bytes; {by_hand}")


def _verify(file: Path, md5: str, remedy: str) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != md5:
        raise UserError(
            f"{file}: damaged or not the published file (MD5 {digest.hexdigest()}, not {md5}); "
            f"{remedy}"
        )


def _install(file: Path, folder: Path) -> None:
    """Unpack beside `folder` and rename, so that the folder is whole or not there."""
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _unpack(file, beside)
        if not (beside / folder.name).is_dir():
            raise UserError(f"{file}: holds no {folder.name}; delete it and get it again")
        (beside / folder.name).replace(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _unpack(file: Path, into: Path) -> None:
    """Unpack files and folders, after a look at the name and the length of each."""
    free = shutil.disk_usage(into).free
    room = min(free, max(SMALL, MAX_RATIO * file.stat().st_size))
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as packed:
                for entry in packed.infolist():
                    room = _less(room, entry.file_size, file, entry.filename)
                    packed.extract(entry, into)
        else:
            with tarfile.open(file) as tar:
                for member in tar:
                    if not member.isfile() and not member.isdir():
                        raise UserError(f"{file}: {member.name!r} is no file; delete the archive")
                    room = _less(room, member.size, file, member.name)
                    tar.extract(member, into, filter="data")
    except UserError:
        raise
    except _DAMAGE as error:
        kind = type(error).__name__
        raise UserError(f"{file}: truncated or damaged ({kind}); get it again") from error


def _less(room: int, length: int, file: Path, name: str) -> int:
    """Return the bytes that are left after unpacking a file; refuse one that must not be."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or any(part == ".." or ":" in part for part in path.parts):
        raise UserError(f"{file}: {name!r} would leave the folder; delete the archive")
    if length > room:
        raise UserError(
            f"{file}: unpacked it is larger than the disk, or {MAX_RATIO} times as large as "
            "packed; make room, or delete it if it should not be"
        )
    return room - length


@contextmanager
def _cannot_write(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or place}: {error.strerror or error}; "
            "make it writable or choose another folder with root or PEERLEARN_DATA"
        ) from error
