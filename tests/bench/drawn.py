"""Networks of drawn shapes, like those that run on microcontrollers: what figures that were fitted
to known networks are checked with."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Activation,
    Add,
    AveragePool2D,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    Reshape,
    Softmax,
)
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from tests.plan.graphs import GraphBuilder

Kind = Literal["int8", "int16", "float32"]
KINDS: tuple[Kind, ...] = ("int8", "int16", "float32")
_CHANNELS = (8, 12, 16, 20, 24, 32, 40, 48, 64)
_SCALE = 0.05


class _Drawn:
    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind, self.rng, self.b = kind, np.random.default_rng(seed), GraphBuilder()

    def one(self, *choices: int) -> int:
        return int(self.rng.choice(choices))

    def quant(self, scale: float = _SCALE) -> Quantization | None:
        if self.kind == "float32":
            return None
        zero = 0 if self.kind == "int16" else int(self.rng.integers(-128, 30))
        return Quantization((scale,), (zero,))

    @property
    def dtype(self) -> DType:
        return DType(self.kind)

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self.b.tensors[tensor].type.shape

    def weights(self, shape: tuple[int, ...], axis: int) -> tuple[int, int]:
        """Normally distributed, as those of trained networks nearly are; and a bias."""
        units, products = shape[axis], int(np.prod(shape)) // shape[axis]
        values: npt.NDArray[np.float64] = self.rng.normal(size=shape)
        if self.kind == "float32":
            real = (values / np.sqrt(products)).astype(np.float32)
            return self.b.constant(real), self.b.constant(np.zeros(units, np.float32))
        scales = self.rng.uniform(0.5, 2, units) / np.sqrt(products) / 40
        quant = Quantization(tuple(scales.tolist()), (0,) * units, axis)
        bias = Quantization(tuple((_SCALE * scales).tolist()), (0,) * units, 0)
        whole = np.clip(np.round(values * 40), -127, 127).astype(np.int8)
        wide = np.int32 if self.kind == "int8" else np.int64
        return self.b.constant(whole, quant), self.b.constant(
            self.rng.integers(-500, 500, units).astype(wide), bias
        )

    def window(self, x: int, size: int, stride: int, channels: int | None) -> int:
        """A convolution with padding, depthwise without ``channels``."""
        _, height, width, depth = self.shape(x)
        sides = []
        for extent in (height, width):
            missing = max((-(-extent // stride) - 1) * stride + size - extent, 0)
            sides += [missing // 2, missing - missing // 2]
        where = {"stride": (stride, stride), "padding": Padding2D(*sides)}
        shape = (1, size, size, depth) if channels is None else (channels, size, size, depth)
        op = (DepthwiseConv2D if channels is None else Conv2D)(
            **where, activation=Activation.RELU  # type: ignore[arg-type]
        )
        return self.b.node(
            op, x, *self.weights(shape, 3 if channels is None else 0), quant=self.quant(),
            quantized=self.dtype,
        )

    def block(self, x: int) -> int:
        """A stage of a network: separable, residual or plain."""
        channels, stride = self.one(*_CHANNELS), self.one(1, 1, 2)
        match self.one(0, 0, 1, 2):
            case 0:
                return self.window(self.window(x, 3, stride, None), 1, 1, channels)
            case 1:
                first = self.window(x, 3, stride, channels)
                second = self.window(first, 3, 1, channels)
                return self.b.node(Add(), first, second, quant=self.quant(), quantized=self.dtype)
            case _:
                return self.window(x, self.one(1, 3, 5), stride, channels)

    def graph(self) -> Graph:
        side, other = self.one(12, 16, 20, 25), self.one(10, 16, 24)
        x = self.b.input(1, side, other, self.one(1, 3, 10), dtype=self.dtype, quant=self.quant())
        x = self.window(x, self.one(3, 5), self.one(1, 2), self.one(8, 16, 24))
        for _ in range(self.one(3, 4, 5)):
            x = self.block(x)
        _, height, width, channels = self.shape(x)
        x = self.b.node(
            AveragePool2D((height, width), (height, width)), x, quant=self.b.tensors[x].type.quant,
            quantized=self.dtype,
        )
        x = self.b.node(
            Reshape((1, channels)), x, quant=self.b.tensors[x].type.quant, quantized=self.dtype
        )
        for units in (self.one(32, 64, 100), self.one(2, 10, 12)):
            shape = (units, self.shape(x)[1])
            w, bias = self.weights(shape, 0)
            x = self.b.node(FullyConnected(), x, w, bias, quant=self.quant(), quantized=self.dtype)
        if self.kind == "int8":
            x = self.b.node(Softmax(), x, quant=Quantization((1 / 256,), (-128,)))
        return self.b.finish(x)


def drawn(kind: Kind, seed: int) -> Graph:
    """The network of a seed: always the same."""
    return _Drawn(kind, seed).graph()
