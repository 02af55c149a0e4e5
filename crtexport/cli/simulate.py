"""``crtexport simulate``: the exported code, run on this computer."""

from __future__ import annotations

from pathlib import Path

import click

from crtexport import package_actions
from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    array_options,
    chosen_option,
    device_code_option,
    package_argument,
    trust_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.results import keep, keep_all, outputs_data, read_arrays, show_outputs
from crtexport.mlf.reader import open_package


@click.command("simulate", cls=Verb)
@package_argument
@array_options
@chosen_option
@device_code_option
@trust_option
@with_output
def command(
    out: Output, package: Path, input_file: Path | None, save: Path | None, chosen: str | None,
    device_code: tuple[Path, ...], trust_package: bool,
) -> None:
    """Run PACKAGE's code on this computer and print its outputs.

    Objects must be for the board `host`; C sources may be for any board. The code runs with your
    rights: a package that you didn't export on this computer needs --trust-package.
    """
    claim(out, {"--output": save}, reads=(package, input_file, *device_code))
    arrays = read_arrays(input_file)
    opened = open_package(package, verify=False).select(chosen)
    if len(opened.each) > 1:
        with out.steps() as step:
            step("load and run the code")
            all_samples = package_actions.simulate_all(
                package, arrays, device_code=device_code, trust_package=trust_package
            )
        keep_all(save, all_samples)
        out.result({"package": str(package), "models": {
            name: outputs_data(rows, input_file) for name, rows in all_samples.items()
        }})
        for model in opened.each:
            out.line(f"model {model.module}")
            show_outputs(out, model.outputs, all_samples[model.module], input_file)
        return
    with out.steps() as step:
        step("load and run the code")
        samples = package_actions.simulate(
            package, arrays, model=chosen, device_code=device_code, trust_package=trust_package
        )
    keep(save, samples)
    out.result({"package": str(package), **outputs_data(samples, input_file)})
    show_outputs(out, opened.outputs, samples, input_file)
