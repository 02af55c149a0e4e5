"""``crtexport doctor``: what is installed of all that verbs use."""

from __future__ import annotations

import click
import msgspec

from crtexport.cli.groups import Verb
from crtexport.cli.options import with_output
from crtexport.cli.output import Output
from crtexport.reports.installed import installed
from crtexport.version import __version__


@click.command("doctor", cls=Verb)
@with_output
def command(out: Output) -> None:
    """List the programs and packages that verbs use, which of them are here, and how to get others.

    Nothing is installed or changed. Missing ones are no mistake: exporting needs none of them.
    """
    with out.steps() as step:
        step("ask programs for their versions")
        found = installed()
    out.result({"version": __version__, "installed": [msgspec.to_builtins(one) for one in found]})
    out.table("Here", ("what", "version or place", "for"),
              ((one.name, one.found, one.use) for one in found if one.found))
    missing = [one for one in found if not one.found]
    if missing:
        out.table("Missing", ("what", "for", "how to get it"),
                  ((one.name, one.use, one.hint) for one in missing))
