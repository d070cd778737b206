import hashlib
import io
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from peerlearn.data import DATASETS, Archive, download, get
from peerlearn.data.sources import Cifar10, TinyImageNet
from peerlearn.errors import UserError

FOLDER = "cifar-10-batches-py"


class Site:
    """A web site with one file, and what it was asked for."""

    def __init__(self) -> None:
        self.content = b""
        self.status = 200
        self.knows_ranges = True
        self.breaks_off_after: int | None = None
        self.ranges: list[str | None] = []
        self.url = ""


@pytest.fixture
def site() -> Iterator[Site]:
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.ranges.append(wanted)
            if state.status != 200:
                self.send_error(state.status)
                return
            start = int(re.findall(r"\d+", wanted)[0]) if wanted and state.knows_ranges else 0
            if start and start >= len(state.content):
                self.send_error(416)
                return
            body = state.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            if start:
                last = len(state.content) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{last + 1}")
            self.end_headers()
            self.wfile.write(body[: state.breaks_off_after])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def a_tar(names: tuple[str, ...] = (f"{FOLDER}/batches.meta", f"{FOLDER}/test_batch")) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 5000
            tar.addfile(info, io.BytesIO(bytes(range(250)) * 20))
    return file.getvalue()


def a_zip(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name in names:
            packed.writestr(name, b"content")
    return file.getvalue()


@pytest.fixture
def publish(site: Site, monkeypatch: pytest.MonkeyPatch) -> "Publish":
    return Publish(site, monkeypatch)


class Publish:
    """Put an archive on the site as `cifar10`."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site, self.monkeypatch = site, monkeypatch

    def __call__(self, content: bytes, md5: str | None = None, file: str = "c.tar.gz") -> None:
        self.site.content = content
        md5 = md5 or hashlib.md5(content).hexdigest()
        archive = Archive(f"{self.site.url}/{file}", md5, FOLDER)
        self.monkeypatch.setattr(Cifar10, "archive", archive)


def names_in(root: Path) -> list[str]:
    """All files and folders but the lock, which stays."""
    return sorted(path.name for path in root.iterdir() if path.suffix != ".lock")


def test_the_official_archives_and_their_checksums_are_known() -> None:
    archives = {name: source.archive for name, source in DATASETS.items() if source.archive}
    assert set(archives) == {"cifar10", "cifar100", "tiny"}
    assert all(re.fullmatch("[0-9a-f]{32}", archive.md5) for archive in archives.values())


def test_a_data_set_is_downloaded_verified_and_unpacked(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    calls: list[tuple[int, int]] = []
    folder = get("cifar10", tmp_path / "new", lambda done, total: calls.append((done, total)))
    assert names_in(folder) == ["batches.meta", "test_batch"]
    assert names_in(tmp_path / "new") == [FOLDER]
    assert calls[-1] == (len(publish.site.content), len(publish.site.content))


def test_a_zip_will_do(tmp_path: Path, publish: Publish) -> None:
    publish(a_zip(f"{FOLDER}/a", f"{FOLDER}/b/c"), file="c.zip")
    assert names_in(get("cifar10", tmp_path)) == ["a", "b"]


def test_what_is_there_is_not_downloaded_again(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    assert get("cifar10", tmp_path) == get("cifar10", tmp_path)
    assert len(publish.site.ranges) == 1


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    publish.site.breaks_off_after = 100
    size = len(publish.site.content)
    with pytest.raises(UserError, match=f"broke off after 100 of {size} bytes; .*again, or fetch"):
        get("cifar10", tmp_path)
    assert names_in(tmp_path) == ["c.tar.gz.part"]
    publish.site.breaks_off_after = None
    get("cifar10", tmp_path)
    assert publish.site.ranges == [None, "bytes=100-"]
    assert names_in(tmp_path) == [FOLDER]


def test_a_server_without_ranges_starts_anew(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    publish.site.knows_ranges = False
    (tmp_path / "c.tar.gz.part").write_bytes(b"half")
    get("cifar10", tmp_path)
    assert names_in(tmp_path) == [FOLDER]


def test_a_part_that_is_complete_is_used(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    (tmp_path / "c.tar.gz.part").write_bytes(publish.site.content)
    get("cifar10", tmp_path)
    assert names_in(tmp_path) == [FOLDER]


def test_a_wrong_checksum_removes_the_download_and_installs_nothing(
    tmp_path: Path, publish: Publish
) -> None:
    publish(a_tar(), md5="0" * 32)
    with pytest.raises(UserError, match=r"damaged or not the published file \(MD5 .*run the same"):
        get("cifar10", tmp_path)
    assert names_in(tmp_path) == []


def test_an_archive_put_there_by_hand_is_used_and_kept(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    (tmp_path / "c.tar.gz").write_bytes(publish.site.content)
    get("cifar10", tmp_path)
    assert names_in(tmp_path) == ["c.tar.gz", FOLDER]
    assert publish.site.ranges == []


def test_a_wrong_archive_put_there_by_hand_is_refused_and_left_to_its_owner(
    tmp_path: Path, publish: Publish
) -> None:
    publish(a_tar())
    (tmp_path / "c.tar.gz").write_bytes(publish.site.content[:-10])
    with pytest.raises(UserError, match="delete it and run: peerlearn data get cifar10"):
        get("cifar10", tmp_path)
    assert names_in(tmp_path) == ["c.tar.gz"]


@pytest.mark.parametrize("length", [0, 40, 150])
@pytest.mark.parametrize("content", [a_tar(), a_zip(f"{FOLDER}/a", f"{FOLDER}/b")])
def test_a_truncated_archive_installs_nothing(
    tmp_path: Path, publish: Publish, content: bytes, length: int
) -> None:
    publish(content[:length])  # truncated before its checksum was taken
    with pytest.raises(UserError, match=r"truncated or damaged \(\w+\); get it again") as error:
        get("cifar10", tmp_path)
    assert "\n" not in str(error.value)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("name", ["../evil", f"{FOLDER}/../../evil", "/tmp/evil", "..\\evil"])
def test_a_zip_that_would_write_elsewhere_is_refused(
    tmp_path: Path, publish: Publish, name: str
) -> None:
    publish(a_zip(f"{FOLDER}/a", name))
    with pytest.raises(UserError, match="would leave the folder; delete the archive"):
        get("cifar10", tmp_path / "in")
    assert names_in(tmp_path) == ["in"]
    assert names_in(tmp_path / "in") == []


def test_a_tar_that_would_write_elsewhere_is_refused(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar((f"{FOLDER}/a", "../evil")))
    with pytest.raises(UserError, match=r"'\.\./evil' would leave the folder; delete the archive"):
        get("cifar10", tmp_path / "in")
    assert names_in(tmp_path) == ["in"]
    assert names_in(tmp_path / "in") == []


LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)


@pytest.mark.parametrize("kind", LINKS)
def test_a_tar_with_links_devices_or_pipes_is_refused(
    tmp_path: Path, publish: Publish, kind: bytes
) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        info = tarfile.TarInfo(f"{FOLDER}/odd\nname")
        info.type, info.linkname = kind, "test_batch"
        tar.addfile(info)
    publish(file.getvalue())
    with pytest.raises(UserError, match=r"odd\\nname' is no file; delete the archive") as error:
        get("cifar10", tmp_path)
    assert str(error.value).isprintable()
    assert names_in(tmp_path) == []


def bombs() -> dict[str, bytes]:
    """A million bytes, packed into a thousand."""
    tar, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        info = tarfile.TarInfo(f"{FOLDER}/a")
        info.size = 10**6
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{FOLDER}/a", bytes(10**6))
    return {"tar": tar.getvalue(), "zip": packed.getvalue()}


@pytest.mark.parametrize("kind", bombs())
def test_an_archive_that_grows_beyond_all_measure_is_refused(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    publish(bombs()[kind])
    assert names_in(get("cifar10", tmp_path / "small")) == ["a"]
    monkeypatch.setattr(download, "SMALL", 1000)
    with pytest.raises(UserError, match="larger than the disk, or 100 times as large as packed"):
        get("cifar10", tmp_path / "large")
    assert names_in(tmp_path / "large") == []


@pytest.mark.parametrize("kind", bombs())
def test_an_archive_for_which_there_is_no_room_is_refused(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    publish(bombs()[kind])
    usage = type("Usage", (), {"free": 5})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"unpacked it is larger than the disk.*; make room"):
        get("cifar10", tmp_path)
    assert names_in(tmp_path) == []


def test_a_zip_with_a_password_or_an_unknown_way_of_packing_is_refused(
    tmp_path: Path, publish: Publish
) -> None:
    whole = a_zip(f"{FOLDER}/a")
    entry = whole.index(b"PK\1\2")
    for at, value in ((entry + 8, 1), (entry + 10, 99)):  # flags, method
        publish(whole[:at] + bytes([value]) + whole[at + 1 :])
        with pytest.raises(UserError, match=r"truncated or damaged \(\w+\); get it again"):
            get("cifar10", tmp_path)
    assert names_in(tmp_path) == []


def test_an_archive_of_something_else_is_refused(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar(("other/a",)))
    with pytest.raises(UserError, match=f"holds no {FOLDER}; delete it"):
        get("cifar10", tmp_path)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("status", [404, 500])
def test_what_the_server_refuses_names_the_address_and_the_place(
    tmp_path: Path, publish: Publish, status: int
) -> None:
    publish(a_tar())
    publish.site.status = status
    with pytest.raises(UserError, match=f"/c.tar.gz: the server answered {status}; .* by hand to "):
        get("cifar10", tmp_path)
    assert names_in(tmp_path) == []


def test_without_a_network_the_error_says_what_to_fetch_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TinyImageNet, "archive", Archive("http://127.0.0.1:9/t.zip", "0", "t"))
    place = re.escape(str(tmp_path / "t.zip"))
    with pytest.raises(
        UserError,
        match=rf"^http://127.0.0.1:9/t.zip: cannot be fetched .*refused.*hand to {place}$",
    ):
        get("tiny", tmp_path)


def test_what_cannot_be_downloaded_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"imagenet100: its licence .*/imagenet/train/<wnid>/"):
        get("imagenet100", tmp_path)
    with pytest.raises(UserError, match="mini: it comes with the package"):
        get("mini")
    with pytest.raises(UserError, match="no folder 'cifar'; did you mean cifar10"):
        get("cifar")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file: .*; make it writable or choose another folder"):
        get("cifar10", tmp_path / "file")
    assert publish.site.ranges == []


def test_two_at_once_download_once(tmp_path: Path, publish: Publish) -> None:
    publish(a_tar())
    threads = [threading.Thread(target=get, args=("cifar10", tmp_path)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publish.site.ranges == [None]
    assert names_in(tmp_path) == [FOLDER]
