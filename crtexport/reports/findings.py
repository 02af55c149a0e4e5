"""The findings of a report, as sentences: changes that the export made, and warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, Dequantize, Quantize
from crtexport.pipeline.driver import Exported
from crtexport.reports.figures import Finding, Layer, MemoryUse, Totals
from crtexport.reports.soft_floats import soft_floats

_FULL = 90
"""A memory that is used to this many percent gets a warning."""
_NAMED = 2
"""The most operators that a sentence names."""


def findings(
    exported: Exported, layers: Sequence[Layer], memories: Sequence[MemoryUse], totals: Totals, *,
    modelled: bool = True,
) -> Iterator[Finding]:
    """Yields warnings, and then the changes that the export made. ``modelled`` as for
    :func:`warnings`."""
    yield from warnings(exported.emit, memories, totals, modelled=modelled)
    sources = sources_of(exported)
    if sources and exported.emit == "llvm" and totals.stack_measured is None:
        yield Finding("warning", "code", (
            f"that of {', '.join(sources)} isn't counted, nothing has compiled it; --measure does"
        ))
    if totals.instructions_are == "unknown":
        yield Finding("warning", "instructions", f"{_unknown(layers)}; --measure counts them")
    if exported.target is not None:
        for model in exported.models:
            if said := soft_floats(model, exported.target.target):
                yield Finding("warning", "floats", said)
    yield from _fused(exported.graph)
    if exported.read:
        yield from _gone(exported.read[0], exported.graph)
    for channels in exported.channels:
        if channels.changed:
            yield pruned(channels)
    for decision in exported.decisions:
        if decision.function:
            yield Finding("offloaded", decision.layer, f"{decision.accelerator} computes it")
        else:
            yield Finding("refused", decision.layer, f"{decision.accelerator}: {decision.reason}")
    yield from _floats(layers)


def warnings(
    emit: str, memories: Sequence[MemoryUse], totals: Totals, *, modelled: bool = True
) -> Iterator[Finding]:
    """Yields warnings. ``modelled``: the cost model was fitted to processors like the board's."""
    for memory in memories:
        if memory.used > memory.size:
            yield Finding(
                "warning", memory.name,
                f"too small: {memory.used - memory.size:,} bytes are missing",
            )
        elif memory.percent >= _FULL:
            yield Finding("warning", memory.name, f"{memory.percent:.1f} percent full")
    if totals.code is None:
        yield Finding("warning", "code", (
            "its bytes aren't counted: C sources were made, and nothing has compiled them;"
            " --measure does"
        ))
    measured = totals.stack_measured
    if measured is not None and measured > totals.stack > 0:
        yield Finding("warning", "stack", (
            f"an inference took {measured:,} bytes, the board reserves {totals.stack:,}"
        ))
    if totals.instructions_are == "estimated" and emit == "c":
        yield Finding("warning", "instructions", (
            "they are estimated for LLVM's code; those of a C compiler differ"
        ))
    if totals.instructions_are == "estimated" and not modelled:
        yield Finding("warning", "instructions", (
            "nothing like this processor was measured: they are estimated for another"
        ))


def sources_of(exported: Exported) -> list[str]:
    """Returns the names of C files that come from accelerators, and are compiled with the
    firmware."""
    return [
        file.name for module in exported.graph.modules if module.kind == "c-source"
        for file in module.files
    ]


def _unknown(layers: Sequence[Layer]) -> str:
    if any(layer.by != "crtexport" for layer in layers):
        return "those of layers that others compute can't be estimated"
    if any(layer.runs is None for layer in layers):
        return "how often branches and loops run can't be estimated"
    return "those of floats can't be estimated where functions compute them"


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


class _Channels(Protocol):
    """A layer before and after channels were removed, as exports and packages have it."""

    @property
    def layer(self) -> str: ...
    @property
    def inputs(self) -> tuple[int, int]: ...
    @property
    def outputs(self) -> tuple[int, int]: ...
    @property
    def zero_weights(self) -> int: ...
    @property
    def one_value(self) -> int: ...
    @property
    def unread(self) -> int: ...


def pruned(channels: _Channels) -> Finding:
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
