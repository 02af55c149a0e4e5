"""Access to model files: they must be regular, and are hashed without being held in memory."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from crtexport.ir.graph import Graph
from crtexport.support.errors import CrtExportError


def regular_size(path: Path) -> int:
    """Returns the size in bytes of a regular file. Raises CrtExportError if there is no such file.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise CrtExportError("there is no such file", location=str(path)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(status.st_mode) and (path / "saved_model.pb").exists():
        raise CrtExportError(
            "this is a TensorFlow SavedModel", location=str(path),
            hint="convert it: tf.lite.TFLiteConverter.from_saved_model(folder).convert()",
        )
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
    """Returns the first ``count`` bytes of a file, or all if it is shorter."""
    try:
        with path.open("rb") as stream:
            return stream.read(count)
    except OSError as error:
        raise _unreadable(path, error) from error


def sha256(path: Path) -> str:
    """Returns the hexadecimal SHA-256 of a file, read in pieces."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def data_files(graph: Graph) -> set[Path]:
    """Returns the files that contain a network's constants and its external modules."""
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
