"""Reads board files: YAML, ``extends``, and the file that each key came from."""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from crtexport.firmware.board_rules import board_from_data
from crtexport.firmware.board_schema import Board
from crtexport.firmware.board_search import SEARCH_PATH, find, folders, shown_as
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import KeyPath, did_you_mean

if yaml.__with_libyaml__:
    from yaml import CSafeLoader as _SafeLoader  # ten times as fast
else:
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

_FILE_KEYS = ("abstract", "extends")
_MAX_CHARACTERS = 1 << 20
_MAX_DEPTH = 16
_MAX_VALUES = 10_000


class _Loader(_SafeLoader):
    """Safe YAML in which a duplicate key is an error."""

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


class Merged(Struct, frozen=True):
    """A board file merged with those that it extends: its keys, the file that each key came from,
    and all these files."""

    data: dict[str, Any]
    origins: dict[KeyPath, str]
    abstract: bool
    files: tuple[Path, ...] = ()


def board_from_keys(keys: Mapping[str, Any], origin: str) -> Board:
    """Returns the board that a file with ``keys`` would describe; ``origin`` is for errors."""
    path = Path(origin)
    return validate(_resolve(copy.deepcopy(dict(keys)), path, ()), path)


def read(path: Path, children: tuple[Path, ...] = ()) -> Merged:
    """Returns the keys of ``path`` merged over those of its parents."""
    shown = shown_as(path)
    if os.path.realpath(path) in [os.path.realpath(child) for child in children]:
        chain = " → ".join(shown_as(p) for p in (*children, path))
        raise CrtExportError(f"boards extend each other in a cycle: {chain}", location=shown)
    if len(children) >= _MAX_DEPTH:
        raise CrtExportError("too many boards extend each other", location=shown)
    return _resolve(_parse(path), path, children)


def _resolve(data: dict[str, Any], path: Path, children: tuple[Path, ...]) -> Merged:
    """Returns the keys of the file ``path`` merged over those of its parents."""
    shown = shown_as(path)
    abstract = data.pop("abstract", False)
    parent = data.pop("extends", None)
    if not isinstance(abstract, bool):
        raise CrtExportError("write true or false", location=(shown, "abstract"))
    base = Merged({}, {}, abstract=True)
    if parent is not None:
        base = read(_parent(parent, path), (*children, path))
    merged, origins = dict(base.data), dict(base.origins)
    # Name and description of a family don't hold for its members.
    for own in ("name", "description"):
        merged.pop(own, None)
        origins.pop((own,), None)
    _merge(merged, data, origins, (), shown)
    return Merged(merged, origins, abstract, (*base.files, path))


def _parent(parent: object, path: Path) -> Path:
    where = (shown_as(path), "extends")
    if not isinstance(parent, str):
        raise CrtExportError("write the name of one board", location=where)
    found = find(parent, (path.parent,))
    if found is None:
        names = [p.stem for d in (path.parent, *folders()) for p in sorted(d.glob("*.y*ml"))]
        raise CrtExportError(
            f"there is no board {parent!r} to extend", location=where,
            hint=did_you_mean(parent, names) or f"looked beside the file and along {SEARCH_PATH}",
        )
    return found


def _parse(path: Path) -> dict[str, Any]:
    shown = shown_as(path)
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(_MAX_CHARACTERS + 1)
        if len(text) > _MAX_CHARACTERS:
            raise CrtExportError("this is too large for a board file", location=shown)
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
    """Raises CrtExportError for data with too many values. YAML's aliases can make data cyclic, or
    much larger than its file."""
    left: list[object] = [data]
    for _ in range(_MAX_VALUES):
        if not left:
            return
        value = left.pop()
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
    raise CrtExportError("the file has more values than a board can have", location=shown,
                         hint="aliases (*name) may not stand inside of what they name")


def _merge(
    base: dict[str, Any], new: dict[str, Any], origins: dict[KeyPath, str], at: KeyPath, file: str
) -> None:
    """Merges ``new`` into ``base``: mappings are merged key by key, other values replace those of
    ``base``. Records in ``origins`` that the keys at and below ``at`` came from ``file``."""
    for key, value in new.items():
        here = (*at, key)
        origins[here] = file
        old = base.get(key)
        # A section with a kind replaces the parent's: keys of another kind would make no sense.
        other_kind = isinstance(value, dict) and "kind" in value
        if isinstance(value, dict):
            merged = dict(old) if isinstance(old, dict) and not other_kind else {}
            _merge(merged, value, origins, here, file)
            base[key] = merged
        else:
            base[key] = value


def validate(merged: Merged, path: Path) -> Board:
    """Returns the board that the keys describe; ``path`` is for errors. Raises CrtExportError."""
    def file_of(key: KeyPath) -> str:
        for length in range(len(key), 0, -1):
            if key[:length] in merged.origins:
                return merged.origins[key[:length]]
        return shown_as(path)

    for key in merged.data:
        hint = did_you_mean(key, _FILE_KEYS)
        if hint and key not in Board.__struct_fields__:
            raise CrtExportError(f"unknown key {key!r}", location=(file_of((key,)), key), hint=hint)
    return board_from_data(merged.data, file_of)
