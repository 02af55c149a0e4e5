"""Makes every computed tensor an output, to find the first layer whose results differ."""

from __future__ import annotations

from msgspec.structs import replace

from crtexport.ir.graph import Graph


def with_all_outputs(graph: Graph) -> Graph:
    """Returns ``graph`` with every output of every node as a graph output, in order of execution.

    So no pass fuses or drops any of its operators. Inputs are named ``input0`` and so on, outputs
    ``layer0``, because names of inner tensors may be empty or ambiguous.
    """
    outputs = tuple(tensor for node in graph.nodes for tensor in node.outputs)
    tensors = list(graph.tensors)
    for kind, listed in (("input", graph.inputs), ("layer", outputs)):
        for position, tensor in enumerate(listed):
            tensors[tensor] = replace(tensors[tensor], name=f"{kind}{position}")
    return replace(graph, tensors=tuple(tensors), outputs=outputs)
