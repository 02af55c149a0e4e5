"""The files that an export read, for build systems: a dependency file as make and ninja read it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from crtexport.importers.files import data_files
from crtexport.ir.graph import Graph
from crtexport.support import resources
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.single import replacing


def write_depfile(
    path: Path, target: Path, models: Mapping[Path, Graph], other_files: Iterable[Path] = ()
) -> None:
    """Writes to ``path`` that ``target`` depends on ``models``, the data files and modules of their
    graphs, ``other_files``, and this program."""
    data = {file for graph in models.values() for file in data_files(graph)}
    files = sorted({*models, *data, *other_files} | set(resources.own_files()))
    try:
        with replacing(path) as stream:
            stream.write(os.fsencode(depfile_text(target, files)))  # bytes as in the file system
    except OSError as error:
        raise CrtExportError(
            f"the dependency file can't be written: {error.strerror}", location=str(path)
        ) from error


def depfile_text(target: Path, files: Iterable[Path]) -> str:
    """Returns one rule: ``target`` and its dependencies, as absolute paths."""
    lines = " \\\n".join(f"  {_escaped(file.absolute())}" for file in files)
    return f"{_escaped(target.absolute())}: \\\n{lines}\n"


def _escaped(path: Path) -> str:
    text = str(path)
    if "\n" in text or "\r" in text:
        raise CrtExportError("a dependency file can't name this path", location=text,
                             hint="rename the folder or the file")
    return re.sub(r"([ #])", r"\\\1", text).replace("$", "$$")
