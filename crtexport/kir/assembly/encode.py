"""Encodings of instructions of Armv7-M and its DSP extension (Arm DDI 0403, chapter A7).

Lines are those that :mod:`crtexport.kir.assembly.armv7em.text` makes: with flags set where that is
short.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

_CONDITIONS = {
    name: number for number, name in enumerate(
        ["eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le"]
    )
}
_REGISTERS = {**{f"r{number}": number for number in range(13)}, "sp": 13, "lr": 14, "pc": 15}
_SHIFTS = {"lsl": 0, "lsr": 1, "asr": 2, "ror": 3}
_OPERATIONS = {
    "and": 0, "orr": 2, "eor": 4, "add": 8, "sub": 13, "rsb": 14,
}
_LOW_OPERATIONS = {"ands": 0, "eors": 1, "orrs": 12, "muls": 13}
_ACCESS = {  # the second byte of the first half word with 12 bits of offset, and narrow ones
    "strb": (0x88, 0x7000, 1), "ldrb": (0x89, 0x7800, 1), "strh": (0x8A, 0x8000, 2),
    "ldrh": (0x8B, 0x8800, 2), "str": (0x8C, 0x6000, 4), "ldr": (0x8D, 0x6800, 4),
    "ldrsb": (0x99, 0, 1), "ldrsh": (0x9B, 0, 2),
}
_PRODUCTS = {  # first half word, bits 4 to 7 of the second
    "mla": (0xFB00, 0), "mls": (0xFB00, 1), "smlabb": (0xFB10, 0), "smlabt": (0xFB10, 1),
    "smlatb": (0xFB10, 2), "smlatt": (0xFB10, 3), "smlad": (0xFB20, 0), "smmla": (0xFB50, 0),
    "smmlar": (0xFB50, 1),
}
_ALONE = {
    "mul": "mla", "smulbb": "smlabb", "smulbt": "smlabt", "smultb": "smlatb", "smultt": "smlatt",
    "smuad": "smlad", "smmul": "smmla", "smmulr": "smmlar",
}
_LONG = {"smull": (0xFB80, 0), "umull": (0xFBA0, 0), "smlal": (0xFBC0, 0), "umlal": (0xFBE0, 0)}
_SHORT_EXTEND = {"sxth": 0, "sxtb": 1, "uxth": 2, "uxtb": 3}
_PAIRS = {"sadd16": 0xFA90, "ssub16": 0xFAD0}
_DIVIDE = {"sdiv": 0xFB90, "udiv": 0xFBB0}
_EXTEND = {"sxth": 0, "uxth": 1, "sxtb16": 2, "uxtb16": 3, "sxtb": 4, "uxtb": 5}


def encode(lines: Sequence[str]) -> bytes:
    """Returns the bytes of a function, whose labels are numbers, each of which stands once. Raises
    ValueError for a line that is no instruction of these."""
    others = [None if _is_local(line) else _halves(line) for line in lines]
    sizes = [1 if halves is None else len(halves) for halves in others]
    while True:  # branches get longer until all are long enough
        places, here = {}, 0
        for line, size in zip(lines, sizes, strict=True):
            if line.endswith(":"):
                places[line[:-1]] = here
            else:
                here += 2 * size
        result: list[int] = []
        longer = False
        for number, (line, halves) in enumerate(zip(lines, others, strict=True)):
            if halves is None and not line.endswith(":"):
                name, _, label = line.partition(" ")
                distance = places[label[:-1]] - 2 * len(result) - 4
                halves = _branch(name[1:], distance, sizes[number])  # noqa: PLW2901
                longer |= len(halves) > sizes[number]
                sizes[number] = len(halves)
            result += halves or []
        if not longer:
            return struct.pack(f"<{len(result)}H", *result)


def _is_local(line: str) -> bool:
    """Returns whether it is a label, or a branch to one."""
    name, _, _ = line.partition(" ")
    return line.endswith(":") or name == "b" or (name[:1] == "b" and name[1:] in _CONDITIONS)


def _halves(line: str) -> list[int]:
    name, _, rest = line.partition(" ")
    if name in ("push", "pop"):
        return _multiple(name, rest)
    if name.startswith("ldr") and rest.endswith("!"):
        register, base, offset = _address(rest[:-1])
        first, second = _access(name, register, base, -255)
        adds = offset >= 0
        return [first, second & ~0x2FF | 0x100 | adds << 9 | abs(offset)]
    if name.startswith(("ldr", "str")):
        return _access(name, *_address(rest))
    operands = [part.strip() for part in rest.split(",")]
    for encoder in (_special, _narrow, _multiplied, _wide):
        found = encoder(name, operands)
        if found is not None:
            return found
    raise ValueError(f"{line!r} has no encoding")


def _multiple(name: str, register_list: str) -> list[int]:
    numbers = [_REGISTERS[one.strip()] for one in register_list.strip("{}").split(",")]
    extra = 14 if name == "push" else 15
    if all(number < 8 or number == extra for number in numbers):
        bits = sum(1 << (8 if number == extra else number) for number in numbers)
        return [(0xB400 if name == "push" else 0xBC00) | bits]
    if len(numbers) == 1:  # these are a store and a load
        at = numbers[0] << 12
        return [0xF84D, 0x0D04 | at] if name == "push" else [0xF85D, 0x0B04 | at]
    return [0xE92D if name == "push" else 0xE8BD, sum(1 << number for number in numbers)]


def _branch(condition: str, distance: int, least: int) -> list[int]:
    """Returns the half words of a branch, at least ``least`` of them."""
    offset = distance >> 1
    bits = 8 if condition else 11
    if least == 1 and -(1 << bits - 1) <= offset < 1 << bits - 1:
        head = 0xD000 | _CONDITIONS[condition] << 8 if condition else 0xE000
        return [head | offset & (1 << bits) - 1]
    sign = offset >> 23 & 1
    if condition:
        first = _CONDITIONS[condition] << 6 | offset >> 11 & 0x3F
        ones = (offset >> 17 & 1) << 13 | (offset >> 18 & 1) << 11 | 0x8000
    else:
        first = offset >> 11 & 0x3FF
        ones = (offset >> 22 & 1 ^ sign ^ 1) << 13 | (offset >> 21 & 1 ^ sign ^ 1) << 11 | 0x9000
    return [0xF000 | sign << 10 | first, ones | offset & 0x7FF]


def _address(operands: str) -> tuple[int, int, int]:
    """Returns the register, base and offset of an access."""
    found = re.fullmatch(r"(\w+), \[(\w+)(?:, #(-?\d+))?\]", operands)
    if found is None:
        raise ValueError(f"{operands!r} is no access")
    return _REGISTERS[found[1]], _REGISTERS[found[2]], int(found[3] or 0)


def _access(name: str, register: int, base: int, offset: int) -> list[int]:
    wide, narrow, size = _ACCESS[name]
    if base == 13 and size == 4 and register < 8 and 0 <= offset < 1024 and not offset % 4:
        return [(0x9800 if name == "ldr" else 0x9000) | register << 8 | offset // 4]
    low = register < 8 and base < 8
    if narrow and low and 0 <= offset < 32 * size and not offset % size:
        return [narrow | offset // size << 6 | base << 3 | register]
    if offset >= 0:
        return [0xF000 | wide << 4 | base, register << 12 | offset]
    return [0xF000 | (wide & ~8) << 4 | base, register << 12 | 0xC00 | -offset]


def _number(operand: str) -> int:
    return int(operand[1:], 0)


def _numbers(operands: Sequence[str]) -> list[int]:
    return [_REGISTERS.get(operand, -1) for operand in operands]


def _special(name: str, operands: list[str]) -> list[int] | None:
    """Returns the half words of instructions that are like no others; None for all others."""
    if name == "bx":
        return [0x4700 | _REGISTERS[operands[0]] << 3]
    if name == "it":
        return [0xBF08 | _CONDITIONS[operands[0]] << 4]
    if operands[0] == "sp":
        return [(0xB000 if name == "add" else 0xB080) | _number(operands[2]) // 4]
    if name in ("movw", "movt"):
        value = _number(operands[1])
        return _word_move(0xF240 if name == "movw" else 0xF2C0, _REGISTERS[operands[0]], value)
    if name in ("ssat", "usat"):
        signed = name == "ssat"
        target, source = _REGISTERS[operands[0]], _REGISTERS[operands[2]]
        how, places = (operands[3] if len(operands) > 3 else "lsl #0").split(" #")
        return [
            (0xF300 if signed else 0xF380) | (how == "asr") << 5 | source,
            _with_shift(target << 8 | _number(operands[1]) - signed, int(places)),
        ]
    if name == "pkhbt":
        target, first, second = _numbers(operands[:3])
        shift = int(operands[3].split("#")[1]) if len(operands) > 3 else 0
        return [0xEAC0 | first, _with_shift(target << 8 | second, shift)]
    if name in _EXTEND:
        target, source = _numbers(operands[:2])
        if len(operands) == 2 and name in _SHORT_EXTEND and max(target, source) < 8:
            return [0xB200 | _SHORT_EXTEND[name] << 6 | source << 3 | target]
        rotated = int(operands[2].split("#")[1]) // 8 if len(operands) > 2 else 0
        return [0xFA0F | _EXTEND[name] << 4, 0xF080 | target << 8 | rotated << 4 | source]
    if name.startswith("mov") and name[3:] in _CONDITIONS:
        target, immediate = _REGISTERS[operands[0]], operands[1]
        if immediate.startswith("#") and target < 8 and 0 <= _number(immediate) < 256:
            return [0x2000 | target << 8 | _number(immediate)]
        return _moved("mov", operands)
    if name.startswith("mvn") and name[3:] in _CONDITIONS:
        return _moved("mvn", operands)
    return None


def _with_shift(half: int, count: int) -> int:
    """Returns the second half word of an instruction whose last operand is shifted by ``count``
    places; of 32 none are written."""
    return (count >> 2 & 7) << 12 | (count & 3) << 6 | half


def _word_move(first: int, target: int, value: int) -> list[int]:
    """Returns the half words of MOVW or MOVT of 16 bits."""
    return [
        first | (value >> 11 & 1) << 10 | value >> 12,
        (value >> 8 & 7) << 12 | target << 8 | value & 0xFF,
    ]


def _moved(name: str, operands: list[str]) -> list[int]:
    target, source = _numbers(operands)
    if name == "mov" and source >= 0:
        return [0x4600 | (target & 8) << 4 | source << 3 | target & 7]
    value = _number(operands[1])
    modified = _modified(value)
    if modified is None:
        return _word_move(0xF240, target, value)
    imm, low = modified
    return [(0xF04F if name == "mov" else 0xF06F) | imm, low | target << 8]


def _narrow(name: str, operands: list[str]) -> list[int] | None:
    """Returns the half word of an instruction of 16 bits, most of which set flags; None where it
    has none."""
    numbers = _numbers(operands)
    immediate = _number(operands[-1]) if operands[-1].startswith("#") else None
    target = numbers[0]
    match name:
        case "mov" if immediate is None:
            return _moved(name, operands)
        case "movs":
            return [0x2000 | target << 8 | (immediate or 0)]
        case "cmp" if immediate is not None and target < 8 and 0 <= immediate < 256:
            return [0x2800 | target << 8 | immediate]
        case "cmp" if len(operands) == 2 and immediate is None:
            if max(numbers) < 8:
                return [0x4280 | numbers[1] << 3 | target]
            return [0x4500 | (target & 8) << 4 | numbers[1] << 3 | target & 7]
        case "adds" | "subs" if immediate is not None and max(numbers[:2]) < 8:
            subtracts = name == "subs"
            if immediate < 8 and target != numbers[1]:
                return [0x1C00 | subtracts << 9 | immediate << 6 | numbers[1] << 3 | target]
            if immediate < 256 and target == numbers[1]:
                return [0x3000 | subtracts << 11 | target << 8 | immediate]
            return None
        case "add" if len(operands) == 3 and immediate is None and target in numbers[1:]:
            other = numbers[2] if numbers[1] == target else numbers[1]
            return [0x4400 | (target & 8) << 4 | other << 3 | target & 7]
        case "adds" | "subs" if immediate is None:
            return [0x1800 | (name == "subs") << 9 | numbers[2] << 6 | numbers[1] << 3 | target]
        case "lsls" | "lsrs" | "asrs" if immediate is not None:
            return [_SHIFTS[name[:3]] << 11 | (immediate & 31) << 6 | numbers[1] << 3 | target]
        case "lsls" | "lsrs" | "asrs":
            number = 2 + _SHIFTS[name[:3]]
            return [0x4000 | number << 6 | numbers[2] << 3 | target]
        case _ if name in _LOW_OPERATIONS:
            other = numbers[1] if name == "muls" else numbers[2]
            return [0x4000 | _LOW_OPERATIONS[name] << 6 | other << 3 | target]
        case _:
            return None


def _multiplied(name: str, operands: list[str]) -> list[int] | None:
    numbers = _numbers(operands)
    if name in _LONG:
        first, second = _LONG[name]
        low, high, a, b = numbers
        return [first | a, low << 12 | high << 8 | second << 4 | b]
    if name in _PAIRS:
        return [_PAIRS[name] | numbers[1], 0xF000 | numbers[0] << 8 | numbers[2]]
    if name in _DIVIDE:
        return [_DIVIDE[name] | numbers[1], 0xF0F0 | numbers[0] << 8 | numbers[2]]
    base = _ALONE.get(name, name)
    if base not in _PRODUCTS:
        return None
    first, second = _PRODUCTS[base]
    adds = numbers[3] if name == base else 15
    return [first | numbers[1], adds << 12 | numbers[0] << 8 | second << 4 | numbers[2]]


def _wide(name: str, operands: list[str]) -> list[int] | None:
    """Operations whose last operand is a number, a register, or one that is shifted."""
    if name in ("mov", "mvn"):
        return _moved(name, operands)
    if name == "cmp":
        return _wide_operation(0xEBB0, [15, *_numbers(operands[:1])], operands[1:])
    if name in ("lsl", "lsr", "asr"):
        target, source, by = _numbers(operands)
        if by >= 0:
            return [0xFA00 | _SHIFTS[name] << 5 | source, 0xF000 | target << 8 | by]
        return _wide_operation(0xEA4F, [target, 15], [operands[1], f"{name} {operands[2]}"])
    sets = name.endswith("s") and name[:-1] in _OPERATIONS
    operation = _OPERATIONS.get(name[:-1] if sets else name)
    if operation is None:
        return None
    first = 0xEA00 | operation << 5 | sets << 4
    return _wide_operation(first, _numbers(operands[:2]), operands[2:])


def _wide_operation(first: int, numbers: list[int], last: list[str]) -> list[int]:
    """Returns the half words of an operation of 32 bits; ``numbers``: of the target and the first
    operand, which may be in ``first`` already."""
    target, source = numbers
    first |= source
    if not last[0].startswith("#"):
        kind, by = 0, 0
        if len(last) > 1:
            word, _, count = last[1].partition(" #")
            kind, by = _SHIFTS[word], int(count)
        return [first, _with_shift(target << 8 | kind << 4 | _REGISTERS[last[0]], by)]
    value = _number(last[0])
    modified = _modified(value)
    operation = first >> 5 & 15
    if modified is None and operation in (8, 13) and 0 <= value < 1 << 12:  # ADDW and SUBW
        wide = 0xF200 if operation == 8 else 0xF2A0
        return [
            wide | (value >> 11 & 1) << 10 | source,
            (value >> 8 & 7) << 12 | target << 8 | value & 0xFF,
        ]
    if modified is None:
        raise ValueError(f"{value} is no operand")
    imm, low = modified
    return [(first & ~0xEA00 | 0xF000) & 0xF1FF | imm, low | target << 8]


def _modified(value: int) -> tuple[int, int] | None:
    """Returns the bits of both half words that encode a word as an immediate operand, None for one
    that can't be encoded so."""
    value &= 0xFFFFFFFF
    low, high = value & 0xFF, value >> 8 & 0xFF
    for kind, pattern in enumerate((low, low * 0x00010001, high * 0x01000100, low * 0x01010101)):
        if value == pattern and (kind == 0 or value):
            return 0, kind << 12 | (high if kind == 2 else low)
    for rotation in range(8, 32):
        byte = (value << rotation | value >> 32 - rotation) & 0xFFFFFFFF
        if 128 <= byte < 256:
            bits = rotation << 7 | byte & 0x7F
            return (bits >> 11) << 10, (bits >> 8 & 7) << 12 | bits & 0xFF
    return None
