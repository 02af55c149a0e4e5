"""Kernels whose outer loops run from the end to the beginning.

They let an output move up over its input where the plain kernel would have to move it down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from crtexport.kernels.accesses import Access, accesses, touching
from crtexport.kernels.addresses import Floats, addresses
from crtexport.kernels.build import const, sub
from crtexport.kernels.fresh import fresh
from crtexport.kernels.intervals import assigned_names
from crtexport.kernels.ir import Body, Const, For, If, Kernel, Let, Local, Scalar, Stmt, Var

Loops = tuple[tuple[str, int | None], ...]

POINTS = 1 << 22
"""Most stores of a kernel that are looked at to see that none hits an element twice."""


def backwards(kernel: Kernel, scratch: Iterable[str] = ()) -> Kernel | None:
    """``kernel`` with loops that are around all its stores reversed; None if it matters.

    The innermost loop around a store stays as it is. It doesn't matter where each element is stored
    at most once, nothing stored is read, and no such loop hands a Local from one iteration to the
    next. ``scratch`` names buffers whose contents nobody wants afterwards: of these may be read
    what the same iteration stored before.
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
    while loops and aside and not fresh(kernel, aside, loops):
        loops = loops[:-1]
    names = frozenset(name for name, _ in loops)
    if not names or not _independent(kernel.body, names) or not _once(part, stores, loops):
        return None
    return replace(kernel, name=f"{kernel.name}_backwards", body=_reversed(kernel.body, names))


def _common(nests: list[Loops]) -> Loops:
    """The loops that all of ``nests`` begin with."""
    shared: list[tuple[str, int | None]] = []
    for level in zip(*nests, strict=False):
        if any(loop != level[0] for loop in level):
            break
        shared.append(level[0])
    return tuple(shared)


def _once(
    kernel: Kernel, stores: list[Access], outer: tuple[tuple[str, int], ...]
) -> bool:
    """Whether no element is stored in two iterations of the ``outer`` loops. ``stores`` are all of
    ``kernel`` to the buffers that they name."""
    written = {store.buffer.name for store in stores}
    iterations = math.prod(extent for _, extent in outer)
    by_loops: dict[Loops, list[Access]] = {}
    for store in stores:
        by_loops.setdefault(store.loops, []).append(store)
    found: dict[str, list[Floats]] = {}
    points = 0
    numbers: dict[str, list[Floats]] = {}
    for loops, together in by_loops.items():
        grid = tuple((name, extent) for name, extent in loops if extent is not None)
        points += math.prod(extent for _, extent in grid) * len(together)
        if len(grid) < len(loops) or not 0 < points <= POINTS:
            return False
        touched = addresses(kernel, grid, written)
        for store in together:
            low, high = touched[store.number]
            if not (low == high).all():
                return False
            found.setdefault(store.buffer.name, []).append(low)
            number = np.repeat(np.arange(iterations, dtype=np.float64), len(low) // iterations)
            numbers.setdefault(store.buffer.name, []).append(number)
    for name, parts in found.items():
        whole, number = np.concatenate(parts), np.concatenate(numbers[name])
        order = np.argsort(whole, kind="stable")
        whole, number = whole[order], number[order]
        again = (whole[1:] == whole[:-1]) & np.isfinite(whole[1:])
        if (again & (number[1:] != number[:-1])).any():
            return False
    return True


def _independent(body: Body, loops: frozenset[str]) -> bool:
    """Whether each of ``loops`` only assigns to Locals that begin inside of it."""
    for stmt in body:
        match stmt:
            case For(var=var, body=inner):
                carried = assigned_names(inner) - _locals(inner)
                if (var.name in loops and carried) or not _independent(inner, loops):
                    return False
            case If(then=then, other=other):
                if not (_independent(then, loops) and _independent(other, loops)):
                    return False
            case _:
                pass
    return True


def _locals(body: Body) -> frozenset[str]:
    found: set[str] = set()
    for stmt in body:
        match stmt:
            case Local(var=var):
                found.add(var.name)
            case For(body=inner):
                found |= _locals(inner)
            case If(then=then, other=other):
                found |= _locals(then) | _locals(other)
            case _:
                pass
    return frozenset(found)


def _reversed(body: Body, loops: frozenset[str]) -> Body:
    return tuple(_stmt(stmt, loops) for stmt in body)


def _stmt(stmt: Stmt, loops: frozenset[str]) -> Stmt:
    if isinstance(stmt, If):
        return replace(
            stmt, then=_reversed(stmt.then, loops), other=_reversed(stmt.other, loops)
        )
    if not isinstance(stmt, For):
        return stmt
    body = _reversed(stmt.body, loops)
    if stmt.var.name not in loops or not isinstance(stmt.extent, Const):
        return replace(stmt, body=body)
    # The new name can't clash: lowerings don't use it.
    counter = Var(f"{stmt.var.name}_left", Scalar.INDEX)
    position = Let(stmt.var, sub(const(int(stmt.extent.value) - 1), counter))
    return replace(stmt, var=counter, body=(position, *body))
