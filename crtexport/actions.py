"""What can be done with a package: simulate it here, build its firmware, run that on its board."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from crtexport.firmware import run as firmware_run
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.run import DEFAULT_TIMEOUT, BuildResult, RunResult
from crtexport.firmware.zephyr import runner as zephyr_runner
from crtexport.mlf.arrays import Array, samples_for, samples_of_models
from crtexport.mlf.reader import open_package
from crtexport.simulation.package import simulate_models, simulate_package


def simulate(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *, model: str | None = None
) -> list[dict[str, Array]]:
    """Runs a package's code on this computer.

    ``inputs`` maps names of inputs to arrays of their shapes, or with one axis more in front for
    several samples; without them a fixed pattern is used. ``model`` chooses one of several models.
    Returns one dict of outputs (by their C names) per sample. Raises CrtExportError for inputs
    that don't fit.
    """
    opened = open_package(Path(package)).select(model)
    return simulate_package(opened, samples_for(opened.inputs, inputs).rows)


def simulate_all(
    package: Path | str, inputs: Mapping[str, Array] | None = None
) -> dict[str, list[dict[str, Array]]]:
    """:func:`simulate` for all models of a package, by name: they run in turns.

    ``inputs`` are called ``MODEL/INPUT``, with as many samples for each model.
    """
    opened = open_package(Path(package))
    given = samples_of_models({m.module: m.inputs for m in opened.each}, inputs)
    return simulate_models(opened, {name: samples.rows for name, samples in given.items()})


Runner = Literal["bare-metal", "zephyr"]
RUNNERS: tuple[Runner, ...] = ("bare-metal", "zephyr")


def build(
    package: Path | str, out_dir: Path | str, inputs: Mapping[str, Array] | None = None, *,
    runner: Runner = "bare-metal",
) -> BuildResult:
    """Writes firmware for the package's board into ``out_dir`` and builds it.

    ``runner`` "zephyr": an application for the tree of Zephyr that ``ZEPHYR_BASE`` names.
    """
    opened = open_package(Path(package))
    if runner == "zephyr":
        return zephyr_runner.build_application(
            parts_from_package(opened), board_from_package(opened), opened.path, Path(out_dir),
            samples_for(opened.inputs, inputs).rows if inputs is not None else (),
        )
    return firmware_run.build(
        parts_from_package(opened), board_from_package(opened), Path(out_dir),
        samples_for(opened.inputs, inputs).rows,
    )


def run(
    package: Path | str, inputs: Mapping[str, Array] | None = None, *,
    timeout: float = DEFAULT_TIMEOUT, runner: Runner = "bare-metal",
    out_dir: Path | None = None,
) -> RunResult:
    """Builds the firmware of the package's board, runs it and measures it; inputs as for
    :func:`simulate`. ``out_dir`` keeps what was built. Raises RunFailedError when the firmware
    fails."""
    opened = open_package(Path(package))
    if runner == "zephyr":
        return zephyr_runner.run_application(
            parts_from_package(opened), board_from_package(opened), opened.path,
            samples_for(opened.inputs, inputs).rows, timeout=timeout, out_dir=out_dir,
        )
    return firmware_run.run(
        parts_from_package(opened), board_from_package(opened),
        samples_for(opened.inputs, inputs).rows, timeout=timeout, out_dir=out_dir,
    )
