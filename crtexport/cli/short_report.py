"""The short form of a report, which exports print as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.cli.output import Output
from crtexport.pipeline.result import Exported
from crtexport.pipeline.summary.layers import total_instructions, total_macs
from crtexport.pipeline.summary.records import Layer
from crtexport.reports.figures import MemoryUse, Report, Totals
from crtexport.reports.memories import memories
from crtexport.schedules.select.cost_model import machine_for

_COSTLIEST = 3


def show_memories(out: Output, report: Report) -> None:
    """Prints the content of each memory and its bytes; for boards with an operating system, the
    sums."""
    rows = list(memory_rows(report.memories))
    if not rows:
        rows = [("flash", report.totals.flash, ""), ("RAM", report.totals.ram, "")]
    out.table("Memory", ("what", "bytes", "of the board"), rows)


def memory_rows(memories: Sequence[MemoryUse]) -> Iterator[tuple[str, int, str]]:
    """Yields (content, bytes, "") for everything in the memories, and (total, bytes, percent) of
    each."""
    for memory in memories:
        for content in memory.contents:
            yield f"{memory.name}: {content.what}", content.bytes, ""
        yield f"{memory.name}, total", memory.used, f"{memory.percent:.1f} %"


def show_costs(out: Output, totals: Totals, layers: Sequence[Layer]) -> None:
    """Prints the multiply-accumulates and instructions of an inference, and the most expensive
    layers."""
    if totals.macs is None:
        return
    about = "about " if totals.instructions_are == "estimated" else ""
    _show_costs(out, "one inference", about, totals.macs, totals.instructions, layers)
    out.line()


def show_export(out: Output, exported: Exported) -> None:
    """Prints how full the board's memories are with an export, and the costs of each model."""
    board = exported.target
    if board is None or out.silent:
        return
    used = [
        f"{memory.name} {memory.used:,} of {memory.size:,} bytes ({memory.percent:.1f} %)"
        for memory in memories(board, exported.usage)
    ]
    if used:
        without = " (without code, which isn't compiled yet)" if exported.emit == "c" else ""
        out.line(f"memory of the board{without}: {', '.join(used)}")
    known = machine_for(board.target) is not None
    for model, summary in zip(exported.models, exported.summaries, strict=True):
        whose = f"{model.artifact.module}, " if len(exported.models) > 1 else ""
        layers = () if summary is None else summary.layers
        macs = None if summary is None else total_macs(layers)
        if macs is not None:
            _show_costs(
                out, f"{whose}one inference", "about ", macs,
                total_instructions(layers) if known else None, layers,
            )


def _show_costs(
    out: Output, title: str, about: str, macs: int, instructions: int | None,
    layers: Sequence[Layer],
) -> None:
    words = [f"{macs:,} multiply-accumulates"]
    words += [] if instructions is None else [f"{about}{instructions:,} instructions"]
    out.line(f"{title}: {', '.join(words)}")
    cost = _instructions if instructions else _macs
    whole = instructions or macs
    first = sorted(layers, key=cost, reverse=True)[:_COSTLIEST]
    shares = [f"{one.name} {100 * cost(one) / whole:.0f} %" for one in first if cost(one)]
    if shares:
        out.line(f"most expensive: {', '.join(shares)}")


def _instructions(layer: Layer) -> int:
    return layer.instructions or 0


def _macs(layer: Layer) -> int:
    return layer.macs or 0
