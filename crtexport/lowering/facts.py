"""Facts about a kernel, for the planner: where outputs may overlap inputs, and what is only
copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise

from msgspec import Struct, field


class Freedom(Struct, frozen=True):
    """The distances, in bytes, from the start of an input that dies with the node to the start of
    an output that may overlap it.

    Allowed are distances of at most ``before``, where the kernel writes behind what it still reads,
    and of at least ``after``, where it writes ahead of it. Others would overwrite what is still to
    be read, except for the distances in ``exact``, at which both are interleaved without meeting.
    """

    before: int
    after: int
    exact: tuple[int, ...] = ()

    def allows(self, distance: int) -> bool:
        """Returns whether the output may begin ``distance`` bytes after the input."""
        return distance <= self.before or distance >= self.after or distance in self.exact

    def bans(self) -> tuple[tuple[int, int], ...]:
        """Returns the forbidden distances as open intervals between neighbouring allowed ones."""
        edges = [self.before, *sorted(d for d in self.exact if self.before < d < self.after)]
        return tuple(pairwise([*edges, self.after]))

    def shared(self, source: int, output: int) -> int:
        """Returns the most bytes that an output of ``output`` bytes may share with an input of
        ``source`` bytes."""
        aligned = source - output
        ways = (min(self.before, 0, aligned), max(self.after, 0, aligned), *self.exact)
        return max(0, *(min(source, d + output) - max(0, d) for d in ways))


class ByteMove(Struct, frozen=True):
    """``nbytes`` of an output from byte ``target`` are those of an input from byte ``source``."""

    output: int
    input: int
    target: int
    source: int
    nbytes: int


Freedoms = Mapping[tuple[int, int], Freedom]


class Facts(Struct, frozen=True, dict=True):
    """The freedoms of a node's kernel, by (output position, input position).

    ``reversed`` returns those of the kernel with its outer loops reversed, None where it can't be
    reversed; it is called only where that matters. ``moves``: everything that the node does, if it
    only copies; None otherwise. ``scratch``: the bytes of workspace that it needs beside its
    tensors. ``reads`` and ``writes``: the number of accesses to each input and output, by position.
    ``pins``: tensors that must lie in the scratch, and at which byte; the node itself decides what
    it overwrites there.
    ``kept``: whether the scratch must keep its contents until the next run.
    """

    forward: Freedoms = field(default_factory=dict)
    reversed: Callable[[], Freedoms | None] | None = None
    moves: tuple[ByteMove, ...] | None = None
    scratch: int = 0
    reads: Mapping[int, int] = field(default_factory=dict)
    writes: Mapping[int, int] = field(default_factory=dict)
    pins: Mapping[int, int] = field(default_factory=dict)
    kept: bool = False

    @cached_property
    def backward(self) -> Freedoms | None:
        """Returns the freedoms of the reversed kernel; None where it can't be reversed."""
        return None if self.reversed is None else self.reversed()
