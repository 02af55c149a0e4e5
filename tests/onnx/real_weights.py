"""Draws layers with real weights between quantized tensors, and runs them with ONNX Runtime.

``python real_weights.py FOLDER SEED COUNT``, in an environment with onnx and onnxruntime, writes
``0.onnx`` and so on, with ``x``, ``y`` and the operators that the optimizer left beside it (.npz).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

INPUTS = 20


class Layer:
    """A network of QuantizeLinear, DequantizeLinear, a layer, a clamp, and both again."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.dtype = np.dtype(rng.choice([np.uint8, np.int8]))
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def constant(self, name: str, values: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weights(self, *shape: int) -> str:
        """Weights that may all have the same sign, whose zero point is far from 0."""
        middle = self.rng.choice([0.0, 0.05, 0.6, -0.6])
        values = self.rng.normal(size=shape) / 4 + middle
        return self.constant("weights", values.astype(np.float32))

    def quantized(self, name: str, source: str, scale: float, zero: int) -> str:
        ends = [
            self.constant(f"{name}_scale", np.float32(scale)),
            self.constant(f"{name}_zero", np.array(zero, self.dtype)),
        ]
        self.nodes += [
            helper.make_node("QuantizeLinear", [source, *ends], [f"{name}_integers"]),
            helper.make_node("DequantizeLinear", [f"{name}_integers", *ends], [name]),
        ]
        return name

    def zero(self) -> int:
        limits = np.iinfo(self.dtype)
        return self.between(limits.min, limits.max)

    def layer(self) -> tuple[str, tuple[int, ...], int, dict[str, Any]]:
        """Returns an operator, the shape of its input, its channels and its attributes."""
        kind = self.rng.choice(["Conv", "depthwise", "Conv of lines", "ConvTranspose", "Gemm"])
        if kind == "Gemm":
            depth, units, transposed = self.between(1, 29), self.between(1, 11), self.between(0, 1)
            self.weights(*((units, depth) if transposed else (depth, units)))
            return "Gemm", (1, depth), units, {"transB": transposed}
        own, made = self.between(1, 6), self.between(1, 8)
        if kind == "Conv of lines":
            self.weights(made, own, 3)
            return "Conv", (1, own, self.between(5, 13)), made, {"dilations": [self.between(1, 2)]}
        window = [self.between(1, 3) for _ in range(2)]
        more = {
            "strides": [self.between(1, 2) for _ in range(2)],
            "pads": [self.between(0, min(1, size - 1)) for size in (*window, *window)],
        }
        shape = (1, own, self.between(5, 10), self.between(5, 8))
        if kind == "depthwise":
            made = own * self.between(1, 2)
            self.weights(made, 1, *window)
            return "Conv", shape, made, {"group": own, **more}
        if kind == "ConvTranspose":
            self.weights(own, made, *window)
            return kind, shape, made, more
        self.weights(made, own, *window)
        return kind, shape, made, more

    def model(self) -> tuple[onnx.ModelProto, tuple[int, ...]]:
        """Returns the network and the shape of its input."""
        operator, shape, channels, attributes = self.layer()
        given = [self.quantized("real", "x", self.rng.uniform(0.01, 0.05), self.zero()), "weights"]
        if self.between(0, 2):
            values = self.rng.normal(size=channels).astype(np.float32)
            given.append(self.constant("bias", values))
        self.nodes.append(helper.make_node(operator, given, ["sums"], name="layer", **attributes))
        clamp, source = self.rng.choice(["", "Relu", "Clip"]), "sums"
        if clamp:
            ends = [] if clamp == "Relu" else [
                self.constant("low", np.float32(0)),
                self.constant("high", np.float32(self.rng.choice([1.3, 6.0]))),
            ]
            self.nodes.append(helper.make_node(clamp, ["sums", *ends], ["clamped"]))
            source = "clamped"
        lowest = bool(clamp) and self.between(0, 3) > 0
        zero = int(np.iinfo(self.dtype).min) if lowest else self.zero()
        self.quantized("y", source, self.rng.uniform(0.02, 0.08), zero)
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
            for name, size in (("x", shape), ("y", None))
        ]
        graph = helper.make_graph(self.nodes, "layer", ends[:1], ends[1:], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(made), shape


def main() -> None:
    folder = Path(sys.argv[1])
    rng = np.random.default_rng(int(sys.argv[2]))
    for number in range(int(sys.argv[3])):
        drawn = Layer(rng)
        model, shape = drawn.model()
        path = folder / f"{number}.onnx"
        onnx.save(model, path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        optimized = options.optimized_model_filepath = str(path.with_suffix(".optimized"))
        if drawn.dtype == np.int8:
            options.add_session_config_entry("session.qdqisint8allowed", "1")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        x = rng.normal(size=(INPUTS, *shape)).astype(np.float32)
        y = np.stack([session.run(None, {"x": one})[0] for one in x])
        left = {node.op_type for node in onnx.load(optimized).graph.node}
        np.savez(path.with_suffix(".npz"), x=x, y=y, operators=sorted(left))


if __name__ == "__main__":
    main()
