"""A plan as text: order of execution, places of tensors, sizes."""

from __future__ import annotations

from crtexport.ir.graph import Graph, Node
from crtexport.plan.model import Placement, Plan, RowPlan, Space, Step
from crtexport.plan.order import whole_order
from crtexport.plan.rows import row_bytes
from crtexport.support.errors import printable


def dump(graph: Graph, plan: Plan) -> str:
    """Returns the plan as text, ending in a newline: sizes, then each node with the places of its
    tensors.

    Nodes come in their order of execution, by their numbers in the graph.
    """
    bound = plan.peak.lower_bound
    further = "".join(f", {size} in memory {n}" for n, size in enumerate(plan.spilled, 1))
    sizes = f"{plan.workspace_size} bytes of workspace{further} (lower bound {bound})"
    lines = [f"plan of {graph.name!r}: {sizes}, aligned to {plan.alignment}"]
    lines.append(f"  peak: {peak_text(graph, plan)}")
    steps = {step.node: step for step in plan.steps}
    lines += [f"  given {_tensor(graph, plan, tensor)}" for tensor in graph.inputs]
    lines += [
        f"  kept {_tensor(graph, plan, tensor)}" for tensor in graph.variables
        if tensor not in graph.inputs
    ]
    for number in whole_order(graph, steps):
        node, step = graph.nodes[number], steps.get(number)
        lines.append(f"  node {number}: {printable(str(node))}{_how(step)}")
        lines += _operands(graph, plan, node)
        if step is not None and step.rows is not None:
            lines += _rows(graph, node, step.rows)
        for which, inner in enumerate(step.inner if step is not None else ()):
            lines.append(f"    graph {which}, from byte {inner.workspace} of the scratch on:")
            whole = dump(node.graphs[which], inner.plan)
            lines += [f"      {line}" for line in whole.splitlines()]
    return "\n".join(lines) + "\n"


def _rows(graph: Graph, node: Node, rows: RowPlan) -> list[str]:
    """Returns the parts of a cascade, and the offsets in its scratch of the rows that it keeps."""
    lines = [f"    runs {printable(str(part))}" for part in node.parts]
    for tensor, offset in sorted(rows.rings.items(), key=lambda ring: (ring[1], ring[0])):
        count, size = rows.rows[tensor], row_bytes(graph, tensor)
        what = f"{count} row{'s' if count > 1 else ''} of %{tensor} {graph.tensors[tensor].name!r}"
        lines.append(f"    keeps {what}: {offset} to {offset + count * size} of its scratch")
    return lines


def peak_text(graph: Graph, plan: Plan) -> str:
    """Returns the operator that sets the peak, and the bytes that its tensors alone would take."""
    node = plan.peak.node
    where = (
        f"node {node}, {printable(str(graph.nodes[node]))}" if node is not None
        else "inputs and outputs" if plan.peak.lower_bound else "none"
    )
    return f"{where}; tensors that are needed at one time have {plan.peak.live} bytes"


def _how(step: Step | None) -> str:
    if step is None:
        return " (view)"
    words = ["in place"] if step.in_place else []
    words += ["backwards"] if step.backward else []
    if step.scratch is not None:
        end = step.scratch.offset + step.scratch.nbytes
        words.append(f"scratch {step.scratch.offset} to {end}{_memory(step.scratch.pool)}")
    return f" ({', '.join(words)})" if words else ""


def _operands(graph: Graph, plan: Plan, node: Node) -> list[str]:
    read = [
        f"    reads %{t}: {_place(graph, plan, t)}" for t in node.inputs
        if t is not None and graph.constant(t) is None
    ]
    return read + [f"    writes {_tensor(graph, plan, t)}" for t in node.outputs]


def _tensor(graph: Graph, plan: Plan, tensor: int) -> str:
    """Returns a tensor's name, type and place."""
    named = f"%{tensor} {graph.tensors[tensor].name!r} {graph.type(tensor)}"
    return f"{named}: {_place(graph, plan, tensor)}"


def _place(graph: Graph, plan: Plan, tensor: int) -> str:
    home: Placement | None = plan.placements[tensor]
    match home:
        case None:
            return "nowhere"
        case Placement(space=Space.WORKSPACE, index=pool, offset=offset):
            return f"workspace {offset} to {offset + graph.type(tensor).nbytes}{_memory(pool)}"
        case Placement(space=Space.STATE, offset=offset):
            return f"state {offset} to {offset + graph.type(tensor).nbytes}"
        case Placement(space=space, index=index):
            return f"{space.value} {index}"


def _memory(pool: int) -> str:
    """Returns the memory of the workspace as text, if it isn't the first."""
    return f" of memory {pool}" if pool else ""
