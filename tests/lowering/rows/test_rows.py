"""Networks that are computed row by row give what they give as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.ops import MaxPool2D, Padding2D
from crtexport.ir.types import DType
from crtexport.ir.verify import verify
from crtexport.kir.interpreter import run
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredRows
from crtexport.lowering.registry import Derived, InputTensor, OutputTensor, Scratch
from crtexport.lowering.rows.schedule import Compute, RowPlace, RowStep
from crtexport.pipeline.row_heights import joint
from crtexport.plan import plan, svg, text
from crtexport.plan.check import PlanError, check
from crtexport.plan.check_rows import RowsError, check_rows
from crtexport.plan.kernel_proof import ReplayProof, RowReplayProof
from crtexport.plan.model import RowPlan
from crtexport.plan.rows import row_bytes, row_ends
from tests.lowered import plain, values_of
from tests.lowering.rows.drawn import Q, networks
from tests.plan.execute import execute
from tests.plan.graphs import GraphBuilder

Array = npt.NDArray[Any]


def _cascade(graph: Graph, heights: list[int]) -> Graph:
    """The whole network as one cascade."""
    parts = graph.nodes
    given_ = [min(h, 4) for h in (heights * len(parts))[: len(parts)]]
    return graph.with_nodes((joint(parts, given_),))


class _Memory:
    """Bytes of a cascade's scratch and of whole tensors, in which its steps run."""

    def __init__(self, graph: Graph, rows: LoweredRows, plan_: RowPlan) -> None:
        self.graph, self.rows, self.plan = graph, rows, plan_
        self.scratch = np.full(plan_.size, 0xA5, np.uint8)
        self.whole = {
            t: np.zeros(graph.type(t).nbytes, np.uint8) for t in (*graph.inputs, *graph.outputs)
        }

    def _bytes(self, place: RowPlace) -> Array:
        size = row_bytes(self.graph, place.tensor)
        if place.slot is None:
            return self.whole[place.tensor][place.row * size : (place.row + place.rows) * size]
        start = self.plan.rings[place.tensor] + place.slot * size
        return self.scratch[start : start + place.rows * size]

    def step(self, step: RowStep) -> None:
        """Runs the kernel of a step on the bytes that it names."""
        band = self.rows.bands.works.index(step.work)
        node, inside = self.rows.lowered.nodes[band], self.rows.bands.graph
        lowered = node.running(in_place=self.plan.in_place[band])
        arrays: list[Array] = []
        for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True):
            match arg:
                case InputTensor(position):
                    tensor = inside.required(node.node, position)
                    constant = inside.constant(tensor)
                    if constant is not None:
                        arrays.append(constant.array(inside.type(tensor)).reshape(-1))
                        continue
                    place = step.reads[position]
                    assert place is not None
                    held = self._bytes(place)
                case OutputTensor():
                    held = self._bytes(step.write)
                case Derived():
                    arrays.append(values_of(arg))
                    continue
                case Scratch(offset):
                    start = self.plan.scratch[band] + offset
                    held = self.scratch[start : start + buffer.size * buffer.dtype.itemsize]
            kind = "f" if buffer.dtype.is_float else "i" if buffer.dtype.is_signed else "u"
            arrays.append(held.view(f"<{kind}{buffer.dtype.itemsize}"))
        run(lowered.kernel, arrays)


def _lowered(network: Graph, heights: list[int]) -> tuple[Graph, LoweredGraph]:
    graph = _cascade(network, heights)
    verify(graph)
    lowered = plain(graph)
    if lowered.nodes[0].rows is None:
        reject()  # two readers want other rows around a tensor
    return graph, lowered


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 1000))
def test_rows_give_what_whole_tensors_give(
    network: Graph, heights: list[int], seed: int
) -> None:
    graph, lowered = _lowered(network, heights)
    planned = plan(lowered)
    check(graph, planned, ReplayProof(lowered))
    (step,), rows = planned.steps, lowered.nodes[0].rows
    assert step.rows is not None
    assert rows is not None
    memory = _Memory(graph, rows, step.rows)
    x = np.random.default_rng(seed).integers(-128, 128, graph.type(graph.inputs[0]).shape)
    inputs = [x.astype(np.int8)]
    memory.whole[graph.inputs[0]][:] = inputs[0].reshape(-1).view(np.uint8)
    for one in rows.bands.schedule.steps:
        memory.step(one)
    (expected,) = execute(network, inputs)
    found = memory.whole[graph.outputs[0]].view(expected.dtype).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.data())
def test_the_checker_refuses_rows_that_are_overwritten_or_wrong(
    network: Graph, data: st.DataObject
) -> None:
    graph, lowered = _lowered(network, [1])
    rows, planned = lowered.nodes[0].rows, plan(lowered)
    given_ = planned.steps[0].rows
    assert rows is not None
    assert given_ is not None
    node, proof = graph.nodes[0], RowReplayProof(rows)
    steps = list(rows.bands.schedule.steps)
    read = row_ends(rows.bands.schedule)  # strides leave rows out
    needed = [
        n for n, step in enumerate(steps) if isinstance(step.work, Compute)
        and (step.write.slot is None or (step.write.tensor, step.write.row) in read)
    ]
    number = data.draw(st.sampled_from(needed))
    del steps[number]
    fewer = replace(rows.bands.schedule, steps=tuple(steps))
    with pytest.raises(RowsError):
        check_rows(graph, node, replace(rows.bands, schedule=fewer), given_, 16, proof)
    if given_.size:
        with pytest.raises(RowsError):
            check_rows(graph, node, rows.bands, replace(given_, size=given_.size - 1), 16, proof)


def _small() -> Graph:
    b = GraphBuilder()
    x = b.input(1, 6, 4, 2, dtype=DType.INT8, quant=Q)
    for _ in range(2):
        x = b.node(MaxPool2D((3, 3), padding=Padding2D(1, 1, 1, 1)), x, quant=Q)
    return b.finish(x)


def test_a_cascade_without_a_plan_of_its_rows_is_refused() -> None:
    graph, lowered = _lowered(_small(), [1])
    planned = plan(lowered)
    without = replace(planned, steps=(replace(planned.steps[0], rows=None),))
    with pytest.raises(PlanError, match="has no rows"):
        check(graph, without, ReplayProof(lowered))


def test_a_chain_keeps_as_many_rows_as_windows_have() -> None:
    _, lowered = _lowered(_small(), [1])
    rows = lowered.nodes[0].rows
    assert rows is not None
    assert list(rows.bands.schedule.capacity.values()) == [3, 3]


def test_text_and_picture_show_the_rows_that_are_kept() -> None:
    graph, lowered = _lowered(_small(), [1])
    planned = plan(lowered)
    assert "keeps 3 rows of %0 't0'" in text.dump(graph, planned)
    picture = svg.draw(graph, planned)
    assert "3 rows of t0, 8 bytes each" in picture
    assert picture.count("stroke-dasharray") == 4
