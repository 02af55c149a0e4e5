"""What can be done with a package: simulate it here, build its firmware, run that on its board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from crtexport.firmware import run as firmware_run
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.run import DEFAULT_TIMEOUT, BuildResult, RunResult
from crtexport.firmware.zephyr import runner as zephyr_runner
from crtexport.mlf.arrays import Array, key_of, samples_for, samples_of_models
from crtexport.mlf.reader import Package, open_package
from crtexport.simulation.package import simulate_models, simulate_package


def simulate(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *, model: str | None = None,
    device_code: Sequence[Path] = (),
) -> list[dict[str, Array]]:
    """Runs a package's code on this computer.

    ``inputs`` maps names of inputs to arrays of their shapes, or with one axis more in front for
    several samples; without them a fixed pattern is used. ``model`` chooses one of several models.
    ``device_code`` are C sources with the hooks of devices that no simulated device stands in for.
    Returns one dict of outputs (by their C names) per sample. Raises CrtExportError for inputs
    that don't fit.
    """
    opened = open_package(Path(package)).select(model)
    return simulate_package(opened, samples_for(opened.inputs, inputs).rows, device_code)


def simulate_all(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    device_code: Sequence[Path] = (),
) -> dict[str, list[dict[str, Array]]]:
    """:func:`simulate` for all models of a package, by name: they run in turns.

    ``inputs`` are called ``MODEL/INPUT``, with as many samples for each model.
    """
    opened = open_package(Path(package))
    given = samples_of_models({m.module: m.inputs for m in opened.each}, inputs)
    rows = {name: samples.rows for name, samples in given.items()}
    return simulate_models(opened, rows, device_code)


Runner = Literal["bare-metal", "zephyr"]
RUNNERS: tuple[Runner, ...] = ("bare-metal", "zephyr")


def build(
    package: Path | str, out_dir: Path | str, inputs: Mapping[str, Array] | None = None, *,
    runner: Runner = "bare-metal", model: str | None = None, device_code: Sequence[Path] = (),
    force: bool = False,
) -> BuildResult:
    """Writes firmware for the package's board into ``out_dir`` and builds it; ``model`` chooses one
    of several models, else it runs all in turns. ``device_code`` as for :func:`simulate`.

    All files are written or none. Files there that crtexport didn't write, or that were changed
    since, are refused; ``force`` replaces them. Nothing else in ``out_dir`` is touched.
    ``runner`` "zephyr": an application for the tree of Zephyr that ``ZEPHYR_BASE`` names.
    """
    opened = open_package(Path(package)).select(model)
    parts, board = parts_from_package(opened, device_code), board_from_package(opened)
    if runner == "zephyr":
        return zephyr_runner.build_application(
            parts, board, opened.path, Path(out_dir),
            _rows(opened, inputs) if inputs is not None else (), force=force,
        )
    return firmware_run.build(parts, board, Path(out_dir), _rows(opened, inputs), force=force)


def run(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    timeout: float = DEFAULT_TIMEOUT, runner: Runner = "bare-metal",
    out_dir: Path | None = None, model: str | None = None, device_code: Sequence[Path] = (),
    force: bool = False,
) -> RunResult:
    """Builds the firmware of the package's board, runs it and measures it; inputs, ``model`` and
    ``device_code`` as for :func:`simulate`. ``out_dir`` keeps what was built, ``force`` as
    for :func:`build`. Raises RunFailedError when the firmware fails."""
    chosen = open_package(Path(package)).select(model).module
    return run_all(
        package, inputs, timeout=timeout, runner=runner, out_dir=out_dir, model=chosen,
        device_code=device_code, force=force,
    )[chosen]


def run_all(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    timeout: float = DEFAULT_TIMEOUT, runner: Runner = "bare-metal",
    out_dir: Path | None = None, model: str | None = None, device_code: Sequence[Path] = (),
    force: bool = False,
) -> dict[str, RunResult]:
    """:func:`run` for all models of a package, by name, in one firmware: they run in turns.

    Inputs are called ``MODEL/INPUT``, with as many samples for each model; with ``model`` as for
    :func:`run`.
    """
    opened = open_package(Path(package)).select(model)
    parts, board, rows = (
        parts_from_package(opened, device_code), board_from_package(opened), _rows(opened, inputs)
    )
    if runner == "zephyr":
        results = zephyr_runner.run_application(
            parts, board, opened.path, rows, timeout=timeout, out_dir=out_dir, force=force
        )
    else:
        results = firmware_run.run_all(
            parts, board, rows, timeout=timeout, out_dir=out_dir, force=force
        )
    return {one.module: result for one, result in zip(parts.models, results, strict=True)}


def _rows(package: Package, given: Mapping[str, Array] | None) -> list[list[Array]]:
    """The samples as firmware has them: the inputs of all models, in their order."""
    if len(package.each) == 1:
        samples = {package.module: samples_for(package.inputs, given)}
    else:
        samples = samples_of_models({m.module: m.inputs for m in package.each}, given)
    return [
        [row[key_of(tensor)] for model, row in zip(package.each, rows, strict=True)
         for tensor in model.inputs]
        for rows in zip(*(s.rows for s in samples.values()), strict=True)
    ]
