"""Products of two computed matrices: every variant gives what the reference runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.variants import variants_of
from tests.differential.draw import Array
from tests.lowered import run
from tests.schedules.layers import AS_CODE, Integer, drawing, outputs_as_code, search
from tests.tflite_builder import ModelBuilder, run_reference

BOARDS = {
    "mps2_an386": "panels of 2x2",  # SMLAD and an FPU
    "mps3_an547": "dot products of bytes",  # vectors
    "qemu_cortex_m0": "blocks of 1x2",  # eight registers
    "qemu_riscv32": "blocks of 2x2",
    "qemu_riscv32_v": "dot products of bytes",
    "host": "dot products of bytes",
}
"""With the variant that int8 products of some size have there."""
TYPES = ("int8", "int16", "float32", "uint8")


class Drawn:
    """A network of one product of (batch, rows, depth) and (batch, depth, units), and inputs."""

    def __init__(self, integer: Integer, code: str, dtype: str, least: int = 1) -> None:
        self._integer, self._dtype, self._m = integer, dtype, ModelBuilder()
        self._rng = np.random.default_rng(integer(0, 1 << 30))
        rows, depth, units = (integer(least, most) for most in (7, 21, 9))
        transposed = code == "BATCH_MATMUL" and bool(integer(0, 1))
        batch = (integer(1, 2),) if code == "BATCH_MATMUL" else ()
        right = (depth, units) if transposed else (units, depth)
        shapes = ((*batch, rows, depth), (*batch, *right), (*batch, rows, units))
        scales = (0.05, 0.04, 0.05 * 0.04 * max(depth, 2) * {"int16": 3000}.get(dtype, 40))
        types = (dtype, "int8" if (code, dtype) == ("FULLY_CONNECTED", "int16") else dtype, dtype)
        x, w, y = (
            self._tensor(name, shape, type_, scale)
            for name, shape, type_, scale in zip("xwy", shapes, types, scales, strict=True)
        )
        options: dict[str, Any] = (
            {"adj_y": not transposed} if code == "BATCH_MATMUL" else {"activation": "RELU6"}
        )
        self._m.op(code, [x, w], [y], **options)
        self.content = self._m.build([x, w], [y])
        self.inputs = tuple(self._values(*pair) for pair in zip(shapes, types[:2], strict=False))

    def _tensor(self, name: str, shape: tuple[int, ...], dtype: str, scale: float) -> int:
        if dtype == "float32":
            return self._m.tensor(name, shape)
        low, high = {"int8": (-128, 127), "uint8": (0, 255)}.get(dtype, (0, 0))
        zero = self._integer(low, high) * self._integer(0, 1)
        return self._m.tensor(name, shape, dtype, scale=scale, zero_point=zero)

    def _values(self, shape: tuple[int, ...], dtype: str) -> Array:
        if dtype == "float32":
            return self._rng.normal(size=shape).astype(np.float32)
        info = np.iinfo(dtype)
        return self._rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)

    def graph(self, folder: Path) -> Graph:
        """Returns the network as it is imported."""
        path = folder / "model.tflite"
        path.write_bytes(self.content)
        return load(path)


def kernels(graph: Graph) -> dict[str, Lowered]:
    """Returns all kernels of the node on any board, the portable one among them."""
    context = Context(graph, graph.nodes[0])
    found = {"portable": operator_table.lower(context)}
    for board in BOARDS:
        for variant in variants_of(context, load_board(board).target, "balanced"):
            found[f"{variant.name} of {board}"] = variant.make()
    return found


PRODUCTS = [
    (code, dtype) for code in ("BATCH_MATMUL", "FULLY_CONNECTED") for dtype in TYPES
    if (code, dtype) != ("BATCH_MATMUL", "uint8")
]


@pytest.mark.parametrize(("code", "dtype"), PRODUCTS)
@search(12)
@given(data=st.data())
def test_every_variant_gives_what_the_reference_gives(
    code: str, dtype: str, tmp_path: Path, data: st.DataObject
) -> None:
    drawn = Drawn(drawing(data), code, dtype)
    (expected,) = run_reference(drawn.content, *drawn.inputs)
    graph = drawn.graph(tmp_path)
    for name, lowered in kernels(graph).items():
        got = run(graph, lowered, *drawn.inputs)
        if dtype == "float32":
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(got, expected, err_msg=name)


@pytest.mark.parametrize("units", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [1, 2])
def test_layers_of_few_units_have_no_variant_for_constant_weights(
    rows: int, units: int, tmp_path: Path
) -> None:
    """These add what the zero point makes of the weights to the bias while exporting."""
    numbers = iter((3, rows, 20, units, -128, 1, 0, 0, 0, 0))
    drawn = Drawn(lambda *_: next(numbers), "FULLY_CONNECTED", "int8")
    (expected,) = run_reference(drawn.content, *drawn.inputs)
    graph = drawn.graph(tmp_path)
    for name, lowered in kernels(graph).items():
        got = run(graph, lowered, *drawn.inputs)
        np.testing.assert_array_equal(got, expected, err_msg=name)


@pytest.mark.parametrize("board", BOARDS)
def test_products_of_some_size_have_the_fast_variant(board: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    drawn = Drawn(lambda low, high: int(rng.integers(low, high + 1)), "BATCH_MATMUL", "int8", 5)
    graph = drawn.graph(tmp_path)
    first, *_ = variants_of(
        Context(graph, graph.nodes[0]), load_board(board).target, "balanced"
    )
    assert BOARDS[board] in first.name


@AS_CODE
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547", "qemu_cortex_m0"])
def test_attention_agrees_as_code(board: str, where: str, tmp_path: Path) -> None:
    """Scores, probabilities and results of two heads, in int8 and beside each other in float32."""
    m, rng = ModelBuilder(), np.random.default_rng(4)
    inputs, outputs, values = list[int](), list[int](), list[Array]()
    for dtype in ("int8", "float32"):
        def tensor(name: str, shape: tuple[int, ...], scale: float, zero: int) -> int:
            quant = {"scale": scale, "zero_point": zero} if dtype == "int8" else {}  # noqa: B023
            return m.tensor(f"{name} {dtype}", shape, dtype, **quant)  # noqa: B023

        shape = (2, 7, 9)
        q, k = tensor("q", shape, 0.03, 3), tensor("k", shape, 0.03, -5)
        v = tensor("v", shape, 0.03, 0)
        scores = tensor("scores", (2, 7, 7), 0.06, 1)
        chances = tensor("chances", (2, 7, 7), 1 / 256, -128)
        result = tensor("result", shape, 0.02, 4)
        m.op("BATCH_MATMUL", [q, k], [scores], adj_y=True)
        m.op("SOFTMAX", [scores], [chances])
        m.op("BATCH_MATMUL", [chances, v], [result])
        inputs += [q, k, v]
        outputs.append(result)
        values += [
            rng.integers(-128, 128, shape).astype(np.int8) if dtype == "int8"
            else rng.normal(size=shape).astype(np.float32) for _ in range(3)
        ]
    content = m.build(inputs, outputs)
    (tmp_path / "m.tflite").write_bytes(content)
    (row,) = outputs_as_code(tmp_path / "m.tflite", [v[None] for v in values], board, where)
    expected = run_reference(content, *values)
    np.testing.assert_array_equal(row[0], expected[0])
    np.testing.assert_allclose(row[1], expected[1], rtol=0, atol=1e-5)
