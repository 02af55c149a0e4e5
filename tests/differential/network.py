"""Runs a Graph node by node through the Kernel IR interpreter: what backends must meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import If
from crtexport.ir.types import DType
from crtexport.kir import interpreter
from crtexport.kir.language import Kernel
from crtexport.kir.verifier import verify
from crtexport.lowering.operator_table import lower
from crtexport.lowering.registry import (
    SCALAR_OF,
    Context,
    InputTensor,
    Lowered,
    OutputTensor,
)
from tests.lowered import bound, unwritten

Array = npt.NDArray[np.generic]
Values = dict[int, Array]


_NUMPY = {scalar: dtype.numpy for dtype, scalar in SCALAR_OF.items() if dtype is not DType.BOOL}


@dataclass(frozen=True)
class Step:
    """One verified kernel, and its arrays in the order of its buffers before and after it ran."""

    kernel: Kernel
    before: list[Array]
    after: list[Array]


def steps(
    graph: Graph, values: Values, lower_node: Callable[[Context], Lowered] = lower
) -> Iterator[Step]:
    """The graph's kernels as the interpreter runs them. ``values`` gets every tensor computed;
    what it has of variables is what the run before left, nothing before the first."""
    add_constants(graph, values)
    for node in graph.nodes:
        if node.graphs:
            yield from _controlled(graph, node, values, lower_node)
            continue
        lowered = lower_node(Context(graph, node))
        for output in node.outputs:
            values[output] = unwritten(graph.type(output))
        yield run_kernel(graph, node, lowered, values)


def _controlled(
    graph: Graph, node: Node, values: Values, lower_node: Callable[[Context], Lowered]
) -> Iterator[Step]:
    """The kernels of the graphs that a node runs; they have no variables."""
    def run(number: int, given: Sequence[Array]) -> Iterator[Step]:
        inner = node.graphs[number]
        own: Values = dict(zip(inner.inputs, given, strict=True))
        yield from steps(inner, own, lower_node)
        made[:] = [own[tensor] for tensor in inner.outputs]

    made: list[Array] = []
    state = [
        unwritten(node.graphs[1].type(inner)) if given is None else values[given]
        for inner, given in zip(node.graphs[1].inputs, node.given, strict=True)
    ]
    if isinstance(node.op, If):
        truth = values[graph.required(node, 0)].item()
        yield from run(0 if truth else 1, state)
    else:
        yield from run(0, state)
        while made[0].item():
            yield from run(1, state)
            state[: len(made)] = made
            yield from run(0, state)
        made[:] = state[: len(node.outputs)]
    values.update(zip(node.outputs, made, strict=True))


def add_constants(graph: Graph, values: Values) -> None:
    """Gives ``values`` the constants of a graph, and zeros for variables that they don't have."""
    for tensor, info in enumerate(graph.tensors):
        if info.constant is not None:
            values[tensor] = info.constant.array(info.type)
    for tensor in graph.variables:
        type_ = graph.type(tensor)
        values.setdefault(tensor, np.zeros(type_.shape, type_.dtype.numpy))


def run_kernel(graph: Graph, node: Node, lowered: Lowered, values: Values) -> Step:
    """Verifies and runs the kernel of a node; ``values`` have arrays for its outputs, too."""
    verify(lowered.kernel)
    arrays = _arrays(graph, node, lowered, values)
    before = [array.copy() for array in arrays]
    interpreter.run(lowered.kernel, arrays)
    return Step(lowered.kernel, before, [array.copy() for array in arrays])


def _arrays(graph: Graph, node: Node, lowered: Lowered, values: Values) -> list[Array]:
    def tensor(arg: InputTensor | OutputTensor) -> Array:
        output = isinstance(arg, OutputTensor)
        return values[
            node.outputs[arg.position] if output else graph.required(node, arg.position)
        ]

    arrays = [array.reshape(-1) for array in bound(lowered, tensor)]
    # Kernels see truth values as the bytes that they are, and what they only copy as words.
    return [
        array.view(_NUMPY[buffer.dtype])
        for array, buffer in zip(arrays, lowered.kernel.buffers, strict=True)
    ]


def interpret(
    graph: Graph, inputs: Sequence[Array], kept: Values | None = None
) -> list[Array]:
    """The graph's outputs for ``inputs``, in graph order. ``kept``, empty at first, holds what
    variables keep for the next run."""
    values: Values = {} if kept is None else kept
    values.update(zip(graph.inputs, inputs, strict=True))
    for _ in steps(graph, values):
        pass
    return [values[t] for t in graph.outputs]
