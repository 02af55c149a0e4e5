"""Checks that a model fits a board's memories, and reports the sizes and alternatives where it
doesn't."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.firmware.board_schema import Board
from crtexport.firmware.sizes import format_size
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import LEVELS, Level

_ADDRESS_BITS = 47
"""Bits of the addresses that programs have on 64-bit processors."""


class Usage(Struct, frozen=True):
    """The bytes of a model, without the board's stack.

    ``io`` are inputs and outputs in RAM; ``inputs`` is the part of them that could be in flash, and
    ``const_inputs`` are inputs that are in flash. ``other`` is further content of flash, such as a
    device image. ``spilled`` are (memory, bytes) of the parts of the workspace in further memories;
    ``workspace`` is its part in the first memory."""

    constants: int = 0
    code: int = 0
    workspace: int = 0
    io: int = 0
    other: int = 0
    spilled: tuple[tuple[str, int], ...] = ()
    inputs: int = 0
    const_inputs: int = 0

    def with_const_inputs(self) -> Usage:
        """Returns the usage with inputs in flash, except those that lie in the workspace."""
        return replace(
            self, io=self.io - self.inputs, inputs=0, const_inputs=self.const_inputs + self.inputs
        )

    def items(self, board: Board) -> tuple[tuple[str, str, int], ...]:
        """Returns (content, memory, bytes) of everything on ``board``."""
        place = board.placement
        return (
            ("constants", place.constants, self.constants),
            ("code", place.code, self.code),
            ("other", place.constants, self.other),
            ("inputs", place.constants, self.const_inputs),
            *self._workspaces(board),
            ("inputs and outputs", place.io, self.io),
            ("stack", place.stack, board.stack_size),
        )

    def _workspaces(self, board: Board) -> list[tuple[str, str, int]]:
        """Returns (content, memory, bytes) of each part of the workspace; a single part if the
        board lacks the memories that it was split for."""
        first = board.placement.workspace
        parts = {first: self.workspace}
        for memory, size in self.spilled:
            at = memory if memory in board.memory else first
            parts[at] = parts.get(at, 0) + size
        return [("workspace", memory, size) for memory, size in parts.items()]


def excess(board: Board, usage: Usage) -> dict[str, int]:
    """Returns the bytes by which memories overflow, by memory; empty if everything fits."""
    if board.hosted:
        return {}
    used = dict.fromkeys(board.memory, 0)
    for _, memory, size in usage.items(board):
        used[memory] += size
    return {
        name: used[name] - memory.size
        for name, memory in board.memory.items()
        if used[name] > memory.size
    }


def with_pools(board: Board, pools: Sequence[tuple[str, int]]) -> Board:
    """Returns ``board`` with its workspace in the memories ``pools``, fastest first; unchanged
    without any.

    Raises CrtExportError for a memory that the board doesn't have, or that comes twice.
    """
    if not pools:
        return board
    names = [name for name, _ in pools]
    for name in names:
        if name not in board.memory:
            raise CrtExportError(
                f"the board has no memory called {name!r}", location=board.name,
                hint=f"its memories are: {', '.join(board.memory)}" if board.memory
                else "the operating system allocates the memory there",
            )
        if names.count(name) > 1:
            raise CrtExportError(f"the memory {name!r} is named twice", location=board.name)
    placement = replace(board.placement, workspace=names[0], spill=tuple(names[1:]))
    return replace(board, placement=placement)


def room(
    board: Board, usage: Usage, pools: Sequence[tuple[str, int]] = (),
    earlier: Sequence[Sequence[int]] = (),
) -> tuple[int | None, ...]:
    """Returns the bytes that a workspace may take in each of its memories, which also hold
    ``usage`` and the stack; (None,) if it has a single memory, which :func:`check_budget` checks.

    ``pools`` are the user's limits for all workspaces of the package together; ``earlier`` has the
    sizes of the parts of workspaces that were planned before this one."""
    if board.hosted or (not board.placement.spill and not pools):
        return (None,)
    used = dict.fromkeys(board.memory, 0)
    for _, memory, size in usage.items(board):
        used[memory] += size
    limits = dict(pools)
    names = board.placement.workspaces
    taken = dict(zip(names, _together(earlier), strict=False))
    sizes = {name: board.memory[name].size for name in names}
    return tuple(
        max(0, min(limits.get(name, size), size - used[name]) - taken.get(name, 0))
        for name, size in sizes.items()
    )


def spare(
    board: Board, usage: Usage, pools: Sequence[tuple[str, int]] = (),
    earlier: Sequence[Sequence[int]] = (),
) -> int | None:
    """Returns the bytes that a workspace may take in all of its memories together, with arguments
    as for :func:`room`; None on boards with an operating system."""
    if board.hosted:
        return None
    left = room(board, usage, pools, earlier)
    if None not in left:
        return sum(size or 0 for size in left)
    memory = board.placement.workspace
    used = sum(size for _, where, size in usage.items(board) if where == memory)
    return max(0, board.memory[memory].size - used - sum(map(sum, earlier)))


def _together(workspaces: Sequence[Sequence[int]]) -> list[int]:
    """Returns the sum of all workspaces' parts, by memory."""
    return [sum(sizes) for sizes in itertools.zip_longest(*workspaces, fillvalue=0)]


def check_pools(
    board: Board, workspaces: Sequence[Sequence[int]], pools: Sequence[tuple[str, int]]
) -> None:
    """Raises CrtExportError if the parts of workspaces are larger than the user allows."""
    for (name, limit), size in zip(pools, _together(workspaces), strict=False):
        if size > limit:
            raise CrtExportError(
                f"the workspace needs {size:,} bytes of {name}, it may take {limit:,}"
                if len(workspaces) == 1 else
                f"the workspaces of {len(workspaces)} models need {size:,} bytes of {name}, they "
                f"may take {limit:,} together",
                location=board.name, hint="allow more, or name one more memory for the rest",
            )


def check_tensors(
    board: Board, tensors: Iterable[tuple[str, int]], *, must_fit: bool = True
) -> None:
    """Raises CrtExportError for a tensor that is larger than ``board`` can address or, with
    ``must_fit``, than all of its memories together. The error names the tensor.

    ``tensors``: names and bytes of tensors that aren't constant.
    """
    limit = 1 << min(board.cpu.pointer_bits, _ADDRESS_BITS)
    what = "the processor can address"
    if board.cpu.pointer_bits == 16:
        limit, what = (1 << 15) - 1, "arrays with indices of 16 bits can have"
    if must_fit and not board.hosted:
        together = sum(memory.size for memory in board.memory.values())
        limit, what = min(
            (limit, what), (together, "all memories of the board together have")
        )
    for name, size in tensors:
        if size > limit:
            raise CrtExportError(
                f"it takes {size:,} bytes ({format_size(size)}); {what} {limit:,} "
                f"({format_size(limit)})", location=(board.name, f"tensor {name!r}"),
                hint="the model is too large for this board",
            )


def check_budget(
    board: Board, usage: Usage, known_boards: Iterable[Board], level: Level = "size"
) -> None:
    """Raises CrtExportError if ``usage`` does not fit ``board``'s memories.

    The error has a table of all content and its bytes, and suggests remedies: levels with less code
    than ``level``, which the code has, where other code could fit; inputs that stay in flash or lie
    in the workspace, rows, and other ones of ``known_boards`` that the model fits.
    """
    over = excess(board, usage)
    if not over:
        return
    rows = [("what", "memory", "bytes")]
    rows += [(what, memory, f"{size:,}") for what, memory, size in usage.items(board) if size]
    for memory, too_much in over.items():
        size = board.memory[memory].size
        rows.append((f"together in {memory}", memory, f"{size + too_much:,}"))
        rows.append((f"size of {memory}", memory, f"{size:,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    table = "\n".join(
        f"  {what:<{widths[0]}}  {memory:<{widths[1]}}  {size:>{widths[2]}}"
        for what, memory, size in rows
    )
    problem = " and ".join(
        f"{size:,} bytes ({format_size(size)}) too much for {memory}"
        for memory, size in over.items()
    )
    raise CrtExportError(
        f"the model does not fit: {problem}\n{table}", location=board.name,
        hint="; ".join((
            *_less_code(board, usage, over, level), *_remedies(board, usage, over),
            *_other_boards(board, usage, known_boards),
        )),
    )


def _less_code(
    board: Board, usage: Usage, over: Mapping[str, int], level: Level
) -> Iterator[str]:
    """Yields a hint where less code than that of ``level`` might fit."""
    smaller = [f"--optimize {less}" for less in LEVELS[: LEVELS.index(level)]]
    if smaller and 0 < over.get(board.placement.code, 0) < usage.code:
        yield f"there is less code with {' or '.join(reversed(smaller))}"


def _remedies(board: Board, usage: Usage, over: Mapping[str, int]) -> Iterator[str]:
    """Yields hints for a model that would fit if inputs and outputs took less RAM."""
    if usage.io == 0 or board.placement.io not in over:
        return
    if not excess(board, usage.with_const_inputs()):
        yield (
            "it fits if its inputs stay in flash: --const-inputs, or INPUTS CONST of Zephyr's "
            "crtexport_model()"
        )
    yield "--io workspace lets inputs, outputs and intermediate results share bytes"
    if usage.inputs:
        yield "--feed takes an input row by row, which is never in memory as a whole then"


def _other_boards(board: Board, usage: Usage, known_boards: Iterable[Board]) -> Iterator[str]:
    """Yields a hint about boards among ``known_boards`` that the model fits. There is none for a
    board that isn't among them: users can't exchange their own board, or that of a build."""
    known = list(known_boards)
    if all(other.name != board.name for other in known):
        return
    fits = [b.name for b in known if b.name != board.name and not excess(b, usage)]
    yield f"it would fit: {', '.join(fits)}" if fits else "it fits none of the known boards"
