"""Blocked forms over their own inputs: every distance that facts allow is proven and right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.kernels import families, interp
from crtexport.kernels.build import KernelBuilder, add, const, sub
from crtexport.kernels.build import load as load_element
from crtexport.kernels.fresh import fresh
from crtexport.kernels.inplace import InPlaceFacts
from crtexport.kernels.ir import Kernel, Scalar
from crtexport.kernels.proof import ReplayProof
from crtexport.kernels.registry import Context, InputTensor, Lowered, OutputTensor
from crtexport.kernels.step import LowerNode, lower_step
from crtexport.plan.model import Step
from tests.lowered import bound
from tests.schedules.layers import drawing, search
from tests.schedules.test_blocks import FORMS as BLOCKED
from tests.schedules.test_blocks import Network

Array = np.ndarray[Any, Any]

FORMS = {
    name: form for name, form in BLOCKED.items()
    if name in ("scalar", "arm_dsp", "words", "quads", "armv6m", "riscv", "sse", "avx2", "vnni")
}


def in_form(name: str, number: int = 0) -> LowerNode:
    """What makes kernels in one of the forms of a schedule, the last if there are not as many."""
    def lower(context: Context) -> Lowered:
        forms = FORMS[name](context)
        return forms[min(number, len(forms) - 1)].make() if forms else families.lower(context)

    return lower


def convolution(folder: Path, integer: Any, depthwise: bool, seed: int) -> Graph:
    n = Network(integer, seed)
    shape = (integer(1, 9), integer(1, 8), integer(1, 17))
    x = n.tensor((1, *shape))
    y, _ = n.window(x, shape, depthwise)
    (folder / "m.tflite").write_bytes(n.m.build([x], [y]))
    return load(folder / "m.tflite")


def computed(graph: Graph, step: Step, lower: LowerNode, value: Array, distance: int) -> Array:
    """The output of a step that begins ``distance`` bytes after its input."""
    (node,) = graph.nodes
    lowered = lower_step(graph, step, lower)
    type_ = graph.type(node.outputs[0])
    start = max(0, -distance)
    arena = np.zeros(start + max(value.size, distance + type_.nbytes), np.int8)
    over = arena[start : start + value.size]
    over[:] = value.reshape(-1)
    output = arena[start + distance : start + distance + type_.nbytes]

    def tensor(arg: InputTensor | OutputTensor) -> Array:
        if isinstance(arg, OutputTensor):
            return output
        number = graph.required(node, arg.position)
        constant = graph.constant(number)
        return over if constant is None else constant.array(graph.type(number)).reshape(-1)

    interp.run(lowered.kernel, bound(lowered, tensor))
    return output.copy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depthwise", [False, True])
@search(12)
@given(data=st.data())
def test_outputs_may_lie_where_facts_say(
    depthwise: bool, form: str, tmp_path: Path, data: st.DataObject
) -> None:
    graph = convolution(tmp_path, drawing(data), depthwise, data.draw(st.integers(0, 99)))
    lower = in_form(form, data.draw(st.integers(0, 9)))
    proof = ReplayProof(partial(lower_step, lower_node=lower))
    facts = InPlaceFacts(partial(lower_step, lower_node=lower))(graph, 0)
    source, output = graph.inputs[0], graph.outputs[0]
    sizes = graph.type(source).nbytes, graph.type(output).nbytes
    shape = graph.type(source).shape
    value = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    wanted = computed(graph, Step(0), families.lower, value, sizes[0])
    for backward, found in ((False, facts.forward), (True, facts.backward)):
        freedom = (found or {}).get((0, 0))
        if freedom is None:
            continue
        step = Step(0, ((0, 0),), backward)
        for distance in {freedom.before, freedom.after, *freedom.exact}:
            if -sizes[1] < distance < sizes[0]:
                assert proof.harmless(graph, step, 0, 0, distance)
            got = computed(graph, step, lower, value, distance)
            np.testing.assert_array_equal(got, wanted)


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
        facts = InPlaceFacts(partial(lower_step, lower_node=in_form("words")))(graphs[rows], 0)
        assert allowed in facts.forward[0, 0].exact
        assert facts.backward is not None
        assert -allowed in facts.backward[0, 0].exact
        proof = ReplayProof(partial(lower_step, lower_node=in_form("words")))
        # With the whole image in a plane, any number of pixels is right.
        for distance, harmless in ((allowed, True), (row, not allowed), (allowed - 1, False)):
            assert proof.harmless(graphs[rows], Step(0, ((0, 0),)), 0, 0, distance) == harmless


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

    assert fresh(kernel(build), ["line"], (("row", 4),)) == independent


def test_what_the_last_iteration_left_is_not_read_afterwards() -> None:
    def build(b: KernelBuilder) -> None:
        x = b.buffer("input", Scalar.I8, 4)
        y = b.buffer("output", Scalar.I8, 4, writable=True)
        line = b.buffer("line", Scalar.I8, 2, writable=True)
        with b.loop("row", 4) as row:
            b.store(line, const(0), load_element(x, row))
            b.store(y, row, load_element(line, const(0)))
        b.store(y, const(0), load_element(line, const(0)))

    assert not fresh(kernel(build), ["line"], (("row", 4),))


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

    monkeypatch.setattr("crtexport.kernels.fresh.LIMIT", limit)
    assert fresh(kernel(build), ["line"], (("row", 4),)) is followed


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
    if not fresh(forward, ["line"], (("row", rows),)):
        return
    results = []
    for made in (forward, kernel(lambda b: build(b, True))):
        y, line = np.zeros(made.buffers[1].size, np.int8), np.full(4, 99, np.int8)
        interp.run(made, [np.array([1, 2, 3], np.int8), y, line])
        results.append(y)
    np.testing.assert_array_equal(*results)
