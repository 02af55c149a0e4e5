"""Kernels that store each of their results exactly once.

Schedules may compute the last pixels of an image twice, so that all blocks of pixels are full. Code
that adds results up must see each result once, and sums of floats must see them in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir import language as kir
from crtexport.kir.analysis.access_trace import Replay, happenings
from crtexport.kir.analysis.affine_index import IndexFacts
from crtexport.kir.builder import add, ge
from crtexport.kir.language import BinaryOp, Body, Buffer, Expr, Kernel, Scalar, Stmt
from crtexport.kir.walk import map_bodies


class Results(Struct, frozen=True):
    """The results of a kernel: ``pixels`` of ``channels``. ``ordered``: the results of a channel
    must be stored in the order of pixels."""

    output: Buffer
    pixels: int
    channels: int
    ordered: bool

    def stored_once(self, kernel: Kernel) -> Kernel | None:
        """Returns the kernel, if necessary with conditions around its stores, if it provably stores
        each result once; else None."""
        if self._proven(kernel):
            return kernel
        guarded = replace(kernel, body=_Guarding(self).body(kernel.body))
        return guarded if guarded != kernel and self._proven(guarded) else None

    def _proven(self, kernel: Kernel) -> bool:
        """Returns whether replaying the kernel shows one store of each result."""
        times = np.full(self.pixels * self.channels, -1, np.int64)
        for event in Replay(kernel).events or ():
            if not event.stores or event.buffer != self.output:
                continue
            if not event.certain:
                return False
            for places, when, _ in happenings(event, latest=False, every_loop=True):
                if (times[places] >= 0).any() or len(np.unique(places)) < len(places):
                    return False
                times[places] = when
        if (times < 0).any():
            return False
        steps = np.diff(times.reshape(self.pixels, self.channels), axis=0)
        return not self.ordered or bool((steps > 0).all())


def types_stored(kernel: Kernel, output: Buffer) -> set[Scalar]:
    """Returns the types of values that a kernel stores in a buffer."""
    return {
        event.value.type for event in Replay(kernel).events or ()
        if event.buffer == output and event.value is not None
    }


class _Guarding:
    """Skips pixels that the block before has computed: where the first pixel or row of a block is
    moved back so that the block is full, only the pixels from its regular first one on are new."""

    def __init__(self, results: Results) -> None:
        self.results, self.known = results, IndexFacts()

    def body(self, body: Body) -> Body:
        found: list[Stmt] = []
        for stmt in body:
            self.known.after(stmt)
            found.append(self._stmt(stmt))
        return tuple(found)

    def _stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case kir.Store() | kir.StoreVector() if stmt.buffer == self.results.output:
                new = self._is_new(stmt.index)
                return stmt if new is None else kir.If(new, (stmt,))
            case _:
                return map_bodies(stmt, self.body)

    def _is_new(self, index: Expr) -> Expr | None:
        found = self.known.divided(index, self.results.channels)
        tests = [] if found is None else list(self._tests(found[0]))
        return tests[0] if len(tests) == 1 else None

    def _tests(self, expr: Expr) -> Iterator[Expr]:
        """Returns the conditions under which a pixel, or a row, is new."""
        terms = list(self._terms(expr))
        within = [term for term in terms if isinstance(term, kir.Var | kir.Const)]
        for term in terms:
            match term:
                case kir.Binary(BinaryOp.MIN, a, _):
                    yield ge(add(term, *within), a)
                case kir.Binary(BinaryOp.MUL, a, kir.Const()):
                    yield from self._tests(a)
                case _:
                    pass

    def _terms(self, expr: Expr) -> Iterator[Expr]:
        """Returns the terms of a sum."""
        match expr:
            case kir.Var(name=name) if name in self.known.lets:
                yield from self._terms(self.known.lets[name])
            case kir.Binary(BinaryOp.ADD, a, b):
                yield from self._terms(a)
                yield from self._terms(b)
            case _:
                yield expr
