"""A Cortex-M that runs lines of assembler: what functions of instructions are tested on.

It knows the instructions that :mod:`crtexport.kir.assembly` uses by what Arm's manual (DDI 0403)
says of them, not by how they were selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

WORD = 0xFFFFFFFF
STACK = 1 << 30
RETURN = -1
_NAMES = {**{f"r{number}": number for number in range(13)}, "sp": 13, "lr": 14, "pc": 15}


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


def half(value: int, top: bool) -> int:
    return signed(value >> 16 if top else value, 16)


class Machine:
    """``memory``: bytes by address. Registers hold words."""

    def __init__(self, memory: dict[int, int], limit: int = 2_000_000) -> None:
        self.memory, self.limit = memory, limit
        self.r = [0xDEADBEEF] * 16
        self.flags: tuple[int, int] | None = None  # what was compared
        self.executed = 0

    def call(self, lines: Sequence[str], arguments: Sequence[int]) -> None:
        """Runs a function by the procedure call standard. Raises AssertionError where it doesn't
        keep to that."""
        on_stack = [value & WORD for value in arguments[4:]]
        self.r[13] = top = STACK - 4 * len(on_stack)
        for number, value in enumerate(on_stack):
            self._write(top + 4 * number, value, 4)
        for number, value in enumerate(arguments[:4]):
            self.r[number] = value & WORD
        kept = self.r[4:12]
        self.r[14] = RETURN & WORD
        places = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
        at = 0
        while at < len(lines):
            line = lines[at]
            at += 1
            if line.endswith(":"):
                continue
            self.executed += 1
            assert self.executed < self.limit, "it doesn't end"
            name, _, rest = line.partition(" ")
            if name == "b" or (name[0] == "b" and name[1:] in _HOLDS):
                if name == "b" or self._holds(name[1:]):
                    at = places[rest[:-1]]
                continue
            if name == "it":
                if not self._holds(rest):
                    at += 1
                continue
            if self._step(name, rest):
                break
        else:
            raise AssertionError("it runs past its end")
        assert self.r[4:12] == kept, "a caller's register changed"
        assert self.r[13] == top, "the stack pointer changed"

    def _holds(self, condition: str) -> bool:
        assert self.flags is not None
        return _HOLDS[condition](*self.flags)

    def _read(self, address: int, size: int) -> int:
        assert address % size == 0 or size == 4, f"{address:#x} isn't aligned"
        assert address in self.memory, f"nothing is at {address:#x}"
        return sum(self.memory[address + i] << 8 * i for i in range(size))

    def _write(self, address: int, value: int, size: int) -> None:
        for i in range(size):
            assert address + i in self.memory or address >= STACK - (1 << 12), f"{address:#x}"
            self.memory[address + i] = value >> 8 * i & 0xFF

    def _value(self, operands: Sequence[str]) -> int:
        """Of a last operand: a number, a register, or one and a shift."""
        first = operands[0]
        if first.startswith("#"):
            return int(first[1:], 0) & WORD
        value = self.r[_NAMES[first]]
        if len(operands) == 1:
            return value
        how, _, count = operands[1].partition(" #")
        return self._shifted(how, value, int(count))

    @staticmethod
    def _shifted(how: str, value: int, count: int) -> int:
        match how:
            case "lsl":
                return value << count & WORD
            case "lsr":
                return value >> count
            case "asr":
                return signed(value) >> count & WORD
            case _:
                return (value >> count | value << 32 - count) & WORD

    def _step(self, name: str, rest: str) -> bool:
        """Runs an instruction; returns whether it ends the function."""
        if name in ("push", "pop"):
            names = rest.strip("{}").split(", ")
            return self._move_many(name, [_NAMES[part] for part in names])
        if name == "bx":
            assert self.r[_NAMES[rest]] == RETURN & WORD
            return True
        if name.startswith(("ldr", "str")):
            self._access(name, rest)
            return False
        operands = [part.strip() for part in rest.split(",")]
        if name == "cmp":
            self.flags = self.r[_NAMES[operands[0]]], self._value(operands[1:])
            return False
        target = _NAMES[operands[0]]
        if name == "subs":
            self.flags = self.r[_NAMES[operands[1]]], self._value(operands[2:])
        if name == "adds":  # the same as the difference to the negative
            self.flags = self.r[_NAMES[operands[1]]], -self._value(operands[2:])
        if name in ("smull", "umull"):
            a, b = (self.r[_NAMES[one]] for one in operands[2:])
            product = signed(a) * signed(b) if name == "smull" else a * b
            self.r[target], self.r[_NAMES[operands[1]]] = product & WORD, product >> 32 & WORD
            return False
        self.r[target] = self._result(name, operands) & WORD
        return False

    def _move_many(self, name: str, numbers: Sequence[int]) -> bool:
        if name == "push":
            self.r[13] -= 4 * len(numbers)
            for place, number in enumerate(sorted(numbers)):
                self._write(self.r[13] + 4 * place, self.r[number], 4)
            return False
        for place, number in enumerate(sorted(numbers)):
            self.r[number] = self._read(self.r[13] + 4 * place, 4)
        self.r[13] += 4 * len(numbers)
        return 15 in numbers and self.r[15] == RETURN & WORD

    def _access(self, name: str, rest: str) -> None:
        register, _, place = rest.partition(", [")
        base, _, offset = place.strip("]!").partition(", #")
        address = self.r[_NAMES[base]] + int(offset or 0)
        if place.endswith("!"):
            assert base != register, "a load's result is its base"
            self.r[_NAMES[base]] = address & WORD
        size = {"b": 1, "h": 2}.get(name[-1], 4)
        if name.startswith("str"):
            self._write(address, self.r[_NAMES[register]], size)
            return
        value = self._read(address, size)
        self.r[_NAMES[register]] = (signed(value, 8 * size) if "rs" in name else value) & WORD

    def _result(self, name: str, operands: Sequence[str]) -> int:
        if name in ("ssat", "usat"):
            bits, value = int(operands[1][1:]), signed(self._value(operands[2:]))
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if name == "ssat" else (
                0, (1 << bits) - 1
            )
            return min(max(value, low), high)
        if name in ("movw", "movt"):
            number = int(operands[1][1:])
            return number if name == "movw" else self.r[_NAMES[operands[0]]] & 0xFFFF | number << 16
        plain = name.removesuffix("s") if name not in ("mls",) else name
        if plain in _UNARY or plain[:3] in ("mov", "mvn"):
            return _UNARY[plain if plain in _UNARY else plain[:3]](self._value(operands[1:]))
        a = self.r[_NAMES[operands[1]]]
        if plain in _BINARY:
            return _BINARY[plain](a, self._value(operands[2:]))
        b = self.r[_NAMES[operands[2]]]
        total = signed(self.r[_NAMES[operands[3]]]) if len(operands) > 3 else 0
        return self._product(name, a, b, total)

    @staticmethod
    def _product(name: str, a: int, b: int, total: int) -> int:
        match name:
            case "mul" | "muls" | "mla":
                return total + a * b
            case "mls":
                return total - a * b
            case "smlad" | "smuad":
                return total + half(a, False) * half(b, False) + half(a, True) * half(b, True)
            case "smmul" | "smmulr" | "smmla" | "smmlar":
                rounding = 1 << 31 if name.endswith("r") else 0
                return (total << 32) + signed(a) * signed(b) + rounding >> 32
            case _ if name.startswith(("smla", "smul")):
                return total + half(a, name[4] == "t") * half(b, name[5] == "t")
            case _:
                raise AssertionError(f"there is no {name}")


_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
    "lt": lambda a, b: signed(a) < signed(b), "le": lambda a, b: signed(a) <= signed(b),
    "gt": lambda a, b: signed(a) > signed(b), "ge": lambda a, b: signed(a) >= signed(b),
    "mi": lambda a, b: signed(a - b) < 0,
}


def _two_bytes(value: int) -> int:
    return signed(value, 8) & 0xFFFF | (signed(value >> 16, 8) & 0xFFFF) << 16


_UNARY: dict[str, Callable[[int], int]] = {
    "mov": lambda x: x, "mvn": lambda x: ~x, "sxtb": lambda x: signed(x, 8),
    "uxtb": lambda x: x & 0xFF, "sxth": lambda x: signed(x, 16), "uxth": lambda x: x & 0xFFFF,
    "sxtb16": _two_bytes,
}


def _divided(a: int, b: int) -> int:
    quotient = abs(signed(a)) // abs(signed(b)) if b else 0
    return quotient if (signed(a) < 0) == (signed(b) < 0) else -quotient


_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "rsb": lambda a, b: b - a,
    "and": lambda a, b: a & b, "orr": lambda a, b: a | b, "eor": lambda a, b: a ^ b,
    "lsl": lambda a, b: a << (b & 0xFF) if b & 0xFF < 32 else 0,
    "lsr": lambda a, b: a >> (b & 0xFF),
    "asr": lambda a, b: signed(a) >> (b & 0xFF),
    "sadd16": lambda a, b: a + b & 0xFFFF | (a >> 16) + (b >> 16) << 16,
    "ssub16": lambda a, b: a - b & 0xFFFF | (a >> 16) - (b >> 16) << 16,
    "pkhbt": lambda a, b: a & 0xFFFF | b & 0xFFFF0000,
    "sdiv": _divided, "udiv": lambda a, b: a // b if b else 0,
}
