"""Foreign formats end here: :func:`load` reads a model file, whatever its name, into a Graph."""

from __future__ import annotations

from pathlib import Path

from crtexport.errors import CrtExportError
from crtexport.importers.files import head, is_tflite, regular_size
from crtexport.ir.graph import Graph
from crtexport.ir.types import Rounding
from crtexport.ir.verify import verify

_CONVERTERS = "convert it to .tflite (e.g. with tf.lite.TFLiteConverter), or write a model.json"
_KNOWN_MAGIC = (
    (b"PK\x03\x04", "a ZIP archive, as .keras and PyTorch files are"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras .h5 files are"),
    (b"GGUF", "a GGUF file"),
    (b"\x7fELF", "an ELF file"),
    (b"\x80", "a Python pickle"),
    (b"\x1f\x8b", "a gzip file"),
)
# ir_version (field 1, a small varint), then the tag of any other field of ONNX's ModelProto.
_ONNX_NEXT_TAGS = frozenset({0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72, 0xA2})
_ONNX_MAX_IR_VERSION = 0x20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load(path: Path, *, rounding: Rounding = Rounding.DOUBLE, allow_outside: bool = False) -> Graph:
    """The network in ``path``, a .tflite file or a model.json; its content decides, not its name.

    ``rounding`` is how integer kernels will scale accumulators. Constants stay in their files;
    those of a model.json must lie in its folder unless ``allow_outside``. The result is verified.
    Raises CrtExportError for anything that isn't a whole, supported and consistent model.
    """
    size = regular_size(path)
    if size == 0:
        raise CrtExportError("the file is empty", location=str(path))
    if is_tflite(path):
        # Imported when needed: an export reads one format.
        from crtexport.importers.tflite import load_tflite  # noqa: PLC0415

        graph = load_tflite(path, rounding)
    elif (start := head(path, 64)).removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        from crtexport.importers.crtjson import load_json  # noqa: PLC0415

        graph = load_json(path, rounding, allow_outside=allow_outside)
    else:
        raise _refusal(path, start)
    verify(graph)
    return graph


def _refusal(path: Path, start: bytes) -> CrtExportError:
    """What to say about a file that is neither of the formats."""
    where = str(path)
    if _looks_like_onnx(start):
        return CrtExportError(
            "this is an ONNX model, which this version does not read",
            location=where,
            hint="convert it to .tflite (e.g. with onnx2tf), or write a model.json",
        )
    for magic, name in _KNOWN_MAGIC:
        if start.startswith(magic):
            return CrtExportError(
                f"this is {name}, not a .tflite or model.json", location=where, hint=_CONVERTERS
            )
    if len(start) < 8:
        return CrtExportError(
            f"the file is truncated: it has only {len(start)} bytes", location=where
        )
    return CrtExportError(
        f"unknown format: the file begins with {start[:8].hex(' ')}; a .tflite file has 'TFL3' at"
        " byte 4, a model.json begins with '{'",
        location=where,
        hint=_CONVERTERS,
    )


def _looks_like_onnx(start: bytes) -> bool:
    return (
        len(start) > 2
        and start[0] == 0x08
        and 1 <= start[1] <= _ONNX_MAX_IR_VERSION
        and start[2] in _ONNX_NEXT_TAGS
    )
