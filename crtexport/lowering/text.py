"""A lowered graph as text, for people: which kernel each node has, and what it is given."""

from __future__ import annotations

from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.lowering.registry import Derived, InputTensor, KernelArg, OutputTensor, Scratch
from crtexport.support.errors import printable


def dump(lowered: LoweredGraph) -> str:
    """Returns the lowered graph as text, ending in a newline: each node by its number, its kernel
    with what each buffer is bound to, and the kernel's candidates if there are several."""
    lines = [f"lowered graph {lowered.graph.name!r}"]
    for number, node in enumerate(lowered.nodes):
        lines += [f"  {line}" for line in _node(number, node)]
    return "\n".join(lines) + "\n"


def _node(number: int, node: LoweredNode) -> list[str]:
    head = f"node {number}: {printable(str(node.node))}"
    if node.problems:
        return [head, *(f"  has no kernel: {printable(problem)}" for problem in node.problems)]
    if node.graphs:
        nested = [line for graph in node.graphs for line in dump(graph).splitlines()]
        return [head, *(f"  {line}" for line in nested)]
    if node.rows is not None:
        bands = dump(node.rows.lowered).splitlines()
        return [f"{head}: row by row", *(f"  {line}" for line in bands)]
    if node.build is None:
        return [f"{head}: the function of an external module"]
    kernel, args = node.lowered.kernel, node.lowered.args
    lines = [f"{head}: kernel {kernel.name}"]
    if len(node.candidates) > 1:
        lines.append(f"  {node.chosen!r} of {', '.join(map(repr, node.candidates))}")
    for buffer, arg in zip(kernel.buffers, args, strict=True):
        lines.append(f"  {buffer.name} {buffer.dtype.value}[{buffer.size}]: {_bound(node, arg)}")
    return lines


def _bound(node: LoweredNode, arg: KernelArg) -> str:
    match arg:
        case InputTensor(position):
            return f"input {position}, %{node.node.inputs[position]}"
        case OutputTensor(position):
            return f"output {position}, %{node.node.outputs[position]}"
        case Derived(data=data):
            return f"constant of {data.nbytes} bytes"
        case Scratch(offset):
            return f"scratch from byte {offset} on"
