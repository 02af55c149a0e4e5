"""Vector variants for x86-64: floats as the plain kernels but for rounding, both backends alike."""

from __future__ import annotations

import math
import re
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.importers import load
from crtexport.ir.types import ConstantRef, DType
from crtexport.kir.analysis.accesses import accesses
from crtexport.kir.builder import const
from crtexport.kir.language import For, If, Kernel, StoreVector
from crtexport.kir.verifier import verify
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.lowering.weight_packing import Matrix
from crtexport.mlf.reader import open_package
from crtexport.schedules.common.conv_geometry import Windows
from crtexport.schedules.common.loop_tiling import VectorBlocks
from crtexport.schedules.x86 import bands as x86_bands
from crtexport.schedules.x86 import dense as x86_dense
from crtexport.schedules.x86 import depthwise as x86_depthwise
from crtexport.schedules.x86.bands import Band
from crtexport.schedules.x86.machine import X86Machine, machine_of
from crtexport.support.target import Target
from tests.archives import unpack_archive
from tests.helpers import require, require_processor, target_of
from tests.lowered import lower, meaning, run
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
BOARDS = ("host", "host_avx2", "host_avx512")


def float_layer(kind: str, weights: str, draw: Any, rng: np.random.Generator) -> bytes:
    """One layer with floats at both ends and weights of a type."""
    m = ModelBuilder()
    height, width, channels = (draw(1, 6) for _ in range(3))
    channels *= draw(1, 5)
    kernel = (draw(1, min(3, height)), draw(1, min(3, width)))
    padding, stride = ("VALID", "SAME")[draw(0, 1)], (draw(1, 2), draw(1, 2))
    units = channels if kind == "depthwise" else draw(1, 37)
    shape: tuple[int, ...] = (1, height, width, channels)
    w_shape: tuple[int, ...] = (units, *kernel, channels)
    out: tuple[int, ...] = (1, *(
        -(-n // s) if padding == "SAME" else -(-(n - k + 1) // s)
        for n, k, s in zip((height, width), kernel, stride, strict=True)
    ), units)
    attributes: dict[str, Any] = {"padding": padding, "stride": stride}
    if kind == "dense":
        shape, w_shape, out, attributes = (1, channels), (units, channels), (1, units), {}
    elif kind == "depthwise":
        w_shape = (1, *kernel, units)
    x = m.tensor("x", shape, "float32")
    if weights == "int8":
        scales = rng.uniform(0.01, 0.1, units).astype(np.float32).tolist()
        w = m.tensor(
            "w", w_shape, "int8", scale=scales if kind != "dense" else scales[0], axis=0,
            data=rng.integers(-127, 128, w_shape),
        ) if kind != "dense" else m.tensor(
            "w", w_shape, "int8", scale=scales[0], data=rng.integers(-127, 128, w_shape)
        )
    else:
        w = m.tensor("w", w_shape, "float32", data=rng.normal(size=w_shape).astype(np.float32))
    b = m.tensor("b", (units,), "float32", data=rng.normal(size=units).astype(np.float32))
    y = m.tensor("y", out, "float32")
    name = {"dense": "FULLY_CONNECTED", "conv": "CONV_2D", "depthwise": "DEPTHWISE_CONV_2D"}[kind]
    m.op(name, [x, w, b], [y], **attributes)
    return m.build([x], [y])


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(("kind", "weights"), [
    ("conv", "float32"), ("depthwise", "float32"), ("dense", "float32"), ("conv", "int8"),
    ("dense", "int8"),
])
@settings(max_examples=12)
@given(data=st.data())
def test_floats_are_those_of_the_plain_kernel_but_for_rounding(
    board: str, kind: str, weights: str, tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    path = tmp_path_factory.mktemp("m") / "m.tflite"
    path.write_bytes(
        float_layer(kind, weights, lambda a, b: data.draw(st.integers(a, b)), rng)
    )
    graph = load(path)
    context = Context(graph, graph.nodes[0])
    lowered = lower(context, target_of(board), "balanced")
    assert "x86_" in repr(lowered.kernel)
    value = rng.normal(size=context.input(0).shape).astype(np.float32)
    expected = run(graph, operator_table.lower(context), value)
    scale = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(run(graph, lowered, value), expected, atol=2e-5 * scale, rtol=0)


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(("kind", "weights"), [
    ("conv", "float32"), ("depthwise", "float32"), ("dense", "int8"),
])
def test_both_backends_give_the_interpreters_floats(
    kind: str, weights: str, board: str, emit: str, tmp_path: Path
) -> None:
    require("gcc")
    require_processor(board)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        path = tmp_path / "m.tflite"
        path.write_bytes(float_layer(
            kind, weights, lambda low, high, rng=rng: int(rng.integers(low, high + 1)), rng
        ))
        package = tmp_path / "m.tar"
        crtexport.export(path, board=board, emit=emit, output=package)  # type: ignore[arg-type]
        graph = load(path)
        context = Context(graph, graph.nodes[0])
        lowered = lower(context, target_of(board), "balanced")
        value = rng.normal(size=context.input(0).shape).astype(np.float32)
        (given_,) = open_package(package).inputs
        (result,) = crtexport.simulate(package, {str(given_.field): value})
        (output,) = result.values()
        np.testing.assert_array_equal(output, run(graph, lowered, value))


def test_vectors_follow_the_processor() -> None:
    small, large, widest = (machine_of(target_of(board)) for board in BOARDS)
    assert (small.lanes, small.fma, large.lanes, large.fma) == (4, False, 8, True)
    newest = machine_of(target_of("host_vnni"))
    assert (newest.lanes, newest.dots, large.dots) == (8, True, False)
    assert (widest.lanes, widest.dots, widest.registers, large.registers) == (16, True, 32, 16)


@pytest.mark.parametrize(("cpu", "features", "lanes", "dots"), [
    ("x86-64-v4", "", 16, False),
    ("x86-64-v4", "+avxvnni", 16, False),
    ("x86-64-v3", "+avx512vnni, +avx512vl", 8, True),
    ("x86-64-v3", "+avx512f, +avx512bw, +avx512dq, +avx512vl", 16, False),
    ("x86-64-v2", "+avx512f, +avx512bw, +avx512dq, +avx512vl, +avx512vnni", 16, True),
])
def test_vectors_follow_features(cpu: str, features: str, lanes: int, dots: bool) -> None:
    target = Target("x86_64-unknown-linux-gnu", cpu, tuple(features.split(", ")))
    machine = machine_of(target)
    assert (machine.lanes, machine.dots) == (lanes, dots)


@pytest.mark.parametrize("channels", [1, 8, 9, 16, 40])
def test_few_channels_have_vectors_half_as_wide(channels: int) -> None:
    machine = machine_of(target_of("host_avx512")).fitting(channels)
    assert machine.lanes == (8 if channels <= 8 else 16)
    assert machine.registers == 32
    assert machine_of(target_of("host")).fitting(channels).lanes == 4


def nearest(value: Fraction) -> float:
    """The float32 next to a fraction, even where two are."""
    if value == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(value)))
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - 23, -149)
    return float(round(value / unit) * unit)


floats = st.floats(-(2.0**40), 2.0**40, width=32)


@settings(max_examples=400)
@example(1.0 + 2**-23, 1.0 + 2**-23, 2.0**-40)
@example(1.0 + 2**-12, 1.0 + 2**-12, -(2.0**-60))
@given(floats, floats, floats)
def test_products_are_added_with_one_rounding(a: float, b: float, c: float) -> None:
    lanes: Any = meaning("x86_fma_4")((a,) * 4, (b,) * 4, (c,) * 4)
    (result,) = set(lanes)
    assert result == nearest(Fraction(a) * Fraction(b) + Fraction(c))


# ---- four products of bytes at once


@given(st.integers(-(2**31), 2**31 - 1), st.binary(min_size=4, max_size=4), st.binary(
    min_size=4, max_size=4
))
def test_bytes_are_multiplied_unsigned_by_signed(total: int, a: bytes, b: bytes) -> None:
    """As Intel defines VPDPBUSD: sums wrap, nothing saturates."""
    words = [int.from_bytes(value, "little", signed=True) for value in (a, b)]
    dot = np.frombuffer(a, np.uint8).astype(np.int64) @ np.frombuffer(b, np.int8).astype(np.int64)
    lanes: Any = meaning("x86_dot_8")((total,) * 8, *((word,) * 8 for word in words))
    wanted = np.array([total + int(dot)]).astype(np.int32)
    np.testing.assert_array_equal(lanes, np.repeat(wanted, 8))


def integer_layer() -> bytes:
    """A convolution with values at both ends, and channels and taps that fill no vector."""
    rng = np.random.default_rng(8)
    m = ModelBuilder()
    x = m.tensor("x", (1, 7, 6, 19), "int8", scale=0.05, zero_point=-9)
    w = m.tensor(
        "w", (21, 3, 2, 19), "int8", axis=0,
        scale=rng.uniform(0.0005, 0.02, 21).astype(np.float32).tolist(),
        data=rng.choice(np.array([-127, 127, 0, 3, -60]), (21, 3, 2, 19)),
    )
    y = m.tensor("y", (1, 7, 6, 21), "int8", scale=0.9, zero_point=5)
    m.op("CONV_2D", [x, w], [y], padding="SAME", stride=(1, 1))
    return m.build([x], [y])


@pytest.mark.parametrize(("base", "features", "registers"), [
    ("host_avx2", "+avxvnni", "%ymm"), ("host_avx2", "+avx512vnni, +avx512vl", "%ymm"),
    ("host_avx512", "+avx512vnni", "%zmm"),
])
def test_objects_hold_the_instruction(
    base: str, features: str, registers: str, tmp_path: Path
) -> None:
    """Few computers can run it."""
    require("objdump")
    (tmp_path / "m.tflite").write_bytes(integer_layer())
    board = tmp_path / "vnni.yaml"
    board.write_text(
        f"name: vnni\ndescription: d\nextends: {base}\ncpu: {{features: [{features}]}}\n"
    )
    package = tmp_path / "m.tar"
    crtexport.export(tmp_path / "m.tflite", board=board, emit="llvm", output=package)
    unpack_archive(package, tmp_path / "p")
    code = "".join(
        subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True).stdout
        for path in (tmp_path / "p").rglob("*.o")
    )
    assert re.search(rf"vpdpbusd .*{registers}", code)
    assert "vpmaddwd" not in code


def test_sources_do_without_the_instruction(tmp_path: Path) -> None:
    """The compiler may not use it: it is computed otherwise, with the same results."""
    require("gcc")
    require_processor("host_avx2")
    (tmp_path / "m.tflite").write_bytes(integer_layer())
    board = tmp_path / "vnni.yaml"
    board.write_text(
        "name: vnni\ndescription: d\nextends: host_avx2\ncpu: {features: [+avxvnni]}\n"
    )
    package = tmp_path / "m.tar"
    crtexport.export(tmp_path / "m.tflite", board=board, emit="c", output=package)
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    assert "x86_dot_8" in repr(lower(context, target_of(board), "balanced").kernel)
    value = np.random.default_rng(2).choice(np.array([-128, 127, 0, -9]), (1, 7, 6, 19))
    value = value.astype(np.int8)
    (given_,) = open_package(package).inputs
    (result,) = crtexport.simulate(package, {str(given_.field): value})
    (output,) = result.values()
    np.testing.assert_array_equal(output, run(graph, operator_table.lower(context), value))


# ---- bands of images


MACHINES = (
    X86Machine(4, fma=False), X86Machine(8, fma=True), X86Machine(8, fma=True, dots=True),
    X86Machine(16, fma=True, registers=32), X86Machine(16, fma=True, dots=True, registers=32),
)
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = {
    "several images, rows left over": ((2, 11, 13, 3), (3, 3), 9, {"stride": (2, 2)}),
    "one row": ((1, 1, 23, 5), (1, 4), 17, {"stride": (1, 2)}),
    "one column": ((1, 23, 1, 5), (4, 1), 17, {}),
    "holes": ((1, 13, 11, 3), (3, 3), 6, {"dilation": (2, 3)}),
    "rows that follow each other": ((1, 9, 4, 3), (2, 4), 25, {"padding": "VALID"}),
    "the whole image": ((1, 7, 5, 3), (7, 5), 33, {"padding": "VALID"}),
    "every second cell": ((1, 9, 9, 6), (1, 1), 8, {"stride": (2, 2)}),
}


def banded_layer(case: str, kind: str, depthwise: bool) -> bytes:
    """A convolution of int8 or float32."""
    shape, kernel, units, options = SHAPES[case]
    return convolution(shape, kernel, units, options, kind, depthwise)


def convolution(
    shape: tuple[int, ...], kernel: tuple[int, ...], units: int, options: dict[str, Any],
    kind: str, depthwise: bool,
) -> bytes:
    stride, dilation = options.get("stride", (1, 1)), options.get("dilation", (1, 1))
    padding = options.get("padding", "SAME")
    out = tuple(
        -(-n // s) if padding == "SAME" else -(-(n - (k - 1) * d) // s)
        for n, k, s, d in zip(shape[1:3], kernel, stride, dilation, strict=True)
    )
    rng, m = np.random.default_rng(3), ModelBuilder()
    units = shape[3] if depthwise else units
    w_shape = (1, *kernel, units) if depthwise else (units, *kernel, shape[3])
    y_shape = (shape[0], *out, units)
    if kind == "int8":
        x = m.tensor("x", shape, kind, scale=0.05, zero_point=-9)
        w = m.tensor(
            "w", w_shape, kind, axis=3 if depthwise else 0,
            data=rng.integers(-127, 128, w_shape),
            scale=rng.uniform(0.0005, 0.02, units).astype(np.float32).tolist(),
        )
        y = m.tensor("y", y_shape, kind, scale=0.3, zero_point=5)
    else:
        x = m.tensor("x", shape, kind)
        w = m.tensor("w", w_shape, kind, data=rng.normal(size=w_shape).astype(np.float32))
        y = m.tensor("y", y_shape, kind)
    m.op(
        "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [x, w], [y], padding=padding,
        stride=stride, dilation=dilation,
    )
    return m.build([x], [y])


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize("most", [0, 1200, 1 << 15])
@pytest.mark.parametrize("case", SHAPES)
def test_bands_of_any_height_give_the_same(
    case: str, most: int, kind: str, depthwise: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(x86_bands, "MOST", most)
    (tmp_path / "m.tflite").write_bytes(banded_layer(case, kind, depthwise))
    graph = load(tmp_path / "m.tflite")
    for machine in MACHINES:
        vectors_of(Context(graph, graph.nodes[0]), machine, seed=most)


def vectors_of(context: Context, machine: X86Machine, seed: int = 1) -> Kernel:
    """The kernel of a layer, after it gave what the plain kernel gives."""
    rng, given = np.random.default_rng(seed), context.input(0)
    integers = given.dtype is DType.INT8
    value = (
        rng.integers(-128, 128, given.shape).astype(np.int8) if integers
        else rng.normal(size=given.shape).astype(np.float32)
    )
    expected = run(context.graph, operator_table.lower(context), value)
    lowered = x86_dense.lower(context, machine) or x86_depthwise.lower(context, machine)
    assert lowered is not None
    verify(lowered.kernel)
    got = run(context.graph, lowered, value)
    if integers:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, atol=1e-4)
    return lowered.kernel


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_depthwise_layers_of_any_shape_give_the_same(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Windows of several groups of rows, columns that are unrolled or not, dilated and strided
    ones, with padding and without."""
    def drawn(least: int, most: int) -> int:
        return data.draw(st.integers(least, most))

    kernel, stride = (drawn(1, 9), drawn(1, 11)), (drawn(1, 3), drawn(1, 3))
    dilation = (1, 1) if stride != (1, 1) else (drawn(1, 2), drawn(1, 3))
    high, wide = (
        (size - 1) * step + drawn(1, 12) for size, step in zip(kernel, dilation, strict=True)
    )
    shape = (drawn(1, 2), high, wide, drawn(1, 40))
    options = {
        "stride": stride, "dilation": dilation,
        "padding": data.draw(st.sampled_from(["SAME", "VALID"])),
    }
    path = tmp_path_factory.mktemp("m") / "m.tflite"
    path.write_bytes(convolution(shape, kernel, 0, options, kind, depthwise=True))
    graph = load(path)
    vectors_of(
        Context(graph, graph.nodes[0]), data.draw(st.sampled_from(MACHINES)), seed=drawn(1, 99)
    )


# ---- channels that fill no block


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize("pixels", [1, 6])
@pytest.mark.parametrize("machine", MACHINES, ids=["sse", "avx2", "vnni", "avx512", "avx512_vnni"])
def test_vectors_begin_earlier_where_channels_fill_no_block(
    machine: X86Machine, pixels: int, kind: str, depthwise: bool, tmp_path: Path
) -> None:
    blocks = [machine.lanes * vectors for vectors in (1, 2, 3, 4, 8)]
    around = {n for wide in blocks for n in (wide - 1, wide, wide + 1, 2 * wide - 1)}
    for channels in sorted({1, *around}):
        shape = (1, 2, pixels // 2, channels if depthwise else 3) if pixels > 1 else (
            1, 1, 1, channels if depthwise else 3
        )
        path = tmp_path / f"{channels}.tflite"
        path.write_bytes(convolution(shape, (1, 2), channels, {}, kind, depthwise))
        graph = load(path)
        kernel = vectors_of(Context(graph, graph.nodes[0]), machine)
        stored = {
            access.width for access in accesses(kernel)
            if access.stores and access.buffer.name == "output"
        }
        lanes = machine.fitting(channels).lanes
        assert channels in stored if channels < lanes else min(stored) >= lanes


@given(st.integers(1, 200), st.sampled_from([4, 8, 16]), st.integers(1, 8))
def test_vectors_cover_channels(channels: int, lanes: int, most: int) -> None:
    for vectors in (
        VectorBlocks.at_most(most, channels, lanes), VectorBlocks.fewest(most, channels, lanes)
    ):
        assert vectors.count <= most
        block = vectors.channels_per_block
        met = [
            min(number * block, channels - block) + start + lane
            for number in range(-(-channels // block)) for start in vectors.starts()
            for lane in range(vectors.there)
        ]
        assert set(met) == set(range(channels))
        rows = Matrix(ConstantRef.of(np.arange(channels)), DType.INT64, channels, 1)
        rows = rows.whole(vectors.whole)
        assert rows.part(range(rows.rows), range(1)).ravel().tolist() == met


def test_padding_is_filled_once_and_rows_of_one_band_are_copied_without_asking(
    tmp_path: Path
) -> None:
    (tmp_path / "m.tflite").write_bytes(convolution((2, 4, 5, 20), (3, 3), 0, {}, "int8", True))
    graph = load(tmp_path / "m.tflite")
    kernel = vectors_of(Context(graph, graph.nodes[0]), MACHINES[0])
    (band,) = (buffer for buffer in kernel.buffers if buffer.name == "band")
    fill, image = kernel.body
    assert isinstance(fill, For)
    assert fill.extent == const(band.size // 16)
    assert isinstance(image, For)
    assert not any(isinstance(stmt, If) for stmt in image.body)
    rows = image.body[0]
    assert isinstance(rows, For)
    assert rows.extent == const(4)


def test_pixels_that_see_their_own_cell_are_copied_in_one_run(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(convolution((1, 6, 6, 19), (1, 1), 30, {}, "int8", False))
    graph = load(tmp_path / "m.tflite")
    kernel = vectors_of(Context(graph, graph.nodes[0]), MACHINES[0])
    rows = x86_dense.block_for(
        Windows((1, 36, 1, 19), (1, 36, 1), (1, 1)), 30, MACHINES[0], copied=2
    ).rows
    (bands,) = kernel.body
    assert isinstance(bands, For)
    assert isinstance(bands.body[0], For)
    assert bands.body[0].extent == const(rows * 19 // 8)
    assert isinstance(bands.body[1], StoreVector)  # the last one, within the one before


def test_bands_are_as_high_as_the_first_cache_holds() -> None:
    windows = Windows((1, 96, 96, 3), (1, 48, 48), (3, 3), (2, 2), (1, 1), (0, 0))
    block = x86_dense.block_for(windows, 8, X86Machine(8, fma=True), copied=4)
    assert 1 < block.rows < 48
    assert Band(windows, block.rows).elements * 4 <= 32 << 10
    assert block.pixels * block.vectors <= 14
    wide = Windows((1, 4, 9000, 3), (1, 4, 9000), (3, 3), (1, 1), (1, 1), (1, 1))
    assert x86_dense.block_for(wide, 8, X86Machine(8, fma=True), copied=4).rows == 1


def test_sums_leave_registers_to_what_scales_them() -> None:
    """SSE has no others: its instructions overwrite what they take."""
    windows = Windows((1, 1, 576, 32), (1, 576, 1), (1, 1), (1, 1), (1, 1), (0, 0))
    sums = [
        block.pixels * block.vectors for block in (
            x86_dense.block_for(windows, 32, machine, copied=copied)
            for machine, copied in ((MACHINES[0], 2), (MACHINES[0], 4), (MACHINES[1], 2))
        )
    ]
    assert sums[0] <= 8 < min(sums[1:])
