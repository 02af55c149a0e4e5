"""Kernels that process one channel after the other, so that no channel accesses the bytes of
another.

Where channels are neighbours in memory, an output that begins a whole number of pixels after its
input overlaps only bytes of the same channel. Such an output may lie much closer to its input than
an output of a kernel that reads and writes all channels of a pixel together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.analysis.accesses import loads, width_of
from crtexport.kir.builder import const
from crtexport.kir.language import Body, Buffer, Expr, Kernel, Stmt
from crtexport.kir.linear_form import linear_form
from crtexport.kir.walk import expressions, rewrite, variables

Linear = Mapping[str, int]
"""Factors of loop variables in a sum; under "" what is added."""


class ChannelLoop(Struct, frozen=True):
    """``loop`` runs over ``count`` channels, which are neighbours in memory."""

    loop: str
    count: int

    def of_one_channel(self, kernel: Kernel) -> Kernel:
        """Returns ``kernel`` as it is for a single channel."""
        return replace(kernel, body=rewrite(kernel.body, partial(_pinned, loop=self.loop)))


def channel_loop(kernel: Kernel, names: frozenset[str]) -> ChannelLoop | None:
    """Returns the loop whose variable alone selects the channel in all accesses to the buffers
    ``names``; None if there is no such loop around all of them."""
    listing = _ChannelAccesses(names)
    listing.body(kernel.body, ())
    if not listing.found or not listing.followed:
        return None
    shared = set(listing.found[0][0]).intersection(*(loops for loops, _ in listing.found))
    for loop, count in listing.found[0][0]:
        if (loop, count) not in shared or count < 2 or loop in listing.deciding:
            continue
        ways = {_way(linear, loop, count) for _, linear in listing.found}
        beside = {name for _, linear in listing.found for name in linear if name != loop}
        hidden = any(loop in listing.reaches(name) for name in beside)
        if len(ways) == 1 and None not in ways and not hidden:
            return ChannelLoop(loop, count)
    return None


def _way(linear: Linear, loop: str, count: int) -> tuple[int, int] | None:
    """Returns the term by which ``loop`` decides an address modulo ``count``; None if other
    variables do, too."""
    factor = linear.get(loop, 0)
    others = any(f % count for name, f in linear.items() if name not in ("", loop))
    return None if abs(factor) != 1 or others else (factor, linear.get("", 0) % count)


class _ChannelAccesses:
    """The accesses to some buffers: the loops around each, and its index as a linear sum."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.found: list[tuple[tuple[tuple[str, int], ...], Linear]] = []
        self.followed = True
        self.deciding: set[str] = set()  # variables in conditions
        self.lets: dict[str, Expr] = {}
        self._known: dict[str, Linear] = {}
        self._reached: dict[str, frozenset[str]] = {}

    def body(self, body: Body, loops: tuple[tuple[str, int], ...]) -> None:
        for stmt in body:
            if not self.followed:
                return
            for buffer, index, width in _touched(stmt):
                if buffer.name not in self.names:
                    continue
                linear = self._linear(index) if width == 1 else None
                if linear is None:
                    self.followed = False
                else:
                    self.found.append((loops, linear))
            match stmt:
                case kir.Let():
                    self.lets[stmt.var.name] = stmt.value
                case kir.For(var=var, extent=kir.Const(value=extent), body=inner):
                    self.body(inner, (*loops, (var.name, int(extent))))
                case kir.For():
                    self.followed = False
                case kir.If(condition=condition, then=then, other=other):
                    self._decide(condition)
                    self.body(then, loops)
                    self.body(other, loops)
                case _:
                    pass

    def reaches(self, name: str) -> frozenset[str]:
        """Returns the variables that the value of a name depends on where it is no linear sum."""
        if name not in self._reached:
            value = self.lets.get(name)
            parts = set() if value is None or self._linear(value) is not None else variables(value)
            self._reached[name] = frozenset(parts.union(*map(self.reaches, parts)))
        return self._reached[name]

    def _decide(self, expr: Expr) -> None:
        """Notes the loop variables that a condition depends on."""
        match expr:
            case kir.Compare(a=a, b=b) | kir.Binary(a=a, b=b):
                self._decide(a)
                self._decide(b)
            case kir.Const():
                pass
            case kir.Var():
                self.deciding |= set(self._named(expr.name))
            case _:
                self.followed = False

    def _named(self, name: str) -> Linear:
        """Returns the value of a name as a linear sum; of any other value, the name itself."""
        if name not in self._known:
            value = self.lets.get(name)
            linear = None if value is None else self._linear(value)
            self._known[name] = {name: 1} if linear is None else linear
        return self._known[name]

    def _linear(self, expr: Expr) -> Linear | None:
        """Returns ``expr`` as a linear sum of loop variables; None for anything else."""
        terms, constant = linear_form(expr)
        total = {"": constant}
        for term, factor in terms:
            if not isinstance(term, kir.Var):
                return None
            for name, own in self._named(term.name).items():
                total[name] = total.get(name, 0) + own * factor
        return total


def _touched(stmt: Stmt) -> Iterator[tuple[Buffer, Expr, int]]:
    """Yields the buffer, the first index and the number of elements of each access."""
    for expr in expressions(stmt):
        for load in loads(expr):
            yield load.buffer, load.index, width_of(load)
    if isinstance(stmt, kir.Store):
        yield stmt.buffer, stmt.index, 1
    elif isinstance(stmt, kir.StoreVector):
        yield stmt.buffer, stmt.index, stmt.count


def _pinned(stmt: Stmt, loop: str) -> Body:
    """Returns a loop over channels, restricted to one channel."""
    chosen = isinstance(stmt, kir.For) and stmt.var.name == loop
    return (replace(stmt, extent=const(1)) if chosen else stmt,)
