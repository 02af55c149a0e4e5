"""Draws layers with real weights between quantized tensors, and runs them with ONNX Runtime.

``python real_weights.py FOLDER COUNT INPUTS``, in an environment with onnx and onnxruntime, writes
NAME.onnx, and beside it inputs, outputs and what ONNX Runtime's optimizer made of the layer: COUNT
drawn ones, and one of each function in FORMS.
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

Array = np.ndarray[Any, Any]


class Net:
    """A network of one layer; ``dtype`` is that of its quantized tensors."""

    def __init__(self, seed: int, dtype: Any = np.uint8) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype: Any = dtype
        self.shape: tuple[int, ...] = (1, 3, 6, 7)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[str] = []

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def numbers(self, *shape: int, size: float = 0.3) -> str:
        """Drawn numbers, not around 0."""
        middle = self.rng.uniform(-size, size)
        values = self.rng.normal(middle, size, shape)
        return self.constant(values.astype(np.float32))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name=f"n{len(self.nodes)}", **attributes)
        )
        return name

    def rounded(self, x: str, scale: Any = 0.03, zero: int = 9, **attributes: Any) -> str:
        """To integers and back; ``zero`` is above the middle of uint8."""
        middle = 128 if self.dtype is np.uint8 else 0
        zeros = np.full(np.shape(scale), zero + middle, self.dtype)
        parts = self.constant(np.float32(scale)), self.constant(zeros)
        x = self.add("QuantizeLinear", x, *parts, **attributes)
        return self.add("DequantizeLinear", x, *parts, **attributes)

    def end(self, x: str, zero: int = -7) -> None:
        """Quantizes the result on a scale that takes nearly all of it."""
        outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)]
        run = onnxruntime.InferenceSession(self.model(outputs).SerializeToString())
        values = run.run(None, {"x": self.inputs(1)[0]})[0]
        self.outputs.append(self.rounded(x, max(np.abs(values).max(), 1e-3) / 110, zero))

    def model(self, outputs: Any = None) -> Any:
        if outputs is None:
            outputs = [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                for name in self.outputs
            ]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        graph = helper.make_graph(self.nodes, "layer", inputs, outputs, self.constants)
        sets = [helper.make_opsetid("", 21 if self.dtype is np.int16 else 17)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)

    def inputs(self, count: int) -> Array:
        rng = np.random.default_rng(8)
        return rng.normal(size=(count, *self.shape)).astype(np.float32)


def drawn(seed: int) -> Net:
    """A layer of any kind, with or without a bias and a clamp."""
    rng = np.random.default_rng((5, seed))
    n = Net(seed, (np.uint8, np.int8)[rng.integers(2)])
    bias, zero = bool(rng.integers(2)), int(rng.integers(-128, 128))
    kind = ("conv", "grouped", "depthwise", "dilated", "line", "transposed", "gemm",
            "gemm turned", "matmul")[seed % 9]
    channels, units = (int(number) for number in rng.integers(1, 7, 2))
    if kind in ("gemm", "gemm turned", "matmul"):
        n.shape = (int(rng.integers(1, 4)), 3 + channels)
        x = n.rounded("x", zero=zero)
        shape = (units, n.shape[1]) if kind == "gemm turned" else (n.shape[1], units)
        if kind == "matmul":
            y = n.add("Add", n.add("MatMul", x, n.numbers(*shape)), n.numbers(units))
        else:
            parts = [n.numbers(units)] if bias else []
            y = n.add("Gemm", x, n.numbers(*shape), *parts, transB=int(kind == "gemm turned"))
    else:
        group = {"grouped": 2, "depthwise": channels}.get(kind, 1)
        made = units * group
        inner = {"grouped": channels, "depthwise": 1}.get(kind, channels)
        places, size = (1, 2)[kind != "line"], int(rng.integers(1, 4))
        n.shape = (1, inner * group, *(7, 9)[:places])
        x = n.rounded("x", zero=zero)
        weights = (inner, made) if kind == "transposed" else (made, inner)
        options: dict[str, Any] = {"strides": [int(rng.integers(1, 3))] * places}
        if kind != "transposed":
            options |= {"group": group, "pads": [int(p) for p in rng.integers(0, size, 2 * places)],
                        "dilations": [1 + (kind == "dilated")] * places}
        operator = "ConvTranspose" if kind == "transposed" else "Conv"
        parts = [n.numbers(made)] if bias else []
        y = n.add(operator, x, n.numbers(*weights, *[size] * places), *parts, **options)
    clamp = rng.integers(4)
    if clamp == 1:
        y = n.add("Relu", y)
    elif clamp == 2:
        y = n.add("Clip", y, n.constant(np.float32(0)), n.constant(np.float32(1)))
    # With the lowest number for 0, integers do the clamping.
    n.end(y, -128 if clamp == 3 or rng.integers(2) else -7)
    return n


def conv(n: Net, x: str) -> str:
    return n.add("Conv", x, n.numbers(4, 3, 3, 3), n.numbers(4))


def moved(n: Net) -> None:
    """Elements are moved before and behind the layer."""
    x = n.add("MaxPool", n.rounded("x"), kernel_shape=[2, 2])
    x = n.add("Transpose", conv(n, n.add("Identity", x)), perm=[0, 2, 3, 1])
    n.end(n.add("Reshape", x, n.constant(np.array([-1]))))


def reshaped(n: Net) -> None:
    x = n.add("Reshape", n.rounded("x"), n.constant(np.array([6, 21])))
    n.end(n.add("Gemm", x, n.numbers(21, 5), n.numbers(1)))


def stacked(n: Net) -> None:
    """Matrices by a constant one."""
    n.end(n.add("Add", n.numbers(5), n.add("MatMul", n.rounded("x"), n.numbers(7, 5))))


def no_range(n: Net) -> None:
    """All weights are 0."""
    n.end(n.add("Conv", n.rounded("x"), n.constant(np.zeros((4, 3, 3, 3), np.float32)),
                n.numbers(4)))


def positive(n: Net) -> None:
    """Weights that fit a byte without a zero point don't have one."""
    weights = n.rng.uniform(0, 1, (4, 3, 2, 2)).astype(np.float32)
    n.end(n.add("Conv", n.rounded("x"), n.constant(weights)))


def shared(n: Net) -> None:
    """Two layers with the same weights, from different scales."""
    w = n.numbers(3, 3, 3, 3)
    n.end(n.add("Conv", n.rounded("x"), w))
    n.end(n.add("Conv", n.rounded("x", 0.05), w))


def words(n: Net) -> None:
    """16 bits before the layer: ONNX Runtime computes in floats, with weights of integers."""
    n.dtype = np.int16
    x = n.rounded("x", 1e-4, 0)
    n.end(conv(n, x), 0)


def added_bias(n: Net) -> None:
    y = n.add("Conv", n.rounded("x"), n.numbers(4, 3, 3, 3))
    n.end(n.add("Add", y, n.numbers(1, 4, 1, 1)), -128)


def bias_added_to(n: Net) -> None:
    """The other way round it is none."""
    y = n.add("Conv", n.rounded("x"), n.numbers(4, 3, 3, 3))
    n.end(n.add("Add", n.numbers(1, 4, 1, 1), y))


def scalar_bias(n: Net) -> None:
    y = n.add("Conv", n.rounded("x"), n.numbers(4, 3, 3, 3))
    n.end(n.add("Add", y, n.numbers(1)))


def scaled(n: Net) -> None:
    """A factor: floats, with weights of integers."""
    n.shape = (3, 8)
    n.end(n.add("Gemm", n.rounded("x"), n.numbers(8, 5), n.numbers(5), alpha=0.4, beta=0.7))


def added_later(n: Net) -> None:
    """A layer whose result is an output, too."""
    y = conv(n, n.rounded("x"))
    n.outputs.append(y)
    n.end(y)


def branched(n: Net) -> None:
    """Another node reads the result."""
    y = conv(n, n.rounded("x"))
    n.end(y)
    n.outputs.append(n.add("Neg", y))


def several_scales(n: Net) -> None:
    x = n.rounded("x", np.array([0.03, 0.02, 0.05]), axis=1)
    n.end(conv(n, x))


def wide_bias(n: Net) -> None:
    n.shape = (3, 8)
    n.end(n.add("Gemm", n.rounded("x"), n.numbers(8, 5), n.numbers(1, 5)))


def flattened(n: Net) -> None:
    """Flatten isn't among what moves elements there."""
    n.end(n.add("Gemm", n.add("Flatten", n.rounded("x")), n.numbers(126, 5), n.numbers(5)))


def curved(n: Net) -> None:
    n.end(n.add("Sigmoid", conv(n, n.rounded("x"))))


def before_floats(n: Net) -> None:
    n.outputs.append(conv(n, n.rounded("x")))


def behind_floats(n: Net) -> None:
    n.end(n.add("Conv", n.add("Relu", n.rounded("x")), n.numbers(4, 3, 3, 3)))


def product(n: Net) -> None:
    """Without a bias it is no Gemm."""
    n.end(n.add("MatMul", n.rounded("x"), n.numbers(7, 5)))


def clamped_stack(n: Net) -> None:
    """A Reshape is between the Gemm and the clamp."""
    y = n.add("Add", n.add("MatMul", n.rounded("x"), n.numbers(7, 5)), n.numbers(5))
    n.end(n.add("Relu", y))


def clamped_late(n: Net) -> None:
    y = n.add("MaxPool", conv(n, n.rounded("x")), kernel_shape=[2, 2])
    n.end(n.add("Relu", y))


FORMS: tuple[Callable[[Net], None], ...] = (
    moved, reshaped, stacked, no_range, positive, shared, words, added_bias, bias_added_to,
    scalar_bias, scaled, added_later, branched, several_scales, wide_bias, flattened, curved,
    before_floats, behind_floats, product, clamped_stack, clamped_late,
)


def written(n: Net, path: Path, count: int) -> None:
    onnx.save(n.model(), path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    fused = path.with_suffix(".fused")
    options.optimized_model_filepath = str(fused)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    xs = n.inputs(count)
    rows = [session.run(None, {"x": x}) for x in xs]
    made = onnx.load(fused)
    fused.unlink()
    found = {
        t.name.rpartition("_weight_")[2]: numpy_helper.to_array(t)
        for t in made.graph.initializer if "_weight_" in t.name
    }
    operators = [node.op_type for node in made.graph.node]
    exact = any(name in ("QLinearConv", "QGemm") for name in operators)
    np.savez(
        path.with_suffix(".npz"), x=xs, exact=exact, weights=found.get("q", np.float32(0)),
        zero=found.get("zp", np.int8(0)),
        **{name: np.stack(values) for name, values in zip(n.outputs, zip(*rows, strict=True),
                                                          strict=True)},
    )


def main() -> None:
    logging.disable()
    folder, count, inputs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for seed in range(count):
        written(drawn(seed), folder / f"drawn{seed}.onnx", inputs)
    for form in FORMS:
        n = Net(len(form.__name__))
        form(n)
        written(n, folder / f"{form.__name__}.onnx", inputs)


if __name__ == "__main__":
    main()
