"""Output about the channels that an export removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from crtexport.cli.output import Output

Pair = tuple[int, int]


class LayerReport(Protocol):
    """A layer (before, after) the removal of channels, as exports return it and packages store it.
    """

    @property
    def layer(self) -> str: ...
    @property
    def inputs(self) -> Pair: ...
    @property
    def outputs(self) -> Pair: ...
    @property
    def macs(self) -> Pair: ...
    @property
    def weight_bytes(self) -> Pair: ...
    @property
    def zero_weights(self) -> int: ...
    @property
    def one_value(self) -> int: ...
    @property
    def unread(self) -> int: ...


def show_channels(out: Output, layers: Sequence[LayerReport], *, each: bool) -> None:
    """Prints one line with sums and, with ``each``, one for every layer that lost channels."""
    if not layers:
        return
    before, after = (sum(layer.outputs[side] for layer in layers) for side in (0, 1))
    macs = [sum(layer.macs[side] for layer in layers) for side in (0, 1)]
    weights = [sum(layer.weight_bytes[side] for layer in layers) for side in (0, 1)]
    out.line(
        f"removed {before - after:,} of {before:,} channels that no output depends on:"
        f" {macs[0]:,} → {macs[1]:,} multiply-accumulates, {weights[0]:,} → {weights[1]:,} bytes"
        " of weights"
    )
    out.line()
    if not each:
        return
    out.table(
        "Channels removed",
        ("layer", "reads", "computes", "MACs", "weight bytes", "zero weights", "one value",
         "unread"),
        (
            (
                layer.layer, _change(layer.inputs), _change(layer.outputs), _change(layer.macs),
                _change(layer.weight_bytes), layer.zero_weights, layer.one_value, layer.unread,
            )
            for layer in layers if layer.macs[0] != layer.macs[1]
        ),
    )


def _change(pair: Pair) -> str:
    return f"{pair[0]:,}" if pair[0] == pair[1] else f"{pair[0]:,} → {pair[1]:,}"
