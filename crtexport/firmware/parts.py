"""The parts of a package that are needed to build firmware: code, headers, and the tensors of its
interface."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct, field

from crtexport.artifact.byte_sources import Blob
from crtexport.ir.types import DType
from crtexport.mlf import layout
from crtexport.mlf.metadata import LibraryEntry
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import LEVELS

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TensorPart(Struct, frozen=True):
    """An input or output. ``name`` is its name in the model, ``field`` that in the C struct."""

    name: str
    field: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class FeedPart(Struct, frozen=True):
    """The input ``field``, which is given row by row, ``row_bytes`` bytes each. There is a result
    after ``rows`` rows, and a further one after each ``hop`` rows more (0: no further ones)."""

    field: str
    rows: int
    row_bytes: int
    hop: int = 0


class FirmwareParts(Struct, frozen=True):
    """One or several models to build firmware from.

    ``sources`` and ``objects`` map basenames to contents; ``header`` is the text of
    ``tvmgen_<module>.h``; ``runtime_headers`` maps paths relative to the include folder to
    contents. With ``workspace_caller`` the firmware provides ``workspace_size`` bytes, aligned to
    ``workspace_align``. With ``io_in_workspace`` inputs and outputs lie in the workspace; with
    ``feed`` the input is given row by row.
    ``devices`` are the members of the struct of device contexts, ``image_buffer`` is bytes and
    alignment of the buffer that the firmware provides for their programs; ``libraries`` are those
    that the sources are built with. ``optimize`` is for sources: one of ``LEVELS``.
    ``others`` are the further models, whose files are here too; ``headers`` those of models that
    are linked but not called. Raises CrtExportError for names that no file or C text may hold.
    """

    module: str
    inputs: tuple[TensorPart, ...]
    outputs: tuple[TensorPart, ...]
    header: str
    sources: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, Blob] = field(default_factory=dict)
    runtime_headers: Mapping[str, bytes] = field(default_factory=dict)
    io_in_workspace: bool = False
    feed: FeedPart | None = None
    workspace_caller: bool = False
    workspace_size: int = 0
    workspace_align: int = 16
    state_size: int = 0
    spilled: tuple[tuple[str, int], ...] = ()
    optimize: str = "balanced"
    devices: tuple[str, ...] = ()
    image_buffer: tuple[int, int] = (0, 1)
    libraries: tuple[LibraryEntry, ...] = ()
    others: tuple[FirmwareParts, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Returns whether the window moves on: after the first result there are further ones."""
        return self.feed is not None and self.feed.hop > 0

    @property
    def models(self) -> tuple[FirmwareParts, ...]:
        """Returns all models, in their order."""
        return (self, *self.others)

    @property
    def all_inputs(self) -> tuple[TensorPart, ...]:
        """Returns the inputs of all models, in the order in which a sample has them."""
        return tuple(part for model in self.models for part in model.inputs)

    def __post_init__(self) -> None:
        layout.check_module(self.module)
        for part in (*self.inputs, *self.outputs):
            if not _IDENTIFIER.fullmatch(part.field):
                raise CrtExportError("this can't be the name of a member of a C struct",
                                     location=(part.name, part.field))
        for name in (*self.sources, *self.objects, *self.runtime_headers, *self.headers):
            layout.check_relative(name)
        for names, suffix in ((self.sources, ".c"), (self.objects, ".o")):
            for name in names:
                if "/" in name or not name.endswith(suffix):
                    raise CrtExportError(
                        f"firmware is built from *{suffix} files here", location=name
                    )
        if self.optimize not in LEVELS:
            raise CrtExportError(
                f"there is no optimization called {self.optimize!r}",
                hint=f"choose one of {', '.join(LEVELS)}",
            )
