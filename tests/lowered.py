"""Runs kernels that were made for a node, for tests: with an array for each of their buffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph
from crtexport.ir.types import TensorType
from crtexport.kir import interpreter
from crtexport.kir.intrinsics.registry import find_intrinsic
from crtexport.kir.language import Scalar
from crtexport.kir.verifier import verify
from crtexport.lowering import operator_table
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode, lower_graph
from crtexport.lowering.registry import (
    Context,
    Derived,
    InputTensor,
    Lowered,
    OutputTensor,
    Scratch,
)
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select.lower import Lowerer
from crtexport.support.target import Target

Array = npt.NDArray[Any]
Variants = Callable[[Context], list[Candidate]]
"""The variants that a schedule has of a node's kernel."""
_RUBBISH = 0x5A


def lower(context: Context, target: Target, optimize: str) -> Lowered:
    """The kernel that an export makes of a node."""
    nodes = Lowerer(target, optimize)(context.graph).nodes
    return next(node.lowered for node in nodes if node.node is context.node)


def plain(
    graph: Graph, lower_node: Callable[[Context], Lowered] = operator_table.lower
) -> LoweredGraph:
    """A graph with the kernels that operators have where no schedule is written for them."""

    def node(context: Context) -> LoweredNode:
        problems = tuple(operator_table.check(context))
        if problems:
            return LoweredNode(context, problems=problems)
        return LoweredNode(context, ("plain",), "plain", partial(lower_node, context))

    return lower_graph(graph, lambda *_: node)


def without_kernels(graph: Graph) -> LoweredGraph:
    """A graph of whose kernels nothing is known."""
    return lower_graph(graph, lambda *_: LoweredNode)


def meaning(name: str) -> Callable[..., Any]:
    """Returns what the intrinsic of that name computes."""
    found = find_intrinsic(name)
    assert found is not None
    return found.evaluate


def usual(variants: list[Candidate]) -> Lowered | None:
    """A node's kernel in the variant that it usually has; None if there is no variant."""
    return variants[0].make() if variants else None


def values_of(arg: Derived) -> Array:
    """The elements of an array that a lowering made."""
    return np.frombuffer(arg.data.read(), _numpy(arg.dtype))


def _numpy(dtype: Scalar) -> str:
    kind = "f" if dtype.is_float else "i" if dtype.is_signed else "u"
    return f"<{kind}{dtype.itemsize}"


def bound(
    lowered: Lowered, tensor: Callable[[InputTensor | OutputTensor], Array]
) -> list[Array]:
    """Returns what ``lowered``'s buffers are bound to, in order: ``tensor`` has the node's own
    arrays; scratch is full of rubbish."""
    arrays: list[Array] = []
    memory = np.full(lowered.scratch, _RUBBISH, np.uint8)
    for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True):
        match arg:
            case InputTensor() | OutputTensor():
                arrays.append(tensor(arg))
            case Derived():
                arrays.append(values_of(arg))
            case Scratch(offset):
                own = memory[offset : offset + buffer.size * buffer.dtype.itemsize]
                arrays.append(own.view(_numpy(buffer.dtype)))
    return arrays


def unwritten(type_: TensorType) -> Array:
    """An array for a tensor that a kernel writes, full of rubbish: a kernel writes every element,
    for workspaces hold what nodes before left in them."""
    cells = np.full(type_.nbytes, _RUBBISH, np.uint8)
    return cells.view(type_.dtype.numpy).reshape(type_.shape)


def run(graph: Graph, lowered: Lowered, *values: Array) -> Array:
    """The output of ``graph``'s only node, interpreted; ``values`` for its inputs by position,
    the last one for all others that aren't constant."""
    (node,) = graph.nodes
    verify(lowered.kernel)
    result = unwritten(graph.type(node.outputs[0]))

    def tensor(arg: InputTensor | OutputTensor) -> Array:
        if isinstance(arg, OutputTensor):
            return result
        number = graph.required(node, arg.position)
        constant = graph.constant(number)
        if constant is not None:
            return constant.array(graph.type(number))
        return values[min(arg.position, len(values) - 1)]

    interpreter.run(lowered.kernel, [b.reshape(-1) for b in bound(lowered, tensor)])
    return result
