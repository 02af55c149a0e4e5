"""Large constants are moved in pieces to where NumPy moves them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.ir import strided_constant as module
from crtexport.ir.evaluate import evaluate
from crtexport.ir.graph import Tensor
from crtexport.ir.ops import (
    Activation,
    Add,
    Concatenation,
    Op,
    Pack,
    Reshape,
    Slice,
    Split,
    Transpose,
    Unpack,
)
from crtexport.ir.strided_constant import moved
from crtexport.ir.types import ConstantRef, DType, Made, Quantization, TensorType

Array = npt.NDArray[Any]

WINDOWS = (1, 7, 64, 8 << 20)
"""Bytes: less than an element, than a row, and more than everything."""

DTYPES = (DType.INT8, DType.INT16, DType.FLOAT32, DType.INT64)


def _same(position: int, piece: bytes) -> bytes:
    return piece


def tensor(array: Array, made: bool = False, quant: Quantization | None = None) -> Tensor:
    dtype = next(d for d in DType if d.numpy == array.dtype)
    held = ConstantRef.of(array)
    if made:
        held = ConstantRef(array.nbytes, made=Made(held, _same, (array.itemsize,) * 2))
    return Tensor("c", TensorType(dtype, array.shape, quant), held)


@st.composite
def moves(draw: st.DrawFn) -> tuple[Op, list[Array]]:
    """An operator and what it moves: every element another number, as far as they go."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    dtype = draw(st.sampled_from(DTYPES)).numpy
    axis = draw(st.integers(0, len(shape) - 1))
    kind = draw(st.sampled_from((Transpose, Slice, Split, Unpack, Pack, Concatenation, Reshape)))
    shapes = [shape]
    op: Op
    if kind is Transpose:
        op = Transpose(tuple(draw(st.permutations(range(len(shape))))))
    elif kind is Slice:
        op = draw(slices(shape))
    elif kind is Split:
        cuts = draw(st.lists(st.integers(0, shape[axis]), max_size=3).map(sorted))
        op = Split(axis, tuple(np.diff([0, *cuts, shape[axis]]).tolist()))
    elif kind is Unpack:
        op = Unpack(axis)
    elif kind is Reshape:
        op = Reshape((int(np.prod(shape)), 1))
    else:
        shapes *= draw(st.integers(1, 3))
        op = Pack(draw(st.integers(0, len(shape))))
        if kind is Concatenation:
            op = Concatenation(axis)
            others = draw(st.lists(st.integers(0, 4), max_size=2))
            shapes += [[*shape[:axis], size, *shape[axis + 1 :]] for size in others]
    arrays, first = [], 0
    for one in shapes:
        count = int(np.prod(one))
        arrays.append(np.arange(first, first + count).astype(dtype).reshape(one))
        first += count
    return op, arrays


@st.composite
def slices(draw: st.DrawFn, shape: list[int]) -> Slice:
    begin, size, stride = [], [], []
    for length in shape:
        first, by = draw(st.integers(0, length - 1)), draw(st.sampled_from((1, 2, 3, -1, -2)))
        there = length - first if by > 0 else first + 1
        begin.append(first)
        stride.append(by)
        size.append(draw(st.integers(0, -(-there // abs(by)))))
    return Slice(tuple(begin), tuple(size), tuple(stride), tuple(size))


@given(moves(), st.sampled_from(WINDOWS), st.booleans(), st.data())
def test_pieces_and_parts_are_those_of_numpy(
    move: tuple[Op, list[Array]], window: int, made: bool, data: st.DataObject
) -> None:
    op, arrays = move
    inputs = [tensor(array, made) for array in arrays]
    expected = evaluate(op, inputs, [inputs[0].type.dtype] * 4)
    assert expected is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", window)
        found = moved(op, inputs)
        assert found is not None
        for ours, values in zip(found, expected, strict=True):
            whole = np.ascontiguousarray(values).tobytes()
            assert ours.nbytes == len(whole)
            assert b"".join(ours.chunks()) == whole
            start = data.draw(st.integers(0, len(whole)))
            count = data.draw(st.integers(0, len(whole) - start))
            assert ours.part(start, count) == whole[start : start + count]


def test_a_piece_is_no_larger_than_the_window(tmp_path: Path) -> None:
    values = np.arange(300 * 200, dtype=np.int16).reshape(300, 200)
    path = tmp_path / "values"
    path.write_bytes(b"before" + values.tobytes())
    source = Tensor(
        "c", TensorType(DType.INT16, values.shape),
        ConstantRef(values.nbytes, path=path, offset=6),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", 5000)
        for op, result in (
            (Transpose((1, 0)), values.T), (Slice((7, 3), (200, 90), (1, 2), (200, 90)), None),
            (Concatenation(1), None),
        ):
            inputs = [source, source] if isinstance(op, Concatenation) else [source]
            (constant,) = moved(op, inputs) or ()
            pieces = list(constant.chunks())
            assert len(pieces) > 5
            assert max(map(len, pieces)) <= 5000
            if result is not None:
                assert b"".join(pieces) == result.tobytes()


def test_equal_moves_of_equal_constants_are_equal() -> None:
    values = np.arange(12, dtype=np.int8).reshape(3, 4)
    first, again = (moved(Transpose((1, 0)), [tensor(values.copy())]) for _ in range(2))
    assert first == again
    assert first != moved(Transpose((0, 1)), [tensor(values)])


def test_what_is_not_only_moved_is_left() -> None:
    one = tensor(np.ones(4, np.int8))
    scaled = tensor(np.ones(4, np.int8), quant=Quantization((0.5,), (0,)))
    assert moved(Add(), [one, one]) is None
    assert moved(Concatenation(0), [one, scaled]) is None
    assert moved(Concatenation(0, Activation.RELU), [one, one]) is None
    assert moved(Reshape((2, 2)), [Tensor("x", one.type)]) is None
