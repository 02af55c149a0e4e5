"""Kernels whose outer loops run from the last iteration to the first.

An output may then begin behind its input in memory and overlap it, where the plain kernel would
need it to begin before its input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
from msgspec.structs import replace

from crtexport.kir.analysis.accesses import Access, accesses, touching
from crtexport.kir.analysis.address_intervals import Floats, addresses
from crtexport.kir.analysis.scratch_reuse import iterations_independent
from crtexport.kir.builder import const, sub
from crtexport.kir.intervals import assigned_names
from crtexport.kir.language import Body, Const, For, Kernel, Let, Local, Scalar, Stmt, Var
from crtexport.kir.walk import rewrite, walk

Loops = tuple[tuple[str, int | None], ...]

POINTS = 1 << 22
"""Most stores of a kernel that are looked at to see that none hits an element twice."""


def reverse_loops(kernel: Kernel, scratch: Iterable[str] = ()) -> Kernel | None:
    """Returns ``kernel`` with the loops around all its stores reversed; None if that could change
    results. The innermost loop around a store is kept.

    Results stay the same where each element is stored at most once, nothing stored is read, and no
    such loop carries a Local from one iteration to the next. ``scratch`` names buffers whose
    contents aren't used afterwards: they may be read where the same iteration stored before.
    """
    aside = frozenset(scratch)
    part = touching(kernel, {b.name for b in kernel.buffers if b.writable} - aside)
    listed = accesses(part)
    stores = [a for a in listed if a.stores and a.buffer.name not in aside]
    written = {a.buffer.name for a in stores}
    if not stores or any(not a.stores and a.buffer.name in written for a in listed):
        return None
    loops = tuple(
        (name, extent) for name, extent in _common([store.loops[:-1] for store in stores])
        if extent is not None
    )
    while loops and aside and not iterations_independent(kernel, aside, loops):
        loops = loops[:-1]
    names = frozenset(name for name, _ in loops)
    if not names or not _independent(kernel.body, names) or not _once(part, stores, loops):
        return None
    body = rewrite(kernel.body, partial(_reversed, loops=names))
    return replace(kernel, name=f"{kernel.name}_backwards", body=body)


def _common(nests: list[Loops]) -> Loops:
    """Returns the loops that all of ``nests`` have in common, from the outermost on."""
    shared: list[tuple[str, int | None]] = []
    for level in zip(*nests, strict=False):
        if any(loop != level[0] for loop in level):
            break
        shared.append(level[0])
    return tuple(shared)


def _once(
    kernel: Kernel, stores: list[Access], outer: tuple[tuple[str, int], ...]
) -> bool:
    """Returns whether no element is stored in two iterations of the ``outer`` loops. ``stores`` are
    all stores of ``kernel`` to their buffers."""
    written = {store.buffer.name for store in stores}
    iterations = math.prod(extent for _, extent in outer)
    by_loops: dict[Loops, list[Access]] = {}
    for store in stores:
        by_loops.setdefault(store.loops, []).append(store)
    lowest: dict[str, list[Floats]] = {}
    points = 0
    numbers: dict[str, list[Floats]] = {}
    for loops, group in by_loops.items():
        grid = tuple((name, extent) for name, extent in loops if extent is not None)
        points += math.prod(extent for _, extent in grid) * len(group)
        if len(grid) < len(loops) or not 0 < points <= POINTS:
            return False
        touched = addresses(kernel, grid, written)
        for store in group:
            low, high = touched[store.number]
            if not (low == high).all():
                return False
            lowest.setdefault(store.buffer.name, []).append(low)
            number = np.repeat(np.arange(iterations, dtype=np.float64), len(low) // iterations)
            numbers.setdefault(store.buffer.name, []).append(number)
    for name, parts in lowest.items():
        whole, number = np.concatenate(parts), np.concatenate(numbers[name])
        order = np.argsort(whole, kind="stable")
        whole, number = whole[order], number[order]
        again = (whole[1:] == whole[:-1]) & np.isfinite(whole[1:])
        if (again & (number[1:] != number[:-1])).any():
            return False
    return True


def _independent(body: Body, loops: frozenset[str]) -> bool:
    """Returns whether each of ``loops`` assigns only to Locals that are defined inside of it."""
    return not any(
        assigned_names(stmt.body) - _locals(stmt.body)
        for stmt in walk(body) if isinstance(stmt, For) and stmt.var.name in loops
    )


def _locals(body: Body) -> frozenset[str]:
    return frozenset(stmt.var.name for stmt in walk(body) if isinstance(stmt, Local))


def _reversed(stmt: Stmt, loops: frozenset[str]) -> Body:
    """Returns a statement; a loop that is one of ``loops`` runs from its last iteration to its
    first."""
    if not (
        isinstance(stmt, For) and stmt.var.name in loops and isinstance(stmt.extent, Const)
    ):
        return (stmt,)
    # The new name can't clash: lowerings don't use it.
    counter = Var(f"{stmt.var.name}_left", Scalar.INDEX)
    position = Let(stmt.var, sub(const(int(stmt.extent.value) - 1), counter))
    return (replace(stmt, var=counter, body=(position, *stmt.body)),)
