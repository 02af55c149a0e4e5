"""``crtexport convert``: from any supported format to model.json."""

from __future__ import annotations

from pathlib import Path

import click

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    choices_options,
    force_option,
    model_argument,
    outside_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import OUTPUT_FILE
from crtexport.importers.crtjson import save, sidecar_of
from crtexport.importers.files import data_files
from crtexport.importers.formats import InputChoices
from crtexport.pipeline import driver


@click.command("convert", cls=Verb)
@model_argument
@click.option(
    "-o", "--output", type=OUTPUT_FILE, required=True, metavar="model.json",
    help="The file to write; large constants go to a .safetensors file beside it.",
)
@outside_option
@choices_options
@force_option("the place of the .safetensors file")
@with_output
def command(
    out: Output, model: Path, output: Path, outside: bool, choices: InputChoices, force: bool
) -> None:
    """Write MODEL as model.json, which can be read, edited and exported."""
    claims = claim(out, {"-o": output}, reads=(model,))
    claims.file("the file of constants beside -o", sidecar_of(output))
    with out.steps() as step:
        step(f"read {model}")
        graph = driver.load(model, allow_outside=outside, choices=choices)
        claims.reads(*data_files(graph))
        step(f"write {output}")
        save(graph, output, force=force)
    out.result({"model": str(output), "nodes": len(graph.nodes), "tensors": len(graph.tensors)})
    out.line(f"{output}: {len(graph.nodes)} nodes, {len(graph.tensors)} tensors")
