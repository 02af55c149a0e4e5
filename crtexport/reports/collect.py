"""Makes the report of a model, from its export and, if it was measured, from a run in the
emulator."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.model import Artifact
from crtexport.firmware.board import Board, Usage
from crtexport.firmware.run import RunResult
from crtexport.mlf.metadata import CrtexportSection
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.pipeline.driver import Exported
from crtexport.pipeline.options import DEFAULTS
from crtexport.pipeline.result import usage_of
from crtexport.reports import figures
from crtexport.reports.findings import findings, sources_of
from crtexport.reports.function_sizes import function_sizes
from crtexport.reports.layers import holds_weights, layers_of, total_instructions, total_macs
from crtexport.reports.measure import MeasureSetting, measure
from crtexport.reports.memories import memories
from crtexport.reports.network import steps_of, tensors_of
from crtexport.reports.peers import figures_like, provenance
from crtexport.reports.shown import ShownReport
from crtexport.schedules.select.cost_model import machine_for
from crtexport.support.errors import CrtExportError
from crtexport.version import __version__

_LARGEST_MEMORY = 1 << 34
"""Bytes of each memory of a board on which every model fits."""


class ReportParts(Struct, frozen=True):
    """The sources of a report: an export, the ``crtexport`` section of its package's metadata, and
    the bytes of its functions by symbol (None for C sources, which weren't compiled). ``result`` is
    the run of its firmware, None without one."""

    exported: Exported
    section: CrtexportSection
    sizes: dict[str, int] | None
    board: Board
    setting: MeasureSetting
    result: RunResult | None = None

    @property
    def artifact(self) -> Artifact:
        return self.exported.artifact


def report(setting: MeasureSetting, command: str = "", *, measured: bool = False) -> figures.Report:
    """Returns the report of a model on a board.

    If ``measured`` is set, firmware is run as by :func:`crtexport.reports.measure.measure`; else
    instructions are estimated by the cost model. ``command`` is the command line that makes the
    same report, which contains it. A model that is too large for the board is reported as it would
    be with more memory. Raises what exporting and running raise.
    """
    board = driver.resolve_board(setting.board)
    if measured:
        run = measure(replace(setting, board=board))
        return _report_of(
            ReportParts(run.exported, run.section, run.sizes, board, setting, run.result), command
        )
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        exported = _exported(setting, board, Path(folder) / "reported.tar")
        package = open_package(exported.path, verify=False)
        sizes = None if exported.emit == "c" else function_sizes(package)
    return _report_of(ReportParts(exported, package.own_section, sizes, board, setting), command)


def _exported(setting: MeasureSetting, board: Board, path: Path) -> Exported:
    """Exports for the board; if its memories are too small, for the same board with larger ones.

    Sizes of memories change a plan only if it is split among several memories (pools). Otherwise
    the first attempt has the large memories already."""
    enlarged = board if board.hosted else replace(board, memory={
        name: replace(memory, size=_LARGEST_MEMORY) for name, memory in board.memory.items()
    })
    first = board if board.placement.spill or setting.options.pools else enlarged
    try:
        return driver.export(setting.model, setting.options, board=first, output=path)
    except CrtExportError as error:
        if first is enlarged:
            raise
        try:
            return driver.export(setting.model, setting.options, board=enlarged, output=path)
        except CrtExportError:
            raise error from None


def _report_of(parts: ReportParts, command: str) -> figures.Report:
    artifact, graph, board = parts.artifact, parts.exported.graph, parts.board
    layers = layers_of(parts.exported, board, parts.sizes, parts.result)
    totals = _totals(parts, layers)
    used = memories(board, _used(parts, totals))
    peers = figures_like(graph.sha256, board)
    fits = None if board.hosted else all(one.used <= one.size for one in used)
    return ShownReport(
        crtexport=__version__,
        model=figures.ReportedModel(graph.name, graph.source, graph.sha256, graph.numerics.value),
        board=figures.ReportedBoard(board.name, board.description, board.cpu.name, board.hosted),
        fits=fits, memories=used, totals=totals,
        pools=(
            figures.MemoryContent(_first_pool(board), artifact.workspace_size),
            *(figures.MemoryContent(pool.memory, pool.size) for pool in artifact.spilled),
        ),
        steps=steps_of(parts.exported.lowered, parts.exported.plan), layers=layers,
        tensors=tensors_of(graph, parts.exported.plan), peers=peers,
        sources={figure.source: provenance(figure) for figure in peers},
        findings=tuple(findings(
            parts.exported, layers, used, totals,
            modelled=machine_for(board.target) is not None,
        )),
        reproduce=_reproduce(parts, command),
    )


def _first_pool(board: Board) -> str:
    return "memory" if board.hosted else board.placement.workspace


def _flash(parts: ReportParts) -> dict[str, int]:
    """Returns the model's bytes in flash by section: those of its objects, or, if the package has
    C sources as well, those of the linked firmware."""
    if parts.exported.emit == "c" or (parts.result is not None and sources_of(parts.exported)):
        linked = {} if parts.result is None else parts.result.flash
        return {name: size for name, size in linked.items() if name.startswith(".model")}
    sizes: dict[str, int] = {}
    for one in parts.section.objects.values():
        for name, size in one.sections.items():
            sizes[name] = sizes.get(name, 0) + size
    return {
        name: size for name, size in sizes.items() if name not in (".bss", ".data", ".lbss")
    }


def _totals(parts: ReportParts, layers: tuple[figures.Layer, ...]) -> figures.Totals:
    artifact, board, flash = parts.artifact, parts.board, _flash(parts)
    code = sum(size for name, size in flash.items() if "text" in name) if flash else None
    weights = sum(one.data.nbytes for one in artifact.constants if holds_weights(one))
    tables = sum(one.data.nbytes for one in artifact.constants) - weights
    other = sum(flash.values()) - (code or 0) - weights - tables
    other = max(other, artifact.constants_size - weights - tables)
    usage = usage_of([artifact], code or 0, parts.setting.options.const_inputs)
    stack = 0 if board.hosted else board.stack_size
    measured = None if parts.result is None else parts.result.stack
    instructions = (
        total_instructions(layers) if parts.result is None else parts.result.instructions_second
    )
    workspace = artifact.workspace_total + artifact.inflated_size
    return figures.Totals(
        flash=(code or 0) + weights + tables + other, code=code, weights=weights, tables=tables,
        other=other, ram=workspace + artifact.state_size + usage.io + stack, workspace=workspace,
        state=artifact.state_size, io=usage.io, stack=stack, stack_measured=measured,
        macs=total_macs(layers), instructions=instructions,
        instructions_are="unknown" if instructions is None
        else "estimated" if parts.result is None else "counted",
        cycles=(
            parts.result.spent.cycles if parts.result and parts.result.spent else None
        ),
    )


def _used(parts: ReportParts, totals: figures.Totals) -> Usage:
    artifact = parts.artifact
    return replace(
        usage_of([artifact], totals.code or 0, parts.setting.options.const_inputs),
        other=totals.other - (artifact.constants_size - totals.weights - totals.tables),
    )


def _reproduce(parts: ReportParts, command: str) -> figures.Reproduce:
    options = parts.setting.options
    (module,) = parts.section.modules.values()
    chosen: dict[str, Any] = msgspec.to_builtins(options, enc_hook=_plain)
    usual = msgspec.to_builtins(DEFAULTS, enc_hook=_plain)
    without_effect = ("jobs", "keep_failed", "llvm_timeout")
    return figures.Reproduce(
        command=command, emit=parts.exported.emit,
        optimize=options.optimize or parts.board.optimize,
        options={
            key: value for key, value in chosen.items()
            if value != usual[key] and key not in without_effect
        },
        llvm_options=module.llvm_options, tools=parts.section.tools,
    )


def _plain(value: object) -> str:
    """Returns a value that JSON has no type for, as text. Of a path only the file's name is kept,
    so that reports are the same on all computers."""
    return value.name if isinstance(value, Path) else str(value)
