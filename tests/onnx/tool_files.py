"""Draws quantized graphs as tools write them, and runs them with ONNX Runtime.

``python tool_files.py FOLDER INPUTS``, in an environment with onnx and onnxruntime, writes
NAME.onnx and its inputs and outputs beside it. Each function draws one form: where the tools put
QuantizeLinear and DequantizeLinear, and what they leave between them.
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
from onnxruntime.quantization import QuantType, quantize_dynamic

MICROSOFT = "com.microsoft"
IMAGE = (1, 3, 6, 6)
MIDDLE = np.uint8(120)


class Net:
    """The nodes and constants so far; each method adds some and returns a name."""

    def __init__(self, shape: tuple[int, ...] = IMAGE, version: int = 17, domain: str = "") -> None:
        self.rng = np.random.default_rng(1)
        self.shape, self.version, self.domain = shape, version, domain
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def narrow(self, kind: int, *shape: int) -> str:
        """A constant of 4-bit integers."""
        name = f"c{len(self.constants)}"
        low, high = (-8, 8) if kind == TensorProto.INT4 else (0, 16)
        values = self.rng.integers(low, high, shape).reshape(-1).tolist()
        self.constants.append(helper.make_tensor(name, kind, shape, values))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(
            operator, inputs, [name], name=f"n{len(self.nodes)}", domain=domain, **attributes
        ))
        return name

    def quantized(self, x: str, scale: float = 0.03, zero: Any = MIDDLE) -> str:
        parts = self.constant(np.float32(scale)), self.constant(zero)
        return self.add("QuantizeLinear", x, *parts, domain=self.domain)

    def real(self, x: str, scale: float = 0.03, zero: Any = MIDDLE) -> str:
        parts = self.constant(np.float32(scale)), self.constant(zero)
        return self.add("DequantizeLinear", x, *parts, domain=self.domain)

    def rounded(self, x: str, scale: float = 0.03, zero: Any = MIDDLE) -> str:
        """To integers and back."""
        return self.real(self.quantized(x, scale, zero), scale, zero)

    def limited(self, x: str, scale: float, zero: Any, low: int, high: int) -> str:
        """To integers of fewer bits and back, as Brevitas writes it."""
        kind = type(zero)
        ends = self.constant(kind(low)), self.constant(kind(high))
        return self.real(self.add("Clip", self.quantized(x, scale, zero), *ends), scale, zero)

    def scales(self, count: int, size: float = 0.005) -> str:
        return self.constant(self.rng.uniform(size / 2, size * 2, count).astype(np.float32))

    def weight(self, *shape: int, axis: int = 0) -> str:
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        parts = self.scales(shape[axis]), self.constant(np.zeros(shape[axis], np.int8))
        return self.add(
            "DequantizeLinear", self.constant(values), *parts, axis=axis, domain=self.domain
        )

    def numbers(self, *shape: int) -> str:
        return self.constant((self.rng.normal(size=shape) * 0.3).astype(np.float32))

    def conv(self, x: str, size: int = 3, **attributes: Any) -> str:
        return self.add("Conv", x, self.weight(8, 3, size, size), self.numbers(8), **attributes)

    def model(self, name: str) -> Any:
        self.nodes[-1].output[0] = "y"
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
                for n, s in (("x", self.shape), ("y", None))]
        graph = helper.make_graph(self.nodes, name, ends[:1], ends[1:], self.constants)
        sets = [helper.make_opsetid("", self.version), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)


def clamped(n: Net) -> None:
    """A Clip to other ends than those of an activation."""
    x = n.conv(n.rounded("x"))
    x = n.add("Clip", x, n.constant(np.float32(-0.5)), n.constant(np.float32(1.3)))
    n.rounded(x, 0.02, np.uint8(60))


def clamped_twice(n: Net) -> None:
    x = n.add("Relu", n.conv(n.rounded("x")))
    n.rounded(n.add("Clip", x, "", n.constant(np.float32(1.3))), 0.02, np.uint8(60))


def activation(n: Net) -> None:
    """Symmetric int8, so that the range of the integers doesn't do the clamping."""
    x = n.conv(n.rounded("x", 0.03, np.int8(0)))
    x = n.add("Clip", x, n.constant(np.float32(0)), n.constant(np.float32(6)))
    n.rounded(x, 0.06, np.int8(0))


def microsoft(n: Net) -> None:
    """The operators of ONNX Runtime's own domain."""
    n.domain = MICROSOFT
    x = n.rounded(n.conv(n.rounded("x")), 0.02, np.uint8(60))
    x = n.add("Gemm", n.add("Flatten", x), n.weight(5, 128), transB=1)
    n.rounded(x, 0.05, np.uint8(130))


def words(n: Net) -> None:
    """16-bit activations."""
    n.domain = MICROSOFT
    n.rounded(n.conv(n.rounded("x", 1e-4, np.int16(0))), 2e-4, np.int16(0))


def unsigned_words(n: Net) -> None:
    n.domain = MICROSOFT
    n.rounded(n.conv(n.rounded("x", 1e-4, np.uint16(32000))), 2e-4, np.uint16(30000))


def float_bias(n: Net) -> None:
    """torchao: the bias stays float, and the Relu before QuantizeLinear."""
    x = n.rounded(n.add("Relu", n.conv(n.rounded("x"))), 0.02, np.uint8(0))
    x = n.rounded(n.add("ReduceMean", x, axes=[2, 3], keepdims=0), 0.01, np.uint8(0))
    n.rounded(n.add("Gemm", x, n.weight(5, 8), n.numbers(5), transB=1), 0.02, np.uint8(99))


def added_bias(n: Net) -> None:
    """A matrix product with its bias in an Add."""
    x = n.add("MatMul", n.rounded("x"), n.weight(6, 7, axis=1))
    n.rounded(n.add("Add", n.numbers(7), x), 0.02, np.uint8(60))


def no_end(n: Net) -> None:
    """Without QuantizeLinear behind the last layer."""
    x = n.add("Flatten", n.rounded("x"))
    n.add("Gemm", x, n.weight(5, 108), n.numbers(5), transB=1)


def float_weights(n: Net) -> None:
    """Weights that are quantized in the graph, as trainers that know of it write them."""
    w = n.constant((n.rng.normal(size=(8, 3, 3, 3)) * 0.2).astype(np.float32))
    scales, zeros = n.scales(8), n.constant(np.zeros(8, np.int8))
    w = n.add("QuantizeLinear", w, scales, zeros, axis=0)
    w = n.add("DequantizeLinear", w, scales, zeros, axis=0)
    n.rounded(n.add("Conv", n.rounded("x"), w, n.numbers(8)), 0.02, np.uint8(60))


def few_bits(n: Net) -> None:
    """Brevitas: a Clip between the two for fewer than 8 bits, of weights too."""
    x = n.limited("x", 0.3, np.int8(0), -8, 7)
    w = n.constant(n.rng.integers(-9, 10, (8, 3, 3, 3)).astype(np.int8))
    w = n.add("Clip", w, n.constant(np.int8(-7)), n.constant(np.int8(7)))
    scales, zeros = n.scales(8, 0.05), n.constant(np.zeros(8, np.int8))
    w = n.add("DequantizeLinear", w, scales, zeros, axis=0)
    x = n.limited(n.add("Relu", n.add("Conv", x, w, n.numbers(8))), 0.2, np.uint8(0), 0, 15)
    x = n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = n.add("Gemm", n.add("Flatten", x), n.weight(5, 32), n.numbers(5), transB=1)
    n.limited(x, 0.1, np.int8(0), -64, 63)


def shared(n: Net) -> None:
    """One DequantizeLinear for two readers, and two of the same integers."""
    q = n.quantized("x")
    a, b = n.real(q), n.real(q)
    w = n.add("Conv", a, n.weight(3, 3, 1, 1), n.numbers(3))
    c = n.rounded(w, 0.02, np.uint8(60))
    n.rounded(n.add("Add", n.rounded(n.add("Mul", a, c), 0.05, np.uint8(99)), b), 0.06)


def chosen(n: Net) -> None:
    """Where between tensors of other scales."""
    condition = n.add("Greater", "x", n.constant(np.float32(0.3)))
    x = n.rounded("x")
    a = n.rounded(n.add("Conv", x, n.weight(3, 3, 1, 1), n.numbers(3)), 0.02, np.uint8(60))
    n.rounded(n.add("Where", condition, a, x), 0.025, np.uint8(100))


def chosen_by_operator(n: Net) -> None:
    condition = n.add("Greater", "x", n.constant(np.float32(0.3)))
    parts = [
        (n.quantized("x"), 0.03, MIDDLE), (n.quantized("x", 0.05), 0.05, MIDDLE),
        (None, 0.04, np.uint8(99)),
    ]
    inputs = [
        name for x, scale, zero in parts
        for name in (*([x] if x else ()), n.constant(np.float32(scale)), n.constant(zero))
    ]
    n.real(n.add("QLinearWhere", condition, *inputs, domain=MICROSOFT), 0.04, np.uint8(99))


def twice(n: Net) -> None:
    """QuantizeLinear of its own for each reader, and signed sums and products."""
    x = n.add("Conv", n.rounded("x", 0.03, np.int8(-9)), n.weight(8, 3, 3, 3))
    zero = np.int8(20)
    a, b, c = (n.rounded(x, 0.021, zero) for _ in range(3))
    y = n.rounded(n.add("Mul", a, b), 0.033, np.int8(-90))
    n.rounded(n.add("Add", c, y), 0.04, np.int8(-31))


def moved(n: Net) -> None:
    x = n.add("Pad", n.rounded("x"), n.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
    x = n.rounded(n.add("MaxPool", n.rounded(x), kernel_shape=[2, 2], strides=[2, 2]))
    x = n.rounded(n.add("Transpose", x, perm=[0, 2, 3, 1]))
    x = n.rounded(n.add("Reshape", x, n.constant(np.array([1, -1, 8]))))
    n.rounded(n.add("Slice", x, n.constant(np.array([1])), n.constant(np.array([5])),
                    n.constant(np.array([1]))))


def table(n: Net) -> None:
    """Functions of one tensor, of several nodes."""
    n.version = 20
    x = n.rounded(n.add("Gelu", n.rounded("x")), 0.02, np.uint8(30))
    x = n.rounded(n.add("PRelu", x, n.constant(np.float32([0.2]))), 0.02, np.uint8(40))
    n.rounded(n.add("Mul", x, n.add("Sigmoid", x)), 0.02, np.uint8(50))


def int4(n: Net) -> None:
    n.version = 21
    w = n.add("DequantizeLinear", n.narrow(TensorProto.INT4, 108, 6), n.scales(6, 0.05), axis=1)
    x = n.add("MatMul", n.add("Flatten", n.rounded("x")), w)
    n.rounded(x, 0.05, np.uint8(100))


def uint4(n: Net) -> None:
    """With a zero point for each channel."""
    n.version = 21
    zeros = n.narrow(TensorProto.UINT4, 6)
    w = n.narrow(TensorProto.UINT4, 108, 6)
    w = n.add("DequantizeLinear", w, n.scales(6, 0.05), zeros, axis=1)
    x = n.add("MatMul", n.add("Flatten", n.rounded("x")), w)
    n.rounded(x, 0.2, np.uint8(100))


def microsoft_int4(n: Net) -> None:
    n.domain = MICROSOFT
    n.constants.append(helper.make_tensor("z4", TensorProto.INT4, [6], [0] * 6))
    w = n.add("DequantizeLinear", n.narrow(TensorProto.INT4, 108, 6), n.scales(6, 0.05), "z4",
              axis=1, domain=MICROSOFT)
    x = n.add("MatMul", n.add("Flatten", n.rounded("x")), w)
    n.rounded(x, 0.05, np.uint8(100))


def blocks(n: Net) -> None:
    """Weights alone, with a scale for each block of 27."""
    n.version = 21
    scales = n.constant(n.rng.uniform(0.02, 0.1, (4, 6)).astype(np.float32))
    w = n.narrow(TensorProto.INT4, 108, 6)
    w = n.add("DequantizeLinear", w, scales, axis=0, block_size=27)
    n.add("MatMul", n.add("Flatten", "x"), w)


def packed_blocks(n: Net) -> None:
    """Weights of 4 bits as ONNX Runtime's own operator packs them, once with zero points."""
    depth, size = 108, 32
    for units, zeros in ((12, False), (7, True)):
        count = -(-depth // size)
        inputs = [n.constant(n.rng.integers(0, 256, (units, count, size // 2)).astype(np.uint8))]
        scales = n.rng.uniform(-0.1, 0.1, units * count).astype(np.float32)
        inputs.append(n.constant(scales))
        if zeros:
            packed = n.rng.integers(0, 256, units * -(-count // 2)).astype(np.uint8)
            inputs.append(n.constant(packed))
        x = n.add("Flatten", "x") if not zeros else n.nodes[-1].output[0]
        n.add("MatMulNBits", x, *inputs, domain=MICROSOFT, K=depth, N=units, bits=4,
              block_size=size)
        depth = units


def weights_only(n: Net) -> None:
    x = n.add("Flatten", n.add("Relu", n.conv("x")))
    n.add("Gemm", x, n.weight(5, 128), n.numbers(5), transB=1)


def embedding(n: Net) -> None:
    """A table of integers, of which rows are taken."""
    ends = n.constant(np.float32(0)), n.constant(np.float32(9))
    rows = n.add("Cast", n.add("Clip", "x", *ends), to=TensorProto.INT64)
    words_ = n.constant(n.rng.integers(-127, 127, (10, 4)).astype(np.int8))
    n.add("Gather", n.real(words_, 0.02, np.int8(0)), rows, axis=0)


def left(n: Net) -> None:
    """Operators that have no integers: they are computed in floats, and named."""
    x = n.rounded(n.add("HardSwish", n.conv(n.rounded("x"))), 0.02, np.uint8(60))
    n.rounded(n.add("ReduceL2", x, axes=[1], keepdims=0), 0.04, np.uint8(0))


def perceptron(n: Net) -> None:
    """For quantize_dynamic: a layer of so many inputs that sums exceed 24 bits."""
    n.shape = 2, 1100
    x = n.add("MatMul", "x", n.numbers(1100, 12))
    x = n.add("Relu", n.add("Add", x, n.numbers(12)))
    n.add("MatMul", x, n.numbers(12, 5))


def recurrent(n: Net) -> None:
    """For quantize_dynamic: both directions of an LSTM over seven steps."""
    n.shape = 7, 1, 6
    weights = n.numbers(2, 40, 6), n.numbers(2, 40, 10), n.numbers(2, 80)
    n.add("LSTM", "x", *weights, hidden_size=10, direction="bidirectional")


def images(n: Net) -> None:
    """For quantize_dynamic: convolutions."""
    x = n.add("Relu", n.add("Conv", "x", n.numbers(8, 3, 3, 3), n.numbers(8)))
    n.add("Gemm", n.add("Flatten", x), n.numbers(5, 128), n.numbers(5), transB=1)


FORMS: tuple[Callable[[Net], None], ...] = (
    clamped, clamped_twice, activation, microsoft, words, unsigned_words, float_bias, added_bias,
    no_end, float_weights, few_bits, shared, chosen, chosen_by_operator, twice, moved, table, int4,
    uint4, microsoft_int4, blocks,
    packed_blocks, weights_only, embedding, left,
)
DYNAMIC: dict[str, tuple[Callable[[Net], None], dict[str, Any]]] = {
    "dynamic": (perceptron, {"weight_type": QuantType.QInt8}),
    "dynamic_channels": (perceptron, {"weight_type": QuantType.QInt8, "per_channel": True}),
    "dynamic_unsigned": (perceptron, {"weight_type": QuantType.QUInt8}),
    "dynamic_images": (images, {"weight_type": QuantType.QInt8}),
    "dynamic_recurrent": (recurrent, {"weight_type": QuantType.QInt8}),
    "dynamic_channels_recurrent": (
        recurrent, {"weight_type": QuantType.QInt8, "per_channel": True}
    ),
}


def main() -> None:
    logging.disable()
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    for form in FORMS:
        net = Net()
        form(net)
        run(net.model(form.__name__), folder / f"{form.__name__}.onnx", net.shape, count)
    for name, (draw, options) in DYNAMIC.items():
        net = Net()
        draw(net)
        onnx.save(onnx.shape_inference.infer_shapes(net.model(name)), folder / "float")
        quantize_dynamic(folder / "float", folder / f"{name}.onnx", **options)
        run(None, folder / f"{name}.onnx", net.shape, count)


def run(model: Any, path: Path, shape: tuple[int, ...], count: int) -> None:
    """Writes a file, if it isn't there, and what ONNX Runtime computes."""
    if model is not None:
        onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    # Weights alone are integers: activations stay float, as the file says.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    xs = np.random.default_rng(7).normal(size=(count, *shape)).astype(np.float32)
    ys = np.stack([session.run(None, {"x": x})[0] for x in xs])
    np.savez(path.with_suffix(".npz"), x=xs, y=ys)


if __name__ == "__main__":
    main()
