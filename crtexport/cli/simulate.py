"""``crtexport simulate``: the exported code, run on this computer."""

from __future__ import annotations

from pathlib import Path

import click

from crtexport import actions
from crtexport.cli.options import array_options, package_argument, with_output
from crtexport.cli.output import Output
from crtexport.cli.results import keep, outputs_data, read_arrays, show_outputs
from crtexport.mlf.reader import open_package


@click.command("simulate", short_help="Run a package's code on this computer.")
@package_argument
@array_options
@with_output
def command(out: Output, package: Path, given: Path | None, save: Path | None) -> None:
    """Run PACKAGE's code on this computer and print its outputs.

    Objects must be for the board `host`; C sources may be for any board.
    """
    arrays = read_arrays(given)
    with out.steps() as step:
        step("load and run the code")
        samples = actions.simulate(package, arrays)
    keep(save, samples)
    out.result({"package": str(package), **outputs_data(samples, given)})
    show_outputs(out, open_package(package, verify=False).outputs, samples, given)
