"""``crtexport schema``: the JSON Schemas of model.json and of reports."""

from __future__ import annotations

import json

import click

from crtexport.cli.groups import Verb
from crtexport.cli.options import with_output
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import Words
from crtexport.importers import crtjson


@click.command("schema", cls=Verb)
@click.option(
    "--of", "of", type=Words(["model", "report"]), default="model", show_default=True,
    help="The format: model.json, or what `crtexport report --json` prints.",
)
@with_output
def command(out: Output, of: str) -> None:
    """Print the JSON Schema of a format, for editors and validators."""
    if of == "model":
        out.raw(json.dumps(crtjson.schema(), indent=2))
        return
    from crtexport.reports import figures  # noqa: PLC0415

    out.raw(json.dumps(figures.schema(), indent=2))
