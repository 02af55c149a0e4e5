"""Draws networks, quantizes them with ONNX Runtime's tool, and runs them with ONNX Runtime.

``python quantized_networks.py FOLDER INPUTS``, in an environment with onnx and onnxruntime, writes
NAME_FORMAT.onnx and its inputs and outputs beside it. int8 becomes uint8 first, which is ONNX
Runtime's default, but for symmetric files, of which it would leave more in floats then.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static


class Net:
    """The nodes and weights so far; each method adds one and returns its output's name."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        size = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 5.0
        values = (self.rng.normal(size=shape) / size).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name=f"n{len(self.nodes)}", **attributes)
        )
        return name

    def conv(self, x: str, channels: tuple[int, int], size: int = 3, **options: Any) -> str:
        relu, group = options.pop("relu", True), options.get("group", 1)
        weight = self.weight(channels[1], channels[0] // group, size, size)
        y = self.add("Conv", x, weight, self.weight(channels[1]), pads=[size // 2] * 4, **options)
        return self.add("Relu", y) if relu else y

    def dense(self, x: str, depth: int, units: int) -> str:
        return self.add("Gemm", x, self.weight(units, depth), self.weight(units), transB=1)


def dscnn(net: Net) -> tuple[int, ...]:
    x = net.conv("x", (1, 24))
    for _ in range(2):
        x = net.conv(net.conv(x, (24, 24), group=24), (24, 24), 1)
    net.dense(net.add("Flatten", net.add("GlobalAveragePool", x)), 24, 11)
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
    net.weights.append(numpy_helper.from_array(np.array([30, 12]), "rows"))
    x = net.add("Reshape", net.add("Transpose", x, perm=[0, 2, 3, 1]), "rows")
    net.add("MatMul", x, net.weight(12, 7))
    return 1, 3, 12, 10


NETWORKS: dict[str, Callable[[Net], tuple[int, ...]]] = {
    "dscnn": dscnn, "residual": residual, "mixed": mixed,
}
_QDQ, _OPERATORS = QuantFormat.QDQ, QuantFormat.QOperator
_U8, _S8 = QuantType.QUInt8, QuantType.QInt8
FORMATS: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "u8s8": (_QDQ, _U8, _S8, {}),
    "s8s8": (_QDQ, _S8, _S8, {}),
    "u8u8": (_QDQ, _U8, _U8, {"per_channel": False}),
    "qoperator": (_OPERATORS, _U8, _S8, {}),
    "symmetric": (_QDQ, _S8, _S8, {"extra_options": {"ActivationSymmetric": True}}),
}


class Data(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(5)
        self._left = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(8)]

    def get_next(self) -> dict[str, Any] | None:
        return self._left.pop() if self._left else None


def main() -> None:
    logging.disable()
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    for name, draw in NETWORKS.items():
        net = Net(np.random.default_rng(3))
        shape = draw(net)
        net.nodes[-1].output[0] = "y"
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
                for n, s in (("x", shape), ("y", None))]
        graph = helper.make_graph(net.nodes, name, ends[:1], ends[1:], net.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), folder / "float")
        xs = np.random.default_rng(7).normal(size=(count, *shape)).astype(np.float32)
        for kind, (form, values, weights, more) in FORMATS.items():
            path = folder / f"{name}_{kind}.onnx"
            quantize_static(
                folder / "float", path, Data(shape), quant_format=form, activation_type=values,
                weight_type=weights, **{"per_channel": True, **more},
            )
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            if kind == "symmetric":
                options.add_session_config_entry("session.qdqisint8allowed", "1")
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
            ys = np.stack([session.run(None, {"x": x})[0] for x in xs])
            np.savez(path.with_suffix(".npz"), x=xs, y=ys)


main()
