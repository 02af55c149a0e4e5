"""Turns a mistake in a board file into an error that names file and key."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from crtexport.errors import CrtExportError
from crtexport.schema import Mistake

KeyPath = tuple[str, ...]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'flash'? ``, or nothing when no known word is close to ``word``."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}? " if close else ""


def schema_error(
    found: Mistake, data: Mapping[str, Any], model: type[msgspec.Struct],
    file_of: Callable[[KeyPath], str],
) -> CrtExportError:
    """What was ``found`` in ``data`` of a ``model``; ``file_of`` knows the file that a key came
    from."""
    where = (file_of(found.path), *found.path)
    if found.kind == "unknown":
        keys = _keys(model, data, found.path[:-1])
        return CrtExportError(
            "unknown key", location=where,
            hint=f"{did_you_mean(found.path[-1], keys)}keys here are: {', '.join(keys)}",
        )
    if found.kind == "missing":
        return CrtExportError("this key is missing", location=where)
    return CrtExportError(found.problem, location=where)


def _keys(model: type[msgspec.Struct], data: Any, path: KeyPath) -> list[str]:
    """The keys that are allowed at ``path``."""
    models = [model]
    for part in path:
        data = data[part]
        inner = [f.type for m in models for f in msgspec.structs.fields(m) if f.name == part]
        if inner:  # else a key of a mapping
            models = [found for type_ in inner for found in _models_in(type_)]
    kind = data.get("kind")
    tagged = [m for m in models if m.__struct_config__.tag == kind] if kind else []
    tags = [m.__struct_config__.tag_field for m in models if m.__struct_config__.tag_field]
    fields = [field for m in tagged or models for field in m.__struct_fields__]
    return list(dict.fromkeys([*tags, *fields]))


def _models_in(annotation: object) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [m for inner in typing.get_args(annotation) for m in _models_in(inner)]
