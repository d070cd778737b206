import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import draw, draw_classes, own_cache, picture  # noqa: F401

from peerlearn.data import cache as cache_module
from peerlearn.data import image_folder
from peerlearn.data.cache import Rows, cached_images
from peerlearn.errors import UserError


def arrays_in(cache_dir: Path) -> list[Path]:
    return sorted(cache_dir.glob("images/*.npy"))


def names_in(cache_dir: Path) -> list[str]:
    """All files but the lock, which stays."""
    return sorted(p.name for p in (cache_dir / "images").iterdir() if p.suffix != ".lock")


def counting(value: int, count: int) -> Rows:
    return 2, 2, (np.full((3, 2, 2), value, np.uint8) for _ in range(count))


def never() -> Rows:
    raise AssertionError("decoded again")


def test_images_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_classes(tmp_path / "in", {"a": 3, "b": 3})
    first = image_folder(tmp_path / "in")
    monkeypatch.setattr("peerlearn.data.decode.read_image", never)
    again = image_folder(tmp_path / "in")
    assert torch.equal(first.train.x, again.train.x)


def test_all_images_of_a_data_set_are_one_array_that_is_mapped_not_loaded(
    tmp_path: Path, cache_dir: Path
) -> None:
    draw_classes(tmp_path / "in", {"a": 3, "b": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = image_folder(tmp_path / "in")
    (path,) = arrays_in(cache_dir)
    assert str(path) in Path("/proc/self/maps").read_text()
    assert data.train.x.untyped_storage().data_ptr() == data.test.x.untyped_storage().data_ptr()
    assert np.load(path).shape == (6, 3, 8, 8)


def test_writing_to_the_images_does_not_reach_the_file(tmp_path: Path) -> None:
    draw_classes(tmp_path / "in", {"a": 3, "b": 3})
    before = image_folder(tmp_path / "in").train.x.clone()
    image_folder(tmp_path / "in").train.x.zero_()
    assert torch.equal(image_folder(tmp_path / "in").train.x, before)


def test_an_array_larger_than_memory_can_be_mapped(cache_dir: Path) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    count = 4 * memory // (3 * 1024 * 1024)
    path = cache_dir / "images" / "huge.npy"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (count, 3, 1024, 1024)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + count * 3 * 1024 * 1024)  # a hole: takes no room on the disk
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = cached_images("huge", count, never)
    assert int(x[count - 1].sum()) == 0


def test_memory_stays_small_while_an_array_is_made() -> None:
    """400 MB of pixels are written by a process that may take 150 MB more than it has."""
    code = """
import resource, numpy as np
from peerlearn.data.cache import cached_images
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
image = np.zeros((3, 1000, 1000), np.uint8)
before = peak()
x = cached_images("k", 130, lambda: (1000, 1000, (image for _ in range(130))))
assert x.shape == (130, 3, 1000, 1000) and peak() - before < 150_000, peak() - before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_changed_image_is_seen_even_if_its_length_and_time_are_the_same(tmp_path: Path) -> None:
    draw_classes(tmp_path / "in", {"a": 2, "b": 2}, "ppm")
    path = tmp_path / "in" / "a" / "000.ppm"
    before, stat = image_folder(tmp_path / "in").train.x.clone(), path.stat()
    draw(path, seed=99)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    after = image_folder(tmp_path / "in").train.x
    assert (before == after).flatten(1).all(1).tolist() == [False, True]


def test_the_same_images_elsewhere_and_later_share_one_array(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_classes(tmp_path / "one", {"a": 2, "b": 2})
    image_folder(tmp_path / "one")
    (tmp_path / "one").rename(tmp_path / "two")
    os.utime(tmp_path / "two" / "a" / "000.png", (1, 1))
    monkeypatch.setattr("peerlearn.data.decode.read_image", never)
    image_folder(tmp_path / "two")
    assert len(arrays_in(cache_dir)) == 1


def test_another_size_is_another_array(tmp_path: Path, cache_dir: Path) -> None:
    draw_classes(tmp_path / "in", {"a": 2, "b": 2})
    for size in (None, 4, 5):
        image_folder(tmp_path / "in", size=size)
    assert len(arrays_in(cache_dir)) == 3


@pytest.mark.parametrize("length", [0, 50, 128, 131])
def test_a_cut_array_is_made_again(cache_dir: Path, length: int) -> None:
    cached_images("k", 2, lambda: counting(1, 2))
    path = cache_dir / "images" / "k.npy"
    path.write_bytes(path.read_bytes()[:length])
    assert cached_images("k", 2, lambda: counting(2, 2)).unique().tolist() == [2]


def _build(mark: Path) -> None:
    def rows() -> Rows:
        with mark.open("a") as file:
            file.write("built\n")
        time.sleep(0.3)
        return counting(7, 4)

    assert cached_images("k", 4, rows).unique().tolist() == [7]


def test_four_processes_at_once_decode_once_and_all_have_the_images(
    tmp_path: Path, cache_dir: Path
) -> None:
    fork = multiprocessing.get_context("fork")
    four = [fork.Process(target=_build, args=(tmp_path / "mark",)) for _ in range(4)]
    for process in four:
        process.start()
    for process in four:
        process.join()
    assert [process.exitcode for process in four] == [0, 0, 0, 0]
    assert (tmp_path / "mark").read_text() == "built\n"
    assert names_in(cache_dir) == ["k.npy"]


def _die_in_the_middle() -> None:
    def rows() -> Iterator[np.ndarray]:
        yield np.ones((3, 2, 2), np.uint8)
        os.kill(os.getpid(), 9)

    cached_images("k", 2, lambda: (2, 2, rows()))


def test_a_killed_process_leaves_neither_a_half_array_nor_a_held_lock(cache_dir: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_in_the_middle)
    process.start()
    process.join()
    assert process.exitcode == -9
    assert not arrays_in(cache_dir)
    assert cached_images("k", 2, lambda: counting(3, 2)).unique().tolist() == [3]
    assert names_in(cache_dir) == ["k.npy"]


def _slowly(mark: Path, seconds: float) -> Iterator[np.ndarray]:
    """Four images; the middle is marked by a file."""
    for i in range(4):
        if i == 2:
            mark.touch()
            time.sleep(seconds)
        yield np.full((3, 2, 2), 5, np.uint8)


def _build_slowly(mark: Path, seconds: float) -> None:
    x = cached_images("k", 4, lambda: (2, 2, _slowly(mark, seconds)))
    assert x.unique().tolist() == [5]


def test_when_the_one_that_builds_is_killed_the_others_finish(
    tmp_path: Path, cache_dir: Path
) -> None:
    fork = multiprocessing.get_context("fork")
    builder = fork.Process(target=_build_slowly, args=(tmp_path / "first", 60))
    builder.start()
    wait_for(tmp_path / "first")
    others = [fork.Process(target=_build_slowly, args=(tmp_path / "next", 0)) for _ in range(3)]
    for process in others:
        process.start()
    time.sleep(0.1)  # so that they wait for the lock
    assert all(process.is_alive() for process in others)
    builder.kill()
    for process in (builder, *others):
        process.join()
    assert [process.exitcode for process in (builder, *others)] == [-9, 0, 0, 0]
    assert names_in(cache_dir) == ["k.npy"]


def test_a_read_during_a_write_waits_for_the_whole_array(tmp_path: Path, cache_dir: Path) -> None:
    builder = multiprocessing.get_context("fork").Process(
        target=_build_slowly, args=(tmp_path / "mark", 0.3)
    )
    builder.start()
    wait_for(tmp_path / "mark")
    assert names_in(cache_dir) == ["k.part"]
    assert cached_images("k", 4, never).unique().tolist() == [5]
    builder.join()


def test_an_array_that_is_made_again_stays_whole_for_its_readers(cache_dir: Path) -> None:
    before = cached_images("k", 2, lambda: counting(1, 2))
    (cache_dir / "images" / "k.npy").unlink()
    cached_images("k", 2, lambda: counting(2, 2))
    assert before.unique().tolist() == [1]


def wait_for(path: Path) -> None:
    for _ in range(1000):
        if path.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} did not come")


def _load(folder: Path, mark: Path) -> None:
    data = image_folder(folder, progress=lambda *_: mark.open("a").write("decoded\n"))
    assert torch.equal(data.train.x[0], torch.from_numpy(picture(0).transpose(2, 0, 1)))
    assert len(data.notes) == 1


def test_four_processes_at_once_read_one_folder(tmp_path: Path, cache_dir: Path) -> None:
    draw_classes(tmp_path / "in", {"a": 5, "b": 5})
    fork = multiprocessing.get_context("fork")
    four = [fork.Process(target=_load, args=(tmp_path / "in", tmp_path / "m")) for _ in range(4)]
    for process in four:
        process.start()
    for process in four:
        process.join()
    assert [process.exitcode for process in four] == [0, 0, 0, 0]
    assert (tmp_path / "m").read_text() == "decoded\n"
    assert [Path(name).suffix for name in names_in(cache_dir)].count(".npy") == 1
    assert not [name for name in names_in(cache_dir) if name.endswith((".part", ".new"))]


def test_what_killed_processes_left_half_written_does_not_pile_up(cache_dir: Path) -> None:
    (cache_dir / "images").mkdir(parents=True)
    old, new = cache_dir / "images" / "old.part", cache_dir / "images" / "new.part"
    for path in (old, new):
        path.write_bytes(bytes(100))
    os.utime(old, (1, 1))  # nobody writes to it any more
    cached_images("k", 2, lambda: counting(3, 2))
    assert names_in(cache_dir) == ["k.npy", "new.part"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"../../elsewhere", b"0" * 31])
def test_a_damaged_note_is_made_again(tmp_path: Path, cache_dir: Path, content: bytes) -> None:
    draw_classes(tmp_path / "in", {"a": 2, "b": 2})
    image_folder(tmp_path / "in")
    (note,) = cache_dir.glob("images/*.key")
    whole = note.read_bytes()
    note.write_bytes(content)
    image_folder(tmp_path / "in")
    assert note.read_bytes() == whole


def test_an_array_of_another_kind_is_made_again(cache_dir: Path) -> None:
    (cache_dir / "images").mkdir(parents=True)
    for other in (np.zeros((2, 3, 2, 2)), np.zeros(2, np.uint8), np.zeros((2, 1, 2, 2), np.uint8)):
        np.save(cache_dir / "images" / "k.npy", other)
        assert cached_images("k", 2, lambda: counting(3, 2)).unique().tolist() == [3]


def test_a_cache_that_cannot_be_written_is_an_error_that_says_what_to_do(
    tmp_path: Path, cache_dir: Path
) -> None:
    cache_dir.write_text("a file in the way")
    draw_classes(tmp_path / "in", {"a": 2, "b": 2})
    with pytest.raises(
        UserError,
        match=r"cache/images: cannot be written .*; make it writable or set PEERLEARN_CACHE",
    ):
        image_folder(tmp_path / "in")


def test_a_disk_that_is_or_gets_full_is_an_error_and_leaves_nothing(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> Iterator[np.ndarray]:
        yield np.ones((3, 2, 2), np.uint8)
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"No space left on device.*set PEERLEARN_CACHE"):
        cached_images("k", 2, lambda: (2, 2, rows()))
    usage = type("Usage", (), {"free": 5})
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"need 0\.0 GB and 0\.0 GB are free; make room"):
        cached_images("k", 2, lambda: counting(1, 2))
    assert names_in(cache_dir) == []


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    draw_classes(tmp_path / "in", {"a": 3, "b": 3})
    calls: list[tuple[int, int]] = []
    image_folder(tmp_path / "in", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (6, 6)
