"""The changes that an export made to a network, as sentences with their reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from crtexport.accelerators import Decision
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, Dequantize, Quantize
from crtexport.passes.channels import LayerChannels
from crtexport.pipeline.result import Prepared
from crtexport.pipeline.summary.records import Finding, Layer

_NAMED = 2
"""The most operators that a sentence names."""


def changes(prepared: Prepared, read: Graph, layers: Sequence[Layer]) -> Iterator[Finding]:
    """Yields the layers that are fused, removed, pruned, computed by an accelerator or refused by
    it, or computed in floats. ``read`` is the network as imported."""
    yield from _fused(prepared.graph)
    yield from _gone(read, prepared.graph)
    yield from (_pruned(channels) for channels in prepared.channels if channels.changed)
    yield from _offloaded(prepared.decisions)
    yield from _floats(layers)


def _offloaded(decisions: Iterable[Decision]) -> Iterator[Finding]:
    for decision in decisions:
        if decision.function:
            yield Finding("offloaded", decision.layer, f"{decision.accelerator} computes it")
        else:
            yield Finding("refused", decision.layer, f"{decision.accelerator}: {decision.reason}")


def _fused(graph: Graph) -> Iterator[Finding]:
    for node in graph.nodes:
        if node.parts:
            yield Finding("fused", " + ".join(map(str, node.parts)), (
                "computed row by row: only the rows that are still needed are in memory"
                if isinstance(node.op, Cascade) else
                "computed by one kernel: the result between them needs no memory"
            ))


def _gone(before: Graph, after: Graph) -> Iterator[Finding]:
    """Yields a finding for each operator of the model file (graph ``before``) of which nothing is
    left in the exported graph (``after``): no kernel and no view."""
    remaining = {name for node in after.nodes for name in _names(node)}
    makers = {after.tensors[t].name: str(node) for node in after.nodes for t in node.outputs}
    readers: dict[int, list[Node]] = {}
    for node in before.nodes:
        for tensor in node.inputs:
            if tensor is not None:
                readers.setdefault(tensor, []).append(node)
    for node in before.nodes:
        if str(node) in remaining:
            continue
        inputs = [t for t in node.inputs if t is not None]
        result = [before.tensors[t].name for t in node.outputs]
        if inputs and all(before.constant(t) is not None for t in inputs):
            why = "its result is constant, and was computed while exporting"
        elif isinstance(node.op, Quantize | Dequantize):
            why = "the layers beside it are computed in integers"
        elif made := [makers[name] for name in result if name in makers]:
            why = f"fused into {made[0]}"
        else:
            why = _fused_into(before, node, readers, remaining)
        yield Finding("removed", str(node), why)


def _fused_into(
    graph: Graph, removed: Node, readers: Mapping[int, Sequence[Node]], remaining: Collection[str]
) -> str:
    """Returns, as a sentence, which remaining operators compute the operator ``removed`` as well,
    or why none has to."""
    found: dict[str, None] = {}
    behind = list(removed.outputs)
    for tensor in behind:  # the loop appends to this list
        for reader in readers.get(tensor, ()):
            if str(reader) in remaining:
                found[str(reader)] = None
            else:
                behind += [output for output in reader.outputs if output not in behind]
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return f"fused into {', '.join([*found][:_NAMED])}{more}"
    if set(behind) & set(graph.outputs):
        return "its result equals its input"
    return "no output of the network depends on it"


def _names(node: Node) -> Iterator[str]:
    yield str(node)
    for part in node.parts:
        yield from _names(part)


def _pruned(channels: LayerChannels) -> Finding:
    """Returns the finding about a layer of which channels were removed."""
    (reads, still_reads), (computes, still_computes) = channels.inputs, channels.outputs
    words = f"computes {still_computes} of {computes} channels, reads {still_reads} of {reads}"
    reasons = []
    for count, reason in (
        (channels.zero_weights, "have no weights but zeros"),
        (channels.one_value, "have one value for every input"),
        (channels.unread, "are read by no layer"),
    ):
        reasons += [f"{count} {reason}"] if count else []
    removed = f"; of the removed, {', '.join(reasons)}" if reasons else ""
    return Finding("pruned", channels.layer, words + removed)


def _floats(layers: Sequence[Layer]) -> Iterator[Finding]:
    found = [layer for layer in layers if layer.dtype.startswith("float")]
    if found and len(found) == len([layer for layer in layers if layer.dtype]):
        yield Finding("float", "all layers", "the network's tensors are floats")
        return
    for layer in found:
        yield Finding("float", layer.name, f"its result is {layer.dtype} in the model")
