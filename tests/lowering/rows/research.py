"""Networks like those of research that runs rows or patches: with drawn weights, of int8."""

from __future__ import annotations

import numpy as np

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
    Padding2D,
    Reshape,
    TransposeConv2D,
)
from crtexport.ir.types import DType, Quantization
from tests.plan.graphs import GraphBuilder

Q = Quantization((0.05,), (-3,))


class Layers:
    """Grows a network by layers. Images are NHWC."""

    def __init__(self, *shape: int, seed: int = 0) -> None:
        self.b = GraphBuilder()
        self.x = self.b.input(*shape, dtype=DType.INT8, quant=Q)
        self._rng = np.random.default_rng(seed)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.b.tensors[self.x].type.shape

    def _weights(self, *shape: int) -> int:
        values = self._rng.integers(-127, 128, shape).astype(np.int8)
        return self.b.constant(values, Quantization((0.01,), (0,)))

    def _biases(self, count: int) -> int:
        values = self._rng.integers(-500, 500, count).astype(np.int32)
        return self.b.constant(values, Quantization((0.0005,), (0,)))

    def conv(
        self, units: int, taps: int = 1, stride: int = 1, *, linear: bool = False
    ) -> Layers:
        """A convolution of square windows, with padding as TensorFlow's SAME."""
        op = Conv2D(
            (stride, stride), padding=self._same(taps, stride),
            activation=Activation.NONE if linear else Activation.RELU6,
        )
        weights = self._weights(units, taps, taps, self.shape[3])
        self.x = self.b.node(op, self.x, weights, self._biases(units), quant=Q)
        return self

    def depthwise(self, taps: int, stride: int = 1) -> Layers:
        """A depthwise convolution, padded alike."""
        channels = self.shape[3]
        op = DepthwiseConv2D(
            1, (stride, stride), padding=self._same(taps, stride), activation=Activation.RELU6
        )
        weights = self._weights(1, taps, taps, channels)
        self.x = self.b.node(op, self.x, weights, self._biases(channels), quant=Q)
        return self

    def _same(self, taps: int, stride: int) -> Padding2D:
        missing = [
            max((-(-size // stride) - 1) * stride + taps - size, 0) for size in self.shape[1:3]
        ]
        (top, left), (bottom, right) = [m // 2 for m in missing], [m - m // 2 for m in missing]
        return Padding2D(top, bottom, left, right)

    def add(self, other: int) -> Layers:
        self.x = self.b.node(Add(), self.x, other, quant=Q)
        return self

    def inverted(self, wide: int, units: int, taps: int = 3, stride: int = 1) -> Layers:
        """An inverted residual: expand, depthwise, project, and add where shapes allow that."""
        given, before = self.x, self.shape
        if wide != before[3]:
            self.conv(wide)
        self.depthwise(taps, stride).conv(units, linear=True)
        return self.add(given) if self.shape == before else self

    def mean_and_dense(self, units: int) -> Graph:
        """The mean over the image and a last layer; the network is complete."""
        _, height, width, channels = self.shape
        self.x = self.b.node(AveragePool2D((height, width)), self.x, quant=Q)
        return self.dense(units, channels)

    def dense(self, units: int, depth: int) -> Graph:
        flat = self.b.node(Reshape((1, depth)), self.x, quant=Q)
        weights = self._weights(units, depth)
        return self.b.finish(self.b.node(
            FullyConnected(), flat, weights, self._biases(units), quant=Q
        ))


def mobilenet_v2(size: int = 144) -> Graph:
    """MobileNetV2 of width 0.35 for images of ``size`` x ``size`` pixels (Sandler et al. 2018)."""
    net = Layers(1, size, size, 3).conv(16, 3, 2).inverted(16, 8)
    stages = ((8, 2, 2), (16, 3, 2), (24, 4, 2), (32, 3, 1), (56, 3, 2), (112, 1, 1))
    for units, count, stride in stages:
        for number in range(count):
            net.inverted(6 * net.shape[3], units, stride=1 if number else stride)
    return net.conv(1280).mean_and_dense(2)


def person_detector() -> Graph:
    """A network of the kind of MCUNet's for 80x80 pixels (Lin et al. 2020): inverted residuals
    whose windows have 3 to 7 taps."""
    net = Layers(1, 80, 80, 3).conv(14, 3, 2).inverted(14, 8)
    blocks = (
        (47, 16, 3, 2), (48, 16, 3, 1), (48, 16, 3, 1), (48, 24, 7, 2), (136, 24, 3, 1),
        (118, 24, 5, 1), (126, 40, 7, 2), (197, 40, 7, 1), (212, 48, 3, 1), (192, 48, 3, 1),
        (240, 96, 5, 2), (436, 96, 3, 1), (354, 96, 3, 1), (288, 160, 7, 1),
    )
    for wide, units, taps, stride in blocks:
        net.inverted(wide, units, taps, stride)
    return net.mean_and_dense(2)


def u_net(size: int = 64, width: int = 8) -> Graph:
    """A U-Net of three levels (Ronneberger et al. 2015)."""
    net = Layers(1, size, size, 1)
    skips = []
    for level in range(3):
        net.conv(width << level, 3).conv(width << level, 3)
        skips.append(net.x)
        net.x = net.b.node(MaxPool2D((2, 2), (2, 2)), net.x, quant=Q)
    net.conv(width << 3, 3).conv(width << 3, 3)
    for level in (2, 1, 0):
        units = width << level
        _, height, _, channels = net.shape
        op = TransposeConv2D((2 * height, 2 * height), (2, 2))
        wide = net._weights(units, 2, 2, channels)
        net.x = net.b.node(op, net.x, wide, net._biases(units), quant=Q)
        net.x = net.b.node(Concatenation(3), skips[level], net.x, quant=Q)
        net.conv(units, 3).conv(units, 3)
    return net.conv(2, linear=True).b.finish(net.x)


def tcn(frames: int = 100, features: int = 40, channels: int = 32, *, causal: bool = True) -> Graph:
    """A temporal network (Bai et al. 2018) of eight dilated layers in residual pairs; 100 frames
    are one second. Time goes down the image. Without padding, ``causal`` is moot: each layer has
    fewer frames than the one before."""
    net = Layers(1, frames, 1, features)
    net.conv(channels)
    for dilation in (1, 2, 4, 8):
        given = net.x
        for _ in range(2):
            top = 2 * dilation if causal else 0
            op = Conv2D(
                (1, 1), (dilation, 1), Padding2D(top, 0, 0, 0), activation=Activation.RELU
            )
            weights = net._weights(channels, 3, 1, channels)
            net.x = net.b.node(op, net.x, weights, net._biases(channels), quant=Q)
        if causal:
            net.add(given)
    return net.mean_and_dense(12)
