"""Validation errors of model.json in the user's words: where, what, and "did you mean"."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from crtexport.errors import CrtExportError
from crtexport.importers.crtjson.document import (
    DATA_TAGS,
    FORMAT,
    NODE_MODELS,
    VERSION,
    Document,
)

_SHOWN = 40


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint that proposes the candidate most like ``name``, or None."""
    close = difflib.get_close_matches(name, sorted(set(candidates)), n=1)
    return f"did you mean {close[0]!r}?" if close else None


def explain(error: ValidationError) -> CrtExportError:
    """The most telling of the problems that validation found, located by its key."""
    details: Sequence[Any] = error.errors(include_url=False)
    unknown = [d for d in details if d["type"] == "union_tag_invalid"]
    # A wrong format or version explains everything else, unknown operators most of it.
    first = next((d for d in details if d["loc"] in (("format",), ("version",))), None)
    if first is None and unknown:
        return _unknown_operators(unknown)
    # A misspelt key is also a missing one; the misspelling says more.
    typo = next((d for d in details if d["type"] == "extra_forbidden"), None)
    detail = first or typo or details[0]
    problem, hint = _words(detail)
    where, _ = _walk(detail["loc"])
    others = len(details) - 1
    if others and first is None:
        more = f"{others} more such problem{'s' if others > 1 else ''} in this file"
        hint = f"{hint}; {more}" if hint else more
    return CrtExportError(problem, location=where, hint=hint)


def _words(detail: Any) -> tuple[str, str | None]:
    """Problem and hint of one of pydantic's error details."""
    kind, key = detail["type"], str(detail["loc"][-1]) if detail["loc"] else ""
    if kind == "json_invalid":
        return f"not valid JSON: {detail['ctx']['error']}", None
    if key == "format":
        return (
            "this JSON file is not a crtexport model",
            f'a model begins with {{"format": "{FORMAT}", "version": {VERSION}',
        )
    if key == "version" and len(detail["loc"]) == 1:
        found = "none" if kind == "missing" else _shortened(detail["input"])
        return f"version {VERSION} of the format can be read, found {found}", None
    if kind == "extra_forbidden":
        _, models = _walk(detail["loc"][:-1])
        names = {field.alias or name for m in models for name, field in m.model_fields.items()}
        return f"unknown key {key!r}", did_you_mean(key, names) or (
            f"known are {', '.join(sorted(names))}" if names else "there are no keys here"
        )
    if kind in ("missing", "union_tag_not_found"):
        name = "op" if kind == "union_tag_not_found" else key
        return f"the key {name!r} is missing", None
    return f"{detail['msg']}, found {_shortened(detail['input'])}", _meant_value(detail)


def _meant_value(detail: Any) -> str | None:
    """For a value that is one of a few words."""
    if detail["type"] != "enum" or not isinstance(detail["input"], str):
        return None
    expected = str(detail["ctx"]["expected"]).replace(" or ", ", ").split(", ")
    return did_you_mean(detail["input"], [word.strip("'") for word in expected])


def _unknown_operators(details: Sequence[Any]) -> CrtExportError:
    found: dict[str, list[str]] = {}
    for detail in details:
        where, _ = _walk(detail["loc"])
        found.setdefault(str(detail["ctx"]["tag"]), []).append(where)
    lines = []
    for tag, places in found.items():
        hint = did_you_mean(tag, NODE_MODELS)
        lines.append(f"\n  {tag!r}: {', '.join(places)}{f' ({hint})' if hint else ''}")
    what = "1 operator is" if len(details) == 1 else f"{len(details)} operators are"
    supported = f"supported are {', '.join(sorted(NODE_MODELS))}"
    return CrtExportError(f"{what} not supported:{''.join(lines)}", hint=supported)


def _shortened(value: object) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _walk(location: Sequence[int | str]) -> tuple[str, list[type[BaseModel]]]:
    """A readable path like ``nodes[2].attributes.stride``, and the models that are there.

    Pydantic's path also has the tags of unions in it, which are no keys of the file.
    """
    models: list[type[BaseModel]] = [Document]
    path = ""
    for position, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        fields = [
            field
            for model in models
            for name, field in model.model_fields.items()
            if part in (name, field.alias)
        ]
        if part in NODE_MODELS and NODE_MODELS[part] in models:
            models = [NODE_MODELS[part]]
        elif fields:
            models = [m for field in fields for m in _models_in(field.annotation)]
            path += f".{part}" if path else part
        elif position == len(location) - 1 and part not in DATA_TAGS:
            path += f".{part}" if path else part
    return path, models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
