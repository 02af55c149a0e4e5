"""Intrinsics: each is one named operation, its meaning and its two spellings."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.kir.language import Scalar


class Intrinsic(Struct, frozen=True):
    """``evaluate`` takes and returns Python numbers, or tuples of the lanes of vectors. ``llvm`` is
    instruction text over ``{0}``. ``c_include`` is a header that processors have for which the
    preprocessor's condition ``c_where`` holds."""

    name: str
    params: tuple[Scalar, ...]
    result: Scalar
    evaluate: Callable[..., object]
    c_expression: str
    llvm: str
    c_include: str = ""
    c_where: str = ""
    c_helper: str = ""
    llvm_declare: str = ""
