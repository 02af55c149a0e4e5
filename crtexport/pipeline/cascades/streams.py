"""Networks over time that go on: the rows that layers kept of earlier frames are used again for the
next result, so that a new frame costs a row of each layer.

A network takes a window of frames, the rows of its input. Its first layers are computed row by row,
up to a tensor whose rows are the same wherever in the window their frames are; the others are
computed anew from that tensor for each result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, ChannelSums, Reshape
from crtexport.lowering.rows.bands import cascade
from crtexport.lowering.rows.schedule import row_rates, row_schedule
from crtexport.lowering.rows.windows import row_windows, rows_of
from crtexport.pipeline.cascades.images import as_images, fed_tensor
from crtexport.pipeline.cascades.upright import joined, upright
from crtexport.support.errors import CrtExportError

_MOST = 64
"""Most frames from one result to the next."""


class _Steady(Struct, frozen=True):
    """The rows of a tensor, from ``low`` to ``high`` (exclusive), that only depend on frames, and
    not on padding around the window."""

    low: int
    high: int


def streamed(graph: Graph) -> Graph:
    """Returns the graph with its first layers as a cascade that goes on from one result to the
    next. Raises CrtExportError where no layers can."""
    if len(graph.inputs) != 1:
        raise _refused(graph, f"it has {len(graph.inputs)} inputs")
    graph = as_images(graph)
    turned = upright(graph)
    source, start = fed_tensor(graph)
    problem = "its first layer can't be computed row by row"
    # As many layers as can.
    for end, output in reversed(list(_ends(turned, source, start))):
        parts = turned.nodes[start:end]
        problem = _problem(turned, source, parts, output)
        if problem:
            continue
        hop = _hop(turned, source, parts, output)
        if hop is None:
            problem = f"no number of frames makes whole rows of {_name(graph, output)}"
            continue
        node = cascade(parts, (output,), fed=True, hop=hop)
        if row_schedule(turned, node, [1] * len(parts)) is not None:
            return _copied(joined(graph, turned, ((start, end, node),)))
    raise _refused(graph, problem)


def _ends(graph: Graph, source: int, start: int) -> Iterator[tuple[int, int]]:
    """Yields the numbers of nodes after which one tensor alone, made of the input's rows, is read
    by the others, with that tensor."""
    last: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        last.update({t: number for t in node.inputs if t is not None})
    last.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    alive = {source}
    for number, node in enumerate(graph.nodes[start:], start):
        if row_windows(graph, node) is None or isinstance(node.op, ChannelSums):
            return
        alive = {t for t in (*alive, *node.outputs) if last.get(t, -1) > number}
        if len(alive) == 1 and source not in alive:
            yield number + 1, next(iter(alive))


def _problem(graph: Graph, source: int, parts: Sequence[Node], output: int) -> str:
    """Returns why the rows of an output aren't the same wherever their frames are in the window; ""
    where they are."""
    steady = {source: _Steady(0, rows_of(graph.type(source)))}
    for part in parts:
        low, high = 0, rows_of(graph.type(part.outputs[0]))
        for position, window in (row_windows(graph, part) or {}).items():
            stays = steady[graph.required(part, position)]
            first = -(-(stays.low + window.before) // window.stride) * window.made
            last = (stays.high - window.size + window.before) // window.stride * window.made
            low, high = max(low, first), min(high, last + window.made)
        steady[part.outputs[0]] = _Steady(low, high)
    count, stays = rows_of(graph.type(output)), steady[output]
    if stays.high < count:
        return (
            f"the last {count - max(stays.high, 0)} of {count} rows of {_name(graph, output)} need"
            " frames after the window, for which padding stands"
        )
    if stays.low > 0:
        return (
            f"the first {min(stays.low, count)} of {count} rows of {_name(graph, output)} depend on"
            " padding before the window, for which earlier frames would stand"
        )
    return ""


def _hop(graph: Graph, source: int, parts: Sequence[Node], output: int) -> int | None:
    """Returns after how many frames there are further whole rows of each tensor."""
    tensors = {tensor for part in parts for tensor in part.outputs}
    for hop in range(1, min(_MOST, rows_of(graph.type(source))) + 1):
        rates = row_rates(graph, parts, hop)
        if tensors <= rates.keys() and rates[output] <= rows_of(graph.type(output)):
            return hop
    return None


def _copied(graph: Graph) -> Graph:
    """Returns the graph with copies of those outputs that lie in memory of a cascade."""
    found = next(node for node in graph.nodes if isinstance(node.op, Cascade))
    kept = {*found.outputs}
    for node in graph.nodes:
        if isinstance(node.op, Reshape) and kept & {*node.inputs}:
            kept.update(node.outputs)
    tensors, outputs, copies = [*graph.tensors], [*graph.outputs], []
    for number, output in enumerate(graph.outputs):
        if output in kept:
            outputs[number] = len(tensors)
            tensors.append(graph.tensors[output])
            copies.append(Node(
                Reshape(graph.type(output).shape), (output,), (outputs[number],), found.name,
                f"copy of {found}",
            ))
    return replace(
        graph, tensors=tuple(tensors), outputs=tuple(outputs), nodes=(*graph.nodes, *copies)
    )


def _name(graph: Graph, tensor: int) -> str:
    return repr(graph.tensors[tensor].name)


def _refused(graph: Graph, problem: str) -> CrtExportError:
    return CrtExportError(
        f"the network can't go on from one window to the next: {problem}", location=graph.source,
        hint="leave --stream out; layers over time can go on that don't pad the end of the window,"
        " and of which only rows are used that all see real frames",
    )
