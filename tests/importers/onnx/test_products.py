"""Products of matrices, whichever axes they go along and however these lie; remainders."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.importers import load
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value

SIZES = {"a": 2, "b": 3, "c": 5, "d": 4, "e": 7}
RNG = np.random.default_rng(0)


def floats(*shape: int) -> npt.NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("equation", [
    "ab,bc->ac", "ab,cb->ca", "abc,acd->abd", "abcd,abed->abce", "abc,dc->bad", "ab,c->cab",
    "abc,bd->ac", "ab,ab->", "abc->ca", "abc->b", "ab,bc", "ba",
    "aa", "aab->ba", "baa,ac->cb", "aaa->a", "abab->ba",
])
def test_einsum_gives_what_numpy_gives(equation: str, tmp_path: Path) -> None:
    names = equation.split("->", maxsplit=1)[0].split(",")
    arrays = [floats(*(SIZES[c] for c in name)) for name in names]
    inputs = [f"x{i}" for i in range(len(names))]
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("Einsum", inputs, ["y"], equation=equation)],
        [value(i, a.shape) for i, a in zip(inputs, arrays, strict=True)], ["y"],
    )))
    (found,) = interpret(load(path), arrays)
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shapes", [
    ((2, 3), (3, 5)), ((4, 2, 3), (3, 5)), ((3,), (3, 5)), ((2, 3), (3,)), ((3,), (3,)),
    ((4, 1, 2, 3), (7, 3, 5)),
])
@pytest.mark.parametrize("constant", [False, True])
def test_matrices_of_any_rank_are_multiplied(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool, tmp_path: Path
) -> None:
    a, b = (floats(*shape) for shape in shapes)
    path = tmp_path / "m.onnx"
    inputs = [value("a", a.shape)] + ([] if constant else [value("b", b.shape)])
    path.write_bytes(model(graph(
        [node("MatMul", ["a", "b"], ["y"])], inputs, ["y"], {"b": b} if constant else {},
    )))
    (found,) = interpret(load(path), [a] if constant else [a, b])
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-5)


def test_the_rest_of_erf_is_read(tmp_path: Path) -> None:
    """tf2onnx writes Erfc, which the standard hasn't, for Keras' gelu."""
    path, x = tmp_path / "m.onnx", floats(9)
    path.write_bytes(model(graph([node("Erfc", ["x"], ["y"])], [value("x", x.shape)], ["y"])))
    (found,) = interpret(load(path), [x])
    np.testing.assert_allclose(found, [math.erfc(v) for v in x], rtol=0, atol=2e-7)


def test_remainders_have_the_sign_of_what_is_divided(tmp_path: Path) -> None:
    a = np.array([-5.25, -2, -0.75, -0.25, 0, 0.25, 0.75, 5.25], np.float32)
    b = np.array([2, 2, 0.5, 1, 3, -1, -0.5, -2], np.float32)
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("Mod", ["a", "b"], ["y"], fmod=1)], [value("a", a.shape), value("b", b.shape)], ["y"],
    )))
    (found,) = interpret(load(path), [a, b])
    np.testing.assert_array_equal(found, np.fmod(a, b))
