"""Expressions that are part of an instruction, and numbers as instructions have them."""

from __future__ import annotations

from crtexport.kir import language as kir
from crtexport.kir.language import BinaryOp, Expr, Scalar

WORDS = (Scalar.I32, Scalar.U32, Scalar.INDEX)
SHIFT = {True: "asr", False: "lsr"}
"""By whether numbers are signed."""


def bytes_of(type_: Scalar) -> int:
    """Returns the size of a value in bytes."""
    return 4 if type_ is Scalar.INDEX else type_.itemsize


def signed(value: int) -> int:
    """Returns a word as a signed number."""
    return ((value & 0xFFFFFFFF) ^ 1 << 31) - (1 << 31)


def shift_of(expr: Expr) -> tuple[Expr, str] | None:
    """Returns what is shifted, and how."""
    match expr:
        case kir.Binary(op=BinaryOp.SHL, a=value, b=kir.Const(value=count)) if count:
            return value, f"lsl #{count}"
        case kir.Binary(op=BinaryOp.SHR, a=value, b=kir.Const(value=count)) if count:
            return value, f"{SHIFT[value.type is not Scalar.U32]} #{count}"
        case kir.Cast(value=inner) if expr.type in WORDS and inner.type in WORDS:
            return shift_of(inner)
        case _:
            return None


def upper_of_product(cast: kir.Cast) -> tuple[Expr, Expr, bool] | None:
    """Returns the factors of a product of which only the upper word is used, and whether that is
    rounded; None for another expression."""
    match cast.value:
        case kir.Binary(op=BinaryOp.SHR, a=total, b=kir.Const(value=32)):
            pass
        case _:
            return None
    match total:
        case kir.Binary(op=BinaryOp.ADD, a=product, b=kir.Const(value=half)) if half == 1 << 31:
            rounded = True
        case _:
            product, rounded = total, False
    match product:
        case kir.Binary(
            op=BinaryOp.MUL, a=kir.Cast(value=a), b=kir.Cast(value=b)
        ) if a.type is Scalar.I32 and b.type is Scalar.I32:
            return a, b, rounded
        case _:
            return None
