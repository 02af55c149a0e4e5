"""Small networks of ONNX with drawn weights, of what quantizers take."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """The nodes and weights so far; each method adds one and returns its output's name."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int) -> str:
        size = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 5.0
        return self.constant((self.rng.normal(size=shape) / size).astype(np.float32))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name=f"n{len(self.nodes)}", **attributes)
        )
        return name

    def conv(self, x: str, channels: tuple[int, int], size: int = 3, **options: Any) -> str:
        relu, group = options.pop("relu", True), options.get("group", 1)
        weight = self.weight(channels[1], channels[0] // group, size, size)
        options.setdefault("pads", [size // 2] * 4)
        y = self.add("Conv", x, weight, self.weight(channels[1]), **options)
        return self.add("Relu", y) if relu else y

    def dense(self, x: str, depth: int, units: int) -> str:
        return self.add("Gemm", x, self.weight(units, depth), self.weight(units), transB=1)

    def by(self, x: str, depth: int, units: int) -> str:
        return self.add("MatMul", x, self.weight(depth, units))

    def relu6(self, x: str) -> str:
        return self.add("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def pooled(self, x: str) -> str:
        return self.add("Flatten", self.add("GlobalAveragePool", x))

    def model(self, name: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        """All of it; the last node makes the output."""
        self.nodes[-1].output[0] = "y"
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
                for n, s in (("x", shape), ("y", None))]
        graph = helper.make_graph(self.nodes, name, ends[:1], ends[1:], self.weights)
        return onnx.shape_inference.infer_shapes(helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
        ))


def dscnn(net: Net) -> tuple[int, ...]:
    x = net.conv("x", (1, 24))
    for _ in range(2):
        x = net.conv(net.conv(x, (24, 24), group=24), (24, 24), 1)
    net.dense(net.pooled(x), 24, 11)
    return 1, 1, 13, 10


def residual(net: Net) -> tuple[int, ...]:
    x = net.conv("x", (3, 16))
    y = net.conv(net.conv(x, (16, 16)), (16, 16), relu=False)
    x = net.add("Relu", net.add("Add", x, y))
    y = net.conv(net.conv(x, (16, 20), strides=[2, 2]), (20, 20), relu=False)
    z = net.conv(x, (16, 20), 1, strides=[2, 2], relu=False)
    x = net.add("Relu", net.add("Add", z, y))
    x = net.add("AveragePool", x, kernel_shape=[3, 2], strides=[3, 2])
    net.dense(net.add("Flatten", x), 20 * 2 * 2, 9)
    return 1, 3, 12, 8


def mixed(net: Net) -> tuple[int, ...]:
    x = net.conv("x", (3, 8))
    x = net.add("Concat", net.conv(x, (8, 8), group=8, relu=False),
                net.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    x = net.add("LeakyRelu", net.add("Mul", x, net.add("Sigmoid", x)), alpha=0.1)
    x = net.add("Tanh", net.conv(x, (16, 12), strides=[2, 2], relu=False))
    rows = net.constant(np.array([30, 12]))
    net.by(net.add("Reshape", net.add("Transpose", x, perm=[0, 2, 3, 1]), rows), 12, 7)
    return 1, 3, 12, 10


def inverted(net: Net) -> tuple[int, ...]:
    """As MobileNetV2."""
    x = net.relu6(net.conv("x", (3, 12), strides=[2, 2], relu=False))
    for channels, stride in ((12, 1), (16, 2)):
        y = net.relu6(net.conv(x, (12, 40), 1, relu=False))
        y = net.relu6(net.conv(y, (40, 40), group=40, strides=[stride] * 2, relu=False))
        y = net.conv(y, (40, channels), 1, relu=False)
        x = net.add("Add", x, y) if stride == 1 else y
    net.dense(net.pooled(net.relu6(net.conv(x, (16, 30), 1, relu=False))), 30, 2)
    return 1, 3, 14, 18


def autoencoder(net: Net) -> tuple[int, ...]:
    x, sizes = "x", (60, 40, 24, 6, 24, 40)
    for depth, units in itertools.pairwise(sizes):
        x = net.add("Relu", net.dense(x, depth, units))
    net.dense(x, 40, 60)
    return 2, 60


def temporal(net: Net) -> tuple[int, ...]:
    """Convolutions of sequences, dilated and causal."""
    x = "x"
    for number, dilation in enumerate((1, 2, 4)):
        depth = 12 if number else 5
        y = net.add("Relu", net.add(
            "Conv", x, net.weight(12, depth, 3), net.weight(12), pads=[2 * dilation, 0],
            dilations=[dilation],
        ))
        x = net.add("Add", x, y) if number else y
    net.dense(net.pooled(x), 12, 6)
    return 1, 5, 31


def segmenter(net: Net) -> tuple[int, ...]:
    """As a U-Net."""
    x = net.conv("x", (2, 8))
    y = net.conv(net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), (8, 12))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    y = net.add("Resize", y, "", scales, mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")
    x = net.conv(net.add("Concat", x, y, axis=1), (20, 8))
    net.conv(x, (8, 3), 1, relu=False)
    return 1, 2, 10, 14


def attention(net: Net) -> tuple[int, ...]:
    heads = [
        net.add("Transpose", net.add(
            "Reshape", net.add("Add", net.by("x", 16, 16), net.weight(16)),
            net.constant(np.array([1, 9, 2, 8])),
        ), perm=order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    ]
    x = net.add("MatMul", *heads[:2])
    x = net.add("Softmax", net.add("Mul", x, net.constant(np.float32(8**-0.5))), axis=-1)
    x = net.add("Transpose", net.add("MatMul", x, heads[2]), perm=[0, 2, 1, 3])
    x = net.add("Reshape", x, net.constant(np.array([1, 9, 16])))
    x = net.add("Add", "x", net.by(x, 16, 16))
    net.add("Add", x, net.by(net.add("Relu", net.by(x, 16, 32)), 32, 16))
    return 1, 9, 16


def excited(net: Net) -> tuple[int, ...]:
    """With squeeze and excitation."""
    x = net.conv(net.conv("x", (3, 20), strides=[2, 2]), (20, 20), group=20)
    y = net.conv(net.add("GlobalAveragePool", x), (20, 6), 1)
    x = net.add("Mul", x, net.add("Sigmoid", net.conv(y, (6, 20), 1, relu=False)))
    net.dense(net.pooled(net.conv(x, (20, 18), 1)), 18, 5)
    return 1, 3, 11, 15


def branches(net: Net) -> tuple[int, ...]:
    x = net.conv("x", (3, 10))
    pool = net.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
    parts = [net.conv(x, (10, 6), 1, relu=False), net.conv(net.conv(x, (10, 5), 1), (5, 7)),
             net.conv(pool, (10, 4), 1)]
    x = net.add("Concat", *parts, axis=1)
    x = net.add("AveragePool", x, kernel_shape=[3, 3], strides=[2, 1], pads=[1] * 4)
    net.dense(net.add("Flatten", x), 17 * 5 * 8, 8)
    return 1, 3, 10, 8


def swish(net: Net) -> tuple[int, ...]:
    def active(x: str) -> str:
        return net.add("Mul", x, net.add("Sigmoid", x))

    x = active(net.conv("x", (2, 10), strides=[2, 1], relu=False))
    y = active(net.conv(x, (10, 10), 5, group=10, relu=False))
    x = active(net.add("Add", x, net.conv(y, (10, 10), 1, relu=False)))
    net.dense(net.pooled(x), 10, 4)
    return 1, 2, 13, 9


def digits(net: Net) -> tuple[int, ...]:
    x = net.conv("x", (1, 8), pads=[0] * 4)
    x = net.conv(net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), (8, 12), pads=[0] * 4)
    x = net.add("LeakyRelu", net.dense(net.add("Flatten", x), 12 * 3 * 4, 20), alpha=0.1)
    net.add("Softmax", net.dense(x, 20, 10), axis=1)
    return 1, 1, 12, 14


def pooled(net: Net) -> tuple[int, ...]:
    """Averages of odd and even windows, with padding that counts, and of the whole image."""
    x = net.conv("x", (2, 9), relu=False)
    x = net.add("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    x = net.conv(x, (9, 7), relu=False)
    x = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("AveragePool", net.conv(x, (7, 10), 1), kernel_shape=[5, 6])
    net.dense(net.add("Flatten", x), 10, 6)
    return 1, 2, 10, 12


def resized(net: Net) -> tuple[int, ...]:
    """Linear interpolation, which ONNX Runtime computes in floats between scaled integers."""
    def twice(x: str) -> str:
        scales = net.constant(np.array([1, 1, 2, 2], np.float32))
        return net.add("Resize", x, "", scales, mode="linear")

    x = net.conv("x", (2, 8), strides=[2, 2])
    y = twice(net.conv(net.conv(x, (8, 12), strides=[2, 2]), (12, 8), 1, relu=False))
    net.conv(twice(net.conv(net.add("Add", x, y), (8, 5))), (5, 3), 1, relu=False)
    return 1, 2, 12, 16


def upscaled(net: Net) -> tuple[int, ...]:
    """Transposed convolutions, which ONNX Runtime computes in floats."""
    x = net.conv("x", (2, 6))
    x = net.add("ConvTranspose", x, net.weight(6, 8, 3, 2), net.weight(8), strides=[2, 2])
    x = net.conv(net.add("Relu", x), (8, 4), relu=False)
    net.add("ConvTranspose", x, net.weight(4, 3, 2, 3), pads=[0, 1, 0, 1])
    return 1, 2, 5, 7


def mobilenet(net: Net) -> tuple[int, ...]:
    """MobileNetV2 of width 0.35 for images of 96 x 96, without its softmax."""

    def width(channels: int) -> int:
        return max(8, int(0.35 * channels + 4) // 8 * 8)

    def spaced(stride: int) -> dict[str, list[int]]:
        return {"strides": [stride] * 2, "pads": [1] * 4 if stride == 1 else [0, 0, 1, 1]}

    x, depth = net.relu6(net.conv("x", (3, 16), relu=False, **spaced(2))), 16
    for factor, channels, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(count):
            stride, wide, units = 1 if number else first, depth * factor, width(channels)
            y = net.relu6(net.conv(x, (depth, wide), 1, relu=False)) if factor > 1 else x
            y = net.relu6(net.conv(y, (wide, wide), group=wide, relu=False, **spaced(stride)))
            y = net.conv(y, (wide, units), 1, relu=False)
            x = net.add("Add", x, y) if stride == 1 and depth == units else y
            depth = units
    net.dense(net.pooled(net.relu6(net.conv(x, (depth, 1280), 1, relu=False))), 1280, 2)
    return 1, 3, 96, 96


NETWORKS: dict[str, Callable[[Net], tuple[int, ...]]] = {
    one.__name__: one for one in (
        dscnn, residual, mixed, inverted, autoencoder, temporal, segmenter, attention, excited,
        branches, swish, digits, pooled, resized, upscaled, mobilenet,
    )
}
