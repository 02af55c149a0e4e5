"""``crtexport run``: a package's firmware built, booted, asked and measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crtexport import actions
from crtexport.cli.options import array_options, package_argument, with_output
from crtexport.cli.output import Output
from crtexport.cli.results import keep, outputs_data, read_arrays, show_outputs
from crtexport.firmware.run import DEFAULT_TIMEOUT, RunResult
from crtexport.mlf.arrays import key_of
from crtexport.mlf.reader import open_package

timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=DEFAULT_TIMEOUT,
    show_default=True, metavar="SECONDS", help="How long one boot may take.",
)


@click.command("run", short_help="Build, run and measure a package's firmware.")
@package_argument
@array_options
@timeout_option
@click.option(
    "--runner", type=click.Choice(actions.RUNNERS), default="bare-metal", show_default=True,
    help="What runs it: nothing but the board's start-up code, or Zephyr, which ZEPHYR_BASE names.",
)
@with_output
def command(
    out: Output, package: Path, given: Path | None, save: Path | None, timeout: float,
    runner: actions.Runner,
) -> None:
    """Build the firmware of PACKAGE's board, run it, print outputs and measurements."""
    out.result(run_and_show(out, package, given=given, save=save, timeout=timeout, runner=runner))


def run_and_show(
    out: Output, package: Path, *, given: Path | None, save: Path | None = None,
    timeout: float = DEFAULT_TIMEOUT, runner: actions.Runner = "bare-metal",
    out_dir: Path | None = None,
) -> dict[str, Any]:
    """Run ``package`` and print the result; returns it for JSON."""
    arrays = read_arrays(given)
    with out.steps() as step:
        step("build and run the firmware")
        result = actions.run(package, arrays, timeout=timeout, runner=runner, out_dir=out_dir)
    tensors = open_package(package, verify=False).outputs
    samples = [
        {key_of(tensor): array for tensor, array in zip(tensors, row, strict=True)}
        for row in result.outputs
    ]
    keep(save, samples)
    show_outputs(out, tensors, samples, given)
    _show(out, result)
    return {"package": str(package), **outputs_data(samples, given), **_data(result)}


def _data(result: RunResult) -> dict[str, Any]:
    return {
        "instructions": {
            "first": result.instructions_first,
            "second": result.instructions_second,
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
        ("bytes of stack", _or(result.stack, "not measured")),
    ))
    for title, sections in (("Flash", result.flash), ("RAM", result.ram)):
        rows = [(name, size) for name, size in sections.items() if size]
        if rows:
            out.table(
                title, ("section", "bytes"), [*rows, ("together", sum(sections.values()))]
            )


def _or(value: int | None, otherwise: str) -> int | str:
    return otherwise if value is None else value
