"""Boards from data, and what pydantic found in it as one error that names file and key."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable, Iterable, Mapping

from pydantic import BaseModel, ValidationError

from crtexport.errors import CrtExportError
from crtexport.firmware.board_rules import ContradictionError
from crtexport.firmware.board_schema import Board
from crtexport.validation import model_of, record

KeyPath = tuple[str, ...]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'flash'? ``, or nothing when no known word is close to ``word``."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}? " if close else ""


def board_of(data: Mapping[str, object], file_of: Callable[[KeyPath], str]) -> Board:
    """The board that ``data`` describes; ``file_of`` knows the file that a key came from.

    Raises CrtExportError for the most telling flaw.
    """
    data = dict(data)
    if data.get("architecture") == "other":
        _check_other(data, file_of)
        data.setdefault("backend", "c")
    try:
        return record(Board, data)
    except ValidationError as error:
        raise _schema_error(error, model_of(Board), file_of) from error


def _check_other(data: Mapping[str, object], file_of: Callable[[KeyPath], str]) -> None:
    """Raises CrtExportError where a processor that only the board knows isn't told of."""
    cpu = data.get("cpu")
    for key in ("pointer_bits", "endian", "stack_align"):
        if isinstance(cpu, Mapping) and key not in cpu:
            raise CrtExportError(
                "this key is missing", location=(file_of(("cpu", key)), "cpu", key),
                hint="nothing else tells it of processors of the architecture other",
            )


def _schema_error(
    error: ValidationError, model: type[BaseModel], file_of: Callable[[KeyPath], str]
) -> CrtExportError:
    """The first finding of ``error``; ``file_of`` knows the file that a key came from.

    An unknown key comes before all others: misspelling one makes another one missing.
    """
    findings = error.errors()
    finding = next((f for f in findings if f["type"] == "extra_forbidden"), findings[0])
    path = tuple(str(part) for part in finding["loc"])
    wrong = finding.get("ctx", {}).get("error")
    if isinstance(wrong, ContradictionError):
        key = (*path, *wrong.key)
        return CrtExportError(str(wrong), location=(file_of(key), *key), hint=wrong.hint)
    fields, shown = _walk(model, path)
    where = (file_of(shown), *shown)
    if finding["type"] == "extra_forbidden":
        return CrtExportError(
            "unknown key",
            location=where,
            hint=f"{did_you_mean(shown[-1], fields)}keys here are: {', '.join(fields)}",
        )
    if finding["type"] == "missing":
        return CrtExportError("this key is missing", location=where)
    if finding["type"] == "string_pattern_mismatch":
        return _pattern_error(str(finding["input"]), finding["ctx"]["pattern"], where)
    message = finding["msg"].removeprefix("Value error, ")
    return CrtExportError(message[:1].lower() + message[1:], location=where)


def _pattern_error(text: str, pattern: str, where: KeyPath) -> CrtExportError:
    """For a text that isn't of the form that its key wants."""
    strange = "".join(dict.fromkeys(ch for ch in text if not re.match(pattern, ch)))
    return CrtExportError(
        f"{text!r} can't stand here" + (f" because of {strange!r}" if strange else ""),
        location=where,
    )


def _walk(model: type[BaseModel], path: KeyPath) -> tuple[list[str], KeyPath]:
    """The keys that are allowed where ``path`` ends, and ``path`` as the file spells it.

    pydantic puts the tag of a union into the path, as in ``runner, qemu, comand``.
    """
    models: list[type[BaseModel]] = [model]
    shown: list[str] = []
    fields = list(model.model_fields)
    for depth, part in enumerate(path, 1):
        tagged = [m for m in models if _tag(m) == part]
        if tagged and part not in fields:
            models = tagged
            fields = list(models[0].model_fields)
            continue
        shown.append(part)
        inner = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        if inner:
            models = [found for annotation in inner for found in _models_in(annotation)]
        if depth < len(path):
            fields = [key for m in models for key in m.model_fields]
    return fields, tuple(shown)


def _tag(model: type[BaseModel]) -> str | None:
    kind = model.model_fields.get("kind")
    values = typing.get_args(kind.annotation) if kind is not None else ()
    return str(values[0]) if len(values) == 1 else None


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for inner in typing.get_args(annotation) for m in _models_in(inner)]
