"""Words for what accelerators did with layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from crtexport.cli.output import Output


class Decision(Protocol):
    """A decision, as exporting reports it and packages keep it."""

    @property
    def accelerator(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def reason(self) -> str: ...


def show_decisions(out: Output, decisions: Sequence[Decision]) -> None:
    """Who computes which layer, and why not; nothing where no accelerator was asked."""
    if decisions:
        out.table(
            "Layers for accelerators", ("layer", "accelerator", "computed by", "why not"),
            ((d.layer, d.accelerator, d.function or "our own code", d.reason or "-")
             for d in decisions),
        )
