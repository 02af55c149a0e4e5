"""A plan as text, for people: what runs when, what lies where, how much that takes."""

from __future__ import annotations

from crtexport.errors import printable
from crtexport.ir.graph import Graph, Node
from crtexport.plan.model import Placement, Plan, Space
from crtexport.plan.planner import workspace_lower_bound


def dump(graph: Graph, plan: Plan) -> str:
    """The plan as text, ending in a newline: sizes, then each node with where its tensors lie."""
    bound = workspace_lower_bound(graph)
    sizes = f"{plan.workspace_size} bytes of workspace (lower bound {bound})"
    lines = [f"plan of {graph.name!r}: {sizes}, aligned to {plan.alignment}"]
    steps = {step.node: step for step in plan.steps}
    lines += [f"  given {_tensor(graph, plan, tensor)}" for tensor in graph.inputs]
    lines += [f"  kept {_tensor(graph, plan, tensor)}" for tensor in graph.variables]
    for number, node in enumerate(graph.nodes):
        step = steps.get(number)
        how = " (view)" if step is None else " (in place)" if step.in_place else ""
        lines.append(f"  node {number}: {printable(str(node))}{how}")
        lines += _operands(graph, plan, node)
    return "\n".join(lines) + "\n"


def _operands(graph: Graph, plan: Plan, node: Node) -> list[str]:
    read = [
        f"    reads %{t}: {_place(graph, plan, t)}" for t in node.inputs
        if t is not None and graph.constant(t) is None
    ]
    return read + [f"    writes {_tensor(graph, plan, t)}" for t in node.outputs]


def _tensor(graph: Graph, plan: Plan, tensor: int) -> str:
    """A tensor where it begins: with its name and type."""
    named = f"%{tensor} {graph.tensors[tensor].name!r} {graph.type(tensor)}"
    return f"{named}: {_place(graph, plan, tensor)}"


def _place(graph: Graph, plan: Plan, tensor: int) -> str:
    home: Placement | None = plan.placements[tensor]
    match home:
        case None:
            return "nowhere"
        case Placement(space=Space.WORKSPACE, offset=offset):
            return f"workspace {offset} to {offset + graph.type(tensor).nbytes}"
        case Placement(space=Space.STATE, offset=offset):
            return f"state {offset} to {offset + graph.type(tensor).nbytes}"
        case Placement(space=space, index=index):
            return f"{space.value} {index}"
