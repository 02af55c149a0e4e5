"""Kernels that copy an input and then write over a part of it: where the input lies in the place of
the output, the part alone is written."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.ir.types import DType
from crtexport.kir import interpreter
from crtexport.lowering.operator_table import lower
from crtexport.lowering.registry import Context, InputTensor, Lowered
from crtexport.lowering.self_copies import without_self_copies
from tests.plan.graphs import GraphBuilder

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(6, 4)).astype(np.float32)
UPDATES: dict[str, tuple[Op, tuple[np.ndarray, ...]]] = {
    "slice": (ops.DynamicUpdateSlice(), (
        DATA, RNG.normal(size=(2, 3)).astype(np.float32), np.array([3, 1], np.int32),
    )),
    "scatter": (ops.ScatterNd(), (
        DATA, np.array([[1], [4]], np.int32), RNG.normal(size=(2, 4)).astype(np.float32),
    )),
    "elements": (ops.ScatterElements(0), (
        DATA, np.array([[5, 0, 1, 5]], np.int32), RNG.normal(size=(1, 4)).astype(np.float32),
    )),
}


def lowered_for(op: Op, given: tuple[np.ndarray, ...]) -> Lowered:
    b = GraphBuilder()
    inputs = [b.input(*array.shape, dtype=DType(array.dtype.name)) for array in given]
    graph = b.finish(b.node(op, *inputs))
    return lower(Context(graph, graph.nodes[0]))


def run(lowered: Lowered, given: tuple[np.ndarray, ...], output: np.ndarray) -> np.ndarray:
    arrays = [
        given[arg.position].reshape(-1) if isinstance(arg, InputTensor) else output.reshape(-1)
        for arg in lowered.args
    ]
    interpreter.run(lowered.kernel, arrays)
    return output


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_in_its_place_writes_the_part_alone(name: str) -> None:
    op, given = UPDATES[name]
    whole = lowered_for(op, given)
    part = without_self_copies(whole, [(0, 0)])
    assert InputTensor(0) in whole.args
    assert InputTensor(0) not in part.args
    assert len(part.kernel.buffers) == len(part.args) == len(whole.args) - 1
    expected = run(whole, given, np.zeros_like(DATA))
    np.testing.assert_array_equal(run(part, given, DATA.copy()), expected)
    assert (expected != DATA).any()


def test_what_computes_stays_as_it_is() -> None:
    add = lowered_for(ops.Add(), (DATA, DATA))
    assert without_self_copies(add, [(0, 0)]) is add
