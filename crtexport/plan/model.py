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
    STATE = "state"  # byte ``offset`` of the memory of all variables


class Placement(Struct, frozen=True):
    """The place of one tensor: byte ``offset`` of buffer, pool or constant ``index``."""

    space: Space
    index: int = 0
    offset: int = 0


class ScratchRange(Struct, frozen=True):
    """``nbytes`` from byte ``offset`` of pool ``pool`` of the workspace, which a node uses only
    while it runs."""

    offset: int
    nbytes: int
    pool: int = 0


class Step(Struct, frozen=True):
    """One node that runs. ``in_place`` lists (output position, input position) that share bytes.

    ``backward``: the kernel's outer loops run in reverse order. ``scratch`` is None if it needs
    none. ``inner`` has the plans of the node's graphs, ``rows`` the places of rows that a cascade
    keeps.
    """

    node: int
    in_place: tuple[tuple[int, int], ...] = ()
    backward: bool = False
    scratch: ScratchRange | None = None
    inner: tuple[Inner, ...] = ()
    rows: RowPlan | None = None


class RowPlan(Struct, frozen=True):
    """The scratch of a cascade: ``size`` bytes.

    ``rings`` has the offset of the kept rows of each tensor, ``rows`` their number. For each node
    of the bands, ``scratch`` is the offset of its own scratch, and ``in_place`` lists (output
    position, input position) that share bytes.
    """

    rings: Mapping[int, int]
    rows: Mapping[int, int]
    scratch: tuple[int, ...]
    size: int
    in_place: tuple[tuple[tuple[int, int], ...], ...] = ()


class Inner(Struct, frozen=True):
    """The plan of an inner graph, in its node's scratch.

    Its workspace begins at byte ``workspace`` of the scratch. Its inputs are in the buffers of the
    node's inputs; its outputs are at bytes ``outputs`` of the scratch, or, where that is None, in
    the buffers of the node's outputs.
    """

    plan: Plan
    workspace: int
    outputs: tuple[int | None, ...]


class Peak(Struct, frozen=True):
    """The step of an order of execution that needs the most memory.

    ``lower_bound``: bytes of workspace that every placement needs there. ``node`` runs at that
    step; None before the first or after the last node. ``live``: the most bytes of tensors that are
    live at one step, counted as if only views shared bytes.
    """

    lower_bound: int = 0
    node: int | None = None
    live: int = 0


class Plan(Struct, frozen=True):
    """``placements[tensor]`` for every tensor that a step reads or writes; None for unused tensors.

    Nodes that need not run (a reshape whose output is a view of its input) have no step.
    ``alignment`` is that of the workspace; a tensor may start at any multiple of its element's
    size. ``state_size``: bytes of all variables, which have offsets of their own (Space.STATE).
    ``spilled``: the sizes of the pools of the workspace after the first, whose size is
    ``workspace_size``. ``io_in_workspace``: graph inputs and outputs have offsets in the workspace.
    ``shared``: the outputs that lie in the buffers of the inputs with the same numbers.
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
        """Returns the bytes of each pool of the workspace."""
        return (self.workspace_size, *self.spilled)

    @property
    def total(self) -> int:
        """Returns the bytes of all pools of the workspace."""
        return sum(self.pools)
