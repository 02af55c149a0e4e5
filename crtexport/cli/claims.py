"""Declares the outputs and inputs of every verb, before it does anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from crtexport.cli.output import Output
from crtexport.support.outputs.claims import Claims


def claim(
    out: Output, files: Mapping[str, Path | None], *,
    folders: Mapping[str, Path | None] | None = None, reads: Iterable[Path | None] = (),
) -> Claims:
    """Claims ``files`` and ``folders``, each by its option, for a command that reads ``reads``.

    Says on stderr which symbolic links will be replaced. Raises CrtExportError where a file is both
    written and read.
    """
    claims = Claims()
    claims.reads(*reads)
    for option, path in files.items():
        claims.file(option, path)
    for option, path in (folders or {}).items():
        claims.folder(option, path)
    out.notes(claims.links())
    return claims
