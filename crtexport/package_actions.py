"""The verbs on packages: simulate here, build firmware, run it on the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.symbols import interface_fields, sanitize_module
from crtexport.firmware import run as firmware_run
from crtexport.firmware.board import Board, load_board
from crtexport.firmware.package import board_for, parts_from_package
from crtexport.firmware.run import BuildResult, RunResult
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.firmware.zephyr import runner as zephyr_runner
from crtexport.integrations import library
from crtexport.integrations.firmware import test_program
from crtexport.integrations.formats import FORMATS
from crtexport.integrations.next_steps import of_library
from crtexport.ir.graph import Graph
from crtexport.mlf.arrays import (
    Array,
    key_of,
    samples_for,
    samples_of_models,
    samples_of_package,
)
from crtexport.mlf.marks import exported_here
from crtexport.mlf.reader import Package, PackageTensor, open_package
from crtexport.recordings import recorded
from crtexport.simulation.package import simulate_models, simulate_package
from crtexport.support.errors import CrtExportError
from crtexport.support.short import count, line, table


class Simulated(list[dict[str, Array]]):
    """One dict of outputs, by their C names, for each sample."""

    @property
    def outputs(self) -> dict[str, Array]:
        """Returns all samples by the outputs' C names; several samples have an axis in front, as in
        files of ``crtexport simulate --output``."""
        if len(self) == 1:
            return dict(self[0])
        return {name: np.stack([row[name] for row in self]) for name in (self[0] if self else ())}

    def __repr__(self) -> str:
        first = self[0] if self else {}
        names = ", ".join(f"{name} {array.dtype}{[*array.shape]}" for name, array in first.items())
        return line("Simulated", f"{count(len(self), 'sample')}:", names)

    def _repr_html_(self) -> str:
        rows = [
            (sample, name, f"{array.dtype}{[*array.shape]}", " ".join(map(str, array.flat[:8])))
            for sample, row in enumerate(self) for name, array in row.items()
        ]
        return table("Outputs", rows, ("sample", "output", "type", "first values"))


def simulate(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *, model: str | None = None,
    device_code: Sequence[Path] = (), trust_package: bool = False,
) -> Simulated:
    """Runs a package's code on this computer, with the rights of the caller. A package that wasn't
    exported on this computer is refused, unless ``trust_package`` is set.

    ``inputs`` maps names of inputs to arrays, with an additional axis in front for several samples;
    by default, a fixed pattern is used. ``model`` chooses one of several models. ``device_code``
    are C sources with device hooks, instead of simulated devices.

    Returns a list with a dict for each sample: the outputs by their names in C. The list's property
    ``outputs`` contains all samples by name. Raises CrtExportError for inputs with other names,
    shapes or types than the model's.
    """
    opened = open_package(Path(package)).select(model)
    if not trust_package:
        _check_origin(opened, "simulating")
    rows = samples_for(opened.inputs, inputs).rows
    return Simulated(simulate_package(opened, rows, device_code))


def simulate_all(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    device_code: Sequence[Path] = (), trust_package: bool = False,
) -> dict[str, Simulated]:
    """Runs all models of a package alternately, like :func:`simulate`, and returns the results by
    model.

    Names of ``inputs`` are ``MODEL/INPUT``, with the same number of samples for each model.
    """
    opened = open_package(Path(package))
    if not trust_package:
        _check_origin(opened, "simulating")
    given = samples_of_models({m.module: m.inputs for m in opened.each}, inputs)
    rows = {name: samples.rows for name, samples in given.items()}
    found = simulate_models(opened, rows, device_code)
    return {name: Simulated(samples) for name, samples in found.items()}


def check_inputs(
    graphs: Sequence[Graph], module_names: Sequence[str], inputs: Mapping[str, Array]
) -> None:
    """Raises CrtExportError for ``inputs`` that a package of ``graphs`` can't run on, as
    :func:`run_all` would later. ``module_names`` are empty where each has its own."""
    models = {
        sanitize_module(name): inputs_of(graph)
        for graph, name in zip(
            graphs, module_names or [graph.name for graph in graphs], strict=True
        )
    }
    samples_of_package(models, inputs)


def inputs_of(graph: Graph) -> list[PackageTensor]:
    names = [graph.tensors[tensor].name for tensor in graph.inputs]
    return [
        PackageTensor(name, type_.dtype.value, type_.nbytes, type_.shape, field)
        for name, field, type_ in zip(
            names, interface_fields(names, "input"), map(graph.type, graph.inputs), strict=True
        )
    ]


Runner = Literal["bare-metal", "zephyr"]
RUNNERS: tuple[Runner, ...] = ("bare-metal", "zephyr")


def build(
    package: Path | str, out_dir: Path | str, inputs: Mapping[str, Array] | None = None,
    outputs: Mapping[str, Array] | None = None, *, runner: Runner = "bare-metal",
    model: str | None = None, device_code: Sequence[Path] = (),
    board: Board | Path | str | None = None, trust_package: bool = False, force: bool = False,
) -> BuildResult:
    """Writes firmware for the package's board into ``out_dir`` and builds it.

    It runs the first sample of ``inputs``, by default a fixed pattern, compares the results with
    ``outputs`` and prints PASS or FAIL. By default, these are computed by the package's code, on
    this computer or, for objects, in QEMU's machine of the same processor, if the package was
    exported here (or ``trust_package`` is set).

    Of several models, ``model`` chooses one; by default all are run. ``device_code`` as for
    :func:`simulate`. With ``runner`` "zephyr", the firmware is an application for the tree of
    Zephyr that ``ZEPHYR_BASE`` names; it runs all ``inputs`` and prints the outputs.

    Either all files are written or none. Files in the way that crtexport didn't write, or that were
    changed since, are an error; ``force`` replaces them. Nothing else in ``out_dir`` is touched.

    The toolchain is that of ``board``, by default of the installed board with the name in the
    package. A toolchain that only the package names is used if ``trust_package`` is set: then the
    package's author chooses which programs run on this computer.
    """
    opened = open_package(Path(package)).select(model)
    where = board_of(opened, board, trust_package)
    parts = parts_from_package(opened, device_code)
    if runner == "zephyr":
        return zephyr_runner.build_application(
            parts, where, opened.path, Path(out_dir),
            _rows(opened, inputs) if inputs is not None else (), force=force,
        )
    sample, unrecorded = recorded(
        opened, where, inputs, outputs, device_code=device_code, trusted=trust_package
    )
    program = test_program(parts, where, sample)
    built = firmware_run.build(parts, where, Path(out_dir), program, force=force)
    return replace(built, unrecorded=unrecorded)


class Library(Struct, frozen=True):
    """The files of a library; why its example compares no outputs, "" if it does; and the commands
    that build, run and flash the example, each with what it does."""

    files: tuple[Path, ...]
    unrecorded: str
    next_steps: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return line("Library", count(len(self.files), "file"), self.unrecorded)


def write_library(
    package: Path | str, out_dir: Path | str, format: str,  # noqa: A002  (as the option is called)
    inputs: Mapping[str, Array] | None = None, outputs: Mapping[str, Array] | None = None, *,
    version: str = "1.0.0", board: Board | Path | str | None = None, trust_package: bool = False,
    force: bool = False,
) -> Library:
    """Writes a package as a library for a build system into ``out_dir``. ``format`` is one of
    "cmake", "arduino", "platformio", "esp-idf", "zephyr", "cmsis-pack" and "mlperf-tiny".

    The library's example runs the first sample of ``inputs``, by default a fixed pattern, and
    compares the results with ``outputs``, as the firmware of :func:`build` does.
    ``version`` is the library's version; ``board`` and ``force`` as for :func:`build`. Raises
    CrtExportError for packages that the format doesn't support.
    """
    opened = open_package(Path(package))
    where = board_of(opened, board, trust_package)
    sample, unrecorded = recorded(opened, where, inputs, outputs, trusted=trust_package)
    return Library(
        library.write_library(
            opened, where, Path(out_dir), format, sample, version=version, force=force
        ),
        unrecorded,
        of_library(
            format, library.name_of(opened, FORMATS[format]), where,
            runs_here=where.hosted or not opened.objects,
        ),
    )


def run(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    timeout: float = DEFAULT_TIMEOUT, runner: Runner = "bare-metal",
    out_dir: Path | None = None, model: str | None = None, device_code: Sequence[Path] = (),
    board: Board | Path | str | None = None, trust_package: bool = False, force: bool = False,
) -> RunResult:
    """Builds firmware for the package's board, runs it in the board's emulator, and returns outputs
    and measurements.

    ``inputs``, ``model`` and ``device_code`` as for :func:`simulate`, ``board`` and ``force`` as
    for :func:`build`. The build is kept in ``out_dir``, if that is given.

    Firmware that can reach this computer (with semihosting, or without an emulator) is refused for
    packages that weren't exported on this computer, unless ``trust_package`` is set. Raises
    RunFailedError if the firmware fails.
    """
    chosen = open_package(Path(package)).select(model).module
    return run_all(
        package, inputs, timeout=timeout, runner=runner, out_dir=out_dir, model=chosen,
        device_code=device_code, board=board, trust_package=trust_package, force=force,
    )[chosen]


def run_all(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    timeout: float = DEFAULT_TIMEOUT, runner: Runner = "bare-metal",
    out_dir: Path | None = None, model: str | None = None, device_code: Sequence[Path] = (),
    board: Board | Path | str | None = None, trust_package: bool = False, force: bool = False,
) -> dict[str, RunResult]:
    """Runs all models of a package alternately in one firmware, like :func:`run`, and returns the
    results by model.

    Names of inputs are ``MODEL/INPUT``, with the same number of samples for each model.
    """
    opened = open_package(Path(package)).select(model)
    where = board_of(opened, board, trust_package)
    if not trust_package and (runner == "zephyr" or where.reaches_host):
        bare = runner == "bare-metal" and not where.hosted
        _check_origin(opened, "its board's semihosting" if bare else "running it")
    parts, rows = parts_from_package(opened, device_code), _rows(opened, inputs)
    if runner == "zephyr":
        results = zephyr_runner.run_application(
            parts, where, opened.path, rows, timeout=timeout, out_dir=out_dir, force=force
        )
    else:
        results = firmware_run.run_all(
            parts, where, rows, timeout=timeout, out_dir=out_dir, force=force
        )
    return {one.module: result for one, result in zip(parts.models, results, strict=True)}


def board_of(package: Package, board: Board | Path | str | None, trusted: bool) -> Board:
    named = board if isinstance(board, Board) or board is None else load_board(board)
    return board_for(package, named, trusted=trusted)


def _check_origin(package: Package, what: str) -> None:
    """Raises CrtExportError for a package that the user didn't export on this computer; ``what``
    names the action that would run its code here."""
    if not exported_here(package):
        raise CrtExportError(
            f"the package was not exported on this computer, and {what} gives its code your files "
            "and programs",
            location=str(package.path),
            hint=(
                "export the model here; or, if you trust the package's author, add "
                "--trust-package"
            ),
        )


def _rows(package: Package, arrays: Mapping[str, Array] | None) -> list[list[Array]]:
    """Returns the samples as firmware has them: the inputs of all models, in their order."""
    samples = samples_of_package({m.module: m.inputs for m in package.each}, arrays)
    return [
        [row[key_of(tensor)] for model, row in zip(package.each, rows, strict=True)
         for tensor in model.inputs]
        for rows in zip(*(s.rows for s in samples.values()), strict=True)
    ]
