"""The data of one report, which ``crtexport report --json`` prints and ``crtexport diff`` reads.

The format is stable: a later version may add keys, and raises VERSION where one changes its
meaning. Sizes are bytes; None stands for what isn't known.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from crtexport.firmware.spent import Cycles
from crtexport.pipeline.summary.records import Finding, Layer, ReportedStep, ReportedTensor
from crtexport.reports.peers import PeerFigure
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import InvalidDataError, record
from crtexport.support.short import line, sizes

FORMAT = "crtexport-report"
VERSION = 1

EMBEDDED = ('<script type="application/json" id="crtexport-report">', "</script>")
"""The tags around the same JSON in a page."""

_LARGEST = 1 << 26  # characters of a file that is read as a report


class ReportedModel(Struct, frozen=True):
    """The network: its name, the name and SHA-256 of its file, and the runtime whose integers it
    computes (:class:`crtexport.ir.numerics.Numerics`)."""

    name: str
    source: str
    sha256: str
    numerics: str


class ReportedBoard(Struct, frozen=True):
    """The board; ``processor`` is named as compilers name it. ``hosted``: the board is a computer
    with an operating system, so no memory has a size of its own."""

    name: str
    description: str
    processor: str
    hosted: bool


class MemoryContent(Struct, frozen=True):
    """Something that takes ``bytes`` of a memory."""

    what: str
    bytes: int


class MemoryUse(Struct, frozen=True):
    """A memory of the board, and what takes how much of it."""

    name: str
    size: int
    used: int
    contents: tuple[MemoryContent, ...]

    @property
    def percent(self) -> float:
        """Returns the used part in percent; more than 100 if the memory is too small."""
        return 100 * self.used / max(self.size, 1)


class Totals(Struct, frozen=True):
    """Sums over the network, in bytes or per inference.

    ``flash`` is the sum of code (if it is known), weights, tables and ``other`` (strings of entry
    points, device programs). ``ram`` is the sum of workspace, state, stack, and of inputs and
    outputs in buffers of the caller (``io``). ``stack`` is what the board reserves,
    ``stack_measured`` what an inference used of it. ``instructions`` of one inference are
    ``counted`` in an emulator or ``estimated`` by the cost model. ``cycles`` are modelled from
    counted instructions; None without these, or without a timing model of the processor."""

    flash: int
    code: int | None
    weights: int
    tables: int
    other: int
    ram: int
    workspace: int
    state: int
    io: int
    stack: int
    stack_measured: int | None
    macs: int | None
    instructions: int | None
    instructions_are: Literal["counted", "estimated", "unknown"]
    cycles: Cycles | None = None


class Reproduce(Struct, frozen=True):
    """The settings on which the result depends: ``options`` that differ from their defaults,
    versions of tools by name, and others."""

    command: str
    emit: str
    optimize: str
    options: dict[str, Any]
    llvm_options: tuple[str, ...]
    tools: dict[str, str]


class Report(Struct, frozen=True, kw_only=True):
    """One network on one board.

    ``fits`` is None for boards with an operating system. ``pools`` are the workspace's bytes by
    memory. ``peers`` are recorded figures of other tools for the same file, on this board or one
    with the same processor; ``sources`` says who measured them, and how."""

    format: str = FORMAT
    version: int = VERSION
    crtexport: str
    model: ReportedModel
    board: ReportedBoard
    fits: bool | None
    memories: tuple[MemoryUse, ...]
    totals: Totals
    pools: tuple[MemoryContent, ...]
    steps: tuple[ReportedStep, ...]
    layers: tuple[Layer, ...]
    tensors: tuple[ReportedTensor, ...]
    peers: tuple[PeerFigure, ...]
    sources: dict[str, str]
    findings: tuple[Finding, ...]
    reproduce: Reproduce

    def __repr__(self) -> str:
        fits = {True: "fits,", False: "does not fit,", None: ""}[self.fits]
        counts = {"flash": self.totals.flash, "RAM": self.totals.ram}
        return line("Report", self.model.name, f"on {self.board.name}:", fits, sizes(counts))

    def costliest(self, count: int) -> list[Layer]:
        """Returns the ``count`` layers with the most instructions, or multiply-accumulates if
        instructions aren't known; the costliest first."""
        return costliest(self.layers, count)


def costliest(layers: tuple[Layer, ...], count: int) -> list[Layer]:
    """As :meth:`Report.costliest`."""

    def cost(layer: Layer) -> tuple[int, int, int]:
        return layer.instructions or 0, layer.macs or 0, layer.flash

    return sorted(layers, key=cost, reverse=True)[:count]


def to_data(report: Report) -> dict[str, Any]:
    """Returns the report as JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(report)
    return data


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of the format."""
    return msgspec.json.schema(Report)


def read(path: Path) -> Report:
    """Returns the report in a JSON file or in a page. Raises CrtExportError for other files."""
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise CrtExportError("the file is too large for a report", location=str(path))
    except OSError as error:
        raise CrtExportError(
            f"the report can't be read ({error.strerror or error})", location=str(path)
        ) from error
    except UnicodeDecodeError as error:
        raise _no_report(path) from error
    begin, end = EMBEDDED
    if begin in text:
        text = text.split(begin, 1)[1].split(end, 1)[0]
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_report(path) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _no_report(path)
    if data.get("version") != VERSION:
        raise CrtExportError(
            f"the report has version {data.get('version')!r}, this program reads {VERSION}",
            location=str(path), hint="make the report again",
        )
    try:
        return record(Report, data, "ignore")
    except InvalidDataError as error:
        keys = ".".join(map(str, error.problems[0].path))
        raise CrtExportError(
            f"the report is damaged: {error.problems[0].text}", location=(str(path), keys)
        ) from error


def _no_report(path: Path) -> CrtExportError:
    return CrtExportError(
        "this is not a report", location=str(path),
        hint="`crtexport report MODEL --board NAME -o FILE.json` writes one; FILE.html is one, too",
    )
