"""What can be done with a package: simulate it here, build its firmware, run that on its board."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crtexport.firmware import run as firmware_run
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.run import DEFAULT_TIMEOUT, BuildResult, RunResult
from crtexport.mlf.arrays import Array, Samples, bind_inputs, pattern_inputs
from crtexport.mlf.reader import Package, open_package
from crtexport.simulation.package import simulate_package


def _samples(package: Package, inputs: Mapping[str, Array] | None) -> Samples:
    if inputs is None:
        return pattern_inputs(package.inputs)
    return bind_inputs(package.inputs, inputs)


def simulate(
    package: Path | str, inputs: Mapping[str, Array] | None = None
) -> list[dict[str, Array]]:
    """Runs a package's code on this computer.

    ``inputs`` maps names of inputs to arrays of their shapes, or with one axis more in front for
    several samples; without them a fixed pattern is used. Returns one dict of outputs (by their C
    names) per sample. Raises CrtExportError for inputs that don't fit.
    """
    opened = open_package(Path(package))
    return simulate_package(opened, _samples(opened, inputs).rows)


def build(
    package: Path | str, out_dir: Path | str, inputs: Mapping[str, Array] | None = None
) -> BuildResult:
    """Writes a firmware project for the package's board into ``out_dir`` and builds it."""
    opened = open_package(Path(package))
    return firmware_run.build(
        parts_from_package(opened), board_from_package(opened), Path(out_dir),
        _samples(opened, inputs).rows,
    )


def run(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    timeout: float = DEFAULT_TIMEOUT,
) -> RunResult:
    """Builds the firmware of the package's board, runs it and measures it; inputs as for
    :func:`simulate`. Raises RunFailedError when the firmware fails."""
    opened = open_package(Path(package))
    return firmware_run.run(
        parts_from_package(opened), board_from_package(opened), _samples(opened, inputs).rows,
        timeout=timeout,
    )
