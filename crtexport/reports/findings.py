"""The warnings of a report, as sentences, before what its package says of the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.pipeline.summary.records import Finding, Layer, NetworkSummary
from crtexport.reports.figures import MemoryUse, Totals

_FULL = 90
"""A memory that is used to this many percent gets a warning."""


def findings(
    emit: str, memories: Sequence[MemoryUse], totals: Totals, network: NetworkSummary, *,
    modelled: bool,
) -> Iterator[Finding]:
    """Yields warnings, and then the changes that the export made. ``modelled``: the cost model was
    fitted to processors like the board's."""
    yield from _warnings(emit, memories, totals, modelled=modelled)
    if network.sources and emit == "llvm" and totals.stack_measured is None:
        yield Finding("warning", "code", (
            f"that of {', '.join(network.sources)} isn't counted, nothing has compiled it;"
            " --measure does"
        ))
    if totals.instructions_are == "unknown":
        why = f"{_unknown(network.layers)}; --measure counts them"
        yield Finding("warning", "instructions", why)
    yield from network.findings


def _warnings(
    emit: str, memories: Sequence[MemoryUse], totals: Totals, *, modelled: bool
) -> Iterator[Finding]:
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


def _unknown(layers: Sequence[Layer]) -> str:
    if any(layer.by != "crtexport" for layer in layers):
        return "those of layers that others compute can't be estimated"
    if any(layer.runs is None for layer in layers):
        return "how often branches and loops run can't be estimated"
    return "those of floats can't be estimated where functions compute them"
