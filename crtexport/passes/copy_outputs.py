"""Makes every graph output the output of a node of its own."""

from __future__ import annotations

from itertools import count

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Reshape


def copy_outputs(graph: Graph) -> Graph:
    """Inserts a copy before each output that no node computes or that is already an earlier output.

    Requires: nothing. Ensures: all graph outputs are different tensors and outputs of nodes, so
    that no two outputs share a buffer of the caller. They keep their names and types, except that
    repeated outputs get a number behind their name.
    """
    computed = {t for node in graph.nodes for t in node.outputs}
    tensors, nodes, outputs = list(graph.tensors), list(graph.nodes), list[int]()
    names = {graph.tensors[tensor].name for tensor in graph.outputs}
    for position, tensor in enumerate(graph.outputs):
        if tensor in computed and tensor not in outputs:
            outputs.append(tensor)
            continue
        source = graph.tensors[tensor]
        name = source.name
        if tensor in graph.outputs[:position]:
            name = next(n for i in count(2) if (n := f"{source.name}_{i}") not in names)
            names.add(name)
        outputs.append(len(tensors))
        tensors.append(replace(source, name=name, constant=None))
        nodes.append(Node(
            Reshape(source.type.shape), (tensor,), (outputs[-1],), source.name,
            f"copy to output {position}",
        ))
    return replace(
        graph, tensors=tuple(tensors), nodes=tuple(nodes), outputs=tuple(outputs)
    )
