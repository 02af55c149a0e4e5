"""The short form of a report, which stands at the end of exports as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.cli.output import Output
from crtexport.report.figures import Layer, MemoryUse, Report, Totals, costliest

_COSTLIEST = 3


def show_memories(out: Output, made: Report) -> None:
    """Shows what takes how much of each memory; without a board's memories, the sums."""
    rows = list(memory_rows(made.memories))
    if not rows:
        rows = [("flash", made.totals.flash, ""), ("RAM", made.totals.ram, "")]
    out.table("Memory", ("what", "bytes", "of the board"), rows)


def memory_rows(memories: Sequence[MemoryUse]) -> Iterator[tuple[str, int, str]]:
    """Yields the contents of memories with their bytes, and how full these are."""
    for memory in memories:
        for content in memory.contents:
            yield f"{memory.name}: {content.what}", content.bytes, ""
        yield f"{memory.name}, together", memory.used, f"{memory.percent:.1f} %"


def show_costs(out: Output, totals: Totals, layers: Sequence[Layer]) -> None:
    """Shows the sums and the layers that cost most."""
    words = [] if totals.macs is None else [f"{totals.macs:,} multiply-accumulates"]
    if totals.instructions is not None:
        about = "about " if totals.instructions_are == "estimated" else ""
        words.append(f"{about}{totals.instructions:,} instructions")
    if not words:
        return
    out.line(f"one inference: {', '.join(words)}")
    shares = [_share(layer, totals) for layer in costliest(tuple(layers), _COSTLIEST)]
    if any(shares):
        out.line(f"most of it: {', '.join(share for share in shares if share)}")
    out.line()


def _share(layer: Layer, totals: Totals) -> str:
    if layer.instructions and totals.instructions:
        return f"{layer.name} {100 * layer.instructions / totals.instructions:.0f} %"
    if layer.macs and totals.macs:
        return f"{layer.name} {100 * layer.macs / totals.macs:.0f} %"
    return ""
