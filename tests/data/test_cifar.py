import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.pickles import by_python2

from peerlearn.data.cifar import cifar10, cifar100
from peerlearn.errors import UserError

Writer = Callable[[Any], bytes]
NAMES = ["cat", "dog"]


def with_bytes_keys(content: dict[str, Any]) -> bytes:
    return pickle.dumps({key.encode(): value for key, value in content.items()}, protocol=2)


def with_str_keys(content: Any) -> bytes:
    return pickle.dumps(content, protocol=4)


def pixels(n: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + n * 3072).reshape(n, 3072).astype(np.uint8)


def write_cifar10(parent: Path, write: Writer = with_str_keys) -> Path:
    folder = parent / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(5):
        content = {"data": pixels(2, first=i), "labels": [i % 2, 1]}
        (folder / f"data_batch_{i + 1}").write_bytes(write(content))
    (folder / "test_batch").write_bytes(write({"data": pixels(1), "labels": [1]}))
    (folder / "batches.meta").write_bytes(write({"label_names": NAMES}))
    return folder


def write_cifar100(parent: Path, write: Writer = with_str_keys) -> Path:
    folder = parent / "cifar-100-python"
    folder.mkdir()
    for split in ("train", "test"):
        content = {"data": pixels(3), "fine_labels": [0, 1, 0], "coarse_labels": [9, 9, 9]}
        (folder / split).write_bytes(write(content))
    (folder / "meta").write_bytes(write({"fine_label_names": NAMES, "coarse_label_names": ["x"]}))
    return folder


@pytest.mark.parametrize("write", [by_python2, with_bytes_keys, with_str_keys])
def test_files_of_every_writer_hold_the_same_images(tmp_path: Path, write: Writer) -> None:
    write_cifar10(tmp_path, write)
    with warnings.catch_warnings(action="error"):
        train, test, name = cifar10(tmp_path)
    assert (name, len(train), len(test), train.class_names) == ("cifar10", 10, 1, ("cat", "dog"))
    assert train.y.tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 0, 1]
    expected = np.concatenate([pixels(2, first=i) for i in range(5)]).reshape(-1, 3, 32, 32)
    assert (train.x.numpy() == expected).all()


@pytest.mark.parametrize("write", [by_python2, with_bytes_keys, with_str_keys])
def test_cifar100_has_its_fine_labels(tmp_path: Path, write: Writer) -> None:
    write_cifar100(tmp_path, write)
    train, test, name = cifar100(tmp_path)
    assert (name, train.class_names) == ("cifar100", ("cat", "dog"))
    assert train.y.tolist() == test.y.tolist() == [0, 1, 0]


def test_the_folder_itself_will_do(tmp_path: Path) -> None:
    assert len(cifar10(write_cifar10(tmp_path)).train) == 10
    assert len(cifar100(str(write_cifar100(tmp_path))).train) == 3


class Harmful:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.trace}",)


def test_a_doctored_file_is_refused_and_not_executed(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    folder = write_cifar10(tmp_path)
    doctored = folder / "data_batch_3"
    doctored.write_bytes(pickle.dumps({"data": Harmful(trace), "labels": [0]}))
    with pytest.raises(UserError, match=r"data_batch_3: asks to load '(posix|nt)\.system'"):
        cifar10(folder)
    assert not trace.exists()
    pickle.loads(doctored.read_bytes())  # the same file would have done its harm
    assert trace.exists()


@pytest.mark.parametrize("name", ["builtins.eval", "numpy.load", "numpy.core.multiarray.scalar"])
def test_no_other_global_is_admitted(tmp_path: Path, name: str) -> None:
    folder = write_cifar10(tmp_path)
    module, _, attribute = name.rpartition(".")
    (folder / "test_batch").write_bytes(f"c{module}\n{attribute}\n.".encode())
    with pytest.raises(UserError, match=f"asks to load '{name}'"):
        cifar10(folder)


def test_encode_is_admitted_for_plain_bytes_only(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(b"c_codecs\nencode\n\x8c\x01a\x8c\x05rot13\x86R.")
    with pytest.raises(UserError, match=r"asks to load _codecs\.encode in a strange way"):
        cifar10(folder)


def test_a_truncated_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    whole = (folder / "data_batch_2").read_bytes()
    for length in (0, 1, 50, len(whole) // 2, len(whole) - 1):
        (folder / "data_batch_2").write_bytes(whole[:length])
        with pytest.raises(
            UserError, match=r"data_batch_2: cannot be read .*unpack https"
        ) as error:
            cifar10(folder)
        assert "\n" not in str(error.value)


def test_a_page_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path)
    (folder / "train").write_text("<html>Not found</html>")
    with pytest.raises(UserError, match=r"train: cannot be read \(it has a step b'<'"):
        cifar100(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    for name in ("test_batch", "batches.meta"):
        (folder / name).unlink()
        with pytest.raises(UserError, match=f"{name}: the file is missing; unpack"):
            cifar10(tmp_path)


@pytest.mark.parametrize("load", [cifar10, cifar100])
def test_a_missing_folder_is_an_error_that_says_where_to_get_the_data(
    tmp_path: Path, load: Callable[[Path], object]
) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=r"no cifar-.* here; .*https://.*\.tar\.gz there"):
            load(place)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"labels": [0]}, "data is not an array"),
        ({"data": pixels(1)[:, :-1], "labels": [0]}, "data is not an array"),
        ({"data": pixels(1).astype(np.int8), "labels": [0]}, "data is not an array"),
        ({"data": pixels(1).astype(float), "labels": [0]}, "cannot be read .* whole numbers"),
        ({"data": pixels(1)}, "labels are not 1 whole numbers from 0 to 1"),
        ({"data": pixels(2), "labels": [0]}, "labels are not 2 whole numbers"),
        ({"data": pixels(1), "labels": [2]}, "labels are not 1 whole numbers from 0 to 1"),
        ({"data": pixels(1), "labels": ["cat"]}, "labels are not 1 whole numbers"),
        ({"data": pixels(1), "labels": [True]}, "labels are not 1 whole numbers"),
        ({"data": pixels(1), "labels": np.array([0, 1])}, "labels are not 1 whole numbers"),
        ({"data": pixels(1), "labels": np.array([[0]])}, "labels are not 1 whole numbers"),
        ([pixels(1)], "holds no dictionary"),
    ],
)
def test_a_file_of_the_wrong_shape_is_an_error(tmp_path: Path, content: Any, message: str) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "test_batch").write_bytes(with_str_keys(content))
    with pytest.raises(UserError, match=f"test_batch: {message}.*; unpack https"):
        cifar10(folder)


def test_labels_may_be_an_array(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    content = {"data": pixels(2), "labels": np.array([1, 0])}
    (folder / "test_batch").write_bytes(with_str_keys(content))
    assert cifar10(folder).test.y.tolist() == [1, 0]


@pytest.mark.parametrize("names", [10, [], [1, 2], ["cat", "do\ng"]])
def test_class_names_must_be_names(tmp_path: Path, names: Any) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "batches.meta").write_bytes(with_str_keys({"label_names": names}))
    with pytest.raises(UserError, match=r"batches\.meta: label_names is not a list of names"):
        cifar10(folder)


@pytest.mark.parametrize("write", [by_python2, with_bytes_keys, with_str_keys])
def test_arrays_by_columns_and_of_other_byte_orders_are_read(tmp_path: Path, write: Writer) -> None:
    folder = write_cifar10(tmp_path, write)
    content = {"data": np.asfortranarray(pixels(2)), "labels": np.array([1, 0], ">i4")}
    (folder / "test_batch").write_bytes(write(content))
    test = cifar10(folder).test
    assert test.y.tolist() == [1, 0]
    assert np.array_equal(test.x.numpy().reshape(2, -1), pixels(2))


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    (folder / "data_batch_2").unlink()
    os.mkfifo(folder / "data_batch_2")
    with pytest.raises(UserError, match="data_batch_2: is not a plain file, no CIFAR file; unpack"):
        cifar10(folder)


def test_a_file_that_is_far_too_long_is_refused_and_not_read(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    with (folder / "data_batch_2").open("r+b") as file:
        file.truncate(1 << 40)  # a hole: takes no room on the disk
    with pytest.raises(UserError, match="data_batch_2: is over 536870912 bytes long, no"):
        cifar10(folder)
