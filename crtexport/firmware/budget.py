"""Does a model fit a board? If not: what takes how much, what is too much, and where it fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crtexport.errors import CrtExportError
from crtexport.firmware.board_schema import Board, format_size


@dataclass(frozen=True)
class Usage:
    """Bytes that a model takes. ``io`` is its inputs and outputs; ``other`` is what else is known
    to be in flash, such as a device image. The board adds its stack.
    """

    constants: int = 0
    code: int = 0
    workspace: int = 0
    io: int = 0
    other: int = 0

    def items(self, board: Board) -> tuple[tuple[str, str, int], ...]:
        """(what, memory, bytes) of everything on ``board``."""
        place = board.placement
        return (
            ("constants", place.constants, self.constants),
            ("code", place.code, self.code),
            ("other", place.constants, self.other),
            ("workspace", place.workspace, self.workspace),
            ("inputs and outputs", place.io, self.io),
            ("stack", place.stack, board.stack_size),
        )


def excess(board: Board, usage: Usage) -> dict[str, int]:
    """Bytes that are too much, by memory; empty if everything fits."""
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


def check_budget(board: Board, usage: Usage, others: Iterable[Board]) -> None:
    """Raise CrtExportError if ``usage`` does not fit ``board``'s memories.

    The error has a table of what takes how much, and names those of ``others`` that it would fit.
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
    fits = [b.name for b in others if b.name != board.name and not excess(b, usage)]
    raise CrtExportError(
        f"the model does not fit: {problem}\n{table}",
        location=board.name,
        hint=f"it would fit: {', '.join(fits)}" if fits else "it fits none of the known boards",
    )
