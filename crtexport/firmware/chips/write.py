"""Writes a new board file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from crtexport.firmware.board import load_board
from crtexport.firmware.board_reader import board_from_keys
from crtexport.firmware.board_schema import Board, Memory
from crtexport.support.errors import CrtExportError

_NAME = re.compile(r"[a-z0-9_]+")
_PLACES = {"flash": ("vectors", "code", "constants"),
           "ram": ("data", "workspace", "io", "stack")}


def check_name(name: str) -> None:
    """Raises CrtExportError for an invalid board name."""
    if not _NAME.fullmatch(name):
        raise CrtExportError("a board's name consists of a-z, 0-9 and _", location=name)


def write_new_board(
    path: Path, name: str, description: str, family: str, memories: Mapping[str, Memory],
    origin: str = "",
) -> Board:
    """Writes a board into a new file, and returns the board that the file describes. ``origin`` is
    the source of its memories, for a comment.

    Raises CrtExportError, before anything is written, for keys that contradict each other, and for
    a file that exists already.
    """
    check_name(name)
    keys: dict[str, Any] = {
        "name": name, "description": description, "extends": family,
        "memory": {
            key: {"origin": memory.origin, "size": memory.size}
            for key, memory in memories.items()
        },
        "stack_size": "4KiB",
        "counter": {"kind": "none"},
        "runner": {"kind": "none", "reason": "it is a real board, connected to a debug probe"},
    }
    for memory, contents in _PLACES.items():
        if memory not in memories:
            raise CrtExportError(f"the board has no memory called {memory}, for "
                                 f"{', '.join(contents)}", location=name,
                                 hint=f"--memory {memory}=ORIGIN:SIZE")
    board_from_keys(keys, str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(_text(keys, origin))
    except FileExistsError as error:
        raise CrtExportError("there is such a file already, which stays as it is",
                             location=str(path), hint="-o names another") from error
    except OSError as error:
        raise CrtExportError(f"the board file can't be written: {error.strerror}",
                             location=str(path)) from error
    return load_board(path.resolve())


def _text(keys: Mapping[str, Any], origin: str) -> str:
    """Returns YAML as people write it: addresses in hexadecimal, sizes in KiB."""
    lines = [f"# Memories are those of {origin}."] if origin else []
    for key, value in keys.items():
        if key == "memory":
            lines.append("memory:")
            lines += [
                f"  {name}: {{origin: {one['origin']:#010x}, size: {_size(one['size'])}}}"
                for name, one in value.items()
            ]
        else:
            flow = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
            lines.append(f"{key}: {flow.removesuffix('...' + chr(10)).strip()}")
    return "\n".join(lines) + "\n"


def _size(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)
