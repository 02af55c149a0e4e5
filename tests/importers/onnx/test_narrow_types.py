"""float16, double, int4 and int2: stored, computed as float32 and int8, and saturated at their own
ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Cast
from crtexport.ir.types import DType
from crtexport.passes.drop_dead import drop_dead
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value

RNG = np.random.default_rng(5)
CODES = {"float32": 1, "int8": 3, "float16": 10, "uint4": 21, "int4": 22, "uint2": 25, "int2": 26}
LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def read(folder: Path, content: bytes) -> Graph:
    path = folder / "m.onnx"
    path.write_bytes(content)
    return load(path)


def network(*nodes: bytes, inputs: dict[str, str], **constants: np.ndarray[Any, Any]) -> bytes:
    """A file whose inputs are (3, 4), with the output y."""
    return model(
        graph(nodes, [value(n, [3, 4], t) for n, t in inputs.items()], ["y"], constants), version=25
    )


def casts(graph: Graph) -> int:
    """Those whose results are read."""
    return sum(isinstance(node.op, Cast) for node in drop_dead(graph).nodes)


def test_halves_are_rounded_at_the_ends_alone(tmp_path: Path) -> None:
    w = RNG.normal(size=(4, 5)).astype(np.float16)
    found = read(tmp_path, network(
        node("MatMul", ["x", "w"], ["p"]), node("Sigmoid", ["p"], ["s"]),
        node("Mul", ["p", "s"], ["m"]), node("Transpose", ["m"], ["y"], perm=[1, 0]),
        inputs={"x": "float16"}, w=w,
    ))
    assert casts(found) == 2
    assert {found.type(t).dtype for t in (*found.inputs, *found.outputs)} == {DType.FLOAT16}
    x = RNG.normal(size=(3, 4)).astype(np.float16)
    (got,) = interpret(found, [x])
    p = x.astype(np.float32) @ w.astype(np.float32)
    wanted = (p / (1 + np.exp(-p))).T
    np.testing.assert_allclose(got, wanted.astype(np.float16), rtol=1e-3, atol=1e-6)


def test_doubles_come_in_and_go_out_and_are_float32_in_between(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    w = RNG.normal(size=(4, 5))
    found = read(tmp_path, network(
        node("Cast", ["i"], ["c"], to=11), node("Add", ["x", "c"], ["a"]),
        node("MatMul", ["a", "w"], ["p"]), node("Tanh", ["p"], ["y"]),
        inputs={"x": "float64", "i": "float32"}, w=w,
    ))
    assert "what is double in the file is computed as float32" in caplog.text
    assert casts(found) == 2
    assert [found.type(t).dtype for t in (*found.inputs, *found.outputs)] == [
        DType.FLOAT64, DType.FLOAT32, DType.FLOAT64,
    ]
    x, i = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4)).astype(np.float32)
    (got,) = interpret(found, [x, i])
    np.testing.assert_allclose(got, np.tanh((x + i) @ w), rtol=1e-5, atol=1e-6)


def test_a_cast_rounds_where_it_stands(tmp_path: Path) -> None:
    found = read(tmp_path, network(
        node("Cast", ["x"], ["h"], to=10), node("Neg", ["h"], ["n"]),
        node("Cast", ["n"], ["y"], to=1), inputs={"x": "float32"},
    ))
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    (got,) = interpret(found, [x])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, -x.astype(np.float16).astype(np.float32))


def test_large_weights_are_made_while_they_are_written(tmp_path: Path) -> None:
    w = RNG.normal(size=(1, 3, 1 << 18)).astype(np.float16)
    found = read(tmp_path, network(
        node("Add", ["x", "w"], ["y"]), inputs={"x": "float16"}, w=w[..., :4].copy(),
        unused=w,
    ))
    assert casts(found) == 2
    found = read(tmp_path, network(
        node("ReduceSum", ["w"], ["s"], keepdims=0), node("Add", ["x", "s"], ["y"]),
        inputs={"x": "float16"}, w=w,
    ))
    wide = [t for t in found.tensors if t.constant is not None and t.type.elements == w.size]
    (made,) = (t for t in wide if t.type.dtype is DType.FLOAT32)
    assert made.constant is not None
    np.testing.assert_array_equal(made.constant.array(made.type), w.astype(np.float32))


def test_the_first_float_decides_what_comes_out(tmp_path: Path) -> None:
    """The mean of a LayerNormalization stays float32, and so does what a node says itself."""
    for nodes, dtype in (
        ([node("LayerNormalization", ["x", "w"], ["n", "y"])], DType.FLOAT32),
        ([node("LayerNormalization", ["x", "w"], ["y"])], DType.FLOAT16),
        ([node("Cast", ["x"], ["b"], to=3),
          node("DequantizeLinear", ["b", "scale"], ["y"], output_dtype=1)], DType.FLOAT32),
        ([node("Cast", ["x"], ["b"], to=3), node("DequantizeLinear", ["b", "scale"], ["y"])],
         DType.FLOAT16),
        ([node("Where", ["c", "x", "x"], ["y"])], DType.FLOAT16),
    ):
        found = read(tmp_path, network(
            *nodes, inputs={"x": "float16", "c": "bool"}, w=np.ones(4, np.float16),
            scale=np.array(0.5, np.float16),
        ))
        assert found.type(found.outputs[0]).dtype is dtype


def test_a_branch_of_halves_is_chosen(tmp_path: Path) -> None:
    then = graph([node("Neg", ["x"], ["t"])], [], ["t"])
    other = graph([node("Abs", ["x"], ["o"])], [], ["o"])
    found = read(tmp_path, model(graph(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [value("x", [3], "float16"), value("c", [], "bool")], ["y"],
    ), version=25))
    x = np.array([1, -2, 3], np.float16)
    for truth in (True, False):
        (got,) = interpret(found, [x, np.array(truth)])
        np.testing.assert_array_equal(got, -x if truth else np.abs(x))


@pytest.mark.parametrize("name", LIMITS)
def test_a_cast_leaves_the_lowest_bits(name: str, tmp_path: Path) -> None:
    low, high = LIMITS[name]
    found = read(tmp_path, network(
        node("Cast", ["x"], ["y"], to=CODES[name]), inputs={"x": "float32"}
    ))
    x = np.array([0, 1.9, -1.9, 7, 8, -8, -9, 15, 16, 31.5, 200, -200], np.float32).reshape(3, 4)
    (got,) = interpret(found, [x])
    np.testing.assert_array_equal(got, (np.trunc(x).astype(int) - low) % (high - low + 1) + low)


@pytest.mark.parametrize("name", LIMITS)
def test_quantized_numbers_saturate_at_their_own_ends(name: str, tmp_path: Path) -> None:
    low, high = LIMITS[name]
    x = RNG.normal(0, 8, (3, 4)).astype(np.float32)
    quantized = np.clip(np.rint(x / 0.5) + 1, low, high)
    one = [
        node("Constant", [], ["b"], value_float=1.0), node("Cast", ["b"], ["zero"], to=CODES[name]),
    ]
    asked = node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=CODES[name])
    moved = node("Unsqueeze", ["zero", "axis"], ["z"])
    for nodes, wanted in (
        ([*one, node("QuantizeLinear", ["x", "scale", "zero"], ["y"])], quantized),
        ([*one, moved, node("QuantizeLinear", ["x", "scale", "z"], ["y"])], quantized),
        ([asked], np.clip(np.rint(x / 0.5), low, high)),
        ([*one, node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
          node("DequantizeLinear", ["q", "scale", "zero"], ["y"])], (quantized - 1) * 0.5),
    ):
        found = read(tmp_path, network(
            *nodes, inputs={"x": "float32"}, scale=np.array(0.5, np.float32),
            axis=np.array([0], np.int64),
        ))
        (got,) = interpret(found, [x])
        np.testing.assert_array_equal(got, wanted)


def test_a_cast_to_whole_bytes_ends_it(tmp_path: Path) -> None:
    found = read(tmp_path, network(
        node("Constant", [], ["b"], value_float=1.0), node("Cast", ["b"], ["narrow"], to=22),
        node("Cast", ["narrow"], ["zero"], to=3), node("QuantizeLinear", ["x", "s", "zero"], ["y"]),
        inputs={"x": "float32"}, s=np.array(1, np.float32),
    ))
    (got,) = interpret(found, [np.full((3, 4), 90, np.float32)])
    np.testing.assert_array_equal(got, np.full((3, 4), 91))
