"""Finds plugins by name: those that come with crtexport, and entry points of other packages."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from crtexport.accelerators.plugin import Accelerator
from crtexport.support.errors import CrtExportError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

GROUP = "crtexport.accelerators"


BUILT_IN = {"cmsis-nn": "crtexport.accelerators.cmsis_nn:CmsisNN"}
"""The module and the class of each plugin that comes with crtexport."""


def names() -> tuple[str, ...]:
    """Returns the names of all accelerators, sorted."""
    return tuple(sorted({*BUILT_IN, *(entry.name for entry in _offered())}))


def find(name: str) -> Accelerator:
    """Returns the plugin of that name.

    Raises CrtExportError for a name that no plugin or more than one has, and for a plugin that
    can't be loaded.
    """
    entries = _entries(name)
    if len(entries) + (name in BUILT_IN) > 1:
        owners = [_owner(entry) for entry in entries]
        raise CrtExportError(
            f"several plugins have this name: {', '.join(owners)}"
            + (", and one that comes with crtexport" if name in BUILT_IN else ""),
            location=f"accelerator {name!r}", hint="uninstall all but one of them",
        )
    if name in BUILT_IN:
        module, _, kind = BUILT_IN[name].partition(":")
        plugin: Accelerator = getattr(import_module(module), kind)()
        return plugin
    if not entries:
        close = difflib.get_close_matches(name, names(), 1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise CrtExportError(
            "there is no such accelerator", location=f"accelerator {name!r}",
            hint=f"{meant}there are: {', '.join(names())}",
        )
    return _loaded(entries[0])


def _offered() -> EntryPoints:
    """Returns the entry points of all packages."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (most exports use none)

    return entry_points(group=GROUP)


def _entries(name: str) -> list[EntryPoint]:
    """Returns the entry points of that name, each once though a package may be found twice."""
    found = {(e.value, _owner(e)): e for e in _offered().select(name=name)}
    return [found[key] for key in sorted(found)]


def _owner(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def _loaded(entry: EntryPoint) -> Accelerator:
    where = f"accelerator {entry.name!r} of {_owner(entry)}"
    try:
        made = entry.load()
        plugin = made() if isinstance(made, type) else made
    except Exception as error:
        raise CrtExportError(
            f"the plugin can't be loaded: {type(error).__name__}: {error}", location=where
        ) from error
    for verb in ("match", "build"):
        if not callable(getattr(plugin, verb, None)):
            raise CrtExportError(f"the plugin has no method {verb!r}", location=where)
    return plugin  # type: ignore[no-any-return]
