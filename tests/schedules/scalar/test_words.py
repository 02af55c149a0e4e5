"""Two channels in a word of weights, two columns in a word of a plane: exact up to their limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Activation, DepthwiseConv2D
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType, Quantization
from crtexport.ir.window import WindowGeometry
from crtexport.kir import interpreter
from crtexport.kir.builder import add, const
from crtexport.kir.builder import load as load_element
from crtexport.kir.language import Local, Scalar
from crtexport.kir.walk import walk
from crtexport.lowering import operator_table
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.numerics.requantize import Multiplier
from crtexport.lowering.registry import Context, Derived, Lowering
from crtexport.mlf.reader import open_package
from crtexport.schedules.common.conv_geometry import Windows
from crtexport.schedules.scalar import (
    depthwise_planes,
    plane_geometry,
    smlad_channel_pairs,
)
from crtexport.schedules.scalar.requantize_int8 import Int8Epilogue, RequantMethod, constants_of
from crtexport.support.fixedpoint import Rounding, multiply_by_quantized_multiplier
from tests.differential.network import interpret
from tests.helpers import require
from tests.lowered import usual, values_of
from tests.plan.graphs import GraphBuilder
from tests.schedules.scalar.test_blocks import run
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]


def dense(folder: Path, weights: Array, *, zero_point: int = 0, bias: int = 0) -> Graph:
    """A fully connected layer of one row that scales by about 2**-14."""
    m = ModelBuilder()
    units, depth = weights.shape
    x = m.tensor("x", (1, depth), "int8", scale=0.05, zero_point=3)
    w = m.tensor("w", weights.shape, "int8", scale=0.003, data=weights)
    b = m.tensor("b", (units,), "int32", scale=0.00015, data=np.full(units, bias))
    y = m.tensor("y", (1, units), "int8", scale=2.4, zero_point=zero_point)
    m.op("FULLY_CONNECTED", [x, w, b], [y])
    (folder / "m.tflite").write_bytes(m.build([x], [y]))
    return load(folder / "m.tflite")


# ---- scaling


def sums_of(shifts: list[int], mantissas: list[int], biases: list[int], bound: int) -> IntegerSums:
    count = len(shifts)
    raw = np.array(biases, np.int64)
    return IntegerSums(
        0, 0, np.full(count, bound // 128, np.int64), raw, raw, bound + max(map(abs, biases)),
        Multiplier(tuple(mantissas), tuple(shifts)), Rounding.DOUBLE, False,
    )


@pytest.mark.parametrize("method", [m for m in RequantMethod if m is not RequantMethod.FPU])
@pytest.mark.parametrize("activation", [Activation.NONE, Activation.RELU])
@pytest.mark.parametrize("zero_point", [-128, -3, 127])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_sums_are_scaled_as_tflite_does(
    method: RequantMethod, activation: Activation, zero_point: int,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    """Every shift, multipliers and sums at their ends and where halves are rounded."""
    folder = tmp_path_factory.mktemp("scaling")
    graph = dense(folder, np.ones((2, 2), np.int64), zero_point=zero_point)
    context = Context(graph, graph.nodes[0])
    shifts = [-data.draw(st.integers(2, 31)) for _ in range(2)]
    mantissa = st.one_of(
        st.sampled_from([1 << 30, (1 << 30) + 1, 3 << 29, (1 << 31) - 1]),
        st.integers(1 << 30, (1 << 31) - 1),
    )
    mantissas = [data.draw(mantissa) for _ in range(2)]
    biases = [data.draw(st.integers(-5000, 5000)) for _ in range(2)]
    bound = (1 << 30) - 10_000
    near = [
        (128 + step << -shift) + (1 << -shift - 1) + jitter
        for shift in shifts for step in range(-256, 257, 32) for jitter in (-1, 0, 1)
    ]
    ends = [-bound + 5000, bound - 5000, 0, -1, 1]
    totals = [t for t in near if abs(t) < bound - 5000] + ends
    totals += data.draw(st.lists(st.integers(-bound + 5000, bound - 5000), max_size=20))
    sums = sums_of(shifts, mantissas, biases, bound)
    limits = activation_range(activation, context.output())
    constants = constants_of(sums, zero_point, limits)
    assert constants is not None
    lowering = Lowering("scale", context)
    b = lowering.b
    given_ = b.buffer("sums", Scalar.I32, len(totals))
    result = b.buffer("results", Scalar.I8, 2 * len(totals), writable=True)
    scaling = Int8Epilogue(context, constants, activation, method)
    scaling.begin(lowering)
    for channel in range(2):
        with b.loop("i", len(totals)) as i:
            of_channel = scaling.channel(const(channel))
            whole = scaling.whole(load_element(given_, i), of_channel)
            at = add(i, const(channel * len(totals)))
            b.store(result, at, scaling.result(b.let("whole", whole), of_channel))
    found = np.zeros(2 * len(totals), np.int8)
    (table,) = (values_of(arg) for arg in lowering.finish().args if isinstance(arg, Derived))
    interpreter.run(b.finish(), [np.array(totals, np.int32), found, table.reshape(-1)])
    wanted = [
        min(max(zero_point + multiply_by_quantized_multiplier(t + c, m, s), limits[0]), limits[1])
        for m, s, c in zip(mantissas, shifts, biases, strict=True) for t in totals
    ]
    np.testing.assert_array_equal(found, wanted)


def _plus(i: Any, offset: int) -> Any:
    from crtexport.kir.builder import add

    return add(i, const(offset))


def test_a_channel_without_weights_may_have_any_bias_and_scale() -> None:
    sums = IntegerSums(
        0, 0, np.array([0, 0, 5]), np.zeros(3, np.int64),
        np.array([2**31 - 1, -(2**31), 7]), 2**31, Multiplier(
            (1 << 30, 1 << 30, 1 << 30), (-3, 0, -4)
        ), Rounding.DOUBLE, False,
    )
    constants = constants_of(sums, 10, (-128, 127))
    assert constants is not None
    assert constants[:2].tolist() == [[16 * 117, 1 << 30, 1 << 30], [16 * -138, 1 << 30, 1 << 30]]
    heavy = IntegerSums(
        0, 0, np.array([1, 1, 5]), sums.raw, sums.folded, sums.bound, sums.multiplier,
        Rounding.DOUBLE, False,
    )
    assert constants_of(heavy, 10, (-128, 127)) is None


# ---- two channels in a word


def test_pairs_are_exact_up_to_24_bits_and_refused_beyond(tmp_path: Path) -> None:
    """516 products of 127 and -128 are the most that 24 bits hold."""
    for depth, possible in ((516, True), (517, False)):
        weights = np.full((2, depth), 127)
        weights[0] = -127
        graph = dense(tmp_path, weights)
        lowered = usual(smlad_channel_pairs.candidates(Context(graph, graph.nodes[0])))
        assert (lowered is not None) == possible
        if lowered is None:
            continue
        for fill in (-128, 127):
            value = np.full((1, depth), fill, np.int8)
            expected = run(graph, operator_table.lower(Context(graph, graph.nodes[0])), value)
            np.testing.assert_array_equal(run(graph, lowered, value), expected)


@pytest.mark.parametrize(("more", "begun"), [(-1, True), (0, False)])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("units", [2, 3, 8])
def test_sums_begin_with_biases_that_24_bits_hold(
    units: int, sign: int, more: int, begun: bool, tmp_path: Path
) -> None:
    """Larger ones are added when sums are taken apart."""
    weights = np.full((units, 40), 127)
    most = (1 << 23) - 128 * 127 * 40
    # The input's zero point, 3, is folded into the bias.
    graph = dense(tmp_path, weights, bias=sign * (most + more) + 3 * 127 * 40)
    context = Context(graph, graph.nodes[0])
    for candidate in smlad_channel_pairs.candidates(context):
        lowered = candidate.make()
        assert ("256 times" in repr(lowered.args)) == begun, candidate.name
        known = {
            stmt.bits for stmt in walk(lowered.kernel.body)
            if isinstance(stmt, Local) and stmt.var.name.startswith("sum")
        }
        assert known == {24 if begun else None}
        for fill in (-128, 127):
            value = np.full((1, 40), fill, np.int8)
            expected = run(graph, operator_table.lower(context), value)
            np.testing.assert_array_equal(run(graph, lowered, value), expected)


@pytest.mark.parametrize("weights", [
    [[-128, 127], [127, -128]], [[5, -128], [-128, 0]], [[-128, -128], [0, 0]],
])
def test_pairs_take_minus_128_where_it_fits(weights: list[list[int]], tmp_path: Path) -> None:
    """-128 above a negative weight doesn't fit 16 bits."""
    graph = dense(tmp_path, np.array(weights))
    context = Context(graph, graph.nodes[0])
    lowered = usual(smlad_channel_pairs.candidates(context))
    first, second = weights
    fits = all(256 * b + a >= -(1 << 15) for a, b in zip(first, second, strict=True))
    assert (lowered is not None) == fits
    if lowered is not None:
        value = np.array([[-128, 127]], np.int8)
        np.testing.assert_array_equal(
            run(graph, lowered, value), run(graph, operator_table.lower(context), value)
        )


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(1, 9), st.sampled_from([1, 4]),
    st.integers(1, 2),
)
def test_lines_hold_every_tap_once(
    kernel: tuple[int, int], channels: int, group: int, dilation: int
) -> None:
    windows = Windows(
        (1, 20, 20, channels), (1, 5, 5), kernel, dilation=(1, dilation), group=group
    )
    if group == 1:
        assert windows.words == windows.taps
        assert not windows.leftover_taps
        return
    places = windows.pairs()
    assert len(places) == windows.words
    assert sorted(places[places >= 0].tolist()) == list(range(windows.taps))


# ---- planes


@pytest.mark.parametrize("variant", [
    plane_geometry.PAIRS, plane_geometry.WORDS, plane_geometry.LONE_WORDS,
    plane_geometry.HELD_WORDS, plane_geometry.I386_WORDS, plane_geometry.BYTES,
])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_planes_take_any_window(
    variant: plane_geometry.PlaneLayout, tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject
) -> None:
    """Also several outputs of a channel, strides beyond the window, and rows further apart."""
    draw = data.draw
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    kernel = draw(st.integers(1, min(5, height))), draw(st.integers(1, min(5, width)))
    channels, multiplier = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    stride = draw(st.integers(1, 3))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    out = tuple(
        -(-n // stride) if padding == "SAME" else -(-(n - k + 1) // stride)
        for n, k in zip((height, width), kernel, strict=True)
    )
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    units = channels * multiplier
    m = ModelBuilder()
    x = m.tensor("x", (1, height, width, channels), "int8", scale=0.05, zero_point=-7)
    scales = rng.uniform(0.0005, 0.02, units).astype(np.float32).tolist()
    values = rng.choice(np.array([-128, -1, 0, 1, 5, 127]), (1, *kernel, units))
    w = m.tensor("w", values.shape, "int8", scale=scales, axis=3, data=values)
    y = m.tensor("y", (1, *out, units), "int8", scale=0.3, zero_point=4)
    m.op(
        "DEPTHWISE_CONV_2D", [x, w], [y], padding=padding, stride=(stride, stride),
        depth_multiplier=multiplier, activation=draw(st.sampled_from(["NONE", "RELU"])),
    )
    folder = tmp_path_factory.mktemp("planes")
    (folder / "m.tflite").write_bytes(m.build([x], [y]))
    graph = load(folder / "m.tflite")
    context = Context(graph, graph.nodes[0])
    lowered = draw(st.sampled_from(depthwise_planes.candidates(context, variant))).make()
    value = rng.choice(np.array([-128, 127, 3]), (1, height, width, channels)).astype(np.int8)
    np.testing.assert_array_equal(
        run(graph, lowered, value), run(graph, operator_table.lower(context), value)
    )


@pytest.mark.parametrize("variant", [
    plane_geometry.PAIRS, plane_geometry.WORDS, plane_geometry.LONE_WORDS,
    plane_geometry.HELD_WORDS, plane_geometry.I386_WORDS, plane_geometry.BYTES,
])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_planes_take_any_padding(
    variant: plane_geometry.PlaneLayout, data: st.DataObject
) -> None:
    """Each side has its own, as where a padding became part of the layer: windows may stick out
    above and not below, and the other way round, or lie outside as a whole."""
    draw = data.draw
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stride = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    padding = Padding2D(*(
        draw(st.integers(0, taps + 1)) for taps in (kernel[0], kernel[0], kernel[1], kernel[1])
    ))
    height = draw(st.integers(kernel[0], 7))
    width = draw(st.integers(kernel[1], 7))
    channels = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    b = GraphBuilder()
    x = b.input(1, height, width, channels, dtype=DType.INT8, quant=Quantization((0.05,), (-7,)))
    weights = rng.integers(-127, 128, (1, *kernel, channels)).astype(np.int8)
    scales = tuple(rng.uniform(0.0005, 0.02, channels).astype(np.float32).tolist())
    w = b.constant(weights, Quantization(scales, (0,) * channels, axis=3))
    op = DepthwiseConv2D(stride=stride, padding=padding)
    graph = b.finish(b.node(op, x, w, quant=Quantization((0.3,), (4,))))
    context = Context(graph, graph.nodes[0])
    lowered = draw(st.sampled_from(depthwise_planes.candidates(context, variant))).make()
    value = rng.choice(np.array([-128, 127, 3]), (1, height, width, channels)).astype(np.int8)
    np.testing.assert_array_equal(
        run(graph, lowered, value), run(graph, operator_table.lower(context), value)
    )


@pytest.mark.parametrize(("top", "bottom", "inside"), [
    (0, 0, True), (1, 0, False), (0, 1, False), (1, 1, False), (2, 0, False),
])
def test_rows_are_inside_but_where_windows_stick_out(top: int, bottom: int, inside: bool) -> None:
    """Five rows of windows of three, next to each other and every second row."""
    for stride in (1, 2):
        rows = (5 + top + bottom - 3) // stride + 1
        window = WindowGeometry(
            (1, 5, 5, 1), (1, rows, 5, 1), (3, 1), (stride, 1), pad_before=(top, 0)
        )
        last = (rows - 1) * stride - top + 2
        assert window.rows.inside is (inside or (top == 0 and last < 5))


# ---- on the machine


@pytest.mark.qemu
@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("board", [
    "mps2_an386", "mps2_an385", "qemu_cortex_m0", "qemu_riscv32",
])
def test_extreme_values_agree_on_the_machine(board: str, emit: str, tmp_path: Path) -> None:
    require("qemu-system-riscv32" if board == "qemu_riscv32" else "qemu-system-arm")
    rng = np.random.default_rng(3)
    weights = rng.choice(np.array([-127, 127, 0, 64]), (7, 131))
    graph = dense(tmp_path, weights, zero_point=-5, bias=-77)
    if board == "mps2_an386":
        assert smlad_channel_pairs.candidates(Context(graph, graph.nodes[0]))
    value = rng.choice(np.array([-128, 127, 0]), (3, 1, 131)).astype(np.int8)
    package = tmp_path / "m.tar"
    crtexport.export(tmp_path / "m.tflite", board=board, emit=emit, output=package)
    (given_,) = open_package(package).inputs
    result = crtexport.run(package, {given_.field: value})
    for sample, row in zip(value, result.outputs, strict=True):
        np.testing.assert_array_equal(row[0], interpret(graph, [sample])[0])
