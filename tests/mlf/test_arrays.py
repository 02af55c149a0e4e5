"""Inputs are matched by name and never converted silently; arrays travel in .npz files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from crtexport.mlf.arrays import bind_inputs, pattern_inputs, samples_of_models
from crtexport.mlf.npz import load_npz, save_npz
from crtexport.mlf.reader import PackageTensor
from crtexport.support.errors import CrtExportError
from tests.archives import claimed
from tests.helpers import standard_input

X = PackageTensor("serving:x", "int8", 6, (2, 3), "serving_x")
Y = PackageTensor("y", "float32", 8, (2,), "y")
GOOD_X = np.arange(6, dtype=np.int8).reshape(2, 3)
GOOD_Y = np.array([1, 2], dtype=np.float32)


@pytest.mark.parametrize("name", ["serving:x", "serving_x"])
def test_an_input_is_found_by_name_or_field(name: str) -> None:
    samples = bind_inputs([X, Y], {"y": GOOD_Y, name: GOOD_X})
    assert not samples.stacked
    (bound,) = samples.rows
    assert list(bound) == ["serving_x", "y"]
    assert bound["serving_x"].tolist() == GOOD_X.tolist()


def test_byte_and_memory_order_are_made_the_devices() -> None:
    given = {"serving_x": np.asfortranarray(GOOD_X), "y": GOOD_Y.astype(">f4")}
    (bound,) = bind_inputs([X, Y], given).rows
    assert bound["y"].tobytes() == GOOD_Y.astype("<f4").tobytes()
    assert bound["serving_x"].flags.c_contiguous


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": GOOD_Y}, "serving:x: there is no array"),
        ({"y": GOOD_Y, "serving:x": GOOD_X, "serving_x": GOOD_X}, "two arrays for this input"),
        ({"y": GOOD_Y, "serving_x": GOOD_X, "z": GOOD_Y, "a": GOOD_Y}, "is called 'a', 'z'"),
        ({"y": GOOD_Y, "serving_x": GOOD_X.reshape(3, 2)}, r"shape \(3, 2\), the input has \(2, 3"),
        ({"y": GOOD_Y, "serving_x": GOOD_X.astype(np.uint8)}, "is uint8, the input is int8"),
        ({"y": np.array(["a"], dtype=object), "serving_x": GOOD_X}, "is object, the input is floa"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(CrtExportError, match=message):
        bind_inputs([X, Y], given)


def test_samples_have_an_axis_of_their_own() -> None:
    given = {"y": np.stack([GOOD_Y, -GOOD_Y]), "serving_x": np.stack([GOOD_X] * 2)}
    samples = bind_inputs([X, Y], given)
    assert samples.stacked
    assert [row["y"].tolist() for row in samples.rows] == [[1, 2], [-1, -2]]
    assert samples.rows[0]["serving_x"].shape == (2, 3)
    single = bind_inputs([Y], {"y": GOOD_Y[None]})
    assert single.stacked
    assert len(single.rows) == 1


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (GOOD_Y, "serving:x: 2, y: no axis"),
        (np.stack([GOOD_Y] * 3), "serving:x: 2, y: 3"),
        (np.zeros((0, 2), np.float32), "one axis more, in front"),
    ],
)
def test_all_inputs_have_the_same_samples(y: np.ndarray, message: str) -> None:
    with pytest.raises(CrtExportError, match=message):
        bind_inputs([X, Y], {"y": y, "serving_x": np.stack([GOOD_X] * 2)})


def test_the_inputs_are_listed_in_the_hint() -> None:
    with pytest.raises(CrtExportError, match=r"serving_x int8\[2x3\], y float32\[2\]"):
        bind_inputs([X, Y], {})


def test_bytes_count_where_no_shape_is_known() -> None:
    foreign = PackageTensor("x", "int8", 6)
    assert bind_inputs([foreign], {"x": GOOD_X}).rows[0]["x"].shape == (2, 3)
    with pytest.raises(CrtExportError, match="the array has 5 bytes, the input has 6"):
        bind_inputs([foreign], {"x": np.zeros(5, np.int8)})


def test_the_pattern() -> None:
    (made,) = pattern_inputs([
        PackageTensor("s", "int8", 300, (3, 100)), PackageTensor("u", "uint8", 2, (2,)),
        PackageTensor("f", "float32", 8, (2,)), PackageTensor("b", "bool", 5, (5,)),
        PackageTensor("n", "int32", 8),
    ]).rows
    assert made["s"].tolist() == standard_input((3, 100)).tolist()
    assert made["u"].tolist() == [11, 48]
    assert made["f"].tolist() == [-117 / 128, -80 / 128]
    assert made["b"].tolist() == [False, False, False, False, True]
    assert made["n"].tolist() == [-117, -80]


def test_arrays_survive_a_file(tmp_path: Path) -> None:
    arrays = {"file": GOOD_X, "a/b": GOOD_Y}
    save_npz(tmp_path / "a", arrays)
    loaded = load_npz(tmp_path / "a")
    assert {name: array.tolist() for name, array in loaded.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    first = (tmp_path / "a").read_bytes()
    save_npz(tmp_path / "a", arrays)
    assert (tmp_path / "a").read_bytes() == first


def test_files_that_hold_no_named_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", GOOD_X)
    with pytest.raises(CrtExportError, match="one array without a name"):
        load_npz(tmp_path / "one.npy")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    (tmp_path / "text").write_text("x = 1")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut").write_bytes((tmp_path / "pickled.npz").read_bytes()[:60])
    for name in ("pickled.npz", "text", "empty", "cut"):
        with pytest.raises(CrtExportError, match="no archive of arrays"):
            load_npz(tmp_path / name)
    with pytest.raises(CrtExportError, match="No such file"):
        load_npz(tmp_path / "missing.npz")


def test_a_folder_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="can't be written"):
        save_npz(tmp_path, {"x": GOOD_X})
    assert tmp_path.is_dir()


HUGE = 3 << 40


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("name", "dtype", "shape", "message"),
    [
        ("serving_x", "|i1", (HUGE,), rf"serving_x: the array has shape \({HUGE},\), the in"),
        ("serving_x", "|i1", (2, HUGE), r"serving_x: .* the input has \(2, 3\)"),
        ("serving_x", "<f8", (2, 3), "serving_x: the array is float64, the input is int8"),
        ("serving_x", f"|V{1 << 30}", (2, 3), "serving_x: the array is .*, the input is int8"),
        ("serving_x", "|i1", (HUGE, 2, 3), "samples take 46,179,488,366,592 bytes, more than the"),
        ("z", "|i1", (HUGE,), "no input is called 'z'"),
    ],
)
def test_arrays_of_files_are_compared_before_they_are_read(
    tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...], message: str, version: int
) -> None:
    path = tmp_path / "x.npz"
    claimed(path, name, dtype, shape, version=version)
    count = shape[0] if len(shape) == 3 else 0
    claimed(path, "y", "<f4", (count, 2) if count else (2,))
    if name == "z":
        claimed(path, "serving_x", "|i1", (2, 3))
    with pytest.raises(CrtExportError, match=message) as raised:
        bind_inputs([X, Y], load_npz(path))
    assert name == "z" or str(path) in raised.value.location


def test_arrays_of_several_models_are_compared_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    claimed(path, "second/y", "<f4", (HUGE, 3))
    save_npz(tmp_path / "good.npz", {"first/y": GOOD_Y, "second/y": GOOD_Y})
    models = {"first": [Y], "second": [Y]}
    found = samples_of_models(models, load_npz(tmp_path / "good.npz"))
    assert [row["y"].tolist() for one in found.values() for row in one.rows] == [[1, 2], [1, 2]]
    claimed(path, "first/y", "<f4", (2,))
    with pytest.raises(CrtExportError, match=r"second → .*x.npz → second/y: the array has shape"):
        samples_of_models(models, load_npz(path))


def test_a_header_without_an_end_is_not_looked_for(tmp_path: Path) -> None:
    begin = np.lib.format.magic(2, 0) + (1 << 31).to_bytes(4, "little")
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", begin + b" " * (1 << 24))
    with pytest.raises(CrtExportError, match="no archive of arrays"):
        load_npz(tmp_path / "x.npz")


def test_a_member_that_has_fewer_bytes_than_it_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    claimed(path, "y", "<f4", (5,))
    wanted = PackageTensor("y", "float32", 20, (5,), "y")
    with pytest.raises(CrtExportError, match="no archive of arrays"):
        bind_inputs([wanted], load_npz(path))
