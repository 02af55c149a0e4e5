"""The data that a package has about its network, and that reports show.

Sizes are bytes; None stands for what isn't known.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from crtexport.firmware.budget import Usage
from crtexport.firmware.spent import Cycles

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 62)]


class Quantized(Struct, frozen=True):
    """real = scale * (stored - zero point). ``low`` and ``high`` are the smallest and the largest
    real value that can be stored; if there are several ``channels``, each with a scale of its own,
    in any of them."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    low: float
    high: float
    channels: Count = 1


class ReportedTensor(Struct, frozen=True):
    """A tensor that isn't constant. ``space`` is the memory that it is in: "input" or "output"
    (buffers of the caller), "workspace", "state", or "none". It lies at byte ``offset`` of pool
    ``pool``. It is live from step ``first`` to step ``last``; -1 stands for the time before the
    first step, the number of steps for the time after the last."""

    id: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: Count
    space: str
    pool: Count
    offset: Count
    first: int
    last: int
    quantization: Quantized | None = None


class ReportedScratch(Struct, frozen=True):
    """Workspace that only one step uses: ``bytes`` from ``offset`` on, in pool ``pool``."""

    pool: Count
    offset: Count
    bytes: Count


class ReportedStep(Struct, frozen=True):
    """A node of the exported network, in the order of execution. ``view``: no code runs, since the
    output is the same bytes as the input. ``in_place``: pairs (output, input) of tensors that share
    bytes, by their ids. ``row_by_row``: a cascade, several layers that are computed row by row."""

    name: str
    operator: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    view: bool = False
    scratch: ReportedScratch | None = None
    in_place: tuple[tuple[int, int], ...] = ()
    row_by_row: bool = False


class Layer(Struct, frozen=True):
    """A call of a kernel in ``step``.

    ``dtype`` and ``shape`` are those of its output. ``code``, ``weights`` and ``tables`` are bytes,
    counted at the first layer that uses them. ``kernel`` is the function's symbol, ``variant`` the
    schedule that was selected from ``candidates`` many. ``by`` is "crtexport", or the accelerator
    that computes the layer. ``macs``, ``instructions`` and ``cycles`` are sums over all ``runs`` of
    an inference; if ``runs`` is None, because branches or loops decide, they are of one run.
    ``cycles`` are modelled from counted instructions; None without these, or without a timing model
    of the processor."""

    step: int
    name: str
    operator: str
    dtype: str
    shape: tuple[int, ...]
    macs: Count | None
    instructions: Count | None
    runs: Count | None
    code: Count | None
    weights: Count
    tables: Count
    kernel: str
    variant: str
    candidates: Count
    by: str
    fused: tuple[str, ...] = ()
    cycles: Cycles | None = None

    @property
    def flash(self) -> int:
        """Returns all bytes of flash that are known."""
        return (self.code or 0) + self.weights + self.tables


FindingKind = Literal["fused", "removed", "pruned", "offloaded", "refused", "float", "warning"]


class Finding(Struct, frozen=True):
    """A change of the network (``what``: the layer) and its reason, or a warning."""

    kind: FindingKind
    what: str
    why: str


class NetworkSummary(Struct, frozen=True):
    """One network of a package, called ``name``.

    ``steps`` are its nodes in the order of execution. ``layers`` have estimated instructions and no
    bytes of code, which the package's objects have. ``findings`` are changes that the export made,
    and warnings that don't depend on the board's memories. ``weights`` and ``tables`` are the bytes
    of its constants; ``usage`` is what it takes of the board's memories without code. ``sources``
    are C files of accelerators, compiled with the firmware."""

    name: str
    steps: tuple[ReportedStep, ...]
    layers: tuple[Layer, ...]
    tensors: tuple[ReportedTensor, ...]
    findings: tuple[Finding, ...]
    weights: Count
    tables: Count
    usage: Usage
    sources: tuple[str, ...]
