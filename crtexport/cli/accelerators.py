"""Prints which layers accelerators took, and compares boards with and without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from crtexport.cli.output import Output

if TYPE_CHECKING:
    from crtexport.reports.bench import Bench


class DecisionReport(Protocol):
    """The decision of an accelerator about a layer, as exports return it and packages store it."""

    @property
    def accelerator(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def reason(self) -> str: ...


def show_decisions(out: Output, decisions: Sequence[DecisionReport]) -> None:
    """Shows which accelerator computes each layer, and the reasons of refusals; nothing without
    accelerators."""
    if decisions:
        out.table(
            "Layers and accelerators", ("layer", "accelerator", "computed by", "why not"),
            ((d.layer, d.accelerator, d.function or "crtexport's own code", d.reason or "-")
             for d in decisions),
        )


def show_beside(out: Output, results: Sequence[Bench]) -> None:
    """Shows the instructions of each layer without and with accelerators: ``results`` are pairs,
    the first without."""
    for plain, taken in zip(results[::2], results[1::2], strict=True):
        _show_beside(out, plain, taken)


def _show_beside(out: Output, plain: Bench, offloaded: Bench) -> None:
    ours, theirs = (
        {layer.name: layer.instructions for layer in bench.layers} for bench in (plain, offloaded)
    )
    macs = {layer.name: layer.macs for layer in plain.layers}
    out.table(
        f"{plain.model} on {plain.board}: instructions without and with "
        + ", ".join(offloaded.accelerators),
        ("layer", "MACs", "our own", "with", "ours is"),
        [
            *((name, macs.get(name, "-"), *_pair(ours.get(name), theirs.get(name)))
              for name in dict.fromkeys((*ours, *theirs))),
            ("total", plain.macs, *_pair(plain.second, offloaded.second)),
            ("bytes of flash", "", *_pair(plain.flash_size, offloaded.flash_size)),
            ("bytes of workspace", "", *_pair(plain.workspace, offloaded.workspace)),
        ],
    )


def _pair(ours: int | None, theirs: int | None) -> tuple[int | str, int | str, str]:
    ratio = f"{ours / theirs:.2f}×" if ours is not None and theirs else "-"
    return "-" if ours is None else ours, "-" if theirs is None else theirs, ratio
