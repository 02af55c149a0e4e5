"""Data from files as frozen structs of msgspec: what is wrong with it, and where."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

Key = str | int

_SAID = re.compile(
    r"(?P<problem>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL
)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"Object (?P<kind>contains unknown|missing required) field `(?P<name>.*)`")
_WORDS = {"`str`": "text", "`int`": "a whole number", "`float`": "a number", "`bool`":
          "true or false", "`object`": "keys and values", "`array`": "a list", "`null`": "nothing"}


class Mistake(NamedTuple):
    """What is wrong with data, and the keys that lead there. ``unknown`` and ``missing`` are about
    the last of these keys."""

    kind: Literal["unknown", "missing", "value"]
    problem: str
    path: tuple[str, ...]


def mistake(
    error: msgspec.ValidationError, data: Any, check: Callable[[Any], object]
) -> Mistake:
    """What ``error`` says, which ``check(data)`` raised."""
    said = _SAID.fullmatch(str(error))
    problem, steps = (said["problem"], _steps(said["path"] or "")) if said else (str(error), [])
    if said and said["key"]:
        steps.append("...")
    path = tuple(str(key) for key in _found(str(error), steps, data, check))
    if field := _FIELD.fullmatch(problem):
        kind: Literal["unknown", "missing"] = (
            "unknown" if field["kind"].startswith("contains") else "missing"
        )
        return Mistake(kind, f"{kind} key", (*path, field["name"]))
    for word, plain in _WORDS.items():
        problem = problem.replace(word, plain)
    return Mistake("value", problem[:1].lower() + problem[1:], path)


def _steps(path: str) -> list[Key]:
    return [
        name or (int(index) if index.isdigit() else index) for name, index in _STEP.findall(path)
    ]


def _found(
    said: str, steps: Sequence[Key], data: Any, check: Callable[[Any], object]
) -> list[Key]:
    """``steps`` with the keys of mappings, which msgspec doesn't tell: those that alone make the
    same mistake."""
    found: list[Key] = []
    for step in steps:
        at = _value(data, found)
        if step != "..." or not isinstance(at, dict):
            found.append(step)
            continue
        alone = (key for key in at if _says(_with(data, found, {key: at[key]}), check) == said)
        found.append(next(alone, step))
    return found


def _value(data: Any, path: Sequence[Key]) -> Any:
    for key in path:
        data = data[key]
    return data


def _with(data: Any, path: Sequence[Key], value: Any) -> Any:
    """``data`` with another ``value`` at ``path``, which leads through mappings and lists."""
    if not path:
        return value
    changed: Any = dict(data) if isinstance(data, dict) else list(data)
    changed[path[0]] = _with(data[path[0]], path[1:], value)
    return changed


def _says(data: Any, check: Callable[[Any], object]) -> str:
    try:
        check(data)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
