"""The part of ``crtexport bench`` that times models on this computer."""

from __future__ import annotations

from typing import Any

import msgspec

from crtexport.cli.output import Output
from crtexport.reports.host import HostBench


def data(result: HostBench) -> dict[str, Any]:
    """Returns the result for JSON; times in nanoseconds."""
    facts: dict[str, Any] = msgspec.to_builtins(result)
    return facts


def show(out: Output, result: HostBench) -> None:
    """Shows a table of times, in microseconds of CPU time per inference."""
    out.table(
        f"{result.model} on {result.board}, {result.emit}, {result.optimize}: CPU time of one "
        f"thread, medians of {result.rounds} rounds with quartiles",
        ("", "µs per inference", "from", "to", "ns per MAC", "ours takes", "from", "to"),
        [
            (t.name, _us(t.median), _us(t.low), _us(t.high),
             f"{t.median / result.macs:.3f}" if result.macs else "-", f"{t.ratio:.2f}×",
             f"{t.ratio_low:.2f}", f"{t.ratio_high:.2f}")
            for t in result.timings
        ],
    )
    out.table("Ours", ("what", "value"), (
        ("multiply-accumulates", result.macs),
        ("bytes of workspace", result.workspace),
        ("bytes of state", result.state),
        ("bytes of constants", result.constants),
    ))
    for text in result.missing:
        out.line(f"not there: {text}")


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.1f}"
