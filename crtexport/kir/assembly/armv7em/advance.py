"""Lets loads advance the pointers of innermost loops.

A load can add to its base first (``ldr r4, [r0, #64]!``). Where the first access by a pointer in a
loop's body does so, no addition has to: the pointer is as much behind when the loop begins, and all
that uses it elsewhere reckons with that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.assembly.armv7em.addresses import LEAST_OFFSET, MOST_OFFSET
from crtexport.kir.assembly.armv7em.instructions import (
    COPY,
    Argument,
    Block,
    Instruction,
    Kind,
    Loop,
    Node,
    Register,
    added,
    blocks,
    parts,
)
from crtexport.kir.builder import add, const

_MOST_ADVANCE = 255
"""Bytes by which a load can move its base, and a pointer is behind."""
_ADDED = re.compile(r"(add|sub) \{w\}, \{0\}, #(\d+)")
_COMPARED = "cmp {0}, {1}"


def advanced_by_loads(
    body: list[Node], arguments: Sequence[Argument], element_sizes: Mapping[str, int]
) -> tuple[Argument, ...]:
    """Changes ``body`` where loads can advance pointers; returns the function's new arguments.
    ``element_sizes``: bytes of an element of each buffer."""
    sizes = {one.register: element_sizes.get(one.buffer, 0) for one in arguments}
    function = _Function(body, sizes)
    given = {one.register: one for one in arguments}
    for block in _innermost(body):
        for advance in list(block.body):
            amount = _amount(advance)
            if 0 < abs(amount) <= _MOST_ADVANCE and advance.writes == advance.reads:
                found = function.change(block, advance, amount, given)
                if found is not None:
                    _apply(found, body, block, given)
    return tuple(given[one.register] for one in arguments)


def _innermost(nodes: Iterable[Node]) -> Iterator[Block]:
    """Yields the blocks that are all that a loop repeats."""
    for node in nodes:
        if isinstance(node, Loop) and len(node.body) == 1 and isinstance(node.body[0], Block):
            yield node.body[0]
        for part in parts(node):
            yield from _innermost(part.body)


def _amount(one: Instruction) -> int:
    """Returns the number that an instruction adds to a register; 0 where it does something
    else."""
    found = _ADDED.fullmatch(one.text)
    if found is None:
        return 0
    return int(found[2]) if found[1] == "add" else -int(found[2])


class _Change(Struct, frozen=True):
    """``load`` comes to advance ``pointer`` by ``amount`` bytes, instead of ``advance``. Before and
    behind the loop the pointer is ``behind`` bytes behind where it was. ``others``: instructions
    that use it there; ``ends``: what it is compared with, and the bytes of an element."""

    pointer: Register
    load: Instruction
    advance: Instruction
    amount: int
    behind: int
    others: list[Instruction]
    ends: dict[Register, int]


class _Function:
    def __init__(self, body: list[Node], sizes: dict[Register, int]) -> None:
        self.blocks = list(blocks(body))
        self.sizes = sizes

    def change(
        self, block: Block, advance: Instruction, amount: int,
        arguments: dict[Register, Argument],
    ) -> _Change | None:
        """Returns how a load advances a pointer instead of ``advance``; None if none can."""
        pointer = advance.writes[0]
        accesses = [one for one in block.body if _base(one) is pointer]
        load = accesses[0] if accesses else None
        if load is None or load.memory is None or load.kind is not Kind.LOAD:
            return None
        if any(_base(one) is pointer for one in block.body[block.body.index(advance) :]):
            return None
        behind = amount - load.memory.offset
        if abs(behind) > _MOST_ADVANCE:
            return None
        others, ends = [], {}
        for one in self._uses(pointer):
            if one in accesses or one is advance:
                if one is not advance and pointer in (*one.reads, *one.writes):
                    return None  # such as a load over its own base
                continue
            if one.text == _COMPARED:
                end = next((r for r in one.reads if r is not pointer), pointer)
                size = self.sizes.get(end, 0)
                if not self._only_compared(end, pointer) or not size or behind % size:
                    return None
                ends[end] = size
            elif not _can_reckon(one, pointer, behind):
                return None
            others.append(one)
        written = any(pointer in one.writes for one in others if not _amount(one))
        if written and pointer in arguments:
            return None
        return _Change(pointer, load, advance, amount, behind, others, ends)

    def _uses(self, register: Register) -> list[Instruction]:
        return [
            one for block in self.blocks for one in (*block.body, *block.tail)
            if register in (*one.wanted, *one.writes)
        ]

    def _only_compared(self, end: Register, pointer: Register) -> bool:
        return end in self.sizes and all(
            one.text == _COMPARED and pointer in one.reads for one in self._uses(end)
        )


def _base(one: Instruction) -> Register | None:
    return None if one.memory is None else one.memory.base


def _can_reckon(one: Instruction, pointer: Register, behind: int) -> bool:
    """Returns whether an instruction can be changed to mean the same with a pointer that is
    ``behind``."""
    if one.memory is not None:
        offset = one.memory.offset + behind
        apart = pointer not in one.reads and pointer not in one.writes
        return apart and LEAST_OFFSET <= offset <= MOST_OFFSET and "!" not in one.text
    if one.text == COPY:
        return True
    return bool(_amount(one)) and one.writes == one.reads


def _apply(
    change: _Change, body: list[Node], block: Block, arguments: dict[Register, Argument]
) -> None:
    pointer, behind = change.pointer, change.behind
    for one in change.others:
        if one.memory is not None:
            one.memory.offset += behind
        elif one.text == COPY and behind:
            source, target = one.reads[0], one.writes[0]
            made = added(target, behind if source is pointer else -behind)
            one.text = made.text
    memory = change.load.memory
    if memory is None:
        raise ValueError("only loads and stores have a place")
    first = memory.offset
    for one in block.body:
        if one.memory is not None and one.memory.base is pointer:
            one.memory.offset -= first
    memory.offset = change.amount
    change.load.text = f"{change.load.text}!"
    change.load.writes = (*change.load.writes, pointer)
    block.body.remove(change.advance)
    for end, size in change.ends.items():
        given = arguments[end]
        arguments[end] = replace(given, index=add(given.index, const(-behind // size)))
    if pointer in arguments and behind:
        start = body[0]
        if not isinstance(start, Block):
            raise ValueError("a loop begins without a block before it")
        start.body.insert(0, added(pointer, -behind))
