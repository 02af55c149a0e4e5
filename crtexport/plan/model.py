"""The plan: what the planner decides and the checker proves."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct

from crtexport.support.short import count, line, sizes, table


class Space(enum.Enum):
    """The kinds of memory that a tensor can lie in."""

    INPUT = "input"  # the caller's buffer of graph input ``index``
    OUTPUT = "output"  # the caller's buffer of graph output ``index``
    WORKSPACE = "workspace"  # byte ``offset`` of pool ``index`` of the workspace
    CONSTANT = "constant"  # the constant tensor ``index``
    STATE = "state"  # byte ``offset`` of what is kept between runs


class Placement(Struct, frozen=True):
    """The home of one tensor: byte ``offset`` of buffer, pool or constant ``index``."""

    space: Space
    index: int = 0
    offset: int = 0


class ScratchRange(Struct, frozen=True):
    """``nbytes`` from byte ``offset`` of pool ``pool`` of the workspace on that a node uses only
    while it runs."""

    offset: int
    nbytes: int
    pool: int = 0


class Step(Struct, frozen=True):
    """One node that runs. ``in_place`` lists (output position, input position) that share bytes.

    ``backward``: the kernel runs its outer loops from their ends to their beginnings.
    ``scratch``: what it needs besides its tensors; None if nothing. ``inner``: the plans of the
    graphs that the node runs, one for each. ``rows``: where a cascade keeps rows.
    """

    node: int
    in_place: tuple[tuple[int, int], ...] = ()
    backward: bool = False
    scratch: ScratchRange | None = None
    inner: tuple[Inner, ...] = ()
    rows: RowPlan | None = None


class RowPlan(Struct, frozen=True):
    """The scratch of a cascade: ``size`` bytes. ``rings``: from which byte on the rows lie that are
    kept of a tensor, ``rows``: for how many of them there is room; for each node of its bands,
    ``scratch`` is where its own begins, ``in_place`` lists (output position, input position) that
    share bytes."""

    rings: Mapping[int, int]
    rows: Mapping[int, int]
    scratch: tuple[int, ...]
    size: int
    in_place: tuple[tuple[tuple[int, int], ...], ...] = ()


class Inner(Struct, frozen=True):
    """The plan of a graph that a node runs, in the node's scratch.

    Its workspace is the scratch from byte ``workspace`` on. The buffers of its inputs are those of
    what the node gives it; those of its outputs the scratch from the bytes ``outputs`` on, or,
    where that is None, the node's outputs.
    """

    plan: Plan
    workspace: int
    outputs: tuple[int | None, ...]


class Peak(Struct, frozen=True):
    """The worst moment of an order of execution.

    ``lower_bound``: bytes of workspace that no offsets can go below there. ``node`` runs then; None
    when that is before the first or after the last. ``live``: the most bytes of tensors that are
    needed at one moment, as if none could share bytes with another but views.
    """

    lower_bound: int = 0
    node: int | None = None
    live: int = 0


class Plan(Struct, frozen=True):
    """``placements[tensor]`` for every tensor that a step touches; None for unused tensors.

    Nodes that are free (a reshape whose output is a view of its input) have no step. ``alignment``
    is that of the workspace; a tensor may start at any multiple of its element's size.
    ``state_size``: bytes that variables take, with offsets of their own (Space.STATE).
    ``spilled``: the sizes of further pools of the workspace, after the first of ``workspace_size``.
    ``io_in_workspace``: graph inputs and outputs have offsets in the workspace. ``shared``:
    outputs in whose buffers the inputs with their numbers lie.
    """

    steps: tuple[Step, ...]
    placements: tuple[Placement | None, ...]
    workspace_size: int
    alignment: int
    io_in_workspace: bool = False
    state_size: int = 0
    peak: Peak = Peak()
    shared: frozenset[int] = frozenset()
    spilled: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return line("Plan", f"{count(len(self.steps), 'step')},", sizes(self._sizes()))

    def _repr_html_(self) -> str:
        return table("Plan", [
            *self._sizes().items(), ("steps", len(self.steps)),
            ("steps with an output over an input", sum(bool(s.in_place) for s in self.steps)),
            ("scratch of one step, at most", max((s.scratch.nbytes for s in self.steps
                                                  if s.scratch), default=0)),
        ], ("bytes of", ""))

    def _sizes(self) -> dict[str, int]:
        further = {f"pool {n}": size for n, size in enumerate(self.spilled, 1)}
        return {"workspace": self.workspace_size, **further, "state": self.state_size}

    @property
    def pools(self) -> tuple[int, ...]:
        """The bytes of each pool of the workspace."""
        return (self.workspace_size, *self.spilled)

    @property
    def total(self) -> int:
        """The bytes of all pools of the workspace."""
        return sum(self.pools)
