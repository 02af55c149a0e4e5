"""Writes pages, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from crtexport.report.figures import Report
from crtexport.report.page.html import render
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.single import replacing

_SUFFIXES = (".html", ".htm")


def check(path: Path) -> None:
    """Raises CrtExportError for a file that no page can be written to; called before any work."""
    if path.suffix.lower() not in _SUFFIXES:
        raise CrtExportError(
            "a report's page is an .html file", location=str(path),
            hint="name the file accordingly; --json prints the report as JSON",
        )
    if not path.parent.is_dir():
        raise CrtExportError("there is no such folder", location=str(path.parent))


def write(report: Report, path: Path) -> None:
    """Writes the page of a report to ``path``. Raises CrtExportError where that can't be."""
    check(path)
    text = render(report)
    try:
        with replacing(path) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise CrtExportError(
            f"the page can't be written ({error.strerror or error})", location=str(path)
        ) from error
