"""Applies the changes that a page shows as ``diff`` blocks to a copy of the checkout.

A block begins with ``--- path``. Lines that begin with a space must stand in the file, one after
the other and once; those that begin with ``+`` are added among them, those with ``-`` removed. A
block of ``+`` lines alone is a new file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.docs.pages import Block
from tests.helpers import ROOT

COPIED = ("crtexport", "tests", "templates", "boards", "docs", "zephyr_app", "pyproject.toml")


def copy_of_the_checkout(folder: Path) -> Path:
    """Returns the folder with a copy of what tests need."""
    unwanted = shutil.ignore_patterns("build")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=unwanted)
        else:
            shutil.copy(source, folder / name)
    return folder


def apply(block: Block, checkout: Path) -> None:
    """Changes a file. Raises ValueError where the block doesn't say where, or not once."""
    first, *lines = block.text.splitlines()
    if not first.startswith("--- "):
        raise ValueError(f"{block}: it begins with no path")
    path = checkout / first.removeprefix("--- ")
    before = [line[1:] for line in lines if not line.startswith("+")]
    after = [line[1:] for line in lines if not line.startswith("-")]
    text = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    places = [
        start for start in range(len(text) - len(before) + 1)
        if text[start : start + len(before)] == before
    ] if before else [0]
    if len(places) != 1 or bool(before) is not path.exists():
        raise ValueError(f"{block}: {len(places)} places in {first}")
    text[places[0] : places[0] + len(before)] = after
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
