"""Scaled sums are TFLite's up to the limits of every shorter way to compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.firmware.board import load_board
from crtexport.ir.ops import FullyConnected, Relu
from crtexport.ir.scaling import EXTREME
from crtexport.ir.types import DType, Quantization
from crtexport.kir import interpreter
from crtexport.kir.builder import add, const, load
from crtexport.kir.language import Kernel, Scalar
from crtexport.kir.text import dump
from crtexport.lowering.numerics.quantized_arithmetic import reach
from crtexport.lowering.numerics.requantize import Multiplier, Requantizer
from crtexport.lowering.registry import Context, Derived, Lowering
from crtexport.pipeline.driver import prepare
from crtexport.support.errors import CrtExportError
from crtexport.support.fixedpoint import Rounding, multiply_by_quantized_multiplier
from tests.lowered import values_of
from tests.plan.graphs import GraphBuilder

Array = np.ndarray[Any, Any]
LARGEST = (1 << 31) - 1


def requantizer(
    multiplier: Multiplier, bound: int, count: int, rounding: Rounding = Rounding.DOUBLE
) -> tuple[Kernel, list[Array]]:
    """A kernel that scales ``count`` sums for each of a multiplier's channels, and its tables."""
    b = GraphBuilder()
    graph = b.finish(b.node(Relu(), b.input(1)))
    lowering = Lowering("scale", Context(graph, graph.nodes[0]))
    kernel = lowering.b
    given_ = kernel.buffer("sums", Scalar.I32, count)
    channels = len(multiplier.mantissas)
    result = kernel.buffer("results", Scalar.I32, channels * count, writable=True)
    requantize = Requantizer(lowering, multiplier, rounding, bound)
    for channel in range(channels):
        with kernel.loop("i", count) as i:
            value = requantize(kernel.let("sum", load(given_, i)), const(channel))
            kernel.store(result, add(i, const(channel * count)), value)
    args = lowering.finish().args
    return kernel.finish(), [values_of(arg) for arg in args if isinstance(arg, Derived)]


def scaled(
    multiplier: Multiplier, bound: int, sums: list[int], rounding: Rounding = Rounding.DOUBLE
) -> list[list[int]]:
    """The results of each channel, as the kernel computes them; overflows raise."""
    kernel, tables = requantizer(multiplier, bound, len(sums), rounding)
    found = np.zeros((len(multiplier.mantissas), len(sums)), np.int32)
    interpreter.run(kernel, [np.array(sums, np.int32), found, *tables])
    rows: list[list[int]] = found.tolist()
    return rows


def wanted(
    multiplier: Multiplier, sums: list[int], rounding: Rounding = Rounding.DOUBLE
) -> list[list[int]]:
    return [
        [multiply_by_quantized_multiplier(total, mantissa, shift, rounding) for total in sums]
        for mantissa, shift in zip(multiplier.mantissas, multiplier.shifts, strict=True)
    ]


def nudged(kernel: Kernel) -> bool:
    """Returns whether it adds a half and shifts, instead of looking at the remainder."""
    return "select(" not in dump(kernel)


@pytest.mark.parametrize(("bound", "fits"), [((1 << 30) - 1, True), (1 << 30, False)])
def test_halves_are_added_where_the_largest_sum_leaves_room_for_them(
    bound: int, fits: bool
) -> None:
    """2**30 times the largest multiplier is 2**30 - 0.5, which is rounded up: with a half of 2**30
    that is one more than 32 bits hold."""
    multiplier = Multiplier((LARGEST,), (-31,))
    sums = [bound, -bound, bound - 1, 1 - bound, 1, 0, -1]
    assert nudged(requantizer(multiplier, bound, 1)[0]) is fits
    assert scaled(multiplier, bound, sums) == wanted(multiplier, sums)


def test_one_channel_without_room_is_enough_to_look_at_remainders() -> None:
    multiplier = Multiplier((1 << 30, LARGEST), (-3, -31))
    sums = [1 << 30, -(1 << 30), 4, -4, 12, -12, 5]
    assert not nudged(requantizer(multiplier, 1 << 30, 1)[0])
    assert scaled(multiplier, 1 << 30, sums) == wanted(multiplier, sums)


def test_one_channel_that_is_shifted_too_far_is_enough_to_refuse_all() -> None:
    Multiplier((1 << 30, 1 << 30), (-3, 30))
    with pytest.raises(OverflowError):
        Multiplier((1 << 30, 1 << 30), (-3, 31))


@pytest.mark.parametrize("rounding", [Rounding.DOUBLE, Rounding.SINGLE])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_sums_up_to_their_bound_are_scaled_as_the_formula_says(
    rounding: Rounding, data: st.DataObject
) -> None:
    """Shifts to both sides, one multiplier and several, bounds at powers of two and anywhere; sums
    at their ends and where halves are rounded."""
    mantissas = st.one_of(
        st.sampled_from([1 << 30, (1 << 30) + 1, 3 << 29, LARGEST]),
        st.integers(1 << 30, LARGEST),
    )
    pairs = data.draw(st.lists(st.tuples(mantissas, st.integers(-31, 3)), min_size=1, max_size=3))
    multiplier = Multiplier(tuple(m for m, _ in pairs), tuple(s for _, s in pairs))
    left = max(0, *multiplier.shifts)
    # Sums may be as large as their largest shift to the left leaves them room.
    most = (1 << 31 - left) - 1
    power = 1 << data.draw(st.integers(1, 31 - left))
    bound = min(most, data.draw(st.sampled_from([power - 1, power, power + 1])))
    halves = [
        step * (1 << -shift) + (1 << -shift - 1) + jitter
        for shift in multiplier.shifts if shift < 0 for step in (-3, -2, -1, 0, 1, 2)
        for jitter in (-1, 0, 1)
    ]
    sums = [total for total in halves if abs(total) <= bound]
    sums += [bound, -bound, bound - 1, 1 - bound, 0]
    assert scaled(multiplier, bound, sums, rounding) == wanted(multiplier, sums, rounding)


@pytest.mark.parametrize(("dtype", "zeros"), [
    (DType.INT8, (-128, 127)), (DType.UINT8, (0, 255)), (DType.INT16, (0, 0)),
])
def test_the_reach_of_a_type_is_its_largest_distance_from_a_zero_point(
    dtype: DType, zeros: tuple[int, int]
) -> None:
    assert reach(dtype) == max(abs(v - zero) for v in dtype.limits for zero in zeros)


@pytest.mark.parametrize("optimize", ["size", "balanced"])
@pytest.mark.parametrize("board", ["host", "mps2_an386", "mps3_an547"])
def test_scales_that_no_shift_bridges_are_refused(board: str, optimize: Any) -> None:
    """Shifting an i32 by 32 or more is undefined in C; TFLite does it."""
    def made(scale: float) -> None:
        b = GraphBuilder()
        quant = Quantization((scale,), (0,))
        x = b.input(3, 4, dtype=DType.INT8, quant=quant)
        y = b.constant(np.ones((3, 4), np.int8), quant)
        graph = b.finish(b.node(FullyConnected(), x, y, quant=Quantization((1.0,), (0,))))
        prepare(graph, load_board(board), optimize=optimize)

    made(2.0**14)
    with pytest.raises(CrtExportError, match=EXTREME):
        made(2.0**20)
