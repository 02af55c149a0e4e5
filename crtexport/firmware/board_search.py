"""Locates board files: the search path, the shipped ones, and their names in errors."""

from __future__ import annotations

import os
import re
from pathlib import Path

from crtexport.support import resources
from crtexport.support.errors import CrtExportError

SEARCH_PATH = "CRTEXPORT_BOARD_PATH"
"""Environment variable: folders with the user's boards, before the shipped ones."""

SUFFIXES = (".yaml", ".yml")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def folders() -> list[Path]:
    """Returns the folders of the search path, then the shipped boards'. Raises CrtExportError for
    one that doesn't exist."""
    own = [entry for entry in os.environ.get(SEARCH_PATH, "").split(os.pathsep) if entry]
    for entry in own:
        if not Path(entry).is_dir():
            raise CrtExportError("there is no such folder", location=(SEARCH_PATH, entry))
    return [*map(Path, own), resources.boards_dir()]


def find(name: str, first_folders: tuple[Path, ...] = ()) -> Path | None:
    """Returns the file of the board of that name, first in the folders ``first_folders``, if there
    is one.
    """
    if not _NAME.fullmatch(name):
        return None
    for folder in [*first_folders, *folders()]:
        for suffix in SUFFIXES:
            path = folder / f"{name}{suffix}"
            if os.path.isfile(path):  # noqa: PTH113  (False for names that no file can have)
                return path
    return None


def shown_as(path: Path) -> str:
    """Returns ``path`` for errors: shipped files by their name alone."""
    return path.name if path.parent == resources.boards_dir() else str(path)
