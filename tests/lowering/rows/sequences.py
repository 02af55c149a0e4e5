"""Drawn networks of sequences: time goes along or down the image, or there are three axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Activation,
    Add,
    AveragePool2D,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mul,
    Op,
    Pad,
    Padding2D,
    Relu,
    Reshape,
    Slice,
)
from crtexport.ir.types import DType, Quantization
from tests.plan.graphs import GraphBuilder

Draw = Callable[[st.SearchStrategy[Any]], Any]
Q = Quantization((0.05,), (-3,))
WEIGHTS = Quantization((0.01,), (0,))


class Sequence:
    """A network of int8 that grows by layers over time. ``down``: its images have one column, else
    one row."""

    def __init__(self, draw: Draw, *, down: bool, short: bool) -> None:
        self.draw, self.b, self.down = draw, GraphBuilder(), down
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        frames, channels = draw(st.integers(8, 24)), draw(st.integers(1, 4))
        shape = (1, frames, channels) if short else self._image(frames, channels)
        self.x = self.b.input(*shape, dtype=DType.INT8, quant=Q)
        if short:
            self.x = self.node(Reshape(self._image(frames, channels)), self.x)

    def _image(self, frames: int, channels: int) -> tuple[int, int, int, int]:
        return (1, frames, 1, channels) if self.down else (1, 1, frames, channels)

    def _pair(self, along: int, across: int) -> tuple[int, int]:
        return (along, across) if self.down else (across, along)

    def node(self, op: Op, *inputs: int) -> int:
        return self.b.node(op, *inputs, quant=Q)

    def frames(self, x: int) -> int:
        shape = self.b.tensors[x].type.shape
        return shape[1] * shape[2]

    def _channels(self, x: int) -> int:
        return self.b.tensors[x].type.shape[3]

    def _weights(self, *shape: int) -> int:
        return self.b.constant(self.rng.integers(-127, 128, shape).astype(np.int8), WEIGHTS)

    def _kernel(self, x: int, units: int, taps: int) -> int:
        return self._weights(units, *self._pair(taps, 1), self._channels(x))

    def conv(self, x: int, taps: int = 1, *, causal: bool = False, stride: int = 1) -> int:
        """A convolution over time, dilated at times; without padding unless it is causal."""
        most = (self.frames(x) - 1) // max(taps - 1, 1)
        dilation = self.draw(st.integers(1, max(min(most, 3), 1)))
        early = (taps - 1) * dilation if causal else 0
        padding = Padding2D(early, 0, 0, 0) if self.down else Padding2D(0, 0, early, 0)
        op = Conv2D(
            self._pair(stride, 1), self._pair(dilation, 1), padding, activation=Activation.RELU
        )
        return self.node(op, x, self._kernel(x, self._channels(x), taps))

    def cut(self, x: int, frames: int) -> int:
        """The last frames of a tensor."""
        size = self._image(frames, self._channels(x))
        begin = (0, *self._pair(self.frames(x) - frames, 0), 0)
        return self.node(Slice(begin, size, (1, 1, 1, 1), size), x)

    def three_axes(self, *inputs: int) -> list[int]:
        """Images as converters leave them between convolutions: without the axis of rows."""
        return [
            self.node(Reshape((1, self.frames(x), self._channels(x))), x) for x in inputs
        ]

    def layer(self, *, causal: bool) -> None:
        """One more layer. Where layers are ``causal``, they pad what comes before the window."""
        x, taps = self.x, min(self.draw(st.integers(1, 3)), self.frames(self.x))
        match self.draw(st.sampled_from((
            "conv", "stride", "depthwise", "max", "scaled", "residual", "join", "pad",
        ))):
            case "conv":
                self.x = self.conv(x, taps, causal=causal)
            case "stride":
                self.x = self.conv(x, taps, causal=causal, stride=2)
            case "depthwise":
                early = taps - 1 if causal else 0
                padding = Padding2D(early, 0, 0, 0) if self.down else Padding2D(0, 0, early, 0)
                weights = self._weights(1, *self._pair(taps, 1), self._channels(x))
                self.x = self.node(DepthwiseConv2D(1, padding=padding), x, weights)
            case "max":
                self.x = self.node(MaxPool2D(self._pair(taps, 1), self._pair(1, 1)), x)
            case "scaled":
                factors = self._weights(1, self._channels(x))
                self.x = self.node(Mul(), x, factors)
            case "residual":
                side = self.conv(x, taps, causal=causal)
                rest = x if causal else self.cut(x, self.frames(side))
                if self.draw(st.booleans()):
                    self.x = self.node(Add(), side, rest)
                    return
                shape = self._image(self.frames(side), self._channels(side))
                together = self.node(Add(), *self.three_axes(side, rest))
                self.x = self.node(Reshape(shape), self.node(Relu(), together))
            case "join" if self._channels(x) < 8:
                self.x = self.node(Concatenation(3), x, self.conv(x))
            case "pad" if causal:
                early = (2, 0)
                pads = (early, (0, 0)) if self.down else ((0, 0), early)
                padded = self.node(Pad(((0, 0), *pads, (0, 0))), x)
                self.x = self.conv(padded, 2)
            case _:
                self.x = self.node(Relu(), x)

    def finish(self) -> Graph:
        """The network with a result of a window: what its last frames say, or all, or those
        themselves."""
        x, frames = self.x, self.frames(self.x)
        match self.draw(st.sampled_from(("last", "mean", "dense", "frames", "short"))):
            case "last":
                x = self.cut(x, self.draw(st.integers(1, frames)))
            case "mean":
                x = self.node(AveragePool2D(self._pair(frames, 1)), x)
            case "dense":
                flat = self.node(Reshape((1, frames * self._channels(x))), x)
                weights = self._weights(3, frames * self._channels(x))
                return self.b.finish(self.node(FullyConnected(), flat, weights))
            case "short":
                (flat,) = self.three_axes(x)
                begin, size = (0, frames - 1, 0), (1, 1, self._channels(x))
                x = self.node(Slice(begin, size, (1, 1, 1), (1, self._channels(x))), flat)
            case _:
                pass
        return self.b.finish(self.node(Relu(), x))


@st.composite
def sequences(draw: Draw, *, causal: bool | None = None) -> Graph:
    """Chains over time with cuts, strides, dilations and residuals. ``causal``: whether layers pad
    the time before the window; either where that is None."""
    growing = Sequence(draw, down=draw(st.booleans()), short=draw(st.booleans()))
    pads = draw(st.booleans()) if causal is None else causal
    for _ in range(draw(st.integers(1, 5))):
        growing.layer(causal=pads)
    return growing.finish()
