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
    """Returns the graph with those of its nodes simplified as the whole is.

    Requires: nothing. Ensures: for each of them what the pipeline ensures for the outermost.
    """
    return graph.with_nodes(tuple(
        replace(node, graphs=tuple(map(_simplified, node.graphs))) if node.graphs else node
        for node in graph.nodes
    ))


def _simplified(graph: Graph) -> Graph:
    for step in PIPELINE:
        graph = step(graph)
    return graph


# Constants are known before they go into inner graphs, which are simple before they are chosen.
# Dead readers would keep a clamp from being fused, so they go before; fusing leaves dead Pads.
# A Pad whose channels are gone may be one of rows and columns, or of nothing.
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
    """Returns ``graph``, which is valid, ready for planning; names and types of inputs and outputs
    stay.

    Raises CrtExportError, naming the pass, when one makes a graph that isn't valid.
    """
    channels: tuple[LayerChannels, ...] = ()
    for step in PIPELINE:
        before = graph
        if step is remove_channels:
            graph, channels = with_report(graph)
        else:
            graph = step(graph)
        if graph == before:  # which is valid
            continue
        try:
            verify(graph)
        except CrtExportError as error:
            raise error.within(f"pass {step.__name__}") from None
    return Simplified(graph, channels)


def run(graph: Graph) -> Graph:
    """Returns the graph that :func:`simplify` makes. Raises CrtExportError when ``graph`` is not
    valid."""
    verify(graph)
    return simplify(graph).graph
