"""Spectra of TensorFlow's converter: RFFT2D of rows, and parts of complex numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from crtexport.verification import verify
from tests.helpers import require, require_reference
from tests.tflite_builder import ModelBuilder


def written(
    path: Path, part: str, samples: int, sizes: tuple[int, int], *, rows: int = 1,
    dtype: str = "float32", constant: bool = True,
) -> Path:
    """Two frames, of which a spectrum is made, reshaped, and ``part`` taken, or "" for nothing."""
    bins = sizes[1] // 2 + 1
    m = ModelBuilder()
    x = m.tensor("x", (1, 2, rows, samples), dtype)
    lengths = m.tensor("lengths", (2,), "int32", data=sizes if constant else None)
    spectrum = m.tensor("spectrum", (1, 2, sizes[0], bins), "complex64")
    m.op("RFFT2D", [x, lengths], [spectrum], version=1)
    inputs = [x] if constant else [x, lengths]
    if not part:
        path.write_bytes(m.build(inputs, [spectrum]))
        return path
    flat = m.tensor("flat", (2, sizes[0] * bins), "complex64")
    m.op("RESHAPE", [spectrum, m.tensor("shape", (2,), "int32", data=(2, -1))], [flat])
    y = m.tensor("y", (2, sizes[0] * bins))
    m.op(part, [flat], [y], version=1)
    path.write_bytes(m.build(inputs, [y]))
    return path


@pytest.mark.parametrize(("part", "samples", "length"), [
    ("COMPLEX_ABS", 64, 64), ("COMPLEX_ABS", 50, 64), ("REAL", 70, 32), ("IMAG", 16, 16),
])
def test_exported_code_agrees_with_litert(
    part: str, samples: int, length: int, tmp_path: Path
) -> None:
    require_reference("ai-edge-litert")
    require("gcc")
    path = written(tmp_path / "m.tflite", part, samples, (1, length))
    assert verify(path, samples=3, numerics="litert", emit="c").agrees


def test_mistakes_are_said(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    for given, message in (
        ({"rows": 4, "sizes": (4, 16)}, "transforms of 4 of the 4 rows of .* not supported"),
        ({"constant": False}, r"the lengths \(tensor 'lengths'\) must be 2 constant int32"),
        ({"dtype": "int16"}, r"rows of float32 are transformed, not int16\[1x2x1x16\]"),
        ({"sizes": (1, 14)}, "operator 2.*the length 14 is not twice a product"),
    ):
        written(path, "REAL", 16, **{"sizes": (1, 16), **given})  # type: ignore[arg-type]
        with pytest.raises(CrtExportError, match=message):
            load(path)
    written(path, "", 16, (1, 16))
    with pytest.raises(CrtExportError, match="RFFT2D: operator 0"):
        load(path)
