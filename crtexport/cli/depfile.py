"""What an export read, for build systems: a dependency file as make and ninja read it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from crtexport import resources
from crtexport.atomic import replacing
from crtexport.errors import CrtExportError
from crtexport.ir.graph import Graph


def write_depfile(
    path: Path, target: Path, models: Mapping[Path, Graph], others: Iterable[Path] = ()
) -> None:
    """Say in ``path`` that ``target`` was made from ``models``, the data files and modules of their
    graphs, ``others``, and this program."""
    inner = [part for graph in models.values() for part in graph.nested()]
    tensors = [tensor for graph in inner for tensor in graph.tensors]
    constants = [tensor.constant for tensor in tensors] + [
        tensor.variable.initial for tensor in tensors if tensor.variable
    ]
    data = {constant.path for constant in constants if constant and constant.path}
    theirs = {
        file for graph in models.values() for module in graph.modules for file in module.files
        if isinstance(file, Path)
    }
    files = sorted({*models, *data, *theirs, *others} | set(resources.own_files()))
    try:
        with replacing(path) as stream:
            stream.write(os.fsencode(depfile_text(target, files)))  # as the file system has them
    except OSError as error:
        raise CrtExportError(
            f"the dependency file can't be written: {error.strerror}", location=str(path)
        ) from error


def depfile_text(target: Path, files: Iterable[Path]) -> str:
    """One rule: ``target`` and what it depends on, as absolute paths."""
    lines = " \\\n".join(f"  {_escaped(file.absolute())}" for file in files)
    return f"{_escaped(target.absolute())}: \\\n{lines}\n"


def _escaped(path: Path) -> str:
    text = str(path)
    if "\n" in text or "\r" in text:
        raise CrtExportError("a dependency file can't name this path", location=text,
                             hint="rename the folder or the file")
    return re.sub(r"([ #])", r"\\\1", text).replace("$", "$$")
