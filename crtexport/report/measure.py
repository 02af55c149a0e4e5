"""Exports a model, runs its firmware and counts what each kernel's call executes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from crtexport import pipeline
from crtexport.artifact.contexts import called_externals
from crtexport.artifact.model import Artifact
from crtexport.firmware import run as firmware_run
from crtexport.firmware.board import Board
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.run import DEFAULT_TIMEOUT, RunResult
from crtexport.ir.graph import Graph
from crtexport.mlf.arrays import Array, key_of, samples_for
from crtexport.mlf.reader import open_package
from crtexport.pipeline import Emit, Exported, Optimize
from crtexport.report.trace import Executed, Place, executed, places
from crtexport.schedules.choice import Choose


class Setting(Struct, frozen=True):
    """What is exported for what, and run on which inputs; as for :func:`crtexport.export` and
    :func:`crtexport.run`."""

    model: Path | str | Graph
    board: Board | Path | str
    emit: Emit | None = None
    optimize: Optimize | None = None
    llvm_options: tuple[str, ...] = ()
    accelerators: tuple[str, ...] | None = None
    tuning: Path | str | None = None
    inputs: Mapping[str, Array] | None = None
    timeout: float = DEFAULT_TIMEOUT


class Step(Struct, frozen=True):
    """A call of a kernel, and what it executed in the second inference, which may have made it any
    number of times; None where that wasn't counted."""

    place: Place
    executed: Executed | None


class Measured(Struct, frozen=True):
    """An export and what its program did."""

    exported: Exported
    result: RunResult

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by symbol, as linked: a compiler may have taken small tables into the code."""
        return {symbol.name: symbol.size for symbol in self.result.symbols}

    def steps(self) -> list[Step]:
        """The calls in their order, those in branches and loops once each."""
        made = self.exported
        calls = made.artifact.calls
        return [
            Step(*step) for step in zip(
                places(made.graph, made.plan, calls), executed(calls, self.result.calls),
                strict=True,
            )
        ]


def measure(setting: Setting, choose: Choose | None = None) -> Measured:
    """Raises what exporting and running raise. ``choose`` picks the forms of kernels."""
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        exported = pipeline.export(
            setting.model, board=setting.board, emit=setting.emit, optimize=setting.optimize,
            llvm_options=setting.llvm_options, accelerators=setting.accelerators,
            tuning=setting.tuning, choose=choose, output=Path(folder) / "measured.tar",
            system_lib=False,
        )
        package = open_package(exported.path)
        row = samples_for(package.inputs, setting.inputs).rows[0]
        result = firmware_run.run(
            parts_from_package(package), board_from_package(package),
            [[row[key_of(tensor)] for tensor in package.inputs]],
            timeout=setting.timeout, watch=_layers(exported.artifact),
        )
    return Measured(exported, result)


def _layers(artifact: Artifact) -> list[str]:
    """The functions that compute layers, of ours and of others."""
    own = [function.symbol for function in artifact.functions]
    return own + [function.symbol for function in called_externals(artifact)]
