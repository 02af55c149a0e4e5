"""Reads model files into Graphs: :func:`load` determines the format by the file's content, not its
name."""

from __future__ import annotations

import logging
from pathlib import Path

from crtexport.importers.files import head, regular_size
from crtexport.importers.formats import (
    FORMATS,
    HEAD,
    NO_CHOICES,
    ONNX,
    InputChoices,
    ReadOptions,
    format_of,
)
from crtexport.importers.oddities import oddities, refuse_nan
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.verify import verify
from crtexport.support.errors import CrtExportError

_log = logging.getLogger(__name__)

_CONVERTERS = (
    "convert it, in PyTorch by torch.onnx.export(model, (example,), 'model.onnx', dynamo=True), in "
    "Keras by model.export('model.onnx', format='onnx') or tf.lite.TFLiteConverter, or write a "
    "model.json"
)
_KNOWN_MAGIC = (
    (b"PK\x03\x04", "a ZIP archive, as .keras and PyTorch files are"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras .h5 files are"),
    (b"GGUF", "a GGUF file"),
    (b"\x7fELF", "an ELF file"),
    (b"\x80", "a Python pickle"),
    (b"\x1f\x8b", "a gzip file"),
)


def load(
    path: Path, *, numerics: Numerics | None = None, allow_outside: bool = False,
    choices: InputChoices = NO_CHOICES,
) -> Graph:
    """Returns the verified network in ``path``; the file's content decides its format, not its
    name.

    ``numerics``: whose results integer kernels will equal. Constants stay in their files;
    those of a model.json or ONNX file must lie in its folder unless ``allow_outside``. ``choices``
    fix the inputs of an ONNX file.
    Raises CrtExportError for anything that isn't a whole, supported and consistent model.
    """
    size = regular_size(path)
    if size == 0:
        raise CrtExportError("the file is empty", location=str(path))
    known = format_of(path)
    if known is None:
        raise _refusal(path, head(path, HEAD))
    if choices.given and known is not ONNX:
        raise CrtExportError(
            "--dim, --input-shape, --bind and --input-layout are for ONNX files", location=str(path)
        )
    graph = known.read(path, ReadOptions(numerics, allow_outside, choices))
    verify(graph)
    refuse_nan(graph)
    for oddity in oddities(graph):
        _log.warning("%s: %s", path.name, oddity)
    return graph


def _refusal(path: Path, start: bytes) -> CrtExportError:
    """Returns the error for a file of unknown format."""
    where = str(path)
    names = " or ".join(format_.name for format_ in FORMATS)
    for magic, name in _KNOWN_MAGIC:
        if start.startswith(magic):
            return CrtExportError(
                f"this is {name}, not a {names}", location=where, hint=_CONVERTERS
            )
    if len(start) < 8:
        return CrtExportError(
            f"the file is truncated: it has only {len(start)} bytes", location=where
        )
    return CrtExportError(
        f"unknown format: the file begins with {start[:8].hex(' ')}; "
        + ", ".join(f"a {format_.name} file {format_.mark}" for format_ in FORMATS),
        location=where,
        hint=_CONVERTERS,
    )
