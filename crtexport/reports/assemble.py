"""Puts a report together: of a package's metadata, its network's summary, and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from crtexport.firmware.board import Board
from crtexport.firmware.budget import Usage
from crtexport.firmware.run import RunResult
from crtexport.mlf.metadata import CrtexportSection, ModuleSection
from crtexport.pipeline.summary.layers import total_instructions, total_macs, with_code
from crtexport.pipeline.summary.records import NetworkSummary
from crtexport.reports import figures
from crtexport.reports.findings import findings
from crtexport.reports.memories import memories
from crtexport.reports.peers import figures_like, provenance
from crtexport.reports.shown import ShownReport
from crtexport.schedules.select.cost_model import machine_for


class ReportParts(Struct, frozen=True):
    """The sources of a report: a package's section of the metadata, the part of its one model, the
    summary of its network, and the bytes of its functions by symbol (None for C sources, which
    weren't compiled). ``result`` is the run of its firmware, None without one. ``command`` makes
    the same report, ``options`` are those that differ from their defaults."""

    section: CrtexportSection
    own: ModuleSection
    network: NetworkSummary
    sizes: Mapping[str, int] | None
    board: Board
    result: RunResult | None = None
    command: str = ""
    options: Mapping[str, Any] = {}


def assemble(parts: ReportParts) -> figures.Report:
    """Returns the report."""
    section, own, network, board = parts.section, parts.own, parts.network, parts.board
    if parts.sizes is not None:
        network = replace(network, layers=with_code(network.layers, parts.sizes))
    totals = _totals(parts)
    used = memories(board, _used(parts, totals))
    peers = figures_like(own.source_sha256, board)
    return ShownReport(
        crtexport=section.version,
        model=figures.ReportedModel(network.name, own.source, own.source_sha256, own.numerics),
        board=figures.ReportedBoard(board.name, board.description, board.cpu.name, board.hosted),
        fits=None if board.hosted else all(one.used <= one.size for one in used),
        memories=used, totals=totals,
        pools=(
            figures.MemoryContent(
                "memory" if board.hosted else board.placement.workspace, own.workspace.bytes
            ),
            *(figures.MemoryContent(part.memory, part.bytes) for part in own.workspace.spilled),
        ),
        steps=network.steps, layers=network.layers, tensors=network.tensors, peers=peers,
        sources={figure.source: provenance(figure) for figure in peers},
        findings=tuple(findings(
            section.emit, used, totals, network, modelled=machine_for(board.target) is not None
        )),
        reproduce=figures.Reproduce(
            command=parts.command, emit=section.emit,
            optimize=str(parts.options.get("optimize") or own.optimize),
            options=dict(parts.options), llvm_options=own.llvm_options, tools=section.tools,
        ),
    )


def _flash(parts: ReportParts) -> dict[str, int]:
    """Returns the model's bytes in flash by section: those of its objects, or, if the package has
    C sources as well, those of the linked firmware."""
    linked = {} if parts.result is None else parts.result.flash
    if parts.section.emit == "c" or (linked and parts.network.sources):
        return {name: size for name, size in linked.items() if name.startswith(".model")}
    sizes: dict[str, int] = {}
    for one in parts.section.objects.values():
        for name, size in one.sections.items():
            sizes[name] = sizes.get(name, 0) + size
    return {
        name: size for name, size in sizes.items() if name not in (".bss", ".data", ".lbss")
    }


def _totals(parts: ReportParts) -> figures.Totals:
    own, network, result = parts.own, parts.network, parts.result
    flash, board, weights, tables = _flash(parts), parts.board, network.weights, network.tables
    code = sum(size for name, size in flash.items() if "text" in name) if flash else None
    other = sum(flash.values()) - (code or 0) - weights - tables
    other = max(other, own.constants_bytes - weights - tables)
    instructions = (
        total_instructions(network.layers) if result is None else result.instructions_second
    )
    workspace = own.workspace.together
    workspace += 0 if own.image_buffer is None else own.image_buffer.bytes
    stack, io = 0 if board.hosted else board.stack_size, network.usage.io
    return figures.Totals(
        flash=(code or 0) + weights + tables + other, code=code, weights=weights, tables=tables,
        other=other, ram=workspace + own.state.bytes + io + stack, workspace=workspace,
        state=own.state.bytes, io=io, stack=stack,
        stack_measured=None if result is None else result.stack,
        macs=total_macs(network.layers), instructions=instructions,
        instructions_are="unknown" if instructions is None
        else "estimated" if result is None else "counted",
        cycles=result.spent.cycles if result and result.spent else None,
    )


def _used(parts: ReportParts, totals: figures.Totals) -> Usage:
    constants = totals.weights + totals.tables
    return replace(
        parts.network.usage, code=totals.code or 0,
        other=totals.other - (parts.own.constants_bytes - constants),
    )
