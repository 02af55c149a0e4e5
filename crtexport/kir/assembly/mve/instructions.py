"""Instructions of MVE and of the processor around it: text, encoding, and what they keep busy.

Pipes and latencies are those of LLVM's ARMScheduleM55.td. Encodings are those of the Arm
Architecture Reference Manual for Armv8-M; where an operand's number is put is a bit's position.
"""

from __future__ import annotations

import enum

from msgspec import Struct


class Pipe(enum.Enum):
    """The part of the processor that an instruction keeps busy, for two cycles unless scalar."""

    MEMORY = "memory"
    INTEGER = "integer"
    MULTIPLY = "multiply"
    SCALAR = "scalar"

    __hash__ = object.__hash__


class Bank(enum.Enum):
    """Registers that an operand may be in."""

    VECTOR = "vector"  # q0 to q7
    GENERAL = "general"  # r0 to r12
    EVEN = "even"  # r0, r2 … r12
    LOW = "low"  # r0 to r7

    __hash__ = object.__hash__


_Q, _R, _E = Bank.VECTOR, Bank.GENERAL, Bank.EVEN


class Form(Struct, frozen=True):
    """``text`` over ``{d}``, the destination, the operands ``{a}`` ``{b}`` and ``{i}``, a number.
    ``fields``: for each letter in turn, the registers and the lowest bit of their number in
    ``word``. ``tied``: the destination is ``a`` (which the text may then leave out). ``latency``:
    cycles until another instruction can use the result. ``shift``: how ``{i}`` is encoded, a count
    to the left (1) or to the right (-1)."""

    text: str
    pipe: Pipe
    latency: int
    word: int
    fields: tuple[tuple[str, Bank, int], ...]
    tied: bool = False
    halfword: bool = False
    shift: int = 0


def _lanes(
    mnemonic: str, word: int, pipe: Pipe = Pipe.INTEGER, latency: int = 1, *, last: bool = False
) -> Form:
    """Returns an instruction of three vectors; ``last``: the operands are written in the other
    order."""
    b, a = (17, 1) if last else (1, 17)
    return Form(
        f"{mnemonic} {{d}}, {{a}}, {{b}}", pipe, latency, word,
        (("d", _Q, 13), ("a", _Q, a), ("b", _Q, b)),
    )


def _by_scalar(mnemonic: str, word: int, pipe: Pipe = Pipe.INTEGER, latency: int = 1) -> Form:
    """Returns an instruction of a vector and a number in a general register."""
    return Form(
        f"{mnemonic} {{d}}, {{a}}, {{b}}", pipe, latency, word,
        (("d", _Q, 13), ("a", _Q, 17), ("b", _R, 0)),
    )


def _of_one(mnemonic: str, word: int, pipe: Pipe = Pipe.INTEGER, latency: int = 1) -> Form:
    return Form(
        f"{mnemonic} {{d}}, {{a}}", pipe, latency, word, (("d", _Q, 13), ("a", _Q, 1))
    )


def _narrowing(mnemonic: str, word: int, *, shifts: bool = False) -> Form:
    """Writes half of the lanes of its destination, ``a``; ``shifts``: to the right first."""
    number = ", #{i}" if shifts else ""
    return Form(
        f"{mnemonic} {{d}}, {{b}}{number}", Pipe.INTEGER, 3, word,
        (("d", _Q, 13), ("b", _Q, 1)), tied=True, shift=-1 if shifts else 0,
    )


def _dot(mnemonic: str, word: int) -> Form:
    """Returns the instruction for the sum of the products of lanes, added to ``a`` if it is
    tied."""
    adds = bool(word & 0x20)
    a, b = ("b", "c") if adds else ("a", "b")
    return Form(
        f"{mnemonic} {{d}}, {{{a}}}, {{{b}}}", Pipe.MULTIPLY, 3, word,
        (("d", _E, 13), (a, _Q, 17), (b, _Q, 1)), tied=adds,
    )


def _shift(mnemonic: str, word: int, latency: int, direction: int) -> Form:
    """Returns an instruction that shifts by a number of bits."""
    return Form(
        f"{mnemonic} {{d}}, {{a}}, #{{i}}", Pipe.INTEGER, latency, word,
        (("d", _Q, 13), ("a", _Q, 1)), shift=direction,
    )


def _dup(mnemonic: str, word: int) -> Form:
    """Returns an instruction that puts a general register into all lanes."""
    return Form(
        f"{mnemonic} {{d}}, {{a}}", Pipe.INTEGER, 1, word, (("d", _Q, 17), ("a", _R, 12))
    )


_MUL = Pipe.MULTIPLY

FORMS: dict[str, Form] = {
    "dot_s8": _dot("vmladav.s8", 0xEEF00F00),
    "dot_add_s8": _dot("vmladava.s8", 0xEEF00F20),
    "dot_s16": _dot("vmladav.s16", 0xEEF00E00),
    "dot_add_s16": _dot("vmladava.s16", 0xEEF00E20),
    "set_02": Form(
        "vmov {d}[2], {d}[0], {a}, {b}", Pipe.INTEGER, 1, 0xEC100F00,
        (("d", _Q, 13), ("a", _R, 0), ("b", _R, 16)),
    ),
    "set_13": Form(
        "vmov {d}[3], {d}[1], {b}, {c}", Pipe.INTEGER, 1, 0xEC100F10,
        (("d", _Q, 13), ("b", _R, 0), ("c", _R, 16)), tied=True,
    ),
    "add_s32": _lanes("vadd.i32", 0xEF200840),
    "add_s16": _lanes("vadd.i16", 0xEF100840),
    "add_s8": _lanes("vadd.i8", 0xEF000840),
    "sub_s32": _lanes("vsub.i32", 0xFF200840),
    "sub_s16": _lanes("vsub.i16", 0xFF100840),
    "mul_s32": _lanes("vmul.i32", 0xEF200950, _MUL, 2),
    "mul_s16": _lanes("vmul.i16", 0xEF100950, _MUL, 2),
    "qadd_s16": _lanes("vqadd.s16", 0xEF100050),
    "qrdmulh_s32": _lanes("vqrdmulh.s32", 0xFF200B40, _MUL, 2),
    "mulh_s32": _lanes("vmulh.s32", 0xEE210E01, _MUL, 2),
    "rmulh_s32": _lanes("vrmulh.s32", 0xEE211E01, _MUL, 2),
    "rshl_s32": _lanes("vrshl.s32", 0xEF200540, latency=2, last=True),
    "and_s32": _lanes("vand", 0xEF000150),
    "max_s32": _lanes("vmax.s32", 0xEF200640),
    "max_s16": _lanes("vmax.s16", 0xEF100640),
    "max_s8": _lanes("vmax.s8", 0xEF000640),
    "min_s32": _lanes("vmin.s32", 0xEF200650),
    "min_s16": _lanes("vmin.s16", 0xEF100650),
    "min_s8": _lanes("vmin.s8", 0xEF000650),
    "mullb_s8": _lanes("vmullb.s8", 0xEE010E00, _MUL, 2),
    "mullt_s8": _lanes("vmullt.s8", 0xEE011E00, _MUL, 2),
    "mullb_s16": _lanes("vmullb.s16", 0xEE110E00, _MUL, 2),
    "mullt_s16": _lanes("vmullt.s16", 0xEE111E00, _MUL, 2),
    "mul_f32": _lanes("vmul.f32", 0xFF000D50, _MUL, 2),
    "add_f32": _lanes("vadd.f32", 0xEF000D40, _MUL, 2),
    "add_n_s32": _by_scalar("vadd.i32", 0xEE210F40),
    "add_n_s16": _by_scalar("vadd.i16", 0xEE110F40),
    "mul_n_s32": _by_scalar("vmul.i32", 0xEE211E60, _MUL, 2),
    "qadd_n_s16": _by_scalar("vqadd.s16", 0xEE100F60),
    "qrdmulh_n_s32": _by_scalar("vqrdmulh.s32", 0xFE210E60, _MUL, 2),
    "rshl_n_s32": Form(
        "vrshl.s32 {d}, {b}", Pipe.INTEGER, 2, 0xEE3B1E60, (("d", _Q, 13), ("b", _R, 0)), tied=True
    ),
    "mlas_s16": Form(
        "vmlas.s16 {d}, {b}, {c}", _MUL, 2, 0xEE111E40,
        (("d", _Q, 13), ("b", _Q, 17), ("c", _R, 0)), tied=True,
    ),
    "movlb_s16": _of_one("vmovlb.s16", 0xEEB00F40),
    "movlt_s16": _of_one("vmovlt.s16", 0xEEB01F40),
    "movlb_s8": _of_one("vmovlb.s8", 0xEEA80F40),
    "movlt_s8": _of_one("vmovlt.s8", 0xEEA81F40),
    "from_s32": _of_one("vcvt.f32.s32", 0xFFBB0640, _MUL, 2),
    "round_f32": _of_one("vcvtn.s32.f32", 0xFFBB0140, _MUL, 2),
    "narrow_b_s32": _narrowing("vqmovnb.s32", 0xEE370E01),
    "narrow_t_s32": _narrowing("vqmovnt.s32", 0xEE371E01),
    "narrow_b_s16": _narrowing("vqmovnb.s16", 0xEE330E01),
    "narrow_t_s16": _narrowing("vqmovnt.s16", 0xEE331E01),
    "shift_narrow_b_s32": _narrowing("vqrshrnb.s32", 0xEE800F41, shifts=True),
    "shift_narrow_t_s32": _narrowing("vqrshrnt.s32", 0xEE801F41, shifts=True),
    "shr_s32": _shift("vshr.s32", 0xEFA00050, 1, -1),
    "shr_u32": _shift("vshr.u32", 0xFFA00050, 1, -1),
    "rshr_s32": _shift("vrshr.s32", 0xEFA00250, 2, -1),
    "shl_s32": _shift("vshl.i32", 0xEFA00550, 1, 1),
    "dup_s32": _dup("vdup.32", 0xEEA00B10),
    "dup_s16": _dup("vdup.16", 0xEEA00B30),
    "dup_s8": _dup("vdup.8", 0xEEE00B10),
}
"""By names that are those of Kernel IR's intrinsics without ``mve_``, as far as they are one."""

ADVANCE_SCALED = Form(
    "add.w {a}, {a}, {b}, lsl #{i}", Pipe.SCALAR, 1, 0xEB000000, (("a", _R, 8), ("b", _R, 0)),
)
ADVANCE = Form("add {a}, {b}", Pipe.SCALAR, 1, 0x4400, (("a", _R, 0), ("b", _R, 3)), halfword=True)


PREDICATE = Form("vpst", Pipe.SCALAR, 1, 0xFE710F4D, ())
LANES_LEFT = {
    size: Form(f"vctp.{8 * size} {{a}}", Pipe.SCALAR, 1, word, (("a", _R, 16),))
    for size, word in ((1, 0xF000E801), (2, 0xF010E801), (4, 0xF020E801))
}
"""By bytes of a lane: what lets the instruction behind ``PREDICATE`` have as many lanes as a number
says."""


class VectorAccess(Struct, frozen=True):
    """A load or store of a vector: elements of ``size`` bytes, of which an offset is a multiple.
    ``low``: the address must be in a low register, as where lanes are wider than elements."""

    mnemonic: str
    word: int
    size: int
    low: bool = False
    stores: bool = False

    @property
    def reach(self) -> int:
        """Returns the largest magnitude of an offset, in bytes."""
        return 127 * self.size


ACCESSES: dict[tuple[str, str], VectorAccess] = {
    ("i8x16", "i8"): VectorAccess("vldrb.u8", 0xED901E00, 1),
    ("i16x8", "i16"): VectorAccess("vldrh.u16", 0xED901E80, 2),
    ("i32x4", "i32"): VectorAccess("vldrw.u32", 0xED901F00, 4),
    ("f32x4", "f32"): VectorAccess("vldrw.u32", 0xED901F00, 4),
    ("i16x8", "i8"): VectorAccess("vldrb.s16", 0xED900E80, 1, low=True),
    ("i16x8", "u8"): VectorAccess("vldrb.u16", 0xFD900E80, 1, low=True),
    ("i32x4", "i8"): VectorAccess("vldrb.s32", 0xED900F00, 1, low=True),
    ("i32x4", "u8"): VectorAccess("vldrb.u32", 0xFD900F00, 1, low=True),
    ("i32x4", "i16"): VectorAccess("vldrh.s32", 0xED980F00, 2, low=True),
    ("i32x4", "u16"): VectorAccess("vldrh.u32", 0xFD980F00, 2, low=True),
}
"""Loads, by the types of the vector and of the elements."""

STORES: dict[tuple[str, str], VectorAccess] = {
    ("i8x16", "i8"): VectorAccess("vstrb.8", 0xED801E00, 1, stores=True),
    ("i16x8", "i16"): VectorAccess("vstrh.16", 0xED801E80, 2, stores=True),
    ("i32x4", "i32"): VectorAccess("vstrw.32", 0xED801F00, 4, stores=True),
    ("f32x4", "f32"): VectorAccess("vstrw.32", 0xED801F00, 4, stores=True),
    ("i16x8", "i8"): VectorAccess("vstrb.16", 0xED800E80, 1, low=True, stores=True),
    ("i32x4", "i8"): VectorAccess("vstrb.32", 0xED800F00, 1, low=True, stores=True),
    ("i32x4", "i16"): VectorAccess("vstrh.32", 0xED880F00, 2, low=True, stores=True),
}
