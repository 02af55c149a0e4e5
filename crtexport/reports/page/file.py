"""Writes reports as pages or as JSON, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from crtexport.reports.figures import Report, to_data
from crtexport.reports.page.html import render
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.single import replacing

_PAGES = (".html", ".htm")
_DATA = ".json"


def check(path: Path) -> None:
    """Raises CrtExportError for a file that no report can be written to; called before any work."""
    if path.suffix.lower() not in (*_PAGES, _DATA):
        raise CrtExportError(
            "a report is written as .html, a page for people, or as .json", location=str(path),
            hint=f"name the file {path.stem}.html or {path.stem}.json; browsers print pages to PDF",
        )
    if not path.parent.is_dir():
        raise CrtExportError("there is no such folder", location=str(path.parent))


def write(report: Report, path: Path) -> None:
    """Writes a report to ``path``: a page, or JSON where the name ends with .json. Raises
    CrtExportError where that can't be."""
    check(path)
    as_json = path.suffix.lower() == _DATA
    text = json.dumps(to_data(report), indent=2) + "\n" if as_json else render(report)
    try:
        with replacing(path) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise CrtExportError(
            f"the report can't be written ({error.strerror or error})", location=str(path)
        ) from error
