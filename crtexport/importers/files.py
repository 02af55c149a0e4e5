"""Files that models come from: readable, regular, hashed without being held in memory."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from crtexport.errors import CrtExportError
from crtexport.ir.graph import Graph

_TFLITE_IDENTIFIER = b"TFL3"
"""Bytes 4 to 7 of every such file."""


def regular_size(path: Path) -> int:
    """The size in bytes of a regular file that must exist; CrtExportError says what is there."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise CrtExportError("there is no such file", location=str(path)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise CrtExportError(
            "this is a directory", location=str(path), hint="name the model file inside it"
        )
    if not stat.S_ISREG(status.st_mode):
        raise CrtExportError(
            "this is not a regular file", location=str(path),
            hint="models are read in any order: save what comes through a pipe to a file first",
        )
    return status.st_size


def head(path: Path, count: int) -> bytes:
    """The first ``count`` bytes of a file, or fewer where it is shorter."""
    try:
        with path.open("rb") as stream:
            return stream.read(count)
    except OSError as error:
        raise _unreadable(path, error) from error


def is_tflite(path: Path) -> bool:
    """Whether a file begins as .tflite files do."""
    return head(path, 8)[4:] == _TFLITE_IDENTIFIER


def sha256(path: Path) -> str:
    """The hexadecimal SHA-256 of a file, read in pieces."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def data_files(graph: Graph) -> set[Path]:
    """Returns the files that a network's constants and the modules of others lie in."""
    tensors = [tensor for part in graph.nested() for tensor in part.tensors]
    constants = [tensor.constant for tensor in tensors] + [
        tensor.variable.initial for tensor in tensors if tensor.variable
    ]
    return {constant.path for constant in constants if constant and constant.path} | {
        file for module in graph.modules for file in module.files if isinstance(file, Path)
    }


def _unreadable(path: Path, error: Exception) -> CrtExportError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return CrtExportError(f"the file can't be read: {reason}", location=str(path))
