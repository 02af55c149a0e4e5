"""Plans for tests, and how to spoil them."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add, MaxPool2D, Reshape, Softmax
from crtexport.plan import Placement, Plan, Space, plan
from crtexport.plan.check import check
from crtexport.plan.kernel_proof import ReplayProof
from tests.lowered import plain
from tests.plan.graphs import GraphBuilder


def planned(graph: Graph, alignment: int = 16, *, io_in_workspace: bool = False) -> Plan:
    """A plan that the checker accepts."""
    lowered = plain(graph)
    result = plan(lowered, alignment=alignment, io_in_workspace=io_in_workspace)
    check(graph, result, ReplayProof(lowered))
    return result


def residual() -> tuple[Graph, Plan]:
    """conv-like network with a residual: %0 → %1 → %2, %2 + %1 → %3 → %4"""
    b = GraphBuilder()
    first = b.node(Softmax(), b.input(1, 8))
    second = b.node(Softmax(), first)
    total = b.node(Add(), second, first)
    graph = b.finish(b.node(MaxPool2D((2, 2)), b.node(Reshape((1, 2, 2, 2)), total)))
    return graph, planned(graph)


def moved(result: Plan, tensor: int, placement: Placement | None) -> Plan:
    placements = list(result.placements)
    placements[tensor] = placement
    return replace(result, placements=tuple(placements))


def at(offset: int) -> Placement:
    return Placement(Space.WORKSPACE, offset=offset)
