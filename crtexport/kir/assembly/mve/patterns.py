"""Expressions of several calls that an instruction computes."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.kir import language as kir
from crtexport.kir.language import Expr

DUPS = {"mve_dup_s8": "dup_s8", "mve_dup_s16": "dup_s16", "mve_dup_s32": "dup_s32"}
"""Forms of vectors of one number, by intrinsics."""
MOST_SHIFTED = 16
"""Bits that narrowing words can shift by."""

Definition = Callable[[Expr], Expr]
"""Gives what is behind a name."""


def clamp_of(expr: Expr, definition: Definition) -> tuple[Expr, int, int] | None:
    """Returns the value and the bounds of min(max(value, low), high); None for others."""
    match expr:
        case kir.Call(args=(inner, high)) if expr.name.startswith("mve_min_s"):
            match definition(inner):
                case kir.Call(args=(value, low)) as most if most.name.startswith("mve_max_s"):
                    least, largest = _constant(definition(low)), _constant(definition(high))
                    if least is not None and largest is not None:
                        return value, least, largest
    return None


def shift_of(expr: Expr, definition: Definition) -> tuple[Expr, int] | None:
    """Returns the words that are shifted to the right and rounded, and by how many bits, if
    narrowing can do that, too; None for others."""
    match definition(expr):
        case kir.Call(name="mve_rshl_s32", args=(value, by)):
            count = _constant(definition(by))
            if count is not None and 1 <= -count <= MOST_SHIFTED:
                return value, -count
    return None


def _constant(expr: Expr) -> int | None:
    match expr:
        case kir.Call(args=(kir.Const(value=value),)) if expr.name in DUPS:
            return int(value)
        case _:
            return None
