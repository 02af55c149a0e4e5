"""Functions of one input: elementary functions, activations, normalizations, changes of type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.differential.draw import Array, Case, Draw, quantization, scale, values, zero
from tests.tflite_builder import ModelBuilder


def _shape(draw: Draw) -> list[int]:
    return [draw.integer(1, 5) for _ in range(draw.integer(1, 4))]


def _case(
    draw: Draw, code: str, data: Array, qx: dict[str, Any], qy: dict[str, Any],
    out: str | None = None, **options: Any,
) -> Case:
    """One operator from ``data`` to ``out``, which is of the same type unless given."""
    m = ModelBuilder()
    dtype = data.dtype.name
    x = m.tensor("x", data.shape, dtype, **qx)
    y = m.tensor("y", data.shape, out or dtype, **qy)
    m.op(code, [x], [y], version=1, **options)
    return Case(m.build([x], [y]), (data,))


def _function(code: str, *, positive: bool = False, **options: Any) -> Callable[[Draw, str], Case]:
    """A case of an elementwise operator; ``positive``: of numbers above 0 only."""

    def make(draw: Draw, dtype: str) -> Case:
        data = values(draw, _shape(draw), dtype)
        if positive and dtype == "float32":
            data = np.abs(data) + np.float32(1e-4)
        chosen = {name: draw.choice(of) for name, of in options.items()}
        return _case(
            draw, code, data, quantization(draw, dtype), quantization(draw, dtype), **chosen
        )

    return make


def _round(draw: Draw, dtype: str) -> Case:
    """Halves among the numbers, and some that have no fraction any more."""
    data = values(draw, _shape(draw), dtype)
    halves = np.round(data * 2) / 2
    return _case(draw, "ROUND", np.where(data > 1, halves, data * 1e4).astype(dtype), {}, {})


def _angle(code: str) -> Callable[[Draw, str], Case]:
    """Angles of all sizes."""

    def make(draw: Draw, dtype: str) -> Case:
        size = np.float32(10.0 ** draw.integer(-3, 12))
        return _case(draw, code, values(draw, _shape(draw), dtype) * size, {}, {})

    return make


def abs_(draw: Draw, dtype: str) -> Case:
    """Without the smallest int32, of which the reference crashes."""
    data = values(draw, _shape(draw), dtype)
    if dtype == "int32":
        data = np.maximum(data, -(2**31 - 1))
    return _case(draw, "ABS", data, quantization(draw, dtype), quantization(draw, dtype))


def exp(draw: Draw, dtype: str) -> Case:
    """Results stay in what an int32 of the output's steps can hold."""
    data = values(draw, _shape(draw), dtype)
    most = float(np.iinfo(dtype).max + 129) if dtype != "float32" else 1.0
    q = {"scale": draw.integer(1, 120) / 10 / most, "zero_point": zero(draw, dtype)}
    if dtype == "float32":
        return _case(draw, "EXP", data, {}, {})
    return _case(draw, "EXP", data, q, {"scale": scale(draw) * 4, "zero_point": zero(draw, dtype)})


def rsqrt(draw: Draw, dtype: str) -> Case:
    """No negative numbers: the reference refuses them."""
    data = values(draw, _shape(draw), dtype)
    if dtype == "float32":
        return _case(draw, "RSQRT", np.abs(data) + np.float32(1e-4), {}, {})
    qx = quantization(draw, dtype)
    data = np.maximum(data, qx["zero_point"]).astype(dtype)
    return _case(draw, "RSQRT", data, qx, quantization(draw, dtype))


def gelu(draw: Draw, dtype: str) -> Case:
    """One number is positive: of negative ones alone the reference loses most digits."""
    data = values(draw, _shape(draw), dtype)
    data.flat[0] = 1
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    return _case(draw, "GELU", data, qx, qy, approximate=draw.choice([True, False]))


def hard_swish(draw: Draw, dtype: str) -> Case:
    """The output's scale is more than the input's / 128."""
    data = values(draw, _shape(draw), dtype)
    qx, qy = quantization(draw, dtype), quantization(draw, dtype)
    if qx and qx["scale"] >= 127 * qy["scale"]:
        qy["scale"] = qx["scale"]
    return _case(draw, "HARD_SWISH", data, qx, qy)


def _to(code: str, outputs: dict[str, dict[str, Any]]) -> Callable[[Draw, str], Case]:
    """A case of an operator whose results have one quantization for each type."""

    def make(draw: Draw, dtype: str) -> Case:
        data, qx = values(draw, _shape(draw), dtype), quantization(draw, dtype)
        if dtype == "int16":
            qx["scale"] = draw.choice([2.0**-12, 2.0**-11, qx["scale"], qx["scale"] / 512])
        return _case(draw, code, data, qx, outputs.get(dtype, {}))

    return make


def _rows(draw: Draw) -> list[int]:
    return [draw.integer(1, 3) for _ in range(draw.integer(0, 3))] + [draw.integer(1, 12)]


def softmax(draw: Draw, dtype: str) -> Case:
    data, qx = values(draw, _rows(draw), dtype), quantization(draw, dtype)
    if dtype == "int16":
        qx["scale"] = qx["scale"] / 256
    beta = float(draw.choice([1.0, 0.5]))
    wide = dtype in ("int8", "uint8") and draw.choice([True, False])
    qy = dict(WIDE if wide else PROBABILITIES.get(dtype, {}))
    if wide or dtype == "int16":  # of which converters write scales that are not quite it
        qy["scale"] *= draw.choice([1.0, 65536 / 65535, 0.9995])
    return _case(draw, "SOFTMAX", data, qx, qy, "int16" if wide else None, beta=beta)


def log_softmax(draw: Draw, dtype: str) -> Case:
    data = values(draw, _rows(draw), dtype)
    qy = {} if dtype == "float32" else {
        "scale": 1 / 16, "zero_point": int(np.iinfo(dtype).max)
    }
    return _case(draw, "LOG_SOFTMAX", data, quantization(draw, dtype), qy)


def l2_normalization(draw: Draw, dtype: str) -> Case:
    data, qx = values(draw, _rows(draw), dtype), quantization(draw, dtype)
    near = draw.integer(0, 3)
    if qx and near:  # small sums take other paths
        data = np.clip(data, max(qx["zero_point"] - near, np.iinfo(dtype).min),
                       min(qx["zero_point"] + near - 1, np.iinfo(dtype).max)).astype(dtype)
    return _case(draw, "L2_NORMALIZATION", data, qx, SINES.get(dtype, {}))


def prelu(draw: Draw, dtype: str) -> Case:
    """A slope for each channel, for all, or for each element."""
    shape = _shape(draw)
    slopes = draw.choice([shape, shape[-1:], [1] * (len(shape) - 1) + shape[-1:], [1]])
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, **quantization(draw, dtype))
    a = m.tensor(
        "a", slopes, dtype, **quantization(draw, dtype), data=values(draw, slopes, dtype)
    )
    y = m.tensor("y", shape, dtype, **quantization(draw, dtype))
    m.op("PRELU", [x, a], [y], version=1)
    return Case(m.build([x], [y]), (values(draw, shape, dtype),))


def cast(draw: Draw, dtype: str) -> Case:
    """``dtype`` is the input's; floats stay in the range of the output's integers."""
    out = draw.choice(CASTABLE)
    data = values(draw, _shape(draw), dtype)
    if dtype.startswith("float"):
        data = np.abs(data) * np.float32(draw.choice([1.0, 10.0]))
        data = data * draw.choice([1.0, 1.0 if out.startswith("u") else -1.0])
    return _case(draw, "CAST", data.astype(dtype), {}, {}, out)


def quantize(draw: Draw, dtype: str) -> Case:
    """``dtype`` is the input's."""
    out = draw.choice(QUANTIZED[dtype])
    qx, qy = ({"scale": scale(draw), "zero_point": zero(draw, t)} for t in (dtype, out))
    data = values(draw, _shape(draw), dtype)
    if dtype == "int32":
        data = data >> draw.choice([0, 12, 20])
    return _case(draw, "QUANTIZE", data, {} if dtype == "float32" else qx, qy, out)


def dequantize(draw: Draw, dtype: str) -> Case:
    """``dtype`` is the input's."""
    data = values(draw, _shape(draw), dtype)
    m = ModelBuilder()
    x = m.tensor("x", data.shape, dtype, **quantization(draw, dtype))
    y = m.tensor("y", data.shape, "float32")
    m.op("DEQUANTIZE", [x], [y])
    return Case(m.build([x], [y]), (data,))


PROBABILITIES: dict[str, dict[str, Any]] = {
    "int8": {"scale": 1 / 256, "zero_point": -128},
    "uint8": {"scale": 1 / 256},
    "int16": {"scale": 1 / 32768},
}
WIDE = {"scale": 1 / 65536, "zero_point": -32768}
CASTABLE = (
    "bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "float32", "float64",
)
SINES: dict[str, dict[str, Any]] = {
    "int8": {"scale": 1 / 128},
    "uint8": {"scale": 1 / 128, "zero_point": 128},
    "int16": {"scale": 1 / 32768},
}
QUANTIZED = {
    "float32": ("int8", "uint8", "int16"),
    "int8": ("int8", "uint8"),
    "uint8": ("int8", "uint8"),
    "int16": ("int8", "int16", "int32"),
    "int32": ("int8", "int16"),
}

ALPHAS = [0.0, 0.01, float(np.float32(0.3)), 1.5, -0.5]

CASES: dict[str, Callable[[Draw, str], Case]] = {
    "abs": abs_,
    "neg": _function("NEG"),
    "square": _function("SQUARE"),
    "exp": exp,
    "log": _function("LOG", positive=True),
    "sqrt": _function("SQRT", positive=True),
    "rsqrt": rsqrt,
    "sin": _angle("SIN"),
    "cos": _angle("COS"),
    "ceil": _function("CEIL"),
    "floor": _function("FLOOR"),
    "round": _round,
    "softmax": softmax,
    "logistic": _to("LOGISTIC", PROBABILITIES),
    "tanh": _to("TANH", SINES),
    "relu": _function("RELU"),
    "relu6": _function("RELU6"),
    "quantize": quantize,
    "dequantize": dequantize,
    "relu_n1_to_1": _function("RELU_N1_TO_1"),
    "leaky_relu": _function("LEAKY_RELU", alpha=ALPHAS),
    "elu": _function("ELU"),
    "gelu": gelu,
    "hard_swish": hard_swish,
    "prelu": prelu,
    "log_softmax": log_softmax,
    "l2_normalization": l2_normalization,
    "cast": cast,
    "zeros_like": _function("ZEROS_LIKE"),
}

_FLOAT = ("float32",)
_BYTES = ("float32", "int8", "uint8")
_SCALED = (*_BYTES, "int16")

DTYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("square", "log", "sqrt", "sin", "cos", "ceil", "floor", "round"), _FLOAT),
    **dict.fromkeys(
        ("relu_n1_to_1", "gelu", "hard_swish", "prelu", "log_softmax", "l2_normalization"), _BYTES
    ),
    **dict.fromkeys(("softmax", "logistic", "tanh", "relu", "relu6", "leaky_relu"), _SCALED),
    "abs": ("float32", "int8", "int16", "int32"),
    "cast": CASTABLE,
    "zeros_like": ("float32", "int32", "int64"),
    "neg": ("float32", "int32", "int64"),
    "exp": ("float32", "int8", "int16"),
    "rsqrt": ("float32", "int8"),
    "elu": ("float32", "int8"),
    "quantize": (*_SCALED, "int32"),
    "dequantize": ("int8", "uint8", "int16", "float16"),
}
