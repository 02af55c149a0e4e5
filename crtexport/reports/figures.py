"""The facts of one report, as ``crtexport report --json`` prints them and ``crtexport diff`` reads
them.

The format is stable: a later version may add keys, and raises VERSION where one changes its
meaning. Sizes are bytes; None stands for what isn't known. Of a package, which keeps no
network, the steps and tensors aren't known, nor products and instructions.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from crtexport.firmware.spent import Cycles
from crtexport.reports.peers import PeerFigure
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import InvalidDataError, record
from crtexport.support.short import line, sizes

FORMAT = "crtexport-report"
VERSION = 1

EMBEDDED = ('<script type="application/json" id="crtexport-report">', "</script>")
"""The tags around the same JSON in a page."""

_LARGEST = 1 << 28  # bytes of a file that is read as a report


class ReportedModel(Struct, frozen=True):
    """The network: its name, the file that it came from, and whose numbers it computes."""

    name: str
    source: str
    sha256: str
    numerics: str


class ReportedBoard(Struct, frozen=True):
    """The board: its processor as compilers call it. ``hosted``: an operating system has the
    memory, so that nothing can be too large for it."""

    name: str
    description: str
    processor: str
    hosted: bool


class Content(Struct, frozen=True):
    """Something that takes ``bytes`` of a memory."""

    what: str
    bytes: int


class MemoryUse(Struct, frozen=True):
    """A memory of the board, and what takes how much of it."""

    name: str
    size: int
    used: int
    contents: tuple[Content, ...]

    @property
    def percent(self) -> float:
        """Returns how full it is."""
        return 100 * self.used / max(self.size, 1)


class Totals(Struct, frozen=True):
    """``flash`` is code, weights, tables and ``other`` (entry points' strings, device programs);
    where the code is unknown, it is without. ``ram``: workspace, state, inputs and outputs in
    buffers of the caller's (``io``), and the stack. ``stack`` is what the board reserves, or
    ``stack_measured`` what an inference took of it. ``instructions`` are those of one inference,
    ``counted`` in an emulator or ``estimated`` by the cost model. ``cycles`` are modelled for the
    instructions that were counted; None without counting, or without a model of the processor."""

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


class Quantized(Struct, frozen=True):
    """real = scale * (stored - zero point); ``low`` to ``high`` are the reals that can be stored.
    Of several ``channels``, each with a scale of its own, they are those of all together."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    low: float
    high: float
    channels: int = 1


class ReportedTensor(Struct, frozen=True):
    """A tensor that is computed or given. ``space`` is where it lies: "input", "output" (buffers of
    the caller's), "workspace", "state", or "none". ``first`` and ``last`` are the steps from when
    and until when it is needed, -1 before the first, and the number of steps after the last."""

    id: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    space: str
    pool: int
    offset: int
    first: int
    last: int
    quantization: Quantized | None = None


class Scratch(Struct, frozen=True):
    """Memory that a step has while it runs: bytes from ``offset`` of pool ``pool`` on."""

    pool: int
    offset: int
    bytes: int


class Step(Struct, frozen=True):
    """A node of the exported network, in the order of execution. ``view``: nothing runs, the output
    is the input's bytes. ``in_place``: outputs and inputs that share bytes, by their ids.
    ``row_by_row``: it stands for several layers, which are computed row by row."""

    name: str
    operator: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    view: bool = False
    scratch: Scratch | None = None
    in_place: tuple[tuple[int, int], ...] = ()
    row_by_row: bool = False


class Layer(Struct, frozen=True):
    """A call of a kernel in ``step``. ``code``, ``weights`` and ``tables`` are bytes, counted at
    the first layer that uses them. ``kernel`` is the function, ``variant`` the schedule that it was
    chosen from ``candidates`` many. ``by``: crtexport, or who else computes it. It ran ``runs``
    times; where branches and loops decide and nothing counted, figures are of one run. ``cycles``
    as those of :class:`Totals`."""

    step: int
    name: str
    operator: str
    dtype: str
    shape: tuple[int, ...]
    macs: int | None
    instructions: int | None
    runs: int | None
    code: int | None
    weights: int
    tables: int
    kernel: str
    variant: str
    candidates: int
    by: str
    fused: tuple[str, ...] = ()
    cycles: Cycles | None = None

    @property
    def flash(self) -> int:
        """Returns all bytes of flash that are known."""
        return (self.code or 0) + self.weights + self.tables


FindingKind = Literal["fused", "removed", "pruned", "offloaded", "refused", "float", "warning"]


class Finding(Struct, frozen=True):
    """Something that was done or that is worth knowing, of what, and why."""

    kind: FindingKind
    what: str
    why: str


class Reproduce(Struct, frozen=True):
    """All that the result depends on beside the model and the board."""

    command: str
    emit: str
    optimize: str
    options: dict[str, Any]
    llvm_options: tuple[str, ...]
    tools: dict[str, str]


class Report(Struct, frozen=True, kw_only=True):
    """One network on one board. ``pools`` are the memories of the workspace and their bytes.
    ``fits`` is None for boards whose memory an operating system has. ``peers`` are recorded figures
    of other tools for the very same file, on this board or one with the same processor; ``sources``
    says where they come from."""

    format: str = FORMAT
    version: int = VERSION
    crtexport: str
    model: ReportedModel
    board: ReportedBoard
    fits: bool | None
    memories: tuple[MemoryUse, ...]
    totals: Totals
    pools: tuple[Content, ...]
    steps: tuple[Step, ...]
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

    def _repr_html_(self) -> str:
        from crtexport.reports.page.html import render  # noqa: PLC0415  (for pages only)

        # A page of its own inside of the notebook's, so that neither's styles reach the other.
        page = escape(render(self))
        return f'<iframe srcdoc="{page}" width="100%" height="640" frameborder="0"></iframe>'

    def costliest(self, count: int) -> list[Layer]:
        """Returns the layers with the most instructions, or products where those aren't known."""
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
        if path.stat().st_size > _LARGEST:
            raise CrtExportError("the file is too large for a report", location=str(path))
        text = path.read_text(encoding="utf-8")
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
