"""The memories of a board, and the content of each with its bytes."""

from __future__ import annotations

from crtexport.firmware.board_schema import Board
from crtexport.firmware.budget import Usage
from crtexport.reports.figures import MemoryContent, MemoryUse


def memories(board: Board, usage: Usage) -> tuple[MemoryUse, ...]:
    """Returns the memories of a board that aren't empty; none for boards with an operating
    system."""
    found: dict[str, list[MemoryContent]] = {name: [] for name in board.memory}
    for what, memory, size in usage.items(board) if not board.hosted else ():
        if size:
            found[memory].append(MemoryContent(what, size))
    return tuple(
        MemoryUse(
            name, board.memory[name].size, sum(one.bytes for one in contents), tuple(contents)
        )
        for name, contents in found.items() if contents
    )
