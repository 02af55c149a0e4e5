"""``crtexport run``: builds a package's firmware, boots it and measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crtexport import package_actions
from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    array_options,
    chosen_option,
    complete_boards,
    device_code_option,
    package_argument,
    timeout_option,
    trust_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import Words
from crtexport.cli.results import keep, keep_all, outputs_data, read_arrays, show_outputs
from crtexport.firmware.run import RunResult
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.mlf.arrays import key_of
from crtexport.mlf.reader import open_package


@click.command("run", cls=Verb)
@package_argument
@array_options
@timeout_option()
@click.option(
    "--runner", type=Words(package_actions.RUNNERS), default="bare-metal", show_default=True,
    help="Run on bare metal, or with the Zephyr that ZEPHYR_BASE names.",
)
@chosen_option
@click.option(
    "--board", metavar="NAME|FILE",
    shell_complete=complete_boards,
    help="The board whose toolchain and runner are used; by default the installed board of the "
    "name in the package.",
)
@device_code_option
@trust_option
@with_output
def command(
    out: Output, package: Path, input_file: Path | None, save: Path | None, timeout: float,
    runner: package_actions.Runner, chosen: str | None, board: str | None,
    device_code: tuple[Path, ...], trust_package: bool,
) -> None:
    """Build firmware for PACKAGE's board, run it, and print outputs and measurements.

    Toolchain and runner are those of the installed board with the package's board name. Firmware
    that can reach this computer (by semihosting, or without an emulator) needs --trust-package for
    packages that you didn't export on this computer.
    """
    claim(out, {"--output": save}, reads=(package, input_file, *device_code))
    out.result(run_and_show(
        out, package, input_file=input_file, save=save, timeout=timeout, runner=runner,
        chosen=chosen, board=board, device_code=device_code, trust_package=trust_package,
    ))


def run_and_show(
    out: Output, package: Path, *, input_file: Path | None, save: Path | None = None,
    timeout: float = DEFAULT_TIMEOUT, runner: package_actions.Runner = "bare-metal",
    out_dir: Path | None = None, chosen: str | None = None, board: str | None = None,
    device_code: tuple[Path, ...] = (), trust_package: bool = False, force: bool = False,
) -> dict[str, Any]:
    """Runs ``package``, or the ``chosen`` one of its models, and prints the result; returns it for
    JSON."""
    arrays = read_arrays(input_file)
    with out.steps() as step:
        step("build and run the firmware")
        results = package_actions.run_all(
            package, arrays, timeout=timeout, runner=runner, out_dir=out_dir, model=chosen,
            device_code=device_code, board=board, trust_package=trust_package, force=force,
        )
    models = open_package(package, verify=False).select(chosen).each
    outputs = {
        model.module: [
            {key_of(tensor): array for tensor, array in zip(model.outputs, row, strict=True)}
            for row in results[model.module].outputs
        ]
        for model in models
    }
    if len(models) == 1:
        keep(save, outputs[models[0].module])
    else:
        keep_all(save, outputs)
    data = {}
    for model in models:
        samples, result = outputs[model.module], results[model.module]
        if len(models) > 1:
            out.line(f"model {model.module}")
        show_outputs(out, model.outputs, samples, input_file)
        _show(out, result)
        data[model.module] = {**outputs_data(samples, input_file), **_data(result)}
    _show_sections(out, results[models[0].module])
    if len(models) == 1:
        return {"package": str(package), **data[models[0].module]}
    return {"package": str(package), "models": data}


def _data(result: RunResult) -> dict[str, Any]:
    return {
        "instructions": {
            "first": result.instructions_first,
            "second": result.instructions_second,
            "further": result.instructions_further,
            "exact": result.exact,
        },
        "stack": result.stack,
        "flash": result.flash,
        "ram": result.ram,
    }


def _show(out: Output, result: RunResult) -> None:
    how = "instructions" if result.exact else "instructions, estimated by a timer,"
    out.table("Measured", ("what", "value"), (
        (f"{how} of the first inference", _or(result.instructions_first, "not counted")),
        (f"{how} of the second inference", _or(result.instructions_second, "not counted")),
        *([(f"{how} of a further result", result.instructions_further)]
          if result.instructions_further is not None else []),
        ("bytes of stack", _or(result.stack, "not measured")),
    ))


def _show_sections(out: Output, result: RunResult) -> None:
    for title, sections in (("Flash", result.flash), ("RAM", result.ram)):
        rows = [(name, size) for name, size in sections.items() if size]
        if rows:
            out.table(
                title, ("section", "bytes"), [*rows, ("total", sum(sections.values()))]
            )


def _or(value: int | None, otherwise: str) -> int | str:
    return otherwise if value is None else value
