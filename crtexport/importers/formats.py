"""The formats of models that can be read, recognized by the first bytes of a file."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from crtexport.importers.files import head
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics

HEAD = 64
"""Bytes at the beginning of a file that determine its format."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


Layout = Literal["nchw", "nhwc"]


class InputChoices(Struct, frozen=True):
    """The user's decisions about inputs that a model leaves open.

    ``dims`` are sizes of named dimensions, ``shapes`` those of inputs, ``values`` files (.npy) with
    values that inputs keep for good. ``layout``: whether images come and go as the file has them,
    channels before rows and columns, or channels last, as the kernels have them.
    """

    dims: Mapping[str, int] = {}
    shapes: Mapping[str, Sequence[int]] = {}
    values: Mapping[str, Path] = {}
    layout: Layout = "nchw"

    @property
    def given(self) -> bool:
        """Returns True if the user decided anything."""
        return bool(self.dims or self.shapes or self.values) or self.layout != "nchw"


NO_CHOICES = InputChoices()


class ReadOptions(Struct, frozen=True):
    """The options of reading a model.

    ``numerics``: whose results integer kernels will equal; None: the format's usual ones.
    ``allow_outside``: constants may lie outside of the model's folder. ``choices`` are about the
    inputs of ONNX files.
    """

    numerics: Numerics | None = None
    allow_outside: bool = False
    choices: InputChoices = NO_CHOICES


class Format(Struct, frozen=True):
    """A format: ``begins`` recognizes a file's first HEAD bytes, and ``mark`` names their mark.

    ``module`` has ``read(path, options) -> Graph``, whose result isn't verified yet; it is imported
    when a file of the format is read. It raises CrtExportError for files that it can't read.
    """

    name: str
    mark: str
    begins: Callable[[bytes], bool]
    module: str

    def read(self, path: Path, options: ReadOptions) -> Graph:
        """Returns the network in a file of this format. Raises CrtExportError."""
        graph: Graph = importlib.import_module(self.module).read(path, options)
        return graph


TFLITE = Format(
    ".tflite", "has 'TFL3' at byte 4", lambda start: start[4:8] == b"TFL3",
    "crtexport.importers.tflite",
)
MODEL_JSON = Format(
    "model.json", "begins with '{'",
    lambda start: start.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"),
    "crtexport.importers.crtjson",
)
# ir_version (field 1, a small varint), then the tag of any other field of ONNX's ModelProto.
_ONNX_NEXT_TAGS = frozenset({0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72, 0xA2, 0xCA})
_ONNX_MAX_IR_VERSION = 0x20


def _begins_onnx(start: bytes) -> bool:
    return (
        len(start) > 2
        and start[0] == 0x08
        and 1 <= start[1] <= _ONNX_MAX_IR_VERSION
        and start[2] in _ONNX_NEXT_TAGS
    )


ONNX = Format(
    ".onnx", "begins with its IR version", _begins_onnx, "crtexport.importers.onnx"
)
FORMATS = (TFLITE, MODEL_JSON, ONNX)


def format_of(path: Path) -> Format | None:
    """Returns the format of a file; None if it is unknown. Raises CrtExportError for a file that
    can't be read."""
    start = head(path, HEAD)
    return next((known for known in FORMATS if known.begins(start)), None)
