"""Collects the facts of a report from an export, and from its measurement where there is one."""

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
from crtexport.reports.layers import holds_weights, layers_of, products, together
from crtexport.reports.measure import Setting, measure
from crtexport.reports.memories import memories
from crtexport.reports.network import steps_of, tensors_of
from crtexport.reports.peers import figures_like, provenance
from crtexport.schedules.select.cost_model import machine_for
from crtexport.support.errors import CrtExportError
from crtexport.version import __version__

_ROOM = 1 << 34
"""Bytes of each memory of a board on which everything fits."""


class ReportParts(Struct, frozen=True):
    """An export, what its package says of itself, and the bytes of its functions by symbol (None
    for C sources that nothing compiled). ``result`` is the run of its firmware, if it was run."""

    exported: Exported
    section: CrtexportSection
    sizes: dict[str, int] | None
    board: Board
    setting: Setting
    result: RunResult | None = None

    @property
    def artifact(self) -> Artifact:
        return self.exported.artifact


def report(setting: Setting, command: str = "", *, measured: bool = False) -> figures.Report:
    """Returns the report of a model on a board; as :func:`crtexport.reports.measure.measure` if it
    is to be ``measured``, else with estimated instructions. ``command`` makes it again.

    A model that doesn't fit the board is reported as well, as it would be with more memory. Raises
    what exporting and running raise.
    """
    board = driver.resolve_board(setting.board)
    if measured:
        found = measure(replace(setting, board=board))
        return of(
            ReportParts(
                found.exported, found.section, found.sizes, board, setting, found.result
            ), command,
        )
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        exported = _exported(setting, board, Path(folder) / "reported.tar")
        package = open_package(exported.path, verify=False)
        sizes = None if exported.emit == "c" else function_sizes(package)
    return of(ReportParts(exported, package.own_section, sizes, board, setting), command)


def _exported(setting: Setting, board: Board, path: Path) -> Exported:
    """Exports for the board, or, where its memories are too small, for one like it with more. A
    workspace in one memory alone is the same however large that is."""
    roomy = board if board.hosted else replace(board, memory={
        name: replace(memory, size=_ROOM) for name, memory in board.memory.items()
    })
    first = board if board.placement.spill or setting.options.pools else roomy
    try:
        return driver.export(setting.model, setting.options, board=first, output=path)
    except CrtExportError as error:
        if first is roomy:
            raise
        try:
            return driver.export(setting.model, setting.options, board=roomy, output=path)
        except CrtExportError:
            raise error from None


def of(parts: ReportParts, command: str = "") -> figures.Report:
    """Returns the report of an export."""
    artifact, graph, board = parts.artifact, parts.exported.graph, parts.board
    layers = layers_of(parts.exported, board, parts.sizes, parts.result)
    totals = _totals(parts, layers)
    used = memories(board, _used(parts, totals))
    peers = figures_like(graph.sha256, board)
    fits = None if board.hosted else all(one.used <= one.size for one in used)
    return figures.Report(
        crtexport=__version__,
        model=figures.ReportedModel(graph.name, graph.source, graph.sha256, graph.numerics.value),
        board=figures.ReportedBoard(board.name, board.description, board.cpu.name, board.hosted),
        fits=fits, memories=used, totals=totals,
        pools=(
            figures.Content(_first_pool(board), artifact.workspace_size),
            *(figures.Content(pool.memory, pool.size) for pool in artifact.spilled),
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
    """Returns the bytes of the model in flash by section: of its objects, or as linked where there
    are sources, too."""
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
    instructions = together(layers) if parts.result is None else parts.result.instructions_second
    workspace = artifact.workspace_total + artifact.inflated_size
    return figures.Totals(
        flash=(code or 0) + weights + tables + other, code=code, weights=weights, tables=tables,
        other=other, ram=workspace + artifact.state_size + usage.io + stack, workspace=workspace,
        state=artifact.state_size, io=usage.io, stack=stack, stack_measured=measured,
        macs=products(layers), instructions=instructions,
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
    whole: dict[str, Any] = msgspec.to_builtins(options, enc_hook=_plain)
    usual = msgspec.to_builtins(DEFAULTS, enc_hook=_plain)
    elsewhere = ("jobs", "keep_failed", "llvm_timeout")
    return figures.Reproduce(
        command=command, emit=parts.exported.emit,
        optimize=options.optimize or parts.board.optimize,
        options={
            key: value for key, value in whole.items()
            if value != usual[key] and key not in elsewhere
        },
        llvm_options=module.llvm_options, tools=parts.section.tools,
    )


def _plain(value: object) -> str:
    """Returns what JSON has no type for as text; of files only the names, which alone are the same
    on all computers."""
    return value.name if isinstance(value, Path) else str(value)
