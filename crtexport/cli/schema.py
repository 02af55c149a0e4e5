"""``crtexport schema``: the JSON Schema of model.json."""

from __future__ import annotations

import json

import click

from crtexport.cli.options import with_output
from crtexport.cli.output import Output
from crtexport.importers.crtjson import schema


@click.command("schema")
@with_output
def command(out: Output) -> None:
    """Print the JSON Schema of model.json, for editors and validators."""
    out.raw(json.dumps(schema(), indent=2))
