"""Instructions of 16 bits (Arm DDI 0403, section A5.2)."""

from __future__ import annotations

from crtexport.firmware.thumb.instruction import LR, PC, SP, Decoded, OpClass, listed, registers

_COMPARES = (8, 10, 11)
_ONE_OPERAND = (9, 15)
_SHIFTS = (2, 3, 4, 7)
_MUL = 13


def decode(half: int) -> Decoded:
    """Returns the instruction that is encoded by the half word ``half``."""
    low, mid, high = half & 7, half >> 3 & 7, half >> 6 & 7
    eight = half >> 8 & 7
    match half >> 11:
        case 0 if not half >> 6 & 31:  # MOV
            return _simple({low}, {mid})
        case 0 | 1 | 2:
            return _simple({low}, {mid}, OpClass.SHIFT)
        case 3:
            return _simple({low}, {mid} if half >> 10 & 1 else {mid, high})
        case 4:
            return _simple({eight}, set())
        case 5:
            return _simple(set(), {eight})
        case 6 | 7:
            return _simple({eight}, {eight})
        case 8:
            return _processing(half, low, mid) if not half >> 10 & 1 else _special(half)
        case 9:
            return Decoded(2, OpClass.LOAD, registers(eight), registers(PC), registers(PC))
        case 10 | 11:
            load = half >> 9 & 7 >= 3
            return _access(load, low, {mid, high}, indexed=True)
        case 12 | 13 | 14 | 15 | 16 | 17:
            return _access(bool(half >> 11 & 1), low, {mid})
        case 18 | 19:
            return _access(bool(half >> 11 & 1), eight, {SP})
        case 20 | 21:
            return _simple({eight}, {PC} if half >> 11 == 20 else {SP})
        case 22 | 23:
            return _various(half, low, mid)
        case 24 | 25:
            return several(2, load=bool(half >> 11 & 1), base=eight, moved=listed(half & 0xFF))
        case _:
            return Decoded(2, OpClass.BRANCH)


def several(
    size: int, *, load: bool, base: int, moved: frozenset[int], updates: bool = True
) -> Decoded:
    """Returns a load or store of the registers ``moved``, ``size`` bytes long; ``updates``: it
    changes the ``base`` register."""
    updates = updates and not (load and base in moved)
    written = (moved if load else registers()) | (registers(base) if updates else registers())
    return Decoded(
        size, OpClass.LOAD if load else OpClass.STORE, written,
        registers(base) | (registers() if load else moved), registers(base), count=len(moved),
        updates=updates,
    )


def _simple(writes: set[int], reads: set[int], kind: OpClass = OpClass.SIMPLE) -> Decoded:
    return Decoded(2, kind, frozenset(writes), frozenset(reads))


def _access(load: bool, register: int, base: set[int], *, indexed: bool = False) -> Decoded:
    if load:
        return Decoded(
            2, OpClass.LOAD, registers(register), frozenset(base), frozenset(base), indexed=indexed
        )
    return Decoded(
        2, OpClass.STORE, registers(), frozenset({register, *base}), frozenset(base),
        indexed=indexed,
    )


def _processing(half: int, low: int, mid: int) -> Decoded:
    operation = half >> 6 & 15
    if operation in _COMPARES:
        return _simple(set(), {low, mid})
    if operation in _ONE_OPERAND:
        return _simple({low}, {mid})
    kind = OpClass.SHIFT if operation in _SHIFTS else OpClass.SIMPLE
    return _simple({low}, {low, mid}, OpClass.MULTIPLY if operation == _MUL else kind)


def _special(half: int) -> Decoded:
    """Operations on all registers, and branches to them."""
    target, source = half & 7 | half >> 4 & 8, half >> 3 & 15
    match half >> 8 & 3:
        case 0:
            return _simple({target}, {target, source}, _branch_if(target))
        case 1:
            return _simple(set(), {target, source})
        case 2:
            return _simple({target}, {source}, _branch_if(target))
        case _:
            return _simple({LR} if half >> 7 & 1 else set(), {source}, OpClass.BRANCH)


def _branch_if(target: int) -> OpClass:
    return OpClass.BRANCH if target == PC else OpClass.SIMPLE


def _various(half: int, low: int, mid: int) -> Decoded:
    match half >> 8 & 15:
        case 0:
            return _simple({SP}, {SP})
        case 1 | 3 | 9 | 11:
            return _simple(set(), {low}, OpClass.BRANCH)
        case 2 | 10:
            return _simple({low}, {mid}, OpClass.SHIFT)
        case 4 | 5:
            moved = listed(half & 0xFF) | (registers(LR) if half >> 8 & 1 else registers())
            return several(2, load=False, base=SP, moved=moved)
        case 12 | 13:
            moved = listed(half & 0xFF) | (registers(PC) if half >> 8 & 1 else registers())
            return several(2, load=True, base=SP, moved=moved)
        case 15 if half & 15:
            return Decoded(2, OpClass.IT)
        case _:
            return Decoded(2)
