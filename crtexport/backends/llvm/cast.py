"""Prints conversions between scalar types."""

from __future__ import annotations

from collections.abc import Callable

from crtexport.backends.llvm.half import from_half, to_half
from crtexport.backends.llvm.types import ModuleText, bits_of, has_half_conversions, value_type
from crtexport.kir.language import Scalar

Emit = Callable[[str], str]


def cast(value: str, source: Scalar, result: Scalar, module: ModuleText, emit: Emit) -> str:
    """Returns the operand that holds ``value`` as ``result``; ``emit`` adds an instruction and
    names it.

    Integers wrap, floats become integers by truncation, floats round to nearest even.
    """
    if source is result:
        return value
    if source is Scalar.F16:
        return cast(_widen_half(value, module, emit), Scalar.F32, result, module, emit)
    if result is Scalar.F16:
        return _narrow_to_half(value, source, module, emit)
    if source.is_float and result.is_float:
        word = "fpext" if result is Scalar.F64 else "fptrunc"
    elif source.is_float:
        word = "fptosi" if result.is_signed else "fptoui"
    elif result.is_float:
        word = "sitofp" if source.is_signed else "uitofp"
    else:
        before, after = bits_of(source, module.target), bits_of(result, module.target)
        if before == after:
            return value
        word = "trunc" if before > after else "sext" if source.is_signed else "zext"
    types = value_type(source, module.target), value_type(result, module.target)
    return emit(f"{word} {types[0]} {value} to {types[1]}")


def _widen_half(value: str, module: ModuleText, emit: Emit) -> str:
    """Returns a half's bits as a float."""
    if has_half_conversions(module.target):
        half = emit(f"bitcast i16 {value} to half")
        return emit(f"fpext half {half} to float")
    return emit(f"call float @{from_half(module)}(i16 {value})")


def _narrow_to_half(value: str, source: Scalar, module: ModuleText, emit: Emit) -> str:
    """Returns the bits of the half nearest to ``value``, rounded once: integers go through double.
    """
    if source is Scalar.F32 and has_half_conversions(module.target):
        half = emit(f"fptrunc float {value} to half")
        return emit(f"bitcast half {half} to i16")
    if not source.is_float:
        value = cast(value, source, Scalar.F64, module, emit)
        source = Scalar.F64
    real = value_type(source, module.target)
    return emit(f"call i16 @{to_half(module, real)}({real} {value})")
