"""The kernel of one step of a plan: in its direction, with what it shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crtexport.ir.graph import Graph
from crtexport.kernels.families import lower
from crtexport.kernels.registry import Context, Lowered
from crtexport.kernels.reverse import backwards
from crtexport.plan.model import Step

LowerNode = Callable[[Context], Lowered]
"""Makes the kernel of a node, as it should run on a target."""


def lower_step(graph: Graph, step: Step, lower_node: LowerNode = lower) -> Lowered:
    """What runs for ``step``. Raises CrtExportError naming the node when no kernel takes it."""
    context = Context(graph, graph.nodes[step.node], step.in_place)
    lowered = lower_node(context)
    if not step.backward:
        return lowered
    reverse = backwards(lowered.kernel)
    if reverse is None:
        raise context.refuse("its kernel can't run backwards, as the plan wants")
    return replace(lowered, kernel=reverse)
