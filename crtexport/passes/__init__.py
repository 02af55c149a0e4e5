"""Graph to graph: one pass per file, each leaving a valid graph with the same meaning."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.ir.verify import verify
from crtexport.passes.channels import LayerChannels, remove_channels, with_report
from crtexport.passes.control import bind_arguments, choose_branches
from crtexport.passes.copy_arenas import copy_arenas
from crtexport.passes.copy_outputs import copy_outputs
from crtexport.passes.drop_dead import drop_dead
from crtexport.passes.fold_constants import fold_constants
from crtexport.passes.fold_scales import fold_scales
from crtexport.passes.fuse_activation import fuse_activation
from crtexport.passes.fuse_pad import fuse_pad
from crtexport.passes.last_steps import last_steps
from crtexport.passes.move_transposes import move_transposes
from crtexport.passes.moves_to_reshapes import moves_to_reshapes
from crtexport.passes.split_layers import split_layers
from crtexport.support.errors import CrtExportError

Pass = Callable[[Graph], Graph]


def simplify_inner(graph: Graph) -> Graph:
    """Returns ``graph`` with the inner graphs of its control-flow nodes simplified.

    Requires: nothing. Ensures: for each inner graph what the pipeline ensures for the outermost.
    """
    return graph.with_nodes(tuple(
        replace(node, graphs=tuple(map(_simplified, node.graphs))) if node.graphs else node
        for node in graph.nodes
    ))


def _simplified(graph: Graph) -> Graph:
    for step in PIPELINE:
        graph = step(graph)
    return graph


# Constants are bound before branches are chosen, and inner graphs are simplified after that. Dead
# readers would keep a clamp from being fused, so they are dropped first; fusing leaves dead Pads. A
# Pad whose channels were removed may pad only rows and columns, or nothing.
PIPELINE: tuple[Pass, ...] = (
    fold_constants, drop_dead, bind_arguments, simplify_inner, choose_branches, last_steps,
    fold_constants, drop_dead, fold_scales, split_layers, fuse_pad, fuse_activation,
    move_transposes, moves_to_reshapes, drop_dead, remove_channels, fuse_pad, moves_to_reshapes,
    drop_dead, copy_outputs, copy_arenas,
)


class Simplified(Struct, frozen=True):
    """A graph after all passes. ``channels`` reports on each layer where channels were removed, and
    is empty where none was."""

    graph: Graph
    channels: tuple[LayerChannels, ...] = ()


def simplify(graph: Graph) -> Simplified:
    """Returns ``graph``, which must be valid, simplified for planning; inputs and outputs keep
    their names and types.

    Raises CrtExportError, naming the pass, if a pass returns an invalid graph.
    """
    channels: tuple[LayerChannels, ...] = ()
    for step in PIPELINE:
        before = graph
        if step is remove_channels:
            graph, channels = with_report(graph)
        else:
            graph = step(graph)
        if graph == before:  # already verified
            continue
        try:
            verify(graph)
        except CrtExportError as error:
            raise error.within(f"pass {step.__name__}") from None
    return Simplified(graph, channels)


def run(graph: Graph) -> Graph:
    """Returns the graph of :func:`simplify`. Raises CrtExportError if ``graph`` isn't valid."""
    verify(graph)
    return simplify(graph).graph
