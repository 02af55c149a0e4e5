"""Places of outputs over inputs: found by intervals, held against a replay and real bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Add,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    Dequantize,
    DetectionPostProcess,
    FullyConnected,
    Gather,
    MaxPool2D,
    Mean,
    Op,
    Pad,
    Padding2D,
    Quantize,
    Relu,
    ResizeBilinear,
    ResizeNearestNeighbor,
    Softmax,
)
from crtexport.ir.types import DType
from crtexport.kir.analysis.access_trace import Replay
from crtexport.kir.analysis.loop_reversal import reverse_loops
from crtexport.kir.builder import KernelBuilder, add, cast, const, load, mul, sub
from crtexport.kir.interpreter import run
from crtexport.kir.language import Kernel, Scalar
from crtexport.kir.verifier import verify
from crtexport.lowering.facts import ByteMove, Facts, Freedom
from crtexport.lowering.inplace_facts import _complete, _Side, kernel_facts
from crtexport.lowering.lowered_graph import reversed_kernel
from crtexport.lowering.registry import InputTensor, Lowered, OutputTensor
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.model import Step
from tests.lowered import bound, plain, unwritten
from tests.plan.graphs import GraphBuilder, Q


def facts_of(graph: Graph) -> Facts:
    return plain(graph).nodes[0].facts


def as_it_runs(graph: Graph, step: Step) -> Lowered:
    return plain(graph).nodes[step.node].running(backward=step.backward, in_place=step.in_place)


def single(build: Callable[[GraphBuilder], int]) -> Graph:
    b = GraphBuilder()
    return b.finish(build(b))


def ones(b: GraphBuilder, *shape: int) -> int:
    return b.constant(np.ones(shape, np.float32))


def window(op: Op, *weights: int) -> Graph:
    return single(lambda b: b.node(op, b.input(1, 8, 8, 4), ones(b, *weights)))


SAME = Padding2D(1, 1, 1, 1)
GRAPHS: dict[str, Graph] = {
    "relu": single(lambda b: b.node(Relu(), b.input(3, 5))),
    "softmax": single(lambda b: b.node(Softmax(), b.input(3, 5))),
    "quantize": single(lambda b: b.node(Quantize(), b.input(3, 5), quant=Q)),
    "dequantize": single(lambda b: b.node(Dequantize(), b.input(3, 5, dtype=DType.INT8, quant=Q))),
    "add": single(lambda b: b.node(Add(), b.input(3, 5), b.input(3, 5))),
    "broadcast": single(lambda b: b.node(Add(), b.input(3, 5), b.input(3, 1))),
    "pad": single(lambda b: b.node(Pad(((1, 0), (0, 2))), b.input(3, 5))),
    "rows": single(lambda b: b.node(Concatenation(0), b.input(3, 5), b.input(2, 5))),
    "columns": single(lambda b: b.node(Concatenation(1), b.input(3, 5), b.input(3, 2))),
    "pool": single(lambda b: b.node(MaxPool2D((2, 2), (2, 2)), b.input(1, 8, 8, 4))),
    "pool in a frame": single(
        lambda b: b.node(MaxPool2D((3, 3), padding=SAME), b.input(1, 8, 8, 4))
    ),
    "mean": single(lambda b: b.node(Mean((1, 2), False), b.input(2, 4, 4, 3))),
    "depthwise": window(DepthwiseConv2D(padding=SAME), 1, 3, 3, 4),
    "depthwise with stride": window(DepthwiseConv2D(stride=(2, 2), padding=SAME), 1, 3, 3, 4),
    "pointwise": window(Conv2D(), 4, 1, 1, 4),
    "narrowing": window(Conv2D(), 2, 1, 1, 4),
    "widening": window(Conv2D(), 9, 1, 1, 4),
    "conv": window(Conv2D(padding=SAME), 4, 3, 3, 4),
    "bilinear of a pixel": single(
        lambda b: b.node(ResizeBilinear((2, 2)), b.input(1, 1, 1, 4))
    ),
    "bilinear": single(lambda b: b.node(ResizeBilinear((3, 5)), b.input(2, 2, 3, 4))),
    "nearest": single(lambda b: b.node(ResizeNearestNeighbor((5, 2)), b.input(2, 3, 3, 4))),
    "gather": single(
        lambda b: b.node(Gather(1), b.input(2, 3, 4), b.constant(np.array([2, 0, 2, 1], np.int32)))
    ),
    "the only slice": single(
        lambda b: b.node(Gather(0), b.input(1, 3, 4), b.constant(np.array(5, np.int32)))
    ),
    "matrix": single(lambda b: b.node(FullyConnected(), b.input(4, 8), ones(b, 6, 8))),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("backward", [False, True])
def test_every_allowed_distance_is_harmless(name: str, backward: bool) -> None:
    """Found by intervals, proven by replay, and right on real bytes; the next distance that a
    replay refutes isn't allowed."""
    graph = GRAPHS[name]
    facts = facts_of(graph)
    found = facts.backward if backward else facts.forward
    if found is None:
        assert backward
        return
    node = graph.nodes[0]
    proof = ReplayProof(plain(graph))
    for position, source in enumerate(node.inputs):
        if source is None or graph.constant(source) is not None:
            continue
        nbytes, size = graph.type(source).nbytes, graph.type(node.outputs[0]).nbytes
        apart = Freedom(-size, nbytes)
        freedom = found.get((0, position), apart)
        step = Step(0, ((0, position),), backward)
        item = max(graph.type(t).dtype.itemsize for t in (source, node.outputs[0]))
        limits = {item * (freedom.before // item), -item * (-freedom.after // item)}
        for distance in range(-size + item, nbytes, item):
            if freedom.allows(distance):
                assert proof.harmless(step, 0, position, distance), distance
                if distance in limits:
                    assert right_at(graph, step, position, distance), distance


@pytest.mark.parametrize("regular", [False, True])
def test_rows_that_a_variable_chooses_are_bounded_for_the_checker_too(regular: bool) -> None:
    """The background's score, which nothing reads, lies at another place in each row."""
    op = DetectionPostProcess(1, 2, 0.0, 1.0, (1.0, 1.0, 1.0, 1.0), regular_nms=regular)
    b = GraphBuilder()
    boxes, scores = b.input(1, 2, 4), b.input(1, 2, 3)
    outputs = b.node_of(op, boxes, scores, ones(b, 2, 4))
    graph = b.finish(*outputs)
    facts = facts_of(graph).forward
    allowed = 0
    for (output, position), freedom in facts.items():
        given = graph.required(graph.nodes[0], position)
        if graph.constant(given) is not None:
            continue
        source, result = graph.type(given).nbytes, graph.type(outputs[output]).nbytes
        for distance in range(-result + 4, source, 4):
            if freedom.allows(distance):
                step = Step(0, ((output, position),))
                assert ReplayProof(plain(graph)).harmless(step, output, position, distance)
                allowed += 1
    assert allowed, "the network has lost what it is here for"


@pytest.mark.parametrize(("name", "before"), [
    ("relu", 0), ("softmax", 0), ("add", 0), ("pool", 0), ("pointwise", -12),
    ("depthwise", -(8 * 4 + 4) * 4), ("conv", -((8 * 4 + 4) * 4 + 12)),
    ("narrowing", -4), ("quantize", 3), ("dequantize", -42), ("matrix", -20),
])
def test_outputs_follow_their_inputs_closely(name: str, before: int) -> None:
    """The distances that memory plans live on; a replay proves that none is closer."""
    graph = GRAPHS[name]
    assert facts_of(graph).forward[0, 0].before == before
    item = graph.type(graph.nodes[0].outputs[0]).dtype.itemsize
    nbytes = graph.type(graph.inputs[0]).nbytes
    if name != "pool" and before + item < nbytes:
        assert not ReplayProof(plain(graph)).harmless(Step(0, ((0, 0),)), 0, 0, before + item)


def test_pixels_that_a_table_names_are_followed_channel_by_channel() -> None:
    """The last pixel may lie over the one that all are made of: each channel meets only itself."""
    assert facts_of(GRAPHS["bilinear of a pixel"]).forward[0, 0].exact == (-48,)
    graph = GRAPHS["bilinear"]
    assert not ReplayProof(plain(graph)).harmless(Step(0, ((0, 0),)), 0, 0, 0)


@pytest.mark.parametrize("backward", [False, True])
def test_kernels_promise_nothing_of_tensors_that_share_bytes(backward: bool) -> None:
    graph = GRAPHS["conv"]
    alone = as_it_runs(graph, Step(0, backward=backward))
    shared = as_it_runs(graph, Step(0, ((0, 0),), backward=backward))
    assert alone.kernel.overlapping == ()
    assert shared.kernel != alone.kernel
    assert shared == replace(alone, kernel=replace(
        alone.kernel, overlapping=("input", "output")
    ))
    assert [b.name for b, arg in zip(shared.kernel.buffers, shared.args, strict=True)
            if arg in (InputTensor(0), OutputTensor(0))] == ["input", "output"]


def right_at(graph: Graph, step: Step, position: int, distance: int) -> bool:
    """Returns whether the kernel computes the same over its input as with an output of its own."""
    node = graph.nodes[0]
    rng = np.random.default_rng(1)
    types = [graph.type(t) for t in node.inputs if t is not None]
    values = [
        rng.integers(-9, 9, t.shape).astype(t.dtype.numpy) for t in types
    ]
    for i, tensor in enumerate(node.inputs):
        constant = graph.constant(tensor) if tensor is not None else None
        if constant is not None:
            values[i] = constant.array(types[i])
    out = graph.type(node.outputs[0])
    wanted = unwritten(out).reshape(-1)
    _run(as_it_runs(graph, Step(0)), values, wanted)
    source = values[position].reshape(-1)
    start = max(0, -distance)
    arena = np.full(start + max(source.nbytes, distance + out.nbytes), 0xA5, np.uint8)
    over = arena[start : start + source.nbytes].view(source.dtype)
    over[:] = source
    target = arena[start + distance : start + distance + out.nbytes].view(out.dtype.numpy)
    _run(as_it_runs(graph, step), [*values[:position], over, *values[position + 1 :]], target)
    return np.array_equal(target, wanted)


def _run(lowered: Lowered, values: list[np.ndarray], output: np.ndarray) -> None:
    def tensor(arg: InputTensor | OutputTensor) -> np.ndarray:
        return output if isinstance(arg, OutputTensor) else values[arg.position]

    run(lowered.kernel, bound(lowered, tensor))


def test_copies_are_told_as_stretches() -> None:
    assert facts_of(GRAPHS["rows"]).moves == (ByteMove(0, 0, 0, 0, 60), ByteMove(0, 1, 60, 0, 40))
    assert facts_of(GRAPHS["the only slice"]).moves == (ByteMove(0, 0, 0, 0, 48),)
    assert facts_of(GRAPHS["columns"]).moves is None
    assert facts_of(GRAPHS["relu"]).moves is None
    assert facts_of(GRAPHS["pad"]).moves is None
    assert ReplayProof(plain(GRAPHS["rows"])).moves(0) == (
        ByteMove(0, 0, 0, 0, 60), ByteMove(0, 1, 60, 0, 40)
    )
    assert ReplayProof(plain(GRAPHS["the only slice"])).moves(0) == (ByteMove(0, 0, 0, 0, 48),)
    assert ReplayProof(plain(GRAPHS["relu"])).moves(0) is None


def lowered(build: Callable[[KernelBuilder], None]) -> Lowered:
    """A kernel on 8 bytes of input and 8 of output."""
    b = KernelBuilder("test")
    build(b)
    return Lowered(b.finish(), (InputTensor(0), OutputTensor(0)))


def gather(b: KernelBuilder) -> None:
    x = b.buffer("input", Scalar.U8, 8)
    y = b.buffer("output", Scalar.U8, 8, writable=True)
    with b.loop("i", 8) as i:
        at = cast(load(x, i), Scalar.INDEX)
        b.store(y, i, load(x, b.let("at", at)))


def flip(b: KernelBuilder) -> None:
    x = b.buffer("input", Scalar.U8, 8)
    y = b.buffer("output", Scalar.U8, 8, writable=True)
    with b.loop("i", 8) as i:
        b.store(y, i, load(x, sub(const(7), i)))


def unknown_length(b: KernelBuilder) -> None:
    x = b.buffer("input", Scalar.U8, 8)
    y = b.buffer("output", Scalar.U8, 8, writable=True)
    count = b.param("count", Scalar.INDEX)
    with b.loop("i", count) as i:
        b.store(y, i, load(x, i))


def sum_of_neighbours(b: KernelBuilder) -> None:
    x = b.buffer("input", Scalar.I32, 2)
    y = b.buffer("output", Scalar.I32, 2, writable=True)
    total = b.local("total", const(0, Scalar.I32))
    with b.loop("i", 2) as i, b.loop("j", 1):
        b.assign(total, add(total, load(x, i)))
        b.store(y, i, total)


@pytest.mark.parametrize("build", [gather, flip, unknown_length])
def test_what_cannot_be_followed_stays_apart(build: Callable[[KernelBuilder], None]) -> None:
    made = lowered(build)
    facts = kernel_facts(made, partial(reversed_kernel, made))
    freedom = facts.forward.get((0, 0), Freedom(-8, 8))
    replay = Replay(made.kernel)
    for distance in range(-7, 8):
        if freedom.allows(distance):
            assert replay.harmless(["output"], ["input"], 8, distance)
    assert not freedom.allows(0)
    assert not replay.harmless(["output"], ["input"], 8, 0)
    assert facts.moves is None
    assert facts.backward is None


def test_backward_kernels_are_valid_and_change_nothing() -> None:
    graph = GRAPHS["conv"]
    forward = as_it_runs(graph, Step(0))
    kernel = as_it_runs(graph, Step(0, backward=True)).kernel
    verify(kernel)
    assert kernel.name == "conv2d_backwards"
    assert right_at(graph, Step(0, backward=True), 0, graph.type(0).nbytes)
    assert forward.kernel.buffers == kernel.buffers


@pytest.mark.parametrize(("shift", "reversible"), [(0, True), (1, False), (8, True)])
def test_only_what_one_iteration_stores_is_reversed(shift: int, reversible: bool) -> None:
    def build(b: KernelBuilder) -> None:
        x = b.buffer("input", Scalar.I32, 8)
        y = b.buffer("output", Scalar.I32, 16, writable=True)
        with b.loop("i", 4) as i, b.loop("j", 2) as j:
            at = add(mul(i, const(2)), j)
            b.store(y, at, load(x, at))
            b.store(y, add(at, const(shift)), load(x, at))

    assert (reverse_loops(lowered(build).kernel) is not None) == reversible


def test_what_an_iteration_hands_to_the_next_is_not_reversed() -> None:
    kernel: Kernel = lowered(sum_of_neighbours).kernel
    assert reverse_loops(kernel) is None


@pytest.mark.parametrize(("stretches", "complete"), [
    (((0, 4), (4, 6)), True), (((4, 6), (0, 4)), True), (((0, 10),), True),
    (((0, 4), (4, 5)), False),
    (((0, 4), (5, 5)), False), (((0, 4), (3, 6), (9, 1)), False), (((1, 9),), False), ((), False),
])
def test_copies_make_an_output_where_each_byte_is_written_once(
    stretches: tuple[tuple[int, int], ...], complete: bool
) -> None:
    """Of ten bytes; another output beside it is whole."""
    moves = [ByteMove(0, 0, target, 50 + target, nbytes) for target, nbytes in stretches]
    sides = {0: _Side(frozenset({"y"}), 10), 1: _Side(frozenset({"z"}), 3)}
    assert _complete([*moves, ByteMove(1, 0, 0, 7, 3)], sides) is complete
    assert not _complete(moves, sides)
