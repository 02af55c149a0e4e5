"""Drawn networks that can be computed row by row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import (
    Activation,
    Add,
    AveragePool2D,
    ChannelSums,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    MaxPool2D,
    Op,
    Padding2D,
    Relu,
    ResizeNearestNeighbor,
    TransposeConv2D,
)
from crtexport.ir.types import DType, Quantization
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import row_schedule
from tests.plan.graphs import GraphBuilder

Draw = Callable[[st.SearchStrategy[Any]], Any]
Q = Quantization((0.05,), (-3,))
ONE = st.integers(1, 2)


class Growing:
    """A network of int8 that grows by layers that keep or shrink images."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.b = draw, GraphBuilder()
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def _weights(self, *shape: int) -> int:
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        return self.b.constant(values, Quantization((0.01,), (0,)))

    def _biases(self, count: int) -> int:
        values = self.rng.integers(-500, 500, count).astype(np.int32)
        return self.b.constant(values, Quantization((0.0005,), (0,)))

    def node(self, op: Op, *inputs: int) -> int:
        return self.b.node(op, *inputs, quant=Q)

    def _geometry(self, x: int, window: tuple[int, int]) -> tuple[tuple[int, int], Padding2D]:
        _, height, width, _ = self.b.tensors[x].type.shape
        tops, lefts = st.integers(0, window[0] - 1), st.integers(0, window[1] - 1)
        top, bottom = self.draw(tops), self.draw(tops)
        left, right = self.draw(lefts), self.draw(lefts)
        padding = Padding2D(
            max(top, window[0] - height), bottom, max(left, window[1] - width), right
        )
        return (self.draw(ONE), self.draw(ONE)), padding

    def layer(self, x: int) -> int:
        """One more layer on ``x``."""
        _, height, width, channels = self.b.tensors[x].type.shape
        window = self.draw(st.integers(1, 3)), self.draw(st.integers(1, 3))
        match self.draw(st.sampled_from((
            "conv", "depthwise", "max", "mean", "relu", "residual", "inverted", "branches",
            "transposed", "resized",
        ))):
            case "conv":
                stride, padding = self._geometry(x, window)
                units = self.draw(st.integers(1, 5))
                op = Conv2D(stride, padding=padding, activation=Activation.RELU)
                return self.node(op, x, self._weights(units, *window, channels),
                                 self._biases(units))
            case "depthwise":
                stride, padding = self._geometry(x, window)
                wide = 2 * (window[0] - 1) < height and 2 * (window[1] - 1) < width
                dilation = (2, 2) if wide and self.draw(st.booleans()) else (1, 1)
                op = DepthwiseConv2D(1, stride, dilation, padding)
                return self.node(op, x, self._weights(1, *window, channels),
                                 self._biases(channels))
            case "max":
                stride, padding = self._geometry(x, window)
                return self.node(MaxPool2D(window, stride, padding), x)
            case "mean":
                window = min(window[0], height), min(window[1], width)
                return self.node(AveragePool2D(window, (1, 1)), x)
            case "transposed" if height * width < 30:
                stride = self.draw(ONE), self.draw(ONE)
                size = height * stride[0], width * stride[1]
                return self.node(TransposeConv2D(size, stride), x,
                                 self._weights(channels, *stride, channels),
                                 self._biases(channels))
            case "resized" if height * width < 30:
                size = height * self.draw(ONE), width * self.draw(ONE)
                return self.node(ResizeNearestNeighbor(size), x)
            case "relu":
                return self.node(Relu(), x)
            case "residual":
                side = self.node(Conv2D(padding=Padding2D(1, 1, 1, 1)), x,
                                 self._weights(channels, 3, 3, channels), self._biases(channels))
                return self.node(Add(), side, x)
            case "inverted":
                wide = self.node(Conv2D(activation=Activation.RELU), x,
                                 self._weights(7, 1, 1, channels), self._biases(7))
                mixed = self.node(DepthwiseConv2D(1, padding=Padding2D(1, 1, 1, 1)), wide,
                                  self._weights(1, 3, 3, 7), self._biases(7))
                narrow = self.node(Conv2D(), mixed, self._weights(channels, 1, 1, 7),
                                   self._biases(channels))
                return self.node(Add(), narrow, x)
            case _:
                side = self.node(DepthwiseConv2D(1, padding=Padding2D(2, 0, 0, 2)), x,
                                 self._weights(1, 3, 3, channels), self._biases(channels))
                return self.node(Concatenation(3), x, side)


@st.composite
def networks(draw: Draw) -> Graph:
    """Chains with branches that come together again, strides, dilations, uneven padding, images of
    one row or column, and at times the sums of a last mean."""
    growing = Growing(draw)
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    x = growing.b.input(1, height, width, draw(st.integers(1, 4)), dtype=DType.INT8, quant=Q)
    for _ in range(draw(st.integers(2, 5))):
        x = growing.layer(x)
    last = growing.b.node(ChannelSums(), x) if draw(st.booleans()) else x
    made = [node.outputs[0] for node in growing.b.nodes if node.outputs[0] != last]
    others = draw(st.lists(st.sampled_from(made), max_size=1)) if draw(st.booleans()) else []
    return growing.b.finish(last, *others)


@st.composite
def cascades(draw: Draw) -> tuple[Graph, Graph]:
    """A network, and the same with some of its nodes as cascades of any heights, with the rows that
    are left one by one or at once."""
    graph = draw(networks())
    count = len(graph.nodes)
    cuts = sorted(draw(st.sets(st.integers(0, count), max_size=3)))
    nodes: list[Node] = []
    for start, end in pairwise((0, *cuts, count)):
        parts = graph.nodes[start:end]
        later = {t for node in graph.nodes[end:] for t in node.inputs} | {*graph.outputs}
        outputs = [t for part in parts for t in part.outputs if t in later]
        heights = draw(st.lists(
            st.integers(1, 4), min_size=len(parts), max_size=len(parts)
        ))
        if parts and draw(st.integers(0, 3)):
            node = cascade(parts, outputs, heights, rests=draw(st.booleans()))
            nodes += [node] if row_schedule(graph, node, heights) is not None else parts
        else:
            nodes += parts
    return graph, graph.with_nodes(tuple(nodes))
