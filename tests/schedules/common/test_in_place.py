"""Blocked variants over their own inputs: every distance that facts allow is proven and right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.ops import DepthwiseConv2D, Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.kir import interpreter
from crtexport.kir.analysis.scratch_reuse import iterations_independent
from crtexport.kir.builder import KernelBuilder, add, const, sub
from crtexport.kir.builder import load as load_element
from crtexport.kir.language import Kernel, Scalar
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context, InputTensor, Lowered, LowerFunction, OutputTensor
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.model import Step
from tests.lowered import bound, plain
from tests.plan.graphs import GraphBuilder
from tests.schedules.layers import drawing, search
from tests.schedules.scalar.test_blocks import VARIANTS as BLOCKED
from tests.schedules.scalar.test_blocks import Network

Array = np.ndarray[Any, Any]

VARIANTS = {
    name: variant for name, variant in BLOCKED.items()
    if name in ("scalar", "arm_dsp", "words", "quads", "armv6m", "riscv", "sse", "avx2", "vnni")
}


def in_variant(name: str, number: int = 0) -> LowerFunction:
    """Returns a function that makes kernels in one of a schedule's variants, the last if there are
    not as many."""
    def lower(context: Context) -> Lowered:
        variants = VARIANTS[name](context)
        if not variants:
            return operator_table.lower(context)
        return variants[min(number, len(variants) - 1)].make()

    return lower


def convolution(folder: Path, integer: Any, depthwise: bool, seed: int) -> Graph:
    n = Network(integer, seed)
    shape = (integer(1, 9), integer(1, 8), integer(1, 17))
    x = n.tensor((1, *shape))
    y, _ = n.window(x, shape, depthwise)
    (folder / "m.tflite").write_bytes(n.m.build([x], [y]))
    return load(folder / "m.tflite")


def computed(graph: Graph, step: Step, lower: LowerFunction, value: Array, distance: int) -> Array:
    """The output of a step that begins ``distance`` bytes after its input."""
    (node,) = graph.nodes
    lowered = plain(graph, lower).nodes[0].running(
        backward=step.backward, in_place=step.in_place
    )
    type_ = graph.type(node.outputs[0])
    start = max(0, -distance)
    arena = np.full(start + max(value.size, distance + type_.nbytes), 0x5A, np.int8)
    over = arena[start : start + value.size]
    over[:] = value.reshape(-1)
    output = arena[start + distance : start + distance + type_.nbytes]

    def tensor(arg: InputTensor | OutputTensor) -> Array:
        if isinstance(arg, OutputTensor):
            return output
        number = graph.required(node, arg.position)
        constant = graph.constant(number)
        return over if constant is None else constant.array(graph.type(number)).reshape(-1)

    interpreter.run(lowered.kernel, bound(lowered, tensor))
    return output.copy()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("depthwise", [False, True])
@search(12)
@given(data=st.data())
def test_outputs_may_lie_where_facts_say(
    depthwise: bool, variant: str, tmp_path: Path, data: st.DataObject
) -> None:
    graph = convolution(tmp_path, drawing(data), depthwise, data.draw(st.integers(0, 99)))
    lower = in_variant(variant, data.draw(st.integers(0, 9)))
    lowered = plain(graph, lower)
    proof, facts = ReplayProof(lowered), lowered.nodes[0].facts
    source, output = graph.inputs[0], graph.outputs[0]
    sizes = graph.type(source).nbytes, graph.type(output).nbytes
    shape = graph.type(source).shape
    value = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    wanted = computed(graph, Step(0), operator_table.lower, value, sizes[0])
    for backward, found in ((False, facts.forward), (True, facts.backward)):
        freedom = (found or {}).get((0, 0))
        if freedom is None:
            continue
        step = Step(0, ((0, 0),), backward)
        for distance in {freedom.before, freedom.after, *freedom.exact}:
            if -sizes[1] < distance < sizes[0]:
                assert proof.harmless(step, 0, 0, distance)
            got = computed(graph, step, lower, value, distance)
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("channels", [1, 2])
def test_several_small_images_overwrite_none_that_is_read_later(
    variant: str, channels: int
) -> None:
    b = GraphBuilder()
    quant = Quantization((0.5,), (0,))
    x = b.input(3, 1, 1, channels, dtype=DType.INT8, quant=quant)
    weights = b.constant(np.ones((1, 1, 3, channels), np.int8), Quantization((0.001,), (0,)))
    op = DepthwiseConv2D(padding=Padding2D(bottom=1, left=1, right=2))
    graph = b.finish(b.node(op, x, weights, quant=quant))
    lowered = plain(graph, in_variant(variant))
    freedom, proof = lowered.nodes[0].facts.forward[0, 0], ReplayProof(lowered)
    for distance in range(1 - 12 * channels, 3 * channels):
        if freedom.allows(distance):
            assert proof.harmless(Step(0, ((0, 0),)), 0, 0, distance)


def test_channel_by_channel_an_image_stays_where_it_is(tmp_path: Path) -> None:
    """Planes of whole images: the output may begin where the input does, or a row away."""
    graphs = {}
    for rows in (6, 40):
        n = Network(lambda low, high: high, 3)
        x = n.tensor((1, rows, 8, 16))
        y = n.tensor((1, rows, 8, 16))
        n.m.op(
            "DEPTHWISE_CONV_2D", [x, *n.weights((1, 3, 3, 16), 3)], [y],
            padding="SAME", stride=(1, 1),
        )
        (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
        graphs[rows] = load(tmp_path / "m.tflite")
    row = 8 * 16
    for rows, allowed in ((6, 0), (40, -row)):
        lowered = plain(graphs[rows], in_variant("words"))
        facts = lowered.nodes[0].facts
        assert allowed in facts.forward[0, 0].exact
        assert facts.backward is not None
        assert -allowed in facts.backward[0, 0].exact
        proof = ReplayProof(lowered)
        # With the whole image in a plane, any number of pixels is right.
        for distance, harmless in ((allowed, True), (row, not allowed), (allowed - 1, False)):
            assert proof.harmless(Step(0, ((0, 0),)), 0, 0, distance) == harmless


# ---- scratch


def kernel(build: Callable[[KernelBuilder], None]) -> Kernel:
    b = KernelBuilder("test")
    build(b)
    return b.finish()


@pytest.mark.parametrize(("whole", "value", "independent"), [
    (True, None, True), (False, None, False), (False, 7, True), (False, 8, False),
])
def test_what_an_iteration_reads_it_must_have_stored(
    whole: bool, value: int | None, independent: bool
) -> None:
    """Or it is the same constant whoever stored it."""
    def build(b: KernelBuilder) -> None:
        x = b.buffer("input", Scalar.I8, 4)
        y = b.buffer("output", Scalar.I8, 4, writable=True)
        line = b.buffer("line", Scalar.I8, 4, writable=True)
        with b.loop("k", 4) as k:
            b.store(line, k, const(7, Scalar.I8))
        with b.loop("row", 4) as row:
            stored = load_element(x, row) if value is None else const(value, Scalar.I8)
            with b.loop("i", 4 if whole else 2) as i:
                b.store(line, i if whole else row, stored)
            with b.loop("j", 4) as j:
                b.store(y, j, load_element(line, j))

    assert iterations_independent(kernel(build), ["line"], (("row", 4),)) == independent


def test_what_the_last_iteration_left_is_not_read_afterwards() -> None:
    def build(b: KernelBuilder) -> None:
        x = b.buffer("input", Scalar.I8, 4)
        y = b.buffer("output", Scalar.I8, 4, writable=True)
        line = b.buffer("line", Scalar.I8, 2, writable=True)
        with b.loop("row", 4) as row:
            b.store(line, const(0), load_element(x, row))
            b.store(y, row, load_element(line, const(0)))
        b.store(y, const(0), load_element(line, const(0)))

    assert not iterations_independent(kernel(build), ["line"], (("row", 4),))


@pytest.mark.parametrize(("limit", "followed"), [(12, True), (11, False)])
def test_more_than_can_be_looked_at_is_not_called_independent(
    limit: int, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three elements in each of four iterations."""
    def build(b: KernelBuilder) -> None:
        x = b.buffer("input", Scalar.I8, 4)
        y = b.buffer("output", Scalar.I8, 4, writable=True)
        line = b.buffer("line", Scalar.I8, 3, writable=True)
        with b.loop("row", 4) as row:
            b.store(line, const(1), load_element(x, row))
            b.store(y, row, load_element(line, const(1)))

    monkeypatch.setattr("crtexport.kir.analysis.scratch_reuse.LIMIT", limit)
    assert iterations_independent(kernel(build), ["line"], (("row", 4),)) is followed


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_independent_iterations_may_run_in_any_order(data: st.DataObject) -> None:
    """Drawn accesses to a scratch, before, in and after a loop: where iterations are said to be
    independent, the loop gives the same backwards, whatever the scratch held."""
    rows = 3
    places = st.tuples(st.booleans(), st.integers(0, 1))
    inside = data.draw(st.lists(st.tuples(st.booleans(), places), min_size=1, max_size=4))
    before = data.draw(st.lists(st.integers(0, 3), max_size=2))
    after = data.draw(st.lists(st.integers(0, 3), max_size=2))

    def build(b: KernelBuilder, backward: bool) -> None:
        x = b.buffer("input", Scalar.I8, rows)
        y = b.buffer("output", Scalar.I8, rows * len(inside) + 2, writable=True)
        line = b.buffer("line", Scalar.I8, 4, writable=True)
        for at in before:
            b.store(line, const(at), const(7, Scalar.I8))
        with b.loop("row", rows) as counted:
            row = b.let("at", sub(const(rows - 1), counted)) if backward else counted
            for number, (stores, (moving, at)) in enumerate(inside):
                place = add(row, const(at)) if moving else const(at)
                if stores:
                    b.store(line, place, load_element(x, row))
                else:
                    to = add(row, const(rows * number))
                    b.store(y, to, load_element(line, place))
        for number, at in enumerate(after):
            b.store(y, const(rows * len(inside) + number), load_element(line, const(at)))

    forward = kernel(lambda b: build(b, False))
    if not iterations_independent(forward, ["line"], (("row", rows),)):
        return
    results = []
    for made in (forward, kernel(lambda b: build(b, True))):
        y, line = np.zeros(made.buffers[1].size, np.int8), np.full(4, 99, np.int8)
        interpreter.run(made, [np.array([1, 2, 3], np.int8), y, line])
        results.append(y)
    np.testing.assert_array_equal(*results)
