"""Planes of depthwise convolutions where loads have short offsets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Activation, DepthwiseConv2D
from crtexport.ir.ops.base import Padding2D
from crtexport.kir import language as kir
from crtexport.kir.linear_form import split_constant
from crtexport.kir.walk import expressions, walk, walk_expr
from crtexport.lowering.registry import Context
from crtexport.schedules.scalar import depthwise_planes
from crtexport.schedules.scalar.plane_geometry import LONE_WORDS, WORDS, geometries
from crtexport.schedules.select.choose import by_default
from crtexport.schedules.variants import variants_of
from tests.helpers import target_of
from tests.schedules.scalar.test_paired_planes import layer as depthwise


def layer(
    shape: tuple[int, int, int], kernel: tuple[int, int] = (3, 3), stride: tuple[int, int] = (1, 1)
) -> Graph:
    """A depthwise layer with as many outputs as it has inputs if ``stride`` is 1, and a ReLU."""
    values = np.random.default_rng(2).integers(-127, 128, (1, *kernel, shape[2]))
    sides = ((taps // 2, (taps - 1) // 2) for taps in kernel)
    op = DepthwiseConv2D(
        stride=stride, padding=Padding2D(*itertools.chain(*sides)), activation=Activation.RELU
    )
    return depthwise((1, *shape), values, op)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_block_loads_words_as_near_as_its_geometry_says(data: st.DataObject) -> None:
    draw = data.draw
    kernel = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    stride = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    shape = draw(st.integers(5, 20)), draw(st.integers(5, 30)), 2
    graph = layer(shape, kernel, stride)
    context, op = Context(graph, graph.nodes[0]), graph.nodes[0].op
    assert isinstance(op, DepthwiseConv2D)
    shapes = geometries(context, op, LONE_WORDS)
    variants = depthwise_planes.candidates(context, LONE_WORDS)
    for geometry, variant in zip(shapes, variants, strict=True):
        if geometry.unrolled:
            continue
        (block,) = (
            one for one in walk(variant.make().kernel.body)
            if isinstance(one, kir.For) and one.var.name.startswith("column")
        )
        read = [expr for stmt in walk(block.body) for own in expressions(stmt)
                for expr in walk_expr(own)]
        places = [
            split_constant(one.index)[1] for one in read
            if isinstance(one, kir.Load) and one.buffer.name == "plane"
        ]
        assert max(places) - min(places) == geometry.reach


@pytest.mark.parametrize(("shape", "stride", "by_columns"), [
    ((24, 24, 16), 1, True),  # rows of 26 words, of which a window spans two
    ((24, 24, 16), 2, True),
    ((12, 5, 16), 1, False),  # all of a row is written out, which is 7 words by 8 rows
    ((20, 6, 16), 2, False),
])
def test_planes_are_by_columns_where_that_is_nearer(
    shape: tuple[int, int, int], stride: int, by_columns: bool
) -> None:
    graph = layer(shape, stride=(stride, stride))
    context, op = Context(graph, graph.nodes[0]), graph.nodes[0].op
    assert isinstance(op, DepthwiseConv2D)
    usual = geometries(context, op, LONE_WORDS)[0]
    assert usual.by_columns is by_columns
    assert not any(one.by_columns for one in geometries(context, op, WORDS))


@pytest.mark.parametrize("optimize", ["compact", "balanced", "speed"])
def test_c_of_armv6m_keeps_weights_in_variables_and_objects_in_scratch(optimize: str) -> None:
    graph, target = layer((12, 12, 16)), target_of("qemu_cortex_m0")
    context = Context(graph, graph.nodes[0])
    variants = variants_of(context, target, optimize)
    kernels = {
        emit: by_default(target, optimize, emit)(context, variants, 1.0).make().kernel
        for emit in ("c", "llvm")
    }
    scratch = {emit: {one.name for one in kernel.buffers} for emit, kernel in kernels.items()}
    assert scratch["llvm"] - scratch["c"] == {"taps"}
