"""Where board files are: the search path, the shipped ones, and what errors call them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from crtexport import resources
from crtexport.errors import CrtExportError

SEARCH_PATH = "CRTEXPORT_BOARD_PATH"
"""Environment variable: folders with the user's boards, before the shipped ones."""

SUFFIXES = (".yaml", ".yml")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def folders() -> list[Path]:
    """Those of the search path, and the shipped boards' at last. Raises CrtExportError for one that
    isn't there."""
    own = [entry for entry in os.environ.get(SEARCH_PATH, "").split(os.pathsep) if entry]
    for entry in own:
        if not Path(entry).is_dir():
            raise CrtExportError("there is no such folder", location=(SEARCH_PATH, entry))
    return [*map(Path, own), resources.boards_dir()]


def find(name: str, before: tuple[Path, ...] = ()) -> Path | None:
    """The file of the board of that name, first in the folders ``before``, if there is one."""
    if not _NAME.fullmatch(name):
        return None
    for folder in [*before, *folders()]:
        for suffix in SUFFIXES:
            path = folder / f"{name}{suffix}"
            if os.path.isfile(path):  # noqa: PTH113  (False for names that no file can have)
                return path
    return None


def shown_as(path: Path) -> str:
    """How errors call ``path``: shipped files by their name alone."""
    return path.name if path.parent == resources.boards_dir() else str(path)
