"""Paths of templates, boards and the Zephyr module, in a checkout or an installed wheel."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from crtexport.support.errors import CrtExportError

if TYPE_CHECKING:
    import jinja2

_PACKAGE = Path(__file__).resolve().parents[1]


def _find(name: str) -> Path:
    """Returns the folder ``name``: package data of a wheel, else the one beside the package's
    checkout.

    A folder that happens to stand beside an installed package is not ours, hence the look for
    ``pyproject.toml``.
    """
    installed = _PACKAGE / "_data" / name
    if installed.is_dir():
        return installed
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    raise CrtExportError(
        f"the folder {name!r} that belongs to crtexport is missing",
        location=str(_PACKAGE),
        hint="install crtexport again; the installation is incomplete",
    )


def templates_dir() -> Path:
    """Returns the folder of whole-file templates. Raises CrtExportError when the installation lacks
    it."""
    return _find("templates")


def boards_dir() -> Path:
    """Returns the folder of bundled boards. Raises CrtExportError when the installation lacks
    it."""
    return _find("boards")


def zephyr_dir() -> Path:
    """Returns the folder of the Zephyr module. Raises CrtExportError when the installation lacks
    it."""
    return _find("zephyr_app")


def cache_folder() -> Path | None:
    """Returns the folder for data that crtexport keeps between runs; writers create it. None where
    neither XDG_CACHE_HOME nor HOME names an absolute path."""
    cache, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
    if os.path.isabs(cache):  # noqa: PTH117  (a relative one doesn't count, says its specification)
        return Path(cache, "crtexport")
    return Path(home, ".cache", "crtexport") if os.path.isabs(home) else None  # noqa: PTH117


def own_files() -> tuple[Path, ...]:
    """Returns every file that decides what is generated: this program, its templates and boards."""
    roots = ((_PACKAGE, "*.py"), (templates_dir(), "*"), (boards_dir(), "*.yaml"))
    return tuple(sorted({
        path for root, pattern in roots for path in root.rglob(pattern) if path.is_file()
    }))


@functools.cache
def environment() -> jinja2.Environment:
    """Returns a Jinja environment over :func:`templates_dir`.

    Undefined names are errors, nothing is escaped (the output is C, not HTML), a block tag takes
    its own line with it, and the final newline stays.
    """
    import jinja2  # noqa: PLC0415  (exports render nothing)

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (C text: escaping is done by type, before rendering)
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
