"""Checks the files of a command before it does anything: no output may be one of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from crtexport.cli.output import Output
from crtexport.support.outputs.claims import Claims


def claim(
    out: Output, files: Mapping[str, Path | None], *,
    folders: Mapping[str, Path | None] | None = None, reads: Iterable[Path | None] = (),
) -> Claims:
    """Checks the outputs of a command that reads the files ``reads``: ``files`` and ``folders`` are
    by the option that names them. Returns the claims, to which outputs can be added.

    Prints notes on stderr about symbolic links that will be replaced. Raises CrtExportError for a
    file that is both written and read.
    """
    claims = Claims()
    claims.reads(*reads)
    for option, path in files.items():
        claims.file(option, path)
    for option, path in (folders or {}).items():
        claims.folder(option, path)
    out.notes(claims.links())
    return claims
