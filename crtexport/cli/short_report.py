"""The short form of a report, which stands at the end of exports as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.cli.output import Output
from crtexport.pipeline.result import Exported
from crtexport.reports.figures import Layer, MemoryUse, Report, Totals
from crtexport.reports.layers import layers_of, products, together
from crtexport.reports.memories import memories
from crtexport.schedules.select.cost_model import machine_for
from crtexport.support.errors import CrtExportError

_COSTLIEST = 3


def show_memories(out: Output, report: Report) -> None:
    """Shows what takes how much of each memory; without a board's memories, the sums."""
    rows = list(memory_rows(report.memories))
    if not rows:
        rows = [("flash", report.totals.flash, ""), ("RAM", report.totals.ram, "")]
    out.table("Memory", ("what", "bytes", "of the board"), rows)


def memory_rows(memories: Sequence[MemoryUse]) -> Iterator[tuple[str, int, str]]:
    """Yields the contents of memories with their bytes, and how full these are."""
    for memory in memories:
        for content in memory.contents:
            yield f"{memory.name}: {content.what}", content.bytes, ""
        yield f"{memory.name}, total", memory.used, f"{memory.percent:.1f} %"


def show_costs(out: Output, totals: Totals, layers: Sequence[Layer]) -> None:
    """Shows the sums and the layers that cost most."""
    if totals.macs is None:
        return
    about = "about " if totals.instructions_are == "estimated" else ""
    _show_costs(out, "one inference", about, totals.macs, totals.instructions, layers)
    out.line()


def show_export(out: Output, exported: Exported) -> None:
    """Shows how full an export makes the board's memories, and what each model costs there."""
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
    for model in [exported] if len(exported.models) == 1 else exported.models:
        whose = f"{model.artifact.module}, " if len(exported.models) > 1 else ""
        try:
            layers = layers_of(model, board, None)
        except CrtExportError:  # calls that can't be told apart; the export is right all the same
            continue
        known = machine_for(board.target) is not None
        macs = products(layers)
        if macs is not None:
            _show_costs(
                out, f"{whose}one inference", "about ", macs,
                together(layers) if known else None, layers,
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
