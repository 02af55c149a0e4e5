"""Results inside of a file that can be compared with those of a runtime that computes several nodes
as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from msgspec import Struct

from crtexport.importers.onnx.messages import GraphInfo, NodeInfo, OnnxModelInfo, read
from crtexport.importers.onnx.walk import place_of
from crtexport.importers.onnx.wire import Span
from crtexport.ir.graph import Graph

_SCALING = "QuantizeLinear", "DequantizeLinear"


class LayerResults(Struct, frozen=True):
    """A network whose outputs are results of the file's nodes. ``places``: the nodes that each
    output comes from, from its first to its last; ``unseen``: those that no output shows."""

    graph: Graph
    places: tuple[str, ...]
    unseen: tuple[str, ...] = ()


def result_names(content: bytes) -> frozenset[str]:
    """Returns the names of the results of all nodes of an .onnx file with this content."""
    model = read(OnnxModelInfo, Span(content, 0, len(content)))
    nodes = model.graph.nodes if model.graph is not None else ()
    return frozenset(name for node in nodes for name in node.outputs if name)


def places_of(
    graph: GraphInfo, computed: Collection[str], compared: Collection[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns the nodes that end in each of the results ``compared``, in the order of these, and
    the nodes that end in none; ``computed`` has all results that aren't constant.

    A node ends in the first result that is compared, on the way to the QuantizeLinear behind it, as
    long as each result on that way has one reader.
    """
    readers: dict[str, list[NodeInfo]] = defaultdict(list)
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers[name].append(node)
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    unseen = []
    for number, node in enumerate(graph.nodes):
        place = place_of(number, node)
        ends = {name: _end(name, readers, compared) for name in node.outputs if name in computed}
        for name, end in ends.items():
            if end is not None and (node.operator not in _SCALING or end == name):
                first.setdefault(end, place)
            if name in compared:
                last[name] = place
        if ends and not any(ends.values()) and node.operator not in _SCALING:
            unseen.append(place)
    places = {
        name: place if first[name] == place else f"{first[name]} to {place}"
        for name, place in last.items()
    }
    return places, tuple(unseen)


def _end(
    name: str, readers: Mapping[str, list[NodeInfo]], compared: Collection[str]
) -> str | None:
    while name not in compared:
        behind = readers.get(name, [])
        if len(behind) != 1 or behind[0].operator == "DequantizeLinear":
            return None
        name = behind[0].outputs[0]
    return name
