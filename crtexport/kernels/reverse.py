"""Kernels whose outer loops run from the end to the beginning.

They let an output move up over its input where the plain kernel would have to move it down.
"""

from __future__ import annotations

from dataclasses import replace

from crtexport.kernels.accesses import accesses, addresses
from crtexport.kernels.build import const, sub
from crtexport.kernels.intervals import assigned_names
from crtexport.kernels.ir import Body, Const, For, If, Kernel, Let, Local, Scalar, Stmt, Var

POINTS = 1 << 22
"""Most stores of a kernel that are looked at to see that none hits an element twice."""


def backwards(kernel: Kernel) -> Kernel | None:
    """``kernel`` with all loops around its store reversed but the innermost; None if it matters.

    It doesn't matter where one statement stores, each element at most once, nothing stored is
    read, and no loop around it hands a Local from one iteration to the next.
    """
    listed = accesses(kernel)
    stores = [a for a in listed if a.stores]
    written = {a.buffer.name for a in stores}
    if len(stores) != 1 or any(not a.stores and a.buffer.name in written for a in listed):
        return None
    loops = stores[0].loops
    names = [name for name, _ in loops[:-1]]
    grid = tuple((name, extent) for name, extent in loops if extent is not None)
    points = 1
    for _, extent in grid:
        points *= extent
    if not names or len(grid) < len(loops) or not 0 < points <= POINTS:
        return None
    if not _independent(kernel.body, frozenset(names)):
        return None
    low, high = addresses(kernel, grid)[stores[0].number]
    rising = bool((low == high).all() and (low[1:] > low[:-1]).all())
    if not rising:
        return None
    return replace(
        kernel, name=f"{kernel.name}_backwards", body=_reversed(kernel.body, frozenset(names))
    )


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
