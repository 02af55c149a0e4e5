"""Weights that are packed in pieces are those that are packed at once, wherever they come from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.ir.types import ConstantRef, DType, Made
from crtexport.lowering import weight_packing
from crtexport.lowering.weight_packing import Matrix, Packing, packed
from crtexport.schedules.common.conv_geometry import Windows
from crtexport.schedules.mve import chunks as mve_chunks
from crtexport.schedules.mve import float as mve_float
from crtexport.schedules.rvv import dense as rvv_dense
from crtexport.schedules.scalar import register_blocks, smlad_channel_pairs, smlad_int16
from crtexport.schedules.x86 import dense as x86_dense
from crtexport.schedules.x86 import depthwise as x86_depthwise

Array = npt.NDArray[Any]
CHANNELS, KERNEL = 6, (2, 3)
TAPS = math.prod(KERNEL) * CHANNELS


def windows(group: int) -> Windows:
    return Windows((1, 8, 8, CHANNELS), (1, 7, 6), KERNEL, group=group)


BYTES: dict[str, Packing] = {
    "panels of pairs": x86_dense.Panels(2, 4, 2, 1),
    "panels of fours": x86_dense.Panels(8, 8, 4, 1),
    "panels of runs": x86_dense.Panels(2, 4, 2, 1, 3),
    "columns of pairs": x86_depthwise.TapColumns((3, 2), 2, 8),
    "columns of fours": x86_depthwise.TapColumns((5, 1), 4, 16),
    "pairs of channels": smlad_channel_pairs.PairWords(windows(4), 2),
    "lone pairs": smlad_channel_pairs.PairWords(windows(4), 1),
    "halves": smlad_int16.Int16Words(windows(2), 4),
    "lifted": register_blocks.Lifted(4),
    "chunks": mve_chunks.Chunks(((TAPS // 2, True), (TAPS // 2, False)), 4, 2, 16),
    "vectors of bytes": rvv_dense.RvvWeights(16, 1),
    "chunks of halves": mve_chunks.Chunks(((TAPS // 2, True), (TAPS // 2, False)), 4, 2, 8),
    "lone chunks": mve_chunks.Chunks(((TAPS, False),), 4, 4, 8),
    "eight chunks": mve_chunks.Chunks(((TAPS, True),), 8, 4, 16),
}
REALS: dict[str, Packing] = {
    "panels": x86_dense.Panels(8, 4, 1, 4),
    "lines of floats": x86_depthwise.Lines(8),
    "blocks": weight_packing.BlockPacking(6, 4),
    "vectors": mve_float.MveFloatWeights(8, 4),
}
EVERY = {**BYTES, **REALS}


def drawn(name: str, rows: int, seed: int) -> Array:
    """Weights that fit a packing."""
    rng = np.random.default_rng(seed)
    if name in REALS:
        return rng.standard_normal((rows, TAPS)).astype(np.float32)
    return rng.integers(-127, 128, (rows, TAPS)).astype(np.int8)


def _same(_: int, piece: bytes) -> bytes:
    return piece


def stored(weights: Array, kind: str, folder: Path) -> ConstantRef:
    if kind == "memory":
        return ConstantRef.of(weights)
    path = folder / "weights"
    path.write_bytes(b"12345" + weights.tobytes())
    held = ConstantRef(weights.nbytes, path=path, offset=5)
    if kind == "file":
        return held
    return ConstantRef(weights.nbytes, made=Made(held, _same, (weights.itemsize,) * 2))


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=40)
@given(
    st.sampled_from(["memory", "file", "made"]), st.integers(1, 40), st.integers(1, 3000),
    st.integers(0, 1 << 30), st.data(),
)
def test_pieces_are_the_whole(
    name: str, tmp_path_factory: pytest.TempPathFactory, kind: str, rows: int, window: int,
    seed: int, data: st.DataObject,
) -> None:
    weights, order = drawn(name, rows, seed), EVERY[name]
    source = stored(weights, kind, tmp_path_factory.getbasetemp())
    matrix = Matrix(source, DType.FLOAT32 if name in REALS else DType.INT8, rows, TAPS)
    several = data.draw(st.sampled_from([1, 3, order.block, 2 * order.block]))
    matrix = matrix.whole(several)
    if rows > several and rows % several:  # rows before the last ones are there again
        weights = np.concatenate([weights[: rows - rows % several], weights[-several:]])
    whole = order(weights).tobytes()
    constant = packed(matrix, order)
    assert constant.nbytes == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    size = data.draw(st.integers(0, len(whole) - start))
    with patch.object(weight_packing, "WINDOW", window):
        assert constant.read() == whole
        assert constant.part(start, size) == whole[start : start + size]


@pytest.mark.parametrize("name", EVERY)
def test_no_more_than_a_window_or_a_block_is_read_at_once(name: str) -> None:
    weights, order = drawn(name, 1000, 3), EVERY[name]
    dtype = DType.FLOAT32 if name in REALS else DType.INT8
    constant = packed(Matrix(ConstantRef.of(weights), dtype, *weights.shape), order)
    line = weights.itemsize * TAPS
    for window in (1 << 9, 1 << 12):
        with patch.object(weight_packing, "WINDOW", window):
            block = order.block * (weights.itemsize * order.step if order.step else line)
            with patch.object(Matrix, "part", autospec=True, side_effect=Matrix.part) as parts:
                constant.read()
        read = [math.prod(map(len, call.args[1:])) * weights.itemsize for call in parts.mock_calls]
        assert max(read) <= max(window, block)
        assert sum(read) == weights.nbytes


def test_equal_weights_in_one_order_are_equal_without_being_read(tmp_path: Path) -> None:
    missing = ConstantRef(640, path=tmp_path / "none")
    one, other = (
        packed(Matrix(missing, DType.INT8, 40, 16), register_blocks.Lifted(wide)) for wide in (4, 2)
    )
    assert one == packed(Matrix(missing, DType.INT8, 40, 16), register_blocks.Lifted(4))
    assert one != other


def test_nothing_becomes_nothing() -> None:
    for shape in ((0, 5), (5, 0)):
        matrix = Matrix(ConstantRef(0, b""), DType.INT8, *shape)
        assert packed(matrix, register_blocks.Lifted(4)).read() == b""


def test_pairs_that_do_not_fit_are_found_wherever_they_are() -> None:
    """Of each two neighbours: -128 above a negative weight."""
    weights = np.zeros((50, TAPS), np.int8)
    weights[::2] = -1
    weights[1::2] = -127
    matrix = Matrix(ConstantRef.of(weights), DType.INT8, *weights.shape)
    with patch.object(weight_packing, "WINDOW", 4 * TAPS):
        assert smlad_channel_pairs.joinable(matrix)
        for row, apart in ((49, False), (48, True)):
            changed = weights.copy()
            changed[row, TAPS - 1] = -128
            matrix = Matrix(ConstantRef.of(changed), DType.INT8, *weights.shape)
            assert smlad_channel_pairs.joinable(matrix) == apart
