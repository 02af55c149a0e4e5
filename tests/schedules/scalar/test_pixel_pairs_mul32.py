"""Sums of two pixels in a word are exact at their ends, and words are loaded at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.kir.assembly.assemble import assembled
from crtexport.kir.language import Call, For
from crtexport.kir.walk import expressions, walk, walk_expr
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.schedules.scalar import pixel_pairs_mul32, register_blocks
from crtexport.schedules.select.choose import by_default
from crtexport.schedules.variants import variants_of
from tests.helpers import require, target_of
from tests.lowered import run
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]


def pointwise(
    folder: Path, weights: Array, *, pixels: int, zero_point: int = -128, scale: float = 90.0
) -> Graph:
    """A convolution of ``pixels`` cells with windows of one."""
    m = ModelBuilder()
    units, depth = weights.shape
    x = m.tensor("x", (1, 1, pixels, depth), "int8", scale=0.5, zero_point=-128)
    w = m.tensor(
        "w", (units, 1, 1, depth), "int8", scale=0.01, data=weights.reshape(units, 1, 1, depth)
    )
    bias = np.arange(units) * 100 - 250
    b = m.tensor("b", (units,), "int32", scale=0.005, data=bias)
    y = m.tensor("y", (1, 1, pixels, units), "int8", scale=scale, zero_point=zero_point)
    m.op("CONV_2D", [x, w, b], [y], padding="VALID", stride=(1, 1))
    (folder / "m.tflite").write_bytes(m.build([x], [y]))
    return load(folder / "m.tflite")


@pytest.mark.parametrize(("depth", "machine", "count"), [
    (1, pixel_pairs_mul32.ARMV6M, 3), (16, pixel_pairs_mul32.ARMV6M, 3),
    (37, pixel_pairs_mul32.ARMV6M, 3), (16, pixel_pairs_mul32.ARMV6M_SOURCES, 1),
    (37, pixel_pairs_mul32.ARMV6M_SOURCES, 2), (64, pixel_pairs_mul32.ARMV6M_SOURCES, 3),
    (37, pixel_pairs_mul32.I386, 2), (37, pixel_pairs_mul32.I386_SOURCES, 2),
])
@pytest.mark.parametrize("zero_point", [-128, 5])
def test_neighbours_in_a_word_never_touch_each_other(
    zero_point: int, depth: int, machine: pixel_pairs_mul32.PairBlocks, count: int, tmp_path: Path
) -> None:
    """The largest and smallest products, of either pixel and of both."""
    weights = np.full((5, depth), 127)
    weights[1], weights[2], weights[3, ::2], weights[4] = -127, 0, -127, 1
    scale = 0.005 * 127 * depth * 255 / 250
    graph = pointwise(tmp_path, weights, pixels=9, zero_point=zero_point, scale=scale)
    context = Context(graph, graph.nodes[0])
    ends = np.array([[-128, -128], [127, 127], [127, -128], [-128, 127], [0, -1]])
    value = np.repeat(ends.reshape(-1)[:9, None], depth, axis=1).reshape(1, 1, 9, depth)
    value[0, 0, 8, ::2] = 127
    wanted = run(graph, operator_table.lower(context), value.astype(np.int8))
    assert len(np.unique(wanted)) > 3
    variants = pixel_pairs_mul32.candidates(context, machine)
    assert len(variants) == count
    for variant in variants:
        np.testing.assert_array_equal(run(graph, variant.make(), value.astype(np.int8)), wanted)


@pytest.mark.parametrize(("machine", "least"), [
    (pixel_pairs_mul32.ARMV7M, (2, 1)), (pixel_pairs_mul32.ARMV6M_SOURCES, (4, 16)),
])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_blocks_give_what_the_plain_kernel_does(
    machine: pixel_pairs_mul32.PairBlocks, least: tuple[int, int], data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also where pixels, channels or values are left; ``least``: pixels and values."""
    draw = data.draw
    units, pixels = draw(st.integers(4, 9)), draw(st.integers(least[0], 9))
    depth = draw(st.integers(least[1], 40))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weights = rng.choice(np.array([-128, -127, -1, 0, 1, 127]), (units, depth))
    graph = pointwise(
        tmp_path_factory.mktemp("pairs"), weights, pixels=pixels,
        zero_point=draw(st.sampled_from([-128, 5])), scale=0.005 * 127 * depth * 255 / 250,
    )
    context = Context(graph, graph.nodes[0])
    value = rng.choice(np.array([-128, 127, 3]), (1, 1, pixels, depth)).astype(np.int8)
    wanted = run(graph, operator_table.lower(context), value)
    variants = pixel_pairs_mul32.candidates(context, machine)
    assert variants
    for variant in variants:
        np.testing.assert_array_equal(run(graph, variant.make(), value), wanted)


@pytest.mark.parametrize("depth", [8, 15, 27, 32, 144])
@pytest.mark.parametrize("units", [8, 9])
def test_registers_of_cortex_m3_are_enough_for_each_block(
    units: int, depth: int, tmp_path: Path
) -> None:
    graph = pointwise(tmp_path, np.ones((units, depth), np.int64), pixels=6)
    for variant in pixel_pairs_mul32.candidates(
        Context(graph, graph.nodes[0]), pixel_pairs_mul32.ARMV7M
    ):
        kernel = variant.make().kernel
        (loop,) = (one for one in walk(kernel.body) if isinstance(one, For) and one.assembled)
        assert assembled(loop, kernel, target_of("mps2_an385")) is not None, variant.name


def test_sums_that_may_leave_their_words_and_lone_pixels_get_other_variants(tmp_path: Path) -> None:
    few = np.ones((4, register_blocks.MOST_TAPS), np.int64)
    many = np.ones((4, register_blocks.MOST_TAPS + 1), np.int64)
    for weights, pixels, count in ((few, 2, 2), (few, 4, 3), (few, 1, 0), (many, 4, 0)):
        graph = pointwise(tmp_path, weights, pixels=pixels)
        assert len(pixel_pairs_mul32.candidates(Context(graph, graph.nodes[0]))) == count


@pytest.mark.parametrize("board", ["qemu_cortex_m0", "qemu_x86"])
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_compilers_of_c_are_told_the_order_of_sums_where_registers_are_few(
    emit: str, board: str, tmp_path: Path
) -> None:
    """They would put them off, and spill the products; LLVM doesn't."""
    graph, target = pointwise(tmp_path, np.ones((8, 64), np.int64), pixels=8), target_of(board)
    context = Context(graph, graph.nodes[0])
    variants = variants_of(context, target, "balanced")
    chosen = by_default(target, "balanced", emit)(context, variants, 1.0)
    calls = Counter(
        expr.name for stmt in walk(chosen.make().kernel.body) for own in expressions(stmt)
        for expr in walk_expr(own) if isinstance(expr, Call)
    )
    assert ("in_order_i32" in calls) == (emit == "c")
    assert "pairs" in chosen.name


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["qemu_cortex_m0", "qemu_x86"])
@pytest.mark.parametrize(("emit", "optimize"), [
    ("c", "balanced"), ("c", "compact"), ("llvm", "balanced"),
])
def test_machines_of_eight_registers_compute_pointwise_layers_as_the_reference_does(
    emit: str, optimize: str, board: str, tmp_path: Path
) -> None:
    """Loaded byte by byte, pairs would take as many instructions more as there are products: so
    where a compiler that saves code calls what loads from any address."""
    require("qemu-system-i386" if board == "qemu_x86" else "qemu-system-arm")
    rng = np.random.default_rng(4)
    weights = rng.integers(-127, 128, (16, 32))
    graph = pointwise(tmp_path, weights, pixels=32, scale=2.0)
    package = tmp_path / "m.tar"
    crtexport.export(
        tmp_path / "m.tflite", board=board, emit=emit, optimize=optimize, output=package
    )
    (given,) = open_package(package).inputs
    value = rng.integers(-128, 128, (1, 1, 1, 32, 32)).astype(np.int8)
    result = crtexport.run(package, {given.field: value})
    context = Context(graph, graph.nodes[0])
    np.testing.assert_array_equal(
        result.outputs[0][0].reshape(-1),
        run(graph, operator_table.lower(context), value[0]).reshape(-1),
    )
    assert result.instructions_second is not None
    assert result.instructions_second < 6 * weights.size * 32
