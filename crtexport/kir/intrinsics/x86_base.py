"""Names of x86-64's vector registers, and intrinsics whose C calls functions of ``immintrin.h``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.generic_vectors import intrinsic
from crtexport.kir.language import Scalar


class Registers(Struct, frozen=True):
    """The types of integers and floats in C, and how names of functions begin."""

    ints: str
    floats: str
    prefix: str


REGISTERS = {
    4: Registers("__m128i", "__m128", "_mm"), 8: Registers("__m256i", "__m256", "_mm256"),
    16: Registers("__m512i", "__m512", "_mm512"),
}
"""By lanes of 32 bits."""


def mask(lanes: Sequence[int]) -> str:
    """Returns the operand of a shuffle in LLVM that takes these lanes."""
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def x86_intrinsic(
    name: str, meaning: str, params: tuple[Scalar, ...], result: Scalar,
    evaluate: Callable[..., object], c: str, body: str, declare: str = "",
) -> Intrinsic:
    """Returns an intrinsic that passes of LLVM see but a call of. See
    :func:`~crtexport.kir.intrinsics.generic_vectors.intrinsic`."""
    made = intrinsic(f"x86_{name}", meaning, params, result, evaluate, c, body, declare, late=True)
    if "_mm" not in c:
        return made
    return replace(made, c_include="<immintrin.h>", c_where="defined(__x86_64__)")
