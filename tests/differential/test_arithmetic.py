"""Elementwise operators where the reference runtime shows nothing: by formulas, and by symmetry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    Add,
    Div,
    Equal,
    FloorDiv,
    FloorMod,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Maximum,
    Minimum,
    Mul,
    NotEqual,
    Op,
    Select,
    SquaredDifference,
)
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.support.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier
from tests.backends.c import c_support
from tests.backends.llvm import llvm_support
from tests.differential.network import Step, Values, steps

Array = npt.NDArray[Any]
NAN, INFINITY = float("nan"), float("inf")


def network(
    op: Op, operands: Sequence[Array], quants: Sequence[Quantization | None] = (),
    result: Quantization | None = None,
) -> Graph:
    """One operator on tensors like ``operands``."""
    quants = quants or [None] * len(operands)
    types = [
        TensorType(DType(a.dtype.name), a.shape, q) for a, q in zip(operands, quants, strict=True)
    ]
    (out,) = infer(op, tuple(types))
    tensors = [Tensor(f"x{i}", type_) for i, type_ in enumerate(types)]
    tensors.append(Tensor("y", TensorType(out.dtype, out.shape, result)))
    inputs = tuple(range(len(types)))
    return Graph("g", tuple(tensors), (Node(op, inputs, (len(types),)),), inputs, (len(types),))


def computed(graph: Graph, operands: Sequence[Array], folder: Path | None = None) -> Array:
    """The interpreter's result; with a folder, C and LLVM must give the same."""
    values: Values = dict(zip(graph.inputs, operands, strict=True))
    found = list(steps(graph, values))
    if folder is not None:
        same_everywhere(found, folder)
    return values[graph.outputs[0]]


def same_everywhere(found: list[Step], folder: Path) -> None:
    # A library of the same name would not be loaded a second time.
    own = Path(mkdtemp(dir=folder))
    by_c = c_support.run_kernels([(s.kernel, s.before) for s in found], own, "-O2")
    by_llvm = llvm_support.run_kernels([
        (s.kernel, {b.name: a for b, a in zip(s.kernel.buffers, s.before, strict=True)}, ())
        for s in found
    ])
    for step, c, llvm in zip(found, by_c, by_llvm, strict=True):
        for buffer, expected, ours in zip(step.kernel.buffers, step.after, c, strict=True):
            c_support.assert_same(ours, expected)
            c_support.assert_same(llvm[buffer.name], expected)


def one(scale: float, zero_point: int = 0) -> Quantization:
    return Quantization((float(np.float32(scale)),), (zero_point,))


def test_int8_quotients_are_those_of_uint8_moved(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (2, 400)).astype(np.int8)
    y = np.where(x[::-1] == 5, 6, x[::-1]).astype(np.int8)
    signed = network(Div(), (x, y), (one(0.3, -7), one(0.02, 5)), one(0.11, 3))
    unsigned = [(a.astype(np.int16) + 128).astype(np.uint8) for a in (x, y)]
    moved = network(Div(), unsigned, (one(0.3, 121), one(0.02, 133)), one(0.11, 131))
    expected = computed(moved, unsigned).astype(np.int16) - 128
    np.testing.assert_array_equal(computed(signed, (x, y), tmp_path), expected)


def test_quotients_are_near_the_real_ones_whatever_the_scales(tmp_path: Path) -> None:
    """Also where the runtimes shift by more than there are bits."""
    every = np.r_[0, 1, 59:63:1, 64:256:5, 254, 255].astype(np.uint8)
    x, y = every.reshape(-1, 1), every[every != 100]
    for result in (1e-6, 0.003, 0.5, 70.0, 1e5):
        graph = network(Div(), (x, y), (one(0.5, 60), one(0.25, 100)), one(result, 130))
        real = 0.5 * (x.astype(float) - 60) / (0.25 * (y.astype(float) - 100)) / result
        found = computed(graph, (x, y), tmp_path).astype(float) - 130
        assert np.abs(found - np.clip(real, -130, 125)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 9), (np.int8, -128), (np.int8, 127)])
def test_products_beyond_any_number_saturate(
    dtype: type[np.uint8 | np.int8], zero: int, tmp_path: Path
) -> None:
    """As in cells of recurrent networks that never did anything: runtimes shift by more bits than
    there are."""
    limits = np.iinfo(dtype)
    x, y = np.meshgrid(np.arange(limits.min, limits.max + 1, 3), np.arange(limits.min, 100, 7))
    graph = network(
        Mul(), (x.astype(dtype), y.astype(dtype)), (one(0.02, 5), one(0.004)), one(3e-35, zero)
    )
    sign = np.sign((x - 5) * y)
    expected = np.where(sign > 0, limits.max, np.where(sign < 0, limits.min, zero))
    found = computed(graph, (x.astype(dtype), y.astype(dtype)), tmp_path)
    np.testing.assert_array_equal(found, expected)


def test_what_is_divided_by_zero_is_zero(tmp_path: Path) -> None:
    low = -(1 << 31)
    x = np.array([7, -7, low, low, 0], np.int32)
    y = np.array([0, 0, 0, -1, 0], np.int32)
    expected = {Div(): [0, 0, 0, low, 0], FloorDiv(): [0, 0, 0, low, 0], FloorMod(): [0] * 5}
    for op, values in expected.items():
        assert computed(network(op, (x, y)), (x, y), tmp_path).tolist() == values
    bytes_ = np.array([3, 9, 0], np.uint8)
    zeros = np.array([4, 4, 4], np.uint8)
    graph = network(Div(), (bytes_, zeros), (one(0.5, 1), one(0.5, 4)), one(0.01, 17))
    assert computed(graph, (bytes_, zeros), tmp_path).tolist() == [17] * 3


@pytest.mark.parametrize("scales", [(0.01, 0.002, 0.5), (0.001, 0.001, 0.0001), (1.0, 0.3, 2.0)])
def test_squared_differences_of_int16(scales: tuple[float, float, float], tmp_path: Path) -> None:
    """TensorFlow Lite Micro's formula; the runtime takes no int16."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(-32768, 32768, (2, 300)).astype(np.int16)
    s1, s2, s3 = (float(np.float32(s)) for s in scales)
    graph = network(SquaredDifference(), (x, y), (one(s1), one(s2)), one(s3))
    twice = 2 * max(s1, s2)
    m1, m2, m3 = (quantize_multiplier(r) for r in (s1 / twice, s2 / twice, twice * twice / s3))
    expected = []
    for a, c in zip(x.tolist(), y.tolist(), strict=True):
        difference = multiply_by_quantized_multiplier(a, *m1) - multiply_by_quantized_multiplier(
            c, *m2
        )
        scaled = multiply_by_quantized_multiplier(difference * difference, *m3)
        expected.append(min(max(scaled, -32768), 32767))
    assert computed(graph, (x, y), tmp_path).tolist() == expected


SPECIAL = np.array([NAN, -INFINITY, -1.0, -0.0, 0.0, 1e-45, 3.0e38, INFINITY], np.float32)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        (Equal(), np.equal), (NotEqual(), np.not_equal), (Greater(), np.greater),
        (GreaterEqual(), np.greater_equal), (Less(), np.less), (LessEqual(), np.less_equal),
        (Maximum(), lambda a, c: np.where(a > c, a, c)),
        (Minimum(), lambda a, c: np.where(a < c, a, c)),
        (FloorMod(), None), (FloorDiv(), None), (Div(), np.divide),
    ],
)
def test_special_floats(op: Op, function: Any, tmp_path: Path) -> None:
    x, y = SPECIAL.reshape(-1, 1), SPECIAL
    found = computed(network(op, (x, y)), (x, y), tmp_path)
    with np.errstate(all="ignore"):
        if isinstance(op, FloorMod):
            rest = np.fmod(x, y)
            expected = np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)
        elif isinstance(op, FloorDiv):
            expected = np.floor(x.astype(np.float64) / y.astype(np.float64)).astype(np.float32)
        else:
            expected = function(x, y)
    np.testing.assert_array_equal(found, expected)


def test_remainders_of_floats_are_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 0xFF000000, (2, 500), dtype=np.uint32) & np.uint32(0x7F7FFFFF)
    x, y = bits.view(np.float32)
    y = np.where(y == 0, np.float32(1), y)
    found = computed(network(FloorMod(), (x, y)), (x, y), tmp_path)
    np.testing.assert_array_equal(found, np.fmod(x, y))


@pytest.mark.parametrize("op", [NotEqual(), Greater(), GreaterEqual(), LessEqual()])
def test_int16_is_compared_as_it_is_stored(op: Op) -> None:
    x = np.array([-32768, -1, 0, 5, 32767], np.int16)
    y = x.reshape(-1, 1)
    functions = {
        NotEqual: np.not_equal, Greater: np.greater, GreaterEqual: np.greater_equal,
        LessEqual: np.less_equal,
    }
    graph = network(op, (x, y), (one(0.5), one(0.5)))
    np.testing.assert_array_equal(computed(graph, (x, y)), functions[type(op)](x, y))


BYTES, WORDS = np.zeros(3, np.int8), np.zeros(3, np.int16)
REFUSED = [
    (Equal(), (BYTES, BYTES), (one(1.0), one(0.5)), None, "below 1"),
    (Less(), (BYTES, BYTES), (None, None), None, "without one"),
    (Less(), (WORDS, WORDS), (one(0.5), one(0.25)), None, "compared as they are stored"),
    (Add(power_of_two_scales=True), (BYTES, BYTES), (one(0.5), one(0.5)), one(0.5), "found int8"),
    (Add(power_of_two_scales=True), (WORDS, WORDS), (one(0.3), one(0.5)), one(0.5), "other scales"),
    (Add(power_of_two_scales=True), (WORDS, WORDS), (one(0.25), one(0.25)), one(0.5), "other"),
    (
        Select(), (np.zeros(3, np.bool_), BYTES, BYTES), (None, one(0.5), one(0.25)), one(0.5),
        "the same scale",
    ),
    (Maximum(), (np.zeros(3, np.bool_),) * 2, (None, None), None, "found bool"),
]


@pytest.mark.parametrize(("op", "operands", "quants", "result", "message"), REFUSED)
def test_refused(
    op: Op, operands: Sequence[Array], quants: Sequence[Quantization | None],
    result: Quantization | None, message: str,
) -> None:
    with pytest.raises(CrtExportError, match=message):
        computed(network(op, operands, quants, result), operands)
