"""Makes the summary of a network that its package has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.firmware.board_schema import Board
from crtexport.ir.graph import Graph
from crtexport.pipeline.result import Prepared, usage_of
from crtexport.pipeline.summary.changes import changes
from crtexport.pipeline.summary.layers import holds_weights, layers_of
from crtexport.pipeline.summary.network import steps_of, tensors_of
from crtexport.pipeline.summary.records import Finding, NetworkSummary
from crtexport.pipeline.summary.sites import Executed
from crtexport.pipeline.summary.soft_floats import soft_floats


def summary_of(
    prepared: Prepared, read: Graph, board: Board, *, const_inputs: bool,
    counts: Sequence[Executed | None] | None = None,
) -> NetworkSummary:
    """Returns the summary of a model that was ``read`` from a file. ``const_inputs``: its inputs
    stay in flash; ``counts`` as for :func:`.layers.layers_of`. Raises CrtExportError if its calls
    can't be matched with layers."""
    artifact = prepared.artifact
    layers = layers_of(prepared, board, read, counts)
    weights = sum(one.data.nbytes for one in artifact.constants if holds_weights(one))
    return NetworkSummary(
        name=read.name,
        steps=steps_of(prepared.lowered, prepared.plan), layers=layers,
        tensors=tensors_of(prepared.graph, prepared.plan),
        findings=(*_warnings(prepared, board), *changes(prepared, read, layers)),
        weights=weights, tables=sum(one.data.nbytes for one in artifact.constants) - weights,
        usage=usage_of([artifact], 0, const_inputs),
        sources=tuple(
            file.name for module in prepared.graph.modules if module.kind == "c-source"
            for file in module.files
        ),
    )


def _warnings(prepared: Prepared, board: Board) -> Iterator[Finding]:
    if said := soft_floats(prepared, board.target):
        yield Finding("warning", "floats", said)
