"""Named operations that plain Kernel IR can't say: one entry each, with its meaning and spellings.

An instruction of some machine comes in as one entry here: what it computes (run by the
interpreter), how C says it (an expression over ``{0}``, ``{1}`` …, optionally with a header and a
helper function), how LLVM says it (an instruction or a declared intrinsic).
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterable

from crtexport.kir.intrinsics.arm_dsp import ARM_DSP
from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.fma import FMA
from crtexport.kir.intrinsics.in_order import IN_ORDER
from crtexport.kir.language import Scalar


def _bits_to_f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<i", bits))[0])


def _f32_to_bits(value: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


_F32_FROM_BITS = Intrinsic(
    name="f32_from_bits",
    params=(Scalar.I32,),
    result=Scalar.F32,
    evaluate=_bits_to_f32,
    c_expression="crt_f32_from_bits({0})",
    c_helper=(
        "/* The float whose IEEE 754 encoding is bits. */\n"
        "static inline float crt_f32_from_bits(int32_t bits)\n"
        "{\n"
        "    union { int32_t i; float f; } u;\n"
        "    u.i = bits;\n"
        "    return u.f;\n"
        "}\n"
    ),
    llvm="bitcast i32 {0} to float",
)

_BITS_FROM_F32 = Intrinsic(
    name="bits_from_f32",
    params=(Scalar.F32,),
    result=Scalar.I32,
    evaluate=_f32_to_bits,
    c_expression="crt_bits_from_f32({0})",
    c_helper=(
        "/* The IEEE 754 encoding of value. */\n"
        "static inline int32_t crt_bits_from_f32(float value)\n"
        "{\n"
        "    union { int32_t i; float f; } u;\n"
        "    u.f = value;\n"
        "    return u.i;\n"
        "}\n"
    ),
    llvm="bitcast float {0} to i32",
)

MACHINES = ("mve", "rvv", "x86")
"""Modules beside this one whose ``INTRINSICS`` have names that begin as theirs."""

_KNOWN: dict[str, Intrinsic] = {
    i.name: i for i in (_F32_FROM_BITS, _BITS_FROM_F32, FMA, *IN_ORDER, *ARM_DSP)
}


def find_intrinsic(name: str) -> Intrinsic | None:
    """Returns the intrinsic of that name, if there is one."""
    found = _KNOWN.get(name)
    if found is None:
        _KNOWN.update((other.name, other) for other in _vectors(name.partition("_")[0]))
        found = _KNOWN.get(name)
    return found


def _vectors(machine: str) -> Iterable[Intrinsic]:
    """Returns the intrinsics of a machine's vectors, whose names begin with it. There are hundreds,
    of which an export uses few: they are created on first use."""
    if machine not in MACHINES:
        return ()
    module = importlib.import_module(f"crtexport.kir.intrinsics.{machine}")
    found: tuple[Intrinsic, ...] = module.INTRINSICS
    return found
