"""The lowered stage: what its verifier refuses, and how it reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Conv2D, Padding2D, Relu, Softmax
from crtexport.kir.language import Buffer
from crtexport.lowering import operator_table
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.lowering.registry import Context, InputTensor, KernelArg, Lowered, OutputTensor
from crtexport.lowering.text import dump
from crtexport.lowering.verifier import LoweringError, verify
from crtexport.support.errors import CrtExportError
from tests.control.networks import NETWORKS
from tests.lowered import plain
from tests.plan.graphs import GraphBuilder


def network() -> Graph:
    b = GraphBuilder()
    x = b.node(Softmax(), b.node(Relu(), b.input(1, 8)))
    return b.finish(x)


def changed(lowered: LoweredGraph, **changes: object) -> LoweredGraph:
    """The graph with its first node changed."""
    first, *others = lowered.nodes
    return replace(lowered, nodes=(replace(first, **changes), *others))


def rebound(lowered: LoweredGraph, *args: KernelArg) -> LoweredGraph:
    kernel = replace(lowered.nodes[0].lowered, args=args)
    return changed(lowered, build=lambda: kernel)


def resized(lowered: LoweredGraph, change: Callable[[Buffer], Buffer]) -> LoweredGraph:
    made = lowered.nodes[0].lowered
    kernel = replace(made.kernel, buffers=tuple(map(change, made.kernel.buffers)))
    return changed(lowered, build=lambda: replace(made, kernel=kernel))


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_lowered_is_sound_with_the_graphs_in_it(name: str) -> None:
    graph = NETWORKS[name]().graph
    lowered = plain(graph)
    verify(lowered)
    assert [one.graph for one in lowered.nested()] == [*graph.nested()]


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda it: replace(it, nodes=it.nodes[:1]), "2 nodes, but 1 that are lowered"),
    (lambda it: replace(it, nodes=it.nodes[::-1]), "node 0 is .*Relu.*, but .*Softmax.* in its"),
    (lambda it: changed(it, build=None), r"Relu.*: it has no kernel"),
    (lambda it: changed(it, problems=("it is too large",)), "needs no kernel, but has one"),
    (lambda it: changed(it, chosen="fast"), "'fast' is chosen, of 'plain'"),
    (lambda it: changed(it, candidates=("plain", "plain")), "of 'plain', 'plain'"),
    (lambda it: changed(it, graphs=(it,)), "other graphs"),
    (lambda it: changed(it, copies=(None,)), "1 copies"),
    (lambda it: rebound(it, InputTensor(0)), "2 buffers, but 1 bindings"),
    (lambda it: rebound(it, InputTensor(1), OutputTensor(0)), "a tensor that it doesn't have"),
    (lambda it: rebound(it, InputTensor(0), OutputTensor(-1)), "a tensor that it doesn't have"),
    (lambda it: rebound(it, OutputTensor(0), InputTensor(0)), "output is written, but bound to"),
    (lambda it: resized(it, lambda b: replace(b, size=9)), "larger than the 32 bytes"),
])
def test_the_verifier_names_the_node_and_what_is_wrong(
    spoil: Callable[[LoweredGraph], LoweredGraph], message: str
) -> None:
    lowered = plain(network())
    verify(lowered)
    with pytest.raises(LoweringError, match=message):
        verify(spoil(lowered))


def test_a_kernel_is_built_when_it_is_needed_and_once() -> None:
    built: list[Context] = []

    def build(context: Context) -> Lowered:
        built.append(context)
        return operator_table.lower(context)

    node = plain(network(), build).nodes[0]
    assert built == []
    assert node.facts.forward[0, 0].allows(0)
    assert node.running().kernel.overlapping == ()
    assert node.running(in_place=((0, 0),)).kernel.overlapping == ("input", "output")
    assert built == [node.context]


def test_a_node_that_breaks_a_rule_has_no_kernel_but_the_reason() -> None:
    context = plain(network()).nodes[0].context
    node = LoweredNode(context, problems=("it is too large", "and too slow"))
    assert not node.facts.forward
    with pytest.raises(CrtExportError, match="it is too large; and too slow"):
        node.running()


def test_a_lowered_graph_reads_as_its_kernels_and_their_buffers() -> None:
    b = GraphBuilder()
    weights = b.constant(np.zeros((4, 1, 1, 3), np.float32))
    bias = b.constant(np.zeros(4, np.float32))
    x = b.node(Conv2D(padding=Padding2D()), b.input(1, 5, 5, 3), weights, bias)
    text = dump(plain(b.finish(x)))
    assert text.startswith("lowered graph 'test'\n  node 0: operator 0 (Conv2D): kernel conv2d")
    assert "    input f32[75]: input 0, %" in text
    assert "    output f32[100]: output 0, %" in text
