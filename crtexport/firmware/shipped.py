"""The shipped boards as they are once their YAML is read and checked: ``boards/boards.json``.

Tests hold that it is what the YAML says, and each entry tells the files that it was made of: where
one of these was changed since, the YAML is read.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from crtexport import resources
from crtexport.firmware.board_schema import Board

FILE = "boards.json"


class _Entry(msgspec.Struct, frozen=True):
    """``files``: SHA-256 of the board's own file and of those that it extends, by name."""

    files: dict[str, str]
    board: msgspec.Raw


def shipped_board(path: Path) -> Board | None:
    """The board whose file is ``path``; None where that must be read."""
    folder = resources.boards_dir()
    if path.parent != folder:
        return None
    entry = _entries(folder / FILE).get(path.stem)
    if entry is None or path.name not in entry.files:
        return None
    try:
        if any(_digest(folder / name) != digest for name, digest in entry.files.items()):
            return None
        return msgspec.json.decode(entry.board, type=Board)
    except (OSError, msgspec.DecodeError):
        return None


def shipped_text(boards: Iterable[tuple[Board, Sequence[Path]]]) -> bytes:
    """The text of :data:`FILE` for boards and the files that tell of them."""
    entries = {
        board.name: _Entry(
            {file.name: _digest(file) for file in files}, msgspec.Raw(msgspec.json.encode(board))
        )
        for board, files in boards
    }
    return msgspec.json.format(msgspec.json.encode(entries), indent=1) + b"\n"


@functools.cache
def _entries(path: Path) -> dict[str, _Entry]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _Entry])
    except (OSError, msgspec.DecodeError):
        return {}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
