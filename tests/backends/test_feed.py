"""Inputs that are given row by row: the same results however rows come, and errors for others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.artifact.model import Artifact
from crtexport.backends.c.header import emit_header
from crtexport.firmware.board import load_board
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Cascade, Conv2D, FullyConnected, MaxPool2D, Padding2D, Relu, Reshape
from crtexport.ir.types import DType, Quantization
from crtexport.pipeline.driver import prepare
from crtexport.plan.model import Space
from crtexport.simulation.simulation import _pointers
from crtexport.support.errors import CrtExportError
from tests.backends.fed import Fed, fed_by
from tests.fuzz.artifacts import Interpreted
from tests.packed_functions import simulation_of
from tests.plan.execute import execute
from tests.plan.graphs import GraphBuilder

Array = npt.NDArray[Any]
Q = Quantization((0.05,), (-3,))
ROWS = 23


def _network() -> Graph:
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input(1, ROWS, 6, 2, dtype=DType.INT8, quant=Q)
    for channels, stride in ((3, 2), (4, 1)):
        inner = b.tensors[x].type.shape[3]
        weights = rng.integers(-127, 128, (channels, 3, 3, inner)).astype(np.int8)
        op = Conv2D((stride, stride), padding=Padding2D(1, 1, 1, 1))
        x = b.node(op, x, b.constant(weights, Quantization((0.01,), (0,))), None, quant=Q)
    x = b.node(MaxPool2D((2, 1), (2, 1)), x, quant=Q)
    count = b.tensors[x].type.elements
    x = b.node(Reshape((1, count)), x, quant=Q)
    dense = rng.integers(-127, 128, (5, count)).astype(np.int8)
    return b.finish(b.node(
        FullyConnected(), x, b.constant(dense, Quantization((0.01,), (0,))), None, quant=Q
    ))


GRAPH = _network()
HOST = load_board("host")


def _artifact(*, caller: bool) -> Artifact:
    return prepare(
        GRAPH, HOST, feed=True, workspace="caller" if caller else "static", module_name="fed"
    ).artifact


fed = fed_by(lambda caller: _artifact(caller=caller))


def _image(seed: int) -> tuple[Array, Array]:
    x = np.random.default_rng(seed).integers(-128, 128, (1, ROWS, 6, 2)).astype(np.int8)
    return x, execute(GRAPH, [x])[0]


@pytest.mark.parametrize("counts", [[ROWS], [1] * ROWS, [5, 0, 7, 11]])
def test_rows_come_in_any_numbers(fed: Fed, counts: Sequence[int]) -> None:
    x, wanted = _image(len(counts))
    assert fed.call("begin") == 0
    done = 0
    for count in counts:
        assert fed.feed(x[0, done : done + count]) == ROWS - done - count
        done += count
    assert fed.finish() == 0
    np.testing.assert_array_equal(fed.output, wanted)


def test_too_many_or_too_few_rows_are_an_error_and_change_nothing(fed: Fed) -> None:
    x, wanted = _image(1)
    assert fed.call("begin") == 0
    assert fed.feed(x[0, :20]) == 3
    assert fed.feed(x[0, 19:]) == -3
    assert fed.finish() == -3
    assert fed.feed(x[0, 20:]) == 0
    assert fed.feed(x[0, :1]) == -3
    assert fed.finish() == 0
    np.testing.assert_array_equal(fed.output, wanted)
    assert fed.finish() == -3
    assert fed.feed(x[0, :1]) == -3


def test_a_network_begins_anew_at_any_time(fed: Fed) -> None:
    x, wanted = _image(2)
    fed.call("begin")
    fed.feed(x[0, :7])
    assert fed.call("begin") == 0
    assert fed.feed(x[0]) == 0
    assert fed.finish() == 0
    np.testing.assert_array_equal(fed.output, wanted)


def test_null_pointers_are_an_error(fed: Fed) -> None:
    x, _ = _image(3)
    fed.call("begin")
    assert fed.call("feed", ctypes.c_void_p(None), 1) == -1
    fed.feed(x[0])
    assert fed.call("finish", ctypes.c_void_p(None)) == -1
    assert fed.call("finish", ctypes.byref(_pointers([0]))) == -1


def test_the_usual_run_takes_all_rows_at_once(fed: Fed) -> None:
    x, wanted = _image(4)
    simulation = simulation_of(fed.artifact, fed.library)
    for run in (simulation.run_whole, simulation.run):
        (found,) = run([x])
        np.testing.assert_array_equal(found, wanted)


def test_the_interpreter_computes_the_same() -> None:
    x, wanted = _image(5)
    (found,) = Interpreted(_artifact(caller=False), 64).run([x])
    np.testing.assert_array_equal(found, wanted)


def test_rows_that_are_computed_alike_are_there_once() -> None:
    feed = _artifact(caller=False).feed
    assert feed is not None
    assert sum(repeat.rows for repeat in feed.repeats) == ROWS == len([*feed.order()])
    assert len(feed.segments) < ROWS


def test_the_header_says_how_many_rows_there_are() -> None:
    header = emit_header(_artifact(caller=False))
    assert f"#define TVMGEN_FED_FEED_ROWS {ROWS}u\n" in header
    assert "#define TVMGEN_FED_FEED_ROW_SIZE 12u\n" in header
    assert "int32_t tvmgen_fed_begin(void);" in header


def _refused(make: Callable[[GraphBuilder], Sequence[int]]) -> Graph:
    b = GraphBuilder()
    return b.finish(*make(b))


def _dense(b: GraphBuilder) -> Sequence[int]:
    weights = b.constant(np.ones((3, 8), np.float32))
    return [b.node(FullyConnected(), b.input(1, 8), weights, None)]


def _only_rows(b: GraphBuilder) -> Sequence[int]:
    return [b.node(MaxPool2D((2, 2)), b.input(1, 8, 8, 2))]


def _two_inputs(b: GraphBuilder) -> Sequence[int]:
    x, y = b.input(1, 8, 8, 2), b.input(1, 8, 8, 2)
    return [b.node(MaxPool2D((2, 2)), x), b.node(MaxPool2D((2, 2)), y)]


@pytest.mark.parametrize(("make", "problem"), [
    (_dense, "its first layers can't be computed row by row"),
    (_only_rows, "its first layers can't be computed row by row"),
    (_two_inputs, "it has 2 inputs"),
])
def test_networks_without_rows_are_refused(
    make: Callable[[GraphBuilder], Sequence[int]], problem: str
) -> None:
    with pytest.raises(CrtExportError, match=problem):
        prepare(_refused(make), HOST, feed=True)


def test_an_input_in_the_workspace_is_not_given_row_by_row() -> None:
    with pytest.raises(CrtExportError, match="doesn't lie in the workspace"):
        prepare(GRAPH, HOST, feed=True, io="workspace")


def test_rows_never_lie_in_the_buffer_of_an_output() -> None:
    """It is given once all rows are there; what runs then may write over what they became."""
    b = GraphBuilder()
    x = b.node(Relu(), b.input(1, 8, 4, 2))
    x = b.node(Relu(), b.node(Reshape((1, 64)), x))
    planned = prepare(b.finish(x), HOST, feed=True)
    (cascade,) = (n for n in planned.lowered.graph.nodes if isinstance(n.op, Cascade))
    home = planned.plan.placements[cascade.outputs[0]]
    assert home is not None
    assert home.space is Space.WORKSPACE
