"""Spellings of loads, stores and intrinsics."""

from __future__ import annotations

from msgspec import Struct

from crtexport.kir.assembly.armv7em.instructions import Kind
from crtexport.kir.assembly.armv7em.issue import IssueRules
from crtexport.kir.language import Scalar

LOADS = {
    Scalar.I8: ("ldrsb", 1), Scalar.U8: ("ldrb", 1), Scalar.I16: ("ldrsh", 2),
    Scalar.U16: ("ldrh", 2), Scalar.I32: ("ldr", 4), Scalar.U32: ("ldr", 4),
}
"""Loads of elements, and the bytes that each reads."""

STORES = {
    Scalar.I8: ("strb", 1), Scalar.U8: ("strb", 1), Scalar.I16: ("strh", 2),
    Scalar.U16: ("strh", 2), Scalar.I32: ("str", 4), Scalar.U32: ("str", 4),
}


class Spelling(Struct, frozen=True):
    """The name of an instruction whose operands are those of an intrinsic; ``behind`` the last one
    comes what is done to it. ``alone``: the name without the last operand, to which the result is
    added."""

    name: str
    kind: Kind = Kind.SIMPLE
    behind: str = ""
    alone: str = ""


_PRODUCTS = {
    "smlad": "smuad", "smlabb": "smulbb", "smlabt": "smulbt", "smlatb": "smultb",
    "smlatt": "smultt",
}
CALLS = {
    "arm_sxtb16": Spelling("sxtb16"),
    "arm_sxtb16_ror8": Spelling("sxtb16", behind="ror #8"),
    "arm_sadd16": Spelling("sadd16"),
    "arm_ssub16": Spelling("ssub16"),
    "arm_pkhbt": Spelling("pkhbt", behind="lsl #16"),
    "arm_smmulr": Spelling("smmulr", Kind.MULTIPLY),
    "arm_smmlar": Spelling("smmlar", Kind.MULTIPLY, alone="smmulr"),
    **{
        f"arm_{name}": Spelling(name, Kind.MULTIPLY, alone=alone)
        for name, alone in _PRODUCTS.items()
    },
}
"""Intrinsics of the DSP extension."""


class Features(Struct, frozen=True):
    """``dsp``: whether there is that extension; ``rules``: by which instructions begin, None where
    their cycles are those of a Cortex-M3 or M4."""

    dsp: bool
    rules: IssueRules | None = None
