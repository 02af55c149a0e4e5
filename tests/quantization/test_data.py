"""Calibration data in all its forms gives the same samples, and what doesn't fit is refused."""

from __future__ import annotations

import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.mlf.reader import PackageTensor
from crtexport.quantization.data import files_of, read_samples
from crtexport.support.errors import CrtExportError
from tests.archives import claimed
from tests.importers.onnx.writer import Array

IMAGE = PackageTensor("x:image", "float32", 4 * 2 * 3, (1, 2, 3), "x_image")
STATE = PackageTensor("state", "float32", 4 * 8, (2, 4), "state")
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((7, 1, 2, 3)).astype(np.float32)
STATES = RNG.standard_normal((7, 2, 4)).astype(np.float32)


def saved(folder: Path, **arrays: Array) -> str:
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return str(folder / "data.npz")


def in_folder(folder: Path, arrays: Array) -> str:
    """A file for each sample, written in another order than they have."""
    folder.mkdir()
    for index in reversed(range(len(arrays))):
        np.save(folder / f"{index:02}.npy", arrays[index])
    return str(folder)


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> str:
    (folder / f"{name}.py").write_text(f"import numpy as np\ndef batches():\n    {body}\n")
    monkeypatch.chdir(folder)
    return f"{name}:batches"


def test_each_form_gives_the_same_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    forms = [
        saved(tmp_path, **{"x:image": IMAGES}),
        in_folder(tmp_path / "whole", IMAGES),
        in_folder(tmp_path / "bare", IMAGES[:, 0]),
        module(tmp_path, monkeypatch, "arrays", (
            "x = np.load('images.npy'); yield x[:3]; yield x[3:5, 0]; yield x[5]; yield x[6:]"
        )),
        module(tmp_path, monkeypatch, "dicts", "return [{'x_image': np.load('images.npy')[:, 0]}]"),
    ]
    for source in forms:
        found = read_samples(source, [IMAGE], 100)
        assert found.keys() == {"x:image"}
        np.testing.assert_array_equal(found["x:image"], IMAGES, err_msg=source)


def test_inputs_go_by_their_names(tmp_path: Path) -> None:
    source = saved(tmp_path, state=STATES, x_image=IMAGES[:, 0])
    found = read_samples(source, [IMAGE, STATE], 100)
    np.testing.assert_array_equal(found["x:image"], IMAGES)
    np.testing.assert_array_equal(found["state"], STATES)
    (tmp_path / "folder").mkdir()
    in_folder(tmp_path / "folder" / "x:image", IMAGES)
    in_folder(tmp_path / "folder" / "state", STATES)
    again = read_samples(str(tmp_path / "folder"), [IMAGE, STATE], 100)
    np.testing.assert_array_equal(again["state"], STATES)


def test_one_array_of_the_inputs_shape_is_one_sample(tmp_path: Path) -> None:
    found = read_samples(saved(tmp_path, state=STATES[4]), [STATE], 100)
    np.testing.assert_array_equal(found["state"], STATES[4:5])


def test_of_too_many_samples_files_give_evenly_spaced_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_samples(saved(tmp_path, state=STATES), [STATE], 3)
    np.testing.assert_array_equal(found["state"], STATES[[0, 3, 6]])
    endless = module(tmp_path, monkeypatch, "endless", (
        "n = 0\n    while True: yield np.full((5, 2, 4), n := n + 1, np.float32)"
    ))
    assert read_samples(endless, [STATE], 12)["state"][:, 0, 0].tolist() == [1] * 5 + [2] * 5 + [
        3, 3
    ]


@given(st.integers(1, 9), st.integers(1, 12), st.booleans(), st.booleans())
def test_rows_of_a_file_are_those_of_the_array_in_memory(
    count: int, most: int, compressed: bool, columns_first: bool
) -> None:
    states = RNG.standard_normal((count, 2, 4)).astype(np.float32)
    images = RNG.standard_normal((count, 2, 3)).astype(np.float32)
    stored = {
        name: np.asfortranarray(array) if columns_first else array
        for name, array in (("state", states), ("x_image", images))
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        (np.savez_compressed if compressed else np.savez)(path, **stored)  # type: ignore[arg-type]
        found = read_samples(str(path), [STATE, IMAGE], most)
    rows = np.linspace(0, count - 1, min(count, most)).astype(int)
    np.testing.assert_array_equal(found["state"], states[rows])
    np.testing.assert_array_equal(found["x:image"], images[rows, None])


def test_a_network_without_inputs_takes_no_arrays(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="no input is called 'state'"):
        read_samples(saved(tmp_path, state=STATES), [], 5)


def test_samples_that_are_not_chosen_take_no_memory(tmp_path: Path) -> None:
    shape = 1 << 20, 2, 4
    with (
        zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("state.npy", "w") as stream,
    ):
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for _ in range(32):  # MB, which take 32 kB in the file
            stream.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        found = read_samples(str(tmp_path / "data.npz"), [STATE], 5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found["state"].shape == (5, 2, 4)
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("name", "shape", "problem"),
    [
        ("more", (1 << 40, 2, 4), "no input is called 'more'"),
        ("state", (1 << 40, 2, 5), r"state: the array has shape \(1099511627776, 2, 5\)"),
        ("state", (2, 1 << 40), r"state: the array has shape \(2, 1099511627776\)"),
        ("state", (7, 2, 4), "no archive of arrays that can be read"),
    ],
)
def test_arrays_are_compared_before_they_are_read(
    name: str, shape: tuple[int, ...], problem: str, tmp_path: Path
) -> None:
    claimed(tmp_path / "data.npz", name, "<f4", shape)
    if name != "state":
        claimed(tmp_path / "data.npz", "state", "<f4", (2, 4))
    with pytest.raises(CrtExportError, match=problem):
        read_samples(str(tmp_path / "data.npz"), [STATE], 5)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"staet": STATES}, "state: there is no array for this input\n.*is 'staet' meant"),
        ({"state": STATES, "more": STATES}, "no input is called 'more'"),
        ({"state": STATES.astype(np.float64)}, "the array is float64, the input is float32"),
        ({"state": STATES[:, :, :3]}, r"shape \(7, 2, 3\), the input has \(2, 4\)"),
        ({"state": STATES[:0]}, "there is no sample"),
        ({"state": np.where(np.arange(7) == 5, np.nan, STATES.T).T.astype(np.float32)},
         r"sample 5 has nan at \[0, 0\]"),
        ({"state": np.float32(3)}, r"shape \(\)"),
        ({}, "there is no array for this input"),
    ],
)
def test_what_does_not_fit_is_refused(
    arrays: dict[str, Array], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(CrtExportError, match=problem) as caught:
        read_samples(saved(tmp_path, **arrays), [STATE], 100)
    assert str(caught.value).startswith(str(tmp_path))


def test_folders_with_different_numbers_of_samples_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    in_folder(tmp_path / "folder" / "state", STATES)
    with pytest.raises(CrtExportError, match="x:image: 0, state: 7"):
        read_samples(str(tmp_path / "folder"), [IMAGE, STATE], 100)
    (tmp_path / "folder" / "state" / "00.npy").write_bytes(b"no array")
    with pytest.raises(CrtExportError, match=r"00\.npy: this is no array"):
        read_samples(str(tmp_path / "folder" / "state"), [STATE], 100)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise KeyError('lost')", "the function failed .KeyError: 'lost'"),
        ("return 3", "the function failed .TypeError: 'int' object is not iterable"),
        ("return []", "there is no sample"),
        ("return [np.zeros((2, 4), np.float32)]", "yields arrays, but the network has 2 inputs"),
    ],
)
def test_a_function_that_fails_is_no_traceback(
    body: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = module(tmp_path, monkeypatch, f"failing{abs(hash(body))}", body)
    with pytest.raises(CrtExportError, match=problem):
        read_samples(source, [IMAGE, STATE], 100)


def test_nothing_else_is_data(tmp_path: Path) -> None:
    assert files_of("package.module:name") == ()
    for source in (str(tmp_path / "none.npz"), "module:", "a b:c"):
        with pytest.raises(CrtExportError, match="no such file or folder"):
            files_of(source)
