"""Records what a package's code computes for one sample, for tests that go with the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from msgspec.structs import replace

from crtexport.firmware import run as firmware_run
from crtexport.firmware.board import list_boards
from crtexport.firmware.board_schema import Board
from crtexport.firmware.package import parts_from_package
from crtexport.integrations.test_vector import Recorded
from crtexport.mlf.arrays import (
    Array,
    bind_inputs,
    key_of,
    samples_of_models,
    samples_of_package,
)
from crtexport.mlf.marks import exported_here
from crtexport.mlf.reader import Package
from crtexport.simulation.package import simulate_models
from crtexport.support.errors import CrtExportError

Arrays = Mapping[str, Array]


def recorded(
    package: Package, board: Board, inputs: Arrays | None, outputs: Arrays | None, *,
    device_code: Sequence[Path] = (), trusted: bool = False,
) -> tuple[Recorded, str]:
    """Returns the first sample of ``inputs`` (by default of a fixed pattern) with its outputs, by
    model; and why there are no outputs, "" if there are.

    They are ``outputs`` if these are given. Else the package's code computes them, if it was
    exported here or is ``trusted``: on this computer, or, if it is of objects for another
    processor, in QEMU's machine of ``board`` or of another board with the same processor. Raises
    CrtExportError for arrays that are not the models'.
    """
    samples = samples_of_package({one.module: one.inputs for one in package.each}, inputs)
    rows = {name: found.rows[0] for name, found in samples.items()}
    if outputs is not None:
        wanted = {one.module: one.outputs for one in package.each}
        expected = samples_of_models(wanted, outputs) if len(wanted) > 1 else {
            package.module: bind_inputs(package.outputs, outputs, "output")
        }
        results, missing = {name: found.rows[0] for name, found in expected.items()}, ""
    elif not (trusted or exported_here(package)):
        results, missing = {}, (
            "it wasn't exported on this computer (--trust-package lets its code run here)"
        )
    else:
        results, missing = _computed(package, board, rows, device_code)
    return {name: (row, results.get(name, {})) for name, row in rows.items()}, missing


def _computed(
    package: Package, board: Board, rows: Mapping[str, dict[str, Array]],
    device_code: Sequence[Path],
) -> tuple[dict[str, dict[str, Array]], str]:
    """Returns the outputs by model, and why there are none."""
    try:
        if board.hosted or not package.objects:
            samples = {name: (row,) for name, row in rows.items()}
            found = simulate_models(package, samples, device_code)
            return {name: one for name, (one,) in found.items()}, ""
        parts = parts_from_package(package, device_code)
        spilled = {memory for model in parts.models for memory, size in model.spilled if size}
        machine = emulated(board, spilled)
        if machine is None:
            return {}, "its objects don't run on this computer (--emit c gives sources, which do)"
        sample = [
            rows[model.module][key_of(tensor)] for model in package.each for tensor in model.inputs
        ]
        results = firmware_run.run_all(parts, machine, [sample])
    except CrtExportError as error:
        # As where there is a library for the board, but not the sources for this computer.
        return {}, error.problem
    return {
        model.module: {
            part.field: array
            for part, array in zip(model.outputs, result.outputs[0], strict=True)
        } for model, result in zip(parts.models, results, strict=True)
    }, ""


def emulated(board: Board, memories: Set[str] = frozenset()) -> Board | None:
    """Returns the board itself if QEMU has it, else another one that QEMU has, that runs the same
    code and has ``memories`` of these names; None if there is none."""
    if board.runner.kind == "qemu":
        return board
    cpu = replace(board.cpu, cflags=())
    return next((
        one for one in list_boards()
        if one.runner.kind == "qemu" and one.architecture == board.architecture
        and replace(one.cpu, cflags=()) == cpu and one.memory.keys() >= memories
    ), None)
