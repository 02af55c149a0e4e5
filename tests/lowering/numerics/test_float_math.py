"""Float functions in Kernel IR: precise everywhere, special values too, and the same compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import Abs, Ceil, Cos, Elu, Exp, Floor, Gelu, Log, Op, Round, Sin, Sqrt
from crtexport.ir.types import DType, TensorType
from crtexport.kir import interpreter
from crtexport.kir.language import Kernel
from crtexport.kir.verifier import verify
from crtexport.lowering.operator_table import lower
from crtexport.lowering.registry import Context, Derived
from crtexport.support.errors import CrtExportError
from tests.backends.c import c_support
from tests.backends.llvm import llvm_support
from tests.lowered import values_of

Array = npt.NDArray[Any]

SPECIAL = (
    0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4e38,
    0.5, -0.5, 1.5, 2.5, -2.5, 8388607.5, -8388607.5, 8388608.0, 16777217.0, 8191.9, 8192.0,
    88.72283, 88.8, -87.4, -103.9, -200.0, 1.0, -1.0, 2.0, 3.0, 4.0, 9.0,
)


def arguments() -> Array:
    """Every kind of float32: special ones, any encoding, and usual sizes."""
    rng = np.random.default_rng(7)
    anything = rng.integers(0, 1 << 32, 400, dtype=np.uint32).view(np.float32)
    usual = rng.normal(0, 3, 300).astype(np.float32)
    large = (rng.normal(0, 1, 100) * 10.0 ** rng.integers(0, 8, 100)).astype(np.float32)
    return np.concatenate([np.array(SPECIAL, np.float32), anything, usual, large])


@dataclass(frozen=True)
class Compiled:
    """The kernel of one operator and its arrays."""

    kernel: Kernel
    arrays: list[Array]


def compiled(op: Op, x: Array) -> Compiled:
    type_ = TensorType(DType.FLOAT32, x.shape)
    graph = Graph(
        "net", (Tensor("x", type_), Tensor("y", type_)), (Node(op, (0,), (1,)),), (0,), (1,)
    )
    lowered = lower(Context(graph, graph.nodes[0]))
    verify(lowered.kernel)
    derived = [values_of(arg) for arg in lowered.args if isinstance(arg, Derived)]
    return Compiled(lowered.kernel, [x, *derived, np.zeros_like(x)])


def run(op: Op, x: Array) -> Array:
    found = compiled(op, x)
    interpreter.run(found.kernel, found.arrays)
    return found.arrays[-1]


def half_erfc(x: Array) -> Array:
    return np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])


@pytest.mark.parametrize(("op", "exact"), [
    (Sqrt(), np.sqrt), (Floor(), np.floor), (Ceil(), np.ceil), (Round(), np.rint), (Abs(), np.abs),
], ids=lambda v: type(v).__name__ if isinstance(v, Op) else "")
def test_exact_functions_are_exact(op: Op, exact: Callable[[Array], Array]) -> None:
    x = arguments()
    with np.errstate(invalid="ignore"):
        expected = exact(x)
    got = run(op, x)
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


@pytest.mark.parametrize(("op", "real", "ulps"), [
    (Exp(), np.exp, 2), (Log(), np.log, 2), (Sin(), np.sin, 3), (Cos(), np.cos, 3),
], ids=lambda v: type(v).__name__ if isinstance(v, Op) else "")
def test_elementary_functions_are_precise_for_every_argument(
    op: Op, real: Callable[[Array], Array], ulps: int
) -> None:
    x = arguments()
    with np.errstate(invalid="ignore", over="ignore", divide="ignore", under="ignore"):
        expected = real(x.astype(np.float64))
        nearest = expected.astype(np.float32)
    got = run(op, x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(nearest))
    infinite = np.isinf(nearest)
    np.testing.assert_array_equal(got[infinite], nearest[infinite])
    finite = np.isfinite(nearest)
    error = np.abs(got[finite].astype(np.float64) - expected[finite])
    assert np.all(error <= ulps * np.spacing(np.abs(nearest[finite])))


@pytest.mark.parametrize(("op", "real"), [
    (Elu(), lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x)), (Gelu(), half_erfc),
], ids=["Elu", "Gelu"])
def test_activations_keep_their_relative_precision(
    op: Op, real: Callable[[Array], Array]
) -> None:
    x = np.linspace(-8, 8, 801, dtype=np.float32)
    np.testing.assert_allclose(run(op, x), real(x.astype(np.float64)), rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize(
    "op", [Abs(), Sqrt(), Floor(), Ceil(), Round(), Exp(), Log(), Sin(), Cos(), Elu(), Gelu()],
    ids=lambda op: type(op).__name__,
)
def test_machines_compute_the_same_bits(op: Op, tmp_path: Path) -> None:
    found = compiled(op, arguments())
    before = [array.copy() for array in found.arrays]
    interpreter.run(found.kernel, found.arrays)
    (by_c,) = c_support.run_kernels([(found.kernel, before)], tmp_path, "-O2")
    named = {b.name: a for b, a in zip(found.kernel.buffers, before, strict=True)}
    (by_llvm,) = llvm_support.run_kernels([(found.kernel, named, ())])
    expected = found.arrays[-1]
    c_support.assert_same(by_c[-1], expected)
    c_support.assert_same(by_llvm[found.kernel.buffers[-1].name], expected)


def test_an_operator_says_which_types_it_takes() -> None:
    type_ = TensorType(DType.INT32, (3,))
    graph = Graph(
        "net", (Tensor("x", type_), Tensor("y", type_)), (Node(Sin(), (0,), (1,)),), (0,), (1,)
    )
    with pytest.raises(CrtExportError, match=r"one element type of: float32 \(found int32\)"):
        lower(Context(graph, graph.nodes[0]))
