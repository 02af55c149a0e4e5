"""Finds and reads board files: search path, ``extends``, and where each key came from."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from pydantic import ValidationError

from crtexport import resources
from crtexport.errors import CrtExportError
from crtexport.firmware import native
from crtexport.firmware.board_schema import Board
from crtexport.firmware.budget import Usage, check_budget
from crtexport.firmware.schema_errors import KeyPath, did_you_mean, schema_error

if yaml.__with_libyaml__:
    from yaml import CSafeLoader as _SafeLoader  # ten times as fast
else:
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

__all__ = [
    "SEARCH_PATH", "Board", "Usage", "board_files", "board_from_keys", "check_budget",
    "list_boards", "load_board",
]

SEARCH_PATH = "CRTEXPORT_BOARD_PATH"
"""Environment variable: folders with the user's boards, before the shipped ones."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SUFFIXES = (".yaml", ".yml")
_FILE_KEYS = ("abstract", "extends")
_MAX_BYTES = 1 << 20
_MAX_DEPTH = 16
_MAX_VALUES = 10_000


class _Loader(_SafeLoader):
    """Safe YAML in which a key that comes twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is no text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} comes twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Merged(Struct, frozen=True):
    """Keys of a file and its parents, the file that each came from, and all these files."""

    data: dict[str, Any]
    origins: dict[KeyPath, str]
    abstract: bool
    files: tuple[Path, ...] = ()


def load_board(name_or_path: str | Path) -> Board:
    """The board of that name, or of the YAML file at that path (with a ``/`` or ending in .yaml).

    Names are searched in the folders of ``CRTEXPORT_BOARD_PATH``, then among the shipped boards;
    ``native`` is the fastest one of these that this computer can be.
    Raises CrtExportError for an unknown name (with what may have been meant) and for every flaw in
    the file or in one that it extends.
    """
    path, explicit = _located(name_or_path)
    merged = _read(path, ())
    if merged.abstract:
        raise CrtExportError(
            "this is a family of boards, not a board", location=_shown(path),
            hint="boards extend it; `crtexport boards` lists them",
        )
    board = _validate(merged, path)
    if not explicit and board.name != path.stem:
        raise CrtExportError(
            f"the board calls itself {board.name!r}, but its file {path.name!r}",
            location=(_shown(path), "name"),
        )
    return board


def board_files(name_or_path: str | Path) -> tuple[Path, ...]:
    """The files that tell of a board: its own, and those that it extends. Raises CrtExportError as
    :func:`load_board`."""
    path, _ = _located(name_or_path)
    return _read(path, ()).files


def _located(name_or_path: str | Path) -> tuple[Path, bool]:
    """The board's file, and whether it was named itself."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(_SUFFIXES):
        return Path(text), True
    found = _find(text, ())
    if found is None and text == native.NAME:
        found = _find(native.native_board(), ())
    if found is None:
        known = [board.name for board in list_boards()]
        raise CrtExportError(
            f"there is no board {text!r}",
            location=(),
            hint=f"a board's file is named with its folder: ./{text}" if Path(text).is_file()
            else f"{did_you_mean(text, known)}the boards are: {', '.join(known) or 'none'}",
        )
    return found, False


def board_from_keys(keys: Mapping[str, Any], origin: str) -> Board:
    """The board that a file with ``keys`` would describe; ``origin`` is for errors."""
    path = Path(origin)
    return _validate(_resolve(copy.deepcopy(dict(keys)), path, ()), path)


def list_boards() -> tuple[Board, ...]:
    """Every board that has a name of its own (families are left out), by name."""
    paths: dict[str, Path] = {}
    for folder in _folders():
        for path in sorted(folder.iterdir()):
            if path.suffix in _SUFFIXES:
                paths.setdefault(path.stem, path)
    merged = {name: _read(path, ()) for name, path in sorted(paths.items())}
    return tuple(_validate(m, paths[name]) for name, m in merged.items() if not m.abstract)


def _folders() -> list[Path]:
    own = [entry for entry in os.environ.get(SEARCH_PATH, "").split(os.pathsep) if entry]
    for entry in own:
        if not Path(entry).is_dir():
            raise CrtExportError("there is no such folder", location=(SEARCH_PATH, entry))
    return [*map(Path, own), resources.boards_dir()]


def _find(name: str, before: tuple[Path, ...]) -> Path | None:
    if not _NAME.fullmatch(name):
        return None
    for folder in [*before, *_folders()]:
        for suffix in _SUFFIXES:
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return path
    return None


def _shown(path: Path) -> str:
    """How errors call ``path``: shipped files by their name alone."""
    return path.name if path.parent == resources.boards_dir() else str(path)


def _read(path: Path, children: tuple[Path, ...]) -> _Merged:
    """``path`` with its parents' keys beneath its own."""
    shown = _shown(path)
    if os.path.realpath(path) in [os.path.realpath(child) for child in children]:
        chain = " → ".join(_shown(p) for p in (*children, path))
        raise CrtExportError(f"boards extend each other in a circle: {chain}", location=shown)
    if len(children) >= _MAX_DEPTH:
        raise CrtExportError("too many boards extend each other", location=shown)
    return _resolve(_parse(path), path, children)


def _resolve(data: dict[str, Any], path: Path, children: tuple[Path, ...]) -> _Merged:
    """The keys of the file ``path`` with its parents' beneath them."""
    shown = _shown(path)
    abstract = data.pop("abstract", False)
    parent = data.pop("extends", None)
    if not isinstance(abstract, bool):
        raise CrtExportError("write true or false", location=(shown, "abstract"))
    base = _Merged({}, {}, abstract=True)
    if parent is not None:
        base = _read(_parent(parent, path), (*children, path))
    merged, origins = dict(base.data), dict(base.origins)
    # A family's own name and sentence are not those of its members.
    for own in ("name", "description"):
        merged.pop(own, None)
        origins.pop((own,), None)
    _merge(merged, data, origins, (), shown)
    return _Merged(merged, origins, abstract, (*base.files, path))


def _parent(parent: object, path: Path) -> Path:
    where = (_shown(path), "extends")
    if not isinstance(parent, str):
        raise CrtExportError("write the name of one board", location=where)
    found = _find(parent, (path.parent,))
    if found is None:
        names = [p.stem for d in (path.parent, *_folders()) for p in sorted(d.glob("*.y*ml"))]
        raise CrtExportError(
            f"there is no board {parent!r} to extend", location=where,
            hint=did_you_mean(parent, names) or f"looked beside the file and along {SEARCH_PATH}",
        )
    return found


def _parse(path: Path) -> dict[str, Any]:
    shown = _shown(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CrtExportError("this is too large for a board file", location=shown)
        text = path.read_text(encoding="utf-8")
        data = yaml.load(text, Loader=_Loader)  # noqa: S506  (derived from SafeLoader)
    except OSError as error:
        raise CrtExportError(
            f"the board file can't be read: {error.strerror}", location=shown
        ) from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise CrtExportError(f"this is no YAML: {error}", location=shown) from error
    if not isinstance(data, dict):
        raise CrtExportError("a board file holds keys and values", location=shown)
    _check_size(data, shown)
    return data


def _check_size(data: dict[str, Any], shown: str) -> None:
    """Raises CrtExportError for data that aliases make endless, or larger than any file."""
    left: list[object] = [data]
    for _ in range(_MAX_VALUES):
        if not left:
            return
        value = left.pop()
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
    raise CrtExportError("these are more values than a board has", location=shown,
                         hint="aliases (*name) may not stand inside of what they name")


def _merge(
    base: dict[str, Any], new: dict[str, Any], origins: dict[KeyPath, str], at: KeyPath, file: str
) -> None:
    """Put ``new`` over ``base``: mappings merge, lists and plain values replace."""
    for key, value in new.items():
        here = (*at, key)
        origins[here] = file
        old = base.get(key)
        # A section that names its kind anew is another section, not a change of the old one.
        other_kind = isinstance(value, dict) and "kind" in value
        if isinstance(value, dict):
            merged = dict(old) if isinstance(old, dict) and not other_kind else {}
            _merge(merged, value, origins, here, file)
            base[key] = merged
        else:
            base[key] = value


def _validate(merged: _Merged, path: Path) -> Board:
    def file_of(key: KeyPath) -> str:
        for length in range(len(key), 0, -1):
            if key[:length] in merged.origins:
                return merged.origins[key[:length]]
        return _shown(path)

    unknown = [key for key in merged.data if key not in Board.model_fields]
    if unknown:
        keys = [*Board.model_fields, *_FILE_KEYS]
        raise CrtExportError(
            "unknown key", location=(file_of((unknown[0],)), unknown[0]),
            hint=f"{did_you_mean(unknown[0], keys)}keys here are: {', '.join(keys)}",
        )
    try:
        return Board.model_validate(merged.data)
    except ValidationError as error:
        raise schema_error(error, Board, file_of) from error
