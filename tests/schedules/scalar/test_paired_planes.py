"""Two outputs of a channel at once: exact at the ends of values, whatever windows see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Activation, DepthwiseConv2D
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.kir.assembly.assemble import assembled
from crtexport.kir.language import For
from crtexport.kir.walk import walk
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.schedules.scalar import paired_planes, plane_geometry
from tests.helpers import target_of
from tests.lowered import run
from tests.plan.graphs import GraphBuilder

Array = np.ndarray[Any, Any]

def layer(
    shape: tuple[int, ...], weights: Array, op: DepthwiseConv2D, zero_point: int = -7,
    scale: float = 0.01,
) -> Graph:
    """A depthwise layer whose outputs begin at the output's zero point after a ReLU."""
    b = GraphBuilder()
    x = b.input(*shape, dtype=DType.INT8, quant=Quantization((0.05,), (zero_point,)))
    count = weights.shape[3]
    scales = tuple(scale * (1 + 0.1 * (c % 5)) for c in range(count))
    w = b.constant(weights.astype(np.int8), Quantization(scales, (0,) * count, axis=3))
    return b.finish(b.node(op, x, w, quant=Quantization((0.3,), (4,))))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_pairs_of_outputs_give_what_the_plain_kernel_does(data: st.DataObject) -> None:
    """Also odd numbers of outputs, rows further apart, and several outputs of a channel."""
    draw = data.draw
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 2))
    padding = Padding2D(*(
        draw(st.integers(0, most - 1)) for most in (kernel[0], kernel[0], kernel[1], kernel[1])
    ))
    height = draw(st.integers(dilation * (kernel[0] - 1) + 1, 9))
    width, channels = draw(st.integers(kernel[1], 11)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    multiplier = draw(st.integers(1, 2))
    values = rng.choice(np.array([-128, -127, -1, 0, 1, 127]), (1, *kernel, channels * multiplier))
    both = np.abs(values.reshape(-1, channels * multiplier))
    fits = all(both[t : t + 2].sum(0).max() <= 255 for t in range(0, len(both), 2))
    op = DepthwiseConv2D(
        depth_multiplier=multiplier, stride=stride, padding=padding, dilation=(dilation, 1),
        activation=draw(st.sampled_from([Activation.NONE, Activation.RELU])),
    )
    graph = layer(
        (draw(st.integers(1, 2)), height, width, channels), values, op,
        draw(st.integers(-128, 127)), draw(st.sampled_from([0.0005, 0.02])),
    )
    context = Context(graph, graph.nodes[0])
    variants = paired_planes.candidates(context, plane_geometry.PAIRED_WORDS)
    assert bool(variants) == (fits and context.output().shape[2] > 1)
    if variants:
        value = rng.choice(np.array([-128, 127, 3]), context.input(0).shape).astype(np.int8)
        np.testing.assert_array_equal(
            run(graph, draw(st.sampled_from(variants)).make(), value),
            run(graph, operator_table.lower(context), value),
        )


@pytest.mark.parametrize("weights", [(-128, 127), (127, 127), (-128, -127), (-127, -127)])
@pytest.mark.parametrize("low", [-128, 127])
@pytest.mark.parametrize("high", [-128, 127])
def test_halves_at_their_ends_never_touch_each_other(
    weights: tuple[int, int], low: int, high: int
) -> None:
    values = np.array(weights).reshape(1, 1, 2, 1)
    graph = layer((1, 1, 8, 1), values, DepthwiseConv2D(stride=(1, 2)), 0, 0.05)
    context = Context(graph, graph.nodes[0])
    value = np.array([low] * 4 + [high] * 4, np.int8).reshape(1, 1, 8, 1)
    variants = paired_planes.candidates(context, plane_geometry.PAIRED_WORDS)
    assert variants
    wanted = run(graph, operator_table.lower(context), value)
    for variant in variants:
        np.testing.assert_array_equal(run(graph, variant.make(), value), wanted)


@pytest.mark.parametrize("activation", [Activation.NONE, Activation.RELU])
@pytest.mark.parametrize("stride", [1, 2])
def test_registers_of_cortex_m3_are_enough_for_each_number_of_columns(
    activation: Activation, stride: int
) -> None:
    values = np.random.default_rng(3).integers(-127, 128, (1, 3, 3, 16))
    op = DepthwiseConv2D(
        stride=(stride, stride), padding=Padding2D(1, 1, 1, 1), activation=activation
    )
    graph = layer((1, 16, 16, 16), values, op)
    variants = paired_planes.candidates(
        Context(graph, graph.nodes[0]), plane_geometry.PAIRED_WORDS
    )
    for variant in variants:
        kernel = variant.make().kernel
        (loop,) = (one for one in walk(kernel.body) if isinstance(one, For) and one.assembled)
        assert assembled(loop, kernel, target_of("mps2_an385")) is not None, variant.name
