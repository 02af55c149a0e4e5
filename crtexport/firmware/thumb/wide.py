"""Instructions of 32 bits (Arm DDI 0403, sections A5.3 and A6)."""

from __future__ import annotations

from crtexport.firmware.thumb.instruction import (
    FLOAT,
    LR,
    PC,
    Decoded,
    OpClass,
    listed,
    registers,
)
from crtexport.firmware.thumb.narrow import several

_PKH = 6
_MOVES = (2, 3)
_EXTENDED_HALVES = (2, 3)
"""Operations that extend two bytes of a word: SXTB16, UXTB16, and the same with an addition."""
_PARTS = range(16, 31)
"""Operations on plain numbers that saturate, or read or write bits of a register."""


def decode(first: int, second: int) -> Decoded:
    """Returns the instruction that is encoded by two half words."""
    if first >> 9 == 0x74:  # 1110100
        return _dual(first, second) if first >> 6 & 1 else _multiple(first, second)
    if first >> 9 == 0x75:
        return _shifted(first, second)
    if first >> 10 in (0x3B, 0x3F):
        return _coprocessor(first, second)
    if first >> 11 == 0x1E:
        return _branches(first, second) if second >> 15 else _immediate(first, second)
    if first >> 9 == 0x7C:
        return _single(first, second)
    if first >> 8 == 0xFA:
        return _registers(first, second)
    if first >> 7 == 0x1F6:
        return _multiply(first, second)
    if first >> 7 == 0x1F7:
        return _long_multiply(first, second)
    return Decoded(4)


def _plain(
    writes: set[int], reads: set[int], kind: OpClass = OpClass.SIMPLE, *, shifted: bool = False,
    slow: bool = False, saturates: bool = False,
) -> Decoded:
    return Decoded(
        4, kind, frozenset(writes - {PC}), frozenset(reads - {PC}), shifted=shifted, slow=slow,
        saturates=saturates,
    )


def _multiple(first: int, second: int) -> Decoded:
    return several(
        4, load=bool(first >> 4 & 1), base=first & 15, moved=listed(second),
        updates=bool(first >> 5 & 1),
    )


def _dual(first: int, second: int) -> Decoded:
    base, target, other = first & 15, second >> 12, second >> 8 & 15
    if first & 0xFFF0 == 0xE8D0 and second & 0xFFE0 == 0xF000:
        return Decoded(4, OpClass.TABLE_BRANCH, registers(), registers(base, second & 15))
    load = bool(first >> 4 & 1)
    if not first >> 8 & 1 and not first >> 5 & 1:  # exclusive
        written = registers(target if load else other)
        return Decoded(4, OpClass.LOAD if load else OpClass.STORE, written, registers(base),
                       registers(base))
    moved, updates = registers(target, other), bool(first >> 5 & 1)
    own = registers(base) if updates else registers()
    if load:
        return Decoded(4, OpClass.LOAD, moved | own, registers(base), registers(base), count=2,
                       updates=updates)
    return Decoded(4, OpClass.STORE, own, moved | registers(base), registers(base), count=2,
                   updates=updates)


def _shifted(first: int, second: int) -> Decoded:
    operation, source, target = first >> 5 & 15, first & 15, second >> 8 & 15
    reads = {source, second & 15}
    shifts = bool(second & 0x70F0) or operation == _PKH
    kind = OpClass.SHIFT if shifts else OpClass.SIMPLE
    # What moves a register by some bits does nothing else with it.
    shifted = shifts and not (operation in _MOVES and source == PC)
    slow = operation == _PKH or (shifted and bool(second & 0x30))
    if target == PC and operation != _PKH:  # a comparison
        return _plain(set(), reads, kind, shifted=shifted)
    return _plain({target}, reads, kind, shifted=shifted, slow=slow)


def _immediate(first: int, second: int) -> Decoded:
    source, target = first & 15, second >> 8 & 15
    if first >> 9 & 1:  # a plain number
        operation = first >> 4 & 31
        if operation in (4, 12):  # MOVW, MOVT
            return _plain({target}, {target} if operation == 12 else set())
        insert = operation == 22
        parts = operation in _PARTS
        # SSAT and USAT, which saturate both halves where nothing is shifted.
        saturates = parts and operation & 4 == 0
        return _plain(
            {target}, {source, target} if insert else {source},
            OpClass.SHIFT if parts else OpClass.SIMPLE,
            shifted=saturates and bool(second & 0x70C0), saturates=saturates,
        )
    if target == PC:
        return _plain(set(), {source})
    return _plain({target}, {source})


def _branches(first: int, second: int) -> Decoded:
    if second >> 14 & 1 and second >> 12 & 1:  # BL
        return Decoded(4, OpClass.BRANCH, registers(LR))
    if not second >> 12 & 1 and first >> 6 & 14 == 14:  # no condition: barriers and the like
        return Decoded(4, writes=registers(second >> 8 & 15) if first >> 5 & 1 else registers())
    return Decoded(4, OpClass.BRANCH)


def _single(first: int, second: int) -> Decoded:
    base, target = first & 15, second >> 12
    load = bool(first >> 4 & 1)
    if load and target == PC and first >> 5 & 3 != 2:  # a hint
        return Decoded(4)
    indexed = not first >> 7 & 1 and second >> 6 & 63 == 0 and base != PC
    updates = not first >> 7 & 1 and bool(second >> 11 & 1) and bool(second >> 8 & 1)
    place = registers(base, second & 15) if indexed else registers(base)
    own = registers(base) if updates else registers()
    if load:
        return Decoded(4, OpClass.LOAD, registers(target) | own, place, place, updates=updates,
                       indexed=indexed)
    return Decoded(4, OpClass.STORE, own, place | registers(target), place, updates=updates,
                   indexed=indexed)


def _registers(first: int, second: int) -> Decoded:
    """Returns an instruction whose operands are registers: shifts by a register, extensions,
    parallel additions and others."""
    halves = first >> 4 & 15 in _EXTENDED_HALVES and bool(second & 0x80)
    parallel = first >> 7 & 1 and not second & 0x80
    return _plain(
        {second >> 8 & 15}, {first & 15, second & 15}, OpClass.SHIFT, slow=bool(halves or parallel)
    )


def _multiply(first: int, second: int) -> Decoded:
    added, target = second >> 12, second >> 8 & 15
    reads = registers(first & 15, second & 15)
    if added == PC:
        return Decoded(4, OpClass.MULTIPLY, registers(target), reads)
    plain = first >> 4 & 7 == 0  # MLA and MLS
    return Decoded(
        4, OpClass.ACCUMULATE if plain else OpClass.MULTIPLY, registers(target),
        reads | registers(added), added=registers(added),
    )


def _long_multiply(first: int, second: int) -> Decoded:
    operation, low, high = first >> 4 & 7, second >> 12, second >> 8 & 15
    reads = registers(first & 15, second & 15)
    if operation in (1, 3):
        return Decoded(4, OpClass.DIVIDE, registers(high), reads)
    both = registers(low, high)
    if operation in (0, 2):
        return Decoded(4, OpClass.LONG_MULTIPLY, both, reads)
    return Decoded(4, OpClass.LONG_ACCUMULATE, both, reads | both, added=both)


# ---- floats


def _coprocessor(first: int, second: int) -> Decoded:
    if second >> 9 & 7 != 5:  # not coprocessor 10 or 11
        return Decoded(4)
    double = bool(second >> 8 & 1)
    if first >> 8 & 15 in (0xC, 0xD):
        return _float_access(first, second, double)
    if first >> 8 & 15 == 0xE:
        if second >> 4 & 1:
            return _float_move(first, second)
        return _float_operation(first, second, double)
    return Decoded(4, OpClass.FLOAT)


def _number(high: int, low: int, double: bool) -> frozenset[int]:
    """Returns the number of a float's register, or the two numbers of a double's."""
    if double:
        begin = FLOAT + 2 * (low << 4 | high)
        return registers(begin, begin + 1)
    return registers(FLOAT + (high << 1 | low))


def _float_access(first: int, second: int, double: bool) -> Decoded:
    base, load, updates = first & 15, bool(first >> 4 & 1), bool(first >> 5 & 1)
    if first >> 5 & 0x7 == 2 and not first >> 8 & 1 and first >> 5 & 15 == 2:
        pair = registers(second >> 12, base)  # two general registers from or to floats
        none = registers()
        return Decoded(4, OpClass.TWO_MOVES, pair if load else none, none if load else pair)
    begin = min(_number(second >> 12, first >> 6 & 1, double))
    if first >> 8 & 1 and not updates:  # VLDR, VSTR
        moved = _number(second >> 12, first >> 6 & 1, double)
        count = 2 if double else 0
    else:
        count = second & 0xFF
        moved = frozenset(range(begin, begin + count))
    own = registers(base) if updates else registers()
    if load:
        return Decoded(4, OpClass.LOAD, moved | own, registers(base), registers(base), count=count,
                       updates=updates)
    return Decoded(4, OpClass.STORE, own, moved | registers(base), registers(base), count=count,
                   updates=updates)


def _float_move(first: int, second: int) -> Decoded:
    """Returns a move between a general register and a float's, or from the flags (VMRS)."""
    general = registers(second >> 12) - registers(PC)
    own = _number(first & 15, second >> 7 & 1, double=False)
    if first >> 4 & 1:
        if first >> 5 & 7 == 7:
            return Decoded(4, OpClass.FLOAT, general)
        return Decoded(4, OpClass.FLOAT, general, own)
    return Decoded(4, OpClass.FLOAT, own, general)


def _float_operation(first: int, second: int, double: bool) -> Decoded:
    target = _number(second >> 12, first >> 6 & 1, double)
    a = _number(first & 15, second >> 7 & 1, double)
    b = _number(second & 15, second >> 5 & 1, double)
    operation, more = first >> 4 & 11, second >> 6 & 1
    match operation:
        case 0 | 1 | 9 | 10:  # VMLA, VMLS, VNMLA, VNMLS, VFMA and the like
            return Decoded(4, OpClass.FLOAT_ACCUMULATE, target, target | a | b, added=target)
        case 2 | 3:
            return Decoded(4, OpClass.FLOAT, target, a | b)
        case 8:
            return Decoded(4, OpClass.FLOAT_DIVIDE, target, a | b)
        case 11 if not more:  # VMOV of a number
            return Decoded(4, OpClass.FLOAT, target)
        case _:
            root = first & 15 == 1 and second >> 7 & 1
            compares = first & 15 in (4, 5)
            if compares:
                return Decoded(4, OpClass.FLOAT, registers(), target | b)
            return Decoded(4, OpClass.FLOAT_DIVIDE if root else OpClass.FLOAT, target, b)
