"""TFLM_DECODE: compressed constants are decoded while reading, or refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.differential.cases_decode import CODES, HUFFMAN, LUT, PRUNE, header, network
from tests.differential.draw import SeededDraw

PAIRS = [(name, dtype) for name in CODES for dtype in ("int8", "int16")]


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_what_was_compressed_is_there(name: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    for seed in range(30):
        case, wanted = CODES[name](SeededDraw(seed), dtype)
        path.write_bytes(case.content)
        graph = load(path)
        (tensor,) = (t for t in graph.tensors if t.name == "decoded")
        assert tensor.constant is not None
        np.testing.assert_array_equal(tensor.constant.array(tensor.type), wanted)
        assert not {"codes", "table"} & {t.name for t in graph.tensors}


WRONG = {
    "no header": (b"1", b"123", "no header of version 1"),
    "another version": (b"1", b"\0\2" + bytes(20), "no header of version 1"),
    "another type": (b"1", header(127) + bytes(9), "codes of type 127 are not supported"),
    "no bits": (b"1", header(LUT) + bytes(9), "indices have no bits"),
    "few codes": (b"1", header(LUT, 7, 1) + bytes(200), "bytes of codes are too few"),
    "a short table": (b"\xff" * 9, header(LUT, 4, 1) + bytes(3), "beyond the 3 values"),
    "few values": (b"\xff" * 9, header(PRUNE) + bytes(3), "8 elements are kept, the table has 3"),
    "no codeword": (b"\xff" * 9, header(HUFFMAN, 16) + bytes(4), "in none of the tables"),
    "an endless codeword": (b"\0" * 9, header(HUFFMAN, 16) + bytes(8), "in none of the tables"),
}


@pytest.mark.parametrize("name", WRONG)
def test_damaged_codes_are_refused(name: str, tmp_path: Path) -> None:
    codes, table, message = WRONG[name]
    path = tmp_path / "model.tflite"
    path.write_bytes(network(codes, table, (2, 4), "int8"))
    with pytest.raises(CrtExportError, match=message):
        load(path)
