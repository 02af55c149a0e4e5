"""Makes the report of a model, from its export and, if it was measured, from a run in the
emulator."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from crtexport.firmware.board import Board
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.pipeline.driver import Exported
from crtexport.pipeline.options import DEFAULTS, ExportOptions
from crtexport.pipeline.summary.summarize import summary_of
from crtexport.reports import figures
from crtexport.reports.assemble import ReportParts, assemble
from crtexport.reports.measure import MeasureSetting, measure
from crtexport.reports.packages import parts_of
from crtexport.reports.trace import executed
from crtexport.support.errors import CrtExportError

_LARGEST_MEMORY = 1 << 34
"""Bytes of each memory of a board on which every model fits."""
_WITHOUT_EFFECT = frozenset({"jobs", "keep_failed", "llvm_timeout"})
"""Options that no byte of a package depends on."""


def report(setting: MeasureSetting, command: str = "", *, measured: bool = False) -> figures.Report:
    """Returns the report of a model on a board.

    If ``measured`` is set, firmware is run as by :func:`crtexport.reports.measure.measure`; else
    instructions are estimated by the cost model. ``command`` is the command line that makes the
    same report, which contains it. A model that is too large for the board is reported as it would
    be with more memory. Raises what exporting and running raise.
    """
    board = driver.resolve_board(setting.board)
    if measured:
        parts = _measured(replace(setting, board=board), board)
    else:
        with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
            exported = _exported(setting, board, Path(folder) / "reported.tar")
            parts = parts_of(open_package(exported.path, verify=False), board)
    return assemble(replace(parts, command=command, options=_chosen(setting.options)))


def _measured(setting: MeasureSetting, board: Board) -> ReportParts:
    run = measure(setting)
    ((prepared,), (read,), result) = run.exported.models, run.exported.read, run.result
    (own,) = run.section.modules.values()
    network = summary_of(
        prepared, read, board, const_inputs=setting.options.const_inputs,
        counts=executed(prepared.artifact.calls, result.calls),
    )
    return ReportParts(run.section, own, network, run.sizes, board, result)


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


def _chosen(options: ExportOptions) -> dict[str, Any]:
    """Returns the options that differ from their defaults."""
    chosen: dict[str, Any] = msgspec.to_builtins(options, enc_hook=_plain)
    usual = msgspec.to_builtins(DEFAULTS, enc_hook=_plain)
    return {
        key: value for key, value in chosen.items()
        if value != usual[key] and key not in _WITHOUT_EFFECT
    }


def _plain(value: object) -> str:
    """Returns a value that JSON has no type for, as text. Of a path only the file's name is kept,
    so that reports are the same on all computers."""
    return value.name if isinstance(value, Path) else str(value)
