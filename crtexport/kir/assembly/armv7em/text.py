"""Assembler text of a function that runs a loop, by Arm's procedure call standard (AAPCS)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from crtexport.kir.assembly.armv7em.allocate import Placed
from crtexport.kir.assembly.armv7em.instructions import (
    STACK,
    Argument,
    Block,
    Branch,
    Instruction,
    Loop,
    Node,
    Register,
    instructions,
)
from crtexport.kir.assembly.frame import (
    CALLED,
    IN_REGISTERS,
    arranged,
    moves_between,
    name_of,
)

_LOW = re.compile(r"r[0-7]")
_SETS_FLAGS = frozenset({"add", "sub", "mov", "lsl", "lsr", "asr", "mul", "and", "orr", "eor"})


class Text(Struct, frozen=True):
    """``lines`` of assembler with local labels; ``arguments`` in the order of the function's
    parameters; ``around``: cycles of the call, and of what is before and behind the loop."""

    lines: tuple[str, ...]
    arguments: tuple[Argument, ...]
    around: int


def short(line: str) -> str:
    """Returns an instruction in the form with the shortest encoding, which may change flags."""
    name, _, rest = line.partition(" ")
    operands = [part.strip() for part in rest.split(",")]
    low = all(_LOW.fullmatch(part) for part in operands if not part.startswith("#"))
    if not (name in _SETS_FLAGS and low and _narrow(name, operands)):
        return line
    if name == "mul" and operands[0] == operands[1]:
        operands = [operands[0], operands[2], operands[1]]
    return f"{name}s {', '.join(operands)}"


def _narrow(name: str, operands: list[str]) -> bool:
    if len(operands) > (2 if name == "mov" else 3):
        return False
    same = operands[0] == operands[1]
    number = int(operands[-1][1:]) if operands[-1].startswith("#") else None
    match name:
        case "mov":
            return number is not None and 0 <= number < 256
        case "add" | "sub":
            return number is None or 0 <= number < (256 if same else 8)
        case "lsl" | "lsr" | "asr":
            return same or number is not None
        case "mul":
            return operands[0] in operands[1:]
        case _:
            return same and number is None


def spelled(instruction: Instruction, numbers: Mapping[Register, int], slot: int = 0) -> str:
    """Returns an instruction with the registers of these ``numbers``; what is on the stack is in
    ``slot``, so many bytes behind its pointer."""
    names = [name_of(numbers[register]) for register in instruction.reads]
    given = dict(zip("wv", (name_of(numbers[r]) for r in instruction.writes), strict=False))
    if instruction.memory is not None:
        base = instruction.memory.base
        given["base"] = "sp" if base is STACK else name_of(numbers[base])
        given["at"] = str(slot if base is STACK else instruction.memory.offset)
    return instruction.text.format(*names, **given).replace(", #0]", "]")


def text(nodes: list[Node], placed: Placed, arguments: Iterable[Argument]) -> Text:
    """Returns the function that runs ``nodes``."""
    return _Printer(placed, tuple(arguments)).function(nodes)


class _Printer:
    def __init__(self, placed: Placed, arguments: tuple[Argument, ...]) -> None:
        self.placed = placed
        used = {n for numbers in placed.numbers.values() for n in numbers.values()}
        given = [one for one in arguments if self._used(one.register)]
        self.saved = sorted(n for n in used if n >= CALLED and n != 12)
        self.arguments = arranged(
            given, lambda one: placed.lasting.get(one.register),
            last=lambda one: one.register in placed.slots,
        )
        on_stack = [one.register for one in self.arguments[IN_REGISTERS:]]
        own = [one for one in placed.slots if one not in on_stack]
        self.frame = 4 * len(own)
        self.slots = {one: 4 * number for number, one in enumerate(own)}
        above = self.frame + 4 * len(self.saved)
        self.slots |= {one: above + 4 * number for number, one in enumerate(on_stack)}
        self.lines: list[str] = []
        self.labels = 0
        self.around = 4  # a call and the return from it

    def _used(self, register: Register) -> bool:
        return register in self.placed.lasting or register in self.placed.slots

    def function(self, nodes: list[Node]) -> Text:
        self._enter()
        self._nodes(nodes)
        self._leave()
        return Text(tuple(self.lines), tuple(self.arguments), self.around)

    def _line(self, line: str) -> None:
        self.lines.append(short(line))

    def _enter(self) -> None:
        if self.saved:
            self._line(f"push {{{', '.join(map(name_of, self.saved))}}}")
            self.around += 2 * (1 + len(self.saved))
        if self.frame:
            self._line(f"sub sp, sp, #{self.frame}")
            self.around += 2
        moves = {}
        for number, one in enumerate(self.arguments):
            register = one.register
            if number < IN_REGISTERS and register in self.placed.slots:
                self._line(f"str {name_of(number)}, [sp, #{self.slots[register]}]")
            elif number < IN_REGISTERS and self.placed.lasting[register] != number:
                moves[self.placed.lasting[register]] = number
        spare = 12 if 12 not in (*moves, *moves.values()) else 14  # R12 is free, or in a circle
        for target, source in moves_between(moves, spare):
            self._line(f"mov {name_of(target)}, {name_of(source)}")
        for one in self.arguments[IN_REGISTERS:]:
            if one.register not in self.placed.slots:
                number = self.placed.lasting[one.register]
                self._line(f"ldr {name_of(number)}, [sp, #{self.slots[one.register]}]")
                self.around += 1
        self.around += len(moves)

    def _leave(self) -> None:
        if self.frame:
            self._line(f"add sp, sp, #{self.frame}")
        if 14 in self.saved:
            names = [name_of(15 if number == 14 else number) for number in self.saved]
            self._line(f"pop {{{', '.join(names)}}}")
            return
        if self.saved:
            self._line(f"pop {{{', '.join(map(name_of, self.saved))}}}")
        self._line("bx lr")

    def _nodes(self, nodes: list[Node]) -> None:
        for number, node in enumerate(nodes):
            following = nodes[number + 1] if number + 1 < len(nodes) else None
            match node:
                case Block():
                    codes = iter(following.codes if isinstance(following, Branch) else ())
                    self._block(node, codes)
                case Loop():
                    label = self._label()
                    self.lines.append(f"{label}:")
                    self._nodes(node.body)
                    code = "mi" if node in self.placed.negative else "ne"
                    self.lines.append(f"b{code} {label}b")
                case Branch():
                    self._branch(node)

    def _label(self) -> int:
        self.labels += 1
        return self.labels

    def _block(self, block: Block, codes: Iterator[str]) -> None:
        """Prints the instructions of a block; behind each comparison in its tail comes a branch."""
        body = self.placed.bodies[block]
        for number, one in enumerate(body):
            self._instruction(one, self.placed.numbers[block])
            if number >= len(body) - len(block.tail) and (code := next(codes, None)):
                self.lines.append(f"b{code} {self.labels + 1}f")

    def _branch(self, branch: Branch) -> None:
        other = self._label()
        self._nodes(branch.then.body)
        empty = not any(True for _ in instructions(branch.other.body))
        if not empty:
            end = self._label()
            self.lines.append(f"b {end}f")
        self.lines.append(f"{other}:")
        if not empty:
            self._nodes(branch.other.body)
            self.lines.append(f"{end}:")

    def _instruction(self, instruction: Instruction, numbers: Mapping[Register, int]) -> None:
        memory, slot = instruction.memory, 0
        if memory is not None and memory.base is STACK:
            slot = next(at for spilled, at in self.slots.items() if spilled is memory.place)
        lines = spelled(instruction, numbers, slot).split("\n")
        if len(lines) > 1:
            self.lines += lines
            return
        read = [numbers[register] for register in instruction.reads]
        written = [numbers[register] for register in instruction.writes]
        if lines[0].startswith("mov ") and written and read == written:
            return
        self._line(lines[0])
