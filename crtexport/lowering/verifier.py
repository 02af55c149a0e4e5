"""Checks that every lowered graph passes, whoever chose and built its kernels.

Kernels themselves are checked by :mod:`crtexport.kir.verifier`.
"""

from __future__ import annotations

from crtexport.ir.ops import Cascade, Foreign, Stateful, While
from crtexport.kir.language import Buffer
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.lowering.registry import Derived, InputTensor, KernelArg, OutputTensor, Scratch


class LoweringError(Exception):
    """A lowered graph would compute something else than its graph: a fault of a lowering."""


def verify(lowered: LoweredGraph) -> None:
    """Raises LoweringError naming the first node that isn't lowered as it must be.

    Each node of the graph is there, in its place; a node has a kernel, the chosen one of its
    candidates, unless it runs graphs, calls the function of an external module or breaks a rule of
    its operator. Each buffer of a kernel is bound to a tensor of the node, a constant or scratch
    that has room for it, and only to what it may write if it is written.
    """
    graph = lowered.graph
    if len(lowered.nodes) != len(graph.nodes):
        raise LoweringError(f"{len(graph.nodes)} nodes, but {len(lowered.nodes)} that are lowered")
    for number, (node, one) in enumerate(zip(graph.nodes, lowered.nodes, strict=True)):
        if one.node is not node:
            raise LoweringError(f"node {number} is {node}, but {one.node} is lowered in its place")
        problem = _problem(one)
        if problem:
            raise LoweringError(f"{node}: {problem}")
        for nested in (*one.graphs, *((one.rows.lowered,) if one.rows is not None else ())):
            verify(nested)


def _problem(entry: LoweredNode) -> str:
    """Returns the problem of a node; "" if there is none."""
    node = entry.node
    if len(entry.graphs) != len(node.graphs) or any(
        lowered.graph is not graph for lowered, graph in zip(entry.graphs, node.graphs, strict=True)
    ):
        return "other graphs are lowered than it runs"
    if len(entry.copies) != (len(node.outputs) if isinstance(node.op, While) else 0):
        return f"{len(entry.copies)} copies of what it works on"
    if (entry.rows is not None) != (isinstance(node.op, Cascade) and not entry.problems):
        return "only cascades run row by row"
    needed = not (node.graphs or isinstance(node.op, Cascade | Foreign) or entry.problems)
    if needed != (entry.build is not None):
        return "it has no kernel" if needed else "it needs no kernel, but has one"
    if not needed:
        return ""
    if entry.chosen not in entry.candidates or len({*entry.candidates}) != len(entry.candidates):
        return f"{entry.chosen!r} is chosen, of {', '.join(map(repr, entry.candidates))}"
    kernel, args = entry.lowered.kernel, entry.lowered.args
    if len(kernel.buffers) != len(args):
        return f"{len(kernel.buffers)} buffers, but {len(args)} bindings"
    wrong = (_misbound(entry, *bound) for bound in zip(kernel.buffers, args, strict=True))
    return next((problem for problem in wrong if problem), "")


def _misbound(entry: LoweredNode, buffer: Buffer, arg: KernelArg) -> str:
    """Returns the problem of a buffer's binding; "" if there is none."""
    node, graph = entry.node, entry.context.graph
    match arg:
        case InputTensor(position):
            tensor = node.inputs[position] if 0 <= position < len(node.inputs) else None
            writable = isinstance(node.op, Stateful) and position in node.op.writes
        case OutputTensor(position):
            tensor = node.outputs[position] if 0 <= position < len(node.outputs) else None
            writable = True
        case Derived(data=data):
            size, writable, tensor = data.nbytes, False, None
        case Scratch(offset):
            return "" if offset >= 0 else f"{buffer.name} begins before the scratch"
    if not isinstance(arg, Derived):
        if tensor is None:
            return f"{buffer.name} is bound to a tensor that it doesn't have"
        size = graph.type(tensor).nbytes
    if buffer.size * buffer.dtype.itemsize > size:
        return f"{buffer.name} is larger than the {size} bytes that it is bound to"
    if buffer.writable and not writable:
        return f"{buffer.name} is written, but bound to what must not be"
    return ""
