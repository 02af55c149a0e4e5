"""The plan: what the planner decides and the checker proves; and what it may know of kernels."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise

from msgspec import Struct, field

from crtexport.ir.graph import Graph


class Space(enum.Enum):
    """Where a tensor lives."""

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


class Scratch(Struct, frozen=True):
    """``nbytes`` from byte ``offset`` of pool ``pool`` of the workspace on that a node uses only
    while it runs."""

    offset: int
    nbytes: int
    pool: int = 0


class Step(Struct, frozen=True):
    """One node that runs. ``in_place`` lists (output position, input position) that share bytes.

    ``backward``: the kernel runs its outer loops from their ends to their beginnings.
    ``scratch``: what it needs besides its tensors; None if nothing. ``inner``: the plans of the
    graphs that the node runs, one for each.
    """

    node: int
    in_place: tuple[tuple[int, int], ...] = ()
    backward: bool = False
    scratch: Scratch | None = None
    inner: tuple[Inner, ...] = ()


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

    @property
    def pools(self) -> tuple[int, ...]:
        """The bytes of each pool of the workspace."""
        return (self.workspace_size, *self.spilled)

    @property
    def total(self) -> int:
        """The bytes of all pools of the workspace."""
        return sum(self.pools)


# ---- what kernels tell the planner


class Freedom(Struct, frozen=True):
    """Where an output may begin, in bytes from where an input begins that dies with the node.

    At most ``before``: the kernel writes behind what it still reads. Or at least ``after``: it
    writes ahead of it. Anything between would overwrite what is still read, but for distances in
    ``exact``: there, the kernel never meets what it still reads though both lie interleaved.
    """

    before: int
    after: int
    exact: tuple[int, ...] = ()

    def allows(self, distance: int) -> bool:
        """Whether the output may begin ``distance`` bytes after the input."""
        return distance <= self.before or distance >= self.after or distance in self.exact

    def bans(self) -> tuple[tuple[int, int], ...]:
        """What isn't allowed: distances between two that are, neighbour by neighbour."""
        edges = [self.before, *sorted(d for d in self.exact if self.before < d < self.after)]
        return tuple(pairwise([*edges, self.after]))

    def shared(self, source: int, output: int) -> int:
        """Most bytes that an output of so many bytes may share with an input of so many."""
        aligned = source - output
        ways = (min(self.before, 0, aligned), max(self.after, 0, aligned), *self.exact)
        return max(0, *(min(source, d + output) - max(0, d) for d in ways))


class Move(Struct, frozen=True):
    """``nbytes`` of an output from byte ``target`` are those of an input from byte ``source``."""

    output: int
    input: int
    target: int
    source: int
    nbytes: int


Freedoms = Mapping[tuple[int, int], Freedom]


class Facts(Struct, frozen=True, dict=True):
    """What the kernel of one node allows, by (output position, input position).

    ``reversed``, asked only where it matters, holds for the kernel with its outer loops reversed;
    None where it can't be. ``moves`` is all that the node does, if it does nothing but copying;
    None otherwise. ``scratch``: bytes of workspace that it needs while it runs, beside its tensors.
    ``reads`` and ``writes``: how many accesses it has to each input and output, by position.
    ``pins``: tensors that must lie in the scratch, and at which byte of it; what it overwrites
    there, and when, is the node's own affair.
    """

    forward: Freedoms = field(default_factory=dict)
    reversed: Callable[[], Freedoms | None] | None = None
    moves: tuple[Move, ...] | None = None
    scratch: int = 0
    reads: Mapping[int, int] = field(default_factory=dict)
    writes: Mapping[int, int] = field(default_factory=dict)
    pins: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def backward(self) -> Freedoms | None:
        """What ``reversed`` says."""
        return None if self.reversed is None else self.reversed()


KernelFacts = Callable[[Graph, int], Facts]
"""Tells the planner about the kernel of a node, by number."""
