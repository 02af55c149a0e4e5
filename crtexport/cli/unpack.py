"""``crtexport unpack``: a package's files in the folders that build systems expect."""

from __future__ import annotations

from pathlib import Path

import click

from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import force_option, package_argument, with_output
from crtexport.cli.output import Output, named
from crtexport.cli.parameter_types import FILE
from crtexport.mlf.reader import open_package
from crtexport.mlf.unpack import unpack_for_build


@click.command("unpack", cls=Verb)
@package_argument
@click.argument("folder", type=FILE)
@force_option("FOLDER")
@with_output
def command(out: Output, package: Path, folder: Path, force: bool) -> None:
    """Write PACKAGE's include/, src/ and lib/ into FOLDER, touching only what changes.

    What an earlier unpacking wrote there and this one doesn't is removed, unless it was changed
    since; nothing else is ever removed or replaced. All is written or nothing.
    """
    claim(out, {}, folders={"FOLDER": folder})
    opened = open_package(package)
    files = unpack_for_build(opened, folder, force=force)
    out.result(
        {"package": str(package), **named(opened.modules), "files": [*map(str, files)]}
    )
    for path in files:
        out.line(str(path))
