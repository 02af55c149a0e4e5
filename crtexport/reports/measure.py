"""Exports a model, runs its firmware and counts the instructions of each kernel's call."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from crtexport.artifact.contexts import called_externals
from crtexport.artifact.model import Artifact
from crtexport.artifact.symbols import with_loops
from crtexport.firmware import run as firmware_run
from crtexport.firmware.board import Board
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.run import RunResult
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.ir.graph import Graph
from crtexport.mlf.arrays import Array, key_of, samples_for
from crtexport.mlf.metadata import CrtexportSection
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.pipeline.driver import Exported
from crtexport.pipeline.options import DEFAULTS, ExportOptions
from crtexport.pipeline.summary.sites import (
    CallSite,
    Executed,
    call_sites,
    merged_rows,
    static_runs,
)
from crtexport.reports.trace import executed
from crtexport.schedules.select.choose import Choose


class MeasureSetting(Struct, frozen=True):
    """The arguments of an export and of a run of its firmware: as those of
    :func:`crtexport.export` and :func:`crtexport.run`. ``timeout`` is in seconds."""

    model: Path | str | Graph
    board: Board | Path | str
    options: ExportOptions = DEFAULTS
    inputs: Mapping[str, Array] | None = None
    timeout: float = DEFAULT_TIMEOUT


class MeasuredCall(Struct, frozen=True):
    """A call of a kernel, and what all its runs in the second inference took together; None if
    that couldn't be counted."""

    place: CallSite
    executed: Executed | None


class MeasuredExport(Struct, frozen=True):
    """An export, the measurements of its firmware, and the ``crtexport`` section of its package's
    metadata."""

    exported: Exported
    result: RunResult
    section: CrtexportSection

    @property
    def sizes(self) -> dict[str, int]:
        """Returns the bytes of functions and constants in the linked firmware, by symbol. They may
        differ from those of the package: compilers move small tables into the code."""
        return with_loops({symbol.name: symbol.size for symbol in self.result.symbols})

    def steps(self) -> list[MeasuredCall]:
        """Returns the calls in the order of the plan. A call in a branch or loop is there once, and
        so are the calls that compute rows of one layer of a cascade."""
        made = self.exported
        calls = made.artifact.calls
        found = merged_rows(
            call_sites(made.lowered, made.plan, calls), executed(calls, self.result.calls),
            static_runs(calls),
        )
        return [MeasuredCall(place, count) for place, count, _ in found]


def measure(setting: MeasureSetting, choose: Choose | None = None) -> MeasuredExport:
    """Exports a model, builds and runs its firmware, and returns the measurements. ``choose``
    selects the variants of kernels (default: the cost model). Raises what exporting and running
    raise."""
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        exported = driver.export(
            setting.model, setting.options, board=setting.board, choose=choose,
            output=Path(folder) / "measured.tar", system_lib=False,
        )
        package = open_package(exported.path)
        row = samples_for(package.inputs, setting.inputs).rows[0]
        result = firmware_run.run(
            parts_from_package(package), board_from_package(package),
            [[row[key_of(tensor)] for tensor in package.inputs]],
            timeout=setting.timeout, watch=_layers(exported.artifact),
        )
    return MeasuredExport(exported, result, package.own_section)


def _layers(artifact: Artifact) -> list[str]:
    """Returns the symbols of the functions that compute layers: generated and external ones."""
    own = [function.symbol for function in artifact.functions]
    return own + [function.symbol for function in called_externals(artifact)]
