"""Records from untrusted data: msgspec decodes it, and everything wrong is reported by its keys.

A record's fields are the keys; one with a default may be left out. Limits are msgspec's ``Meta``;
``extra={"read": function}`` names what turns a value as people write it into the field's. A
record's ``check()`` raises ContradictionError for values that don't fit together.
"""

from __future__ import annotations

import enum
import functools
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)

from msgspec import DecodeError, Meta, Struct, ValidationError, convert, json
from msgspec.structs import FieldInfo, fields

__all__ = [
    "ContradictionError", "Extra", "InvalidDataError", "KeyPath", "Problem", "decode_json",
    "did_you_mean", "nearest", "record",
]

Extra = Literal["forbid", "ignore"]
"""The treatment of unknown keys."""

KeyPath = tuple[str | int, ...]

_SHOWN = 40

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a pair, which JSON may escape alone: no text that can be written anywhere."""

R = TypeVar("R", bound=Struct)


class Problem(Struct, frozen=True):
    """A flaw of the value under ``path``. ``unknown``: the key or tag that no record has."""

    path: KeyPath
    text: str
    hint: str | None = None
    kind: Literal["unknown key", "missing key", "unknown tag", "value"] = "value"
    unknown: str = ""


class InvalidDataError(ValueError):
    """All ``problems`` of some data, the most telling first: a misspelt key is also a missing one.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.kind != "unknown key")
        super().__init__(self.problems[0].text)


class ContradictionError(ValueError):
    """Values of a record don't fit together; the ``key`` below the record is where to change it."""

    def __init__(self, key: KeyPath, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.key, self.hint = key, hint


@runtime_checkable
class _Checked(Protocol):
    def check(self) -> None: ...


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Returns a hint at the known word most like ``word``; None if none is like it."""
    import difflib  # noqa: PLC0415  (nothing is wrong with most data)

    words = sorted(set(known))
    close = [other for other in words if _plain(other) == _plain(word)]
    close = close or difflib.get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns a hint at the known words most like ``word``, or else at all of them."""
    import difflib  # noqa: PLC0415  (nothing is wrong with most data)

    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"there are {', '.join(names[:40])}{' …' if len(names) > 40 else ''}"


def _plain(word: str) -> str:
    """Returns a word without what styles of spelling differ in."""
    return word.replace("_", "").replace("-", "").casefold()


def record(kind: type[R], data: object, extra: Extra = "forbid") -> R:
    """Returns the record that ``data`` describes. Raises InvalidDataError."""
    reader = _Reader(extra)
    made: R = reader.value(kind, data, ())
    if reader.problems:
        raise InvalidDataError(reader.problems)
    return made


def decode_json(kind: type[R], content: bytes) -> R:
    """Returns the record in a JSON text; ``kind`` and its parts forbid unknown fields, and have no
    ``check()``, which would not be called. Raises InvalidDataError, without a path for what isn't
    JSON."""
    try:
        try:
            return json.decode(content, type=kind)
        except ValidationError:  # about the first problem only, and without keys of dictionaries
            return record(kind, json.decode(content))
    except RecursionError:
        raise InvalidDataError([Problem((), "not valid JSON: nested too deeply")]) from None
    except (UnicodeDecodeError, DecodeError) as error:
        problem = f"not valid JSON: {_in_own_words(error, content)}"
        raise InvalidDataError([Problem((), problem)]) from None


def _in_own_words(error: Exception, content: bytes) -> str:
    """Returns an error of msgspec's in the words of all of its releases, with line and column."""
    try:
        content.decode()
    except UnicodeDecodeError as wrong:  # since 0.23 msgspec has an error of its own for this
        return str(wrong)
    problem = re.sub(" - at `.*", "", str(error)).removeprefix("JSON is malformed: ")
    return re.sub(
        r" \(byte (\d+)\)", lambda found: _line_and_column(content, int(found[1])), problem
    )


def _line_and_column(content: bytes, position: int) -> str:
    lines = content[:position].split(b"\n")
    return f" at line {len(lines)}, column {len(lines[-1]) + 1}"


class _Reader:
    """Makes values of a type from data, and notes the ``problems`` of all parts of it."""

    def __init__(self, extra: Extra) -> None:
        self._extra = extra
        self.problems: list[Problem] = []

    def value(self, hint: Any, data: Any, path: KeyPath) -> Any:
        """Returns the value of the type ``hint``; where there are problems, it has no meaning."""
        limits = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        inner = get_args(hint)[0] if limits else hint
        for limit in limits:
            if isinstance(limit, Meta) and limit.extra and "read" in limit.extra:
                try:
                    data = limit.extra["read"](data)
                except ValueError as error:
                    return self._add(path, str(error))
        if isinstance(inner, type) and issubclass(inner, Struct):
            return self._record(inner, data, path)
        earlier, origin, members = len(self.problems), get_origin(inner), get_args(inner)
        if origin in (Union, UnionType):
            return self._union(inner, members, data, path)
        if origin is dict and isinstance(data, Mapping):
            kind, held = members
            data = {
                self._plain(kind, key, (*path, key)): self.value(held, item, (*path, key))
                for key, item in data.items()
            }
        elif (origin is list or members[1:] == (...,)) and isinstance(data, list | tuple):
            data = [self.value(members[0], item, (*path, i)) for i, item in enumerate(data)]
        return self._plain(hint, data, path) if len(self.problems) == earlier else None

    def _record(self, kind: type[Struct], data: Any, path: KeyPath) -> Any:
        if not isinstance(data, Mapping):
            return self._add(path, f"expected keys and values, found {_short(data)}")
        earlier, tag = len(self.problems), kind.__struct_config__.tag_field
        fields_ = _fields(kind)
        keys = [*([tag] if tag is not None else []), *fields_]
        for key in data if self._extra == "forbid" else ():
            if key not in keys:
                here = f"keys here are: {', '.join(keys)}" if keys else "there are no keys here"
                hints = (did_you_mean(str(key), keys), here)
                self.problems.append(Problem(
                    (*path, key), f"unknown key {key!r}", " ".join(filter(None, hints)),
                    "unknown key", str(key),
                ))
        values = {}
        for key, field in fields_.items():
            if key in data:
                values[field.name] = self.value(field.type, data[key], (*path, key))
            elif field.required:
                self._missing((*path, key))
        if len(self.problems) > earlier:
            return None
        try:
            made = kind(**values)
            if isinstance(made, _Checked):
                made.check()
        except ContradictionError as error:
            return self._add((*path, *error.key), str(error), error.hint)
        except ValueError as error:  # of __post_init__
            return self._add(path, str(error))
        return made

    def _union(self, hint: Any, members: Sequence[Any], data: Any, path: KeyPath) -> Any:
        if data is None and NoneType in members:
            return None
        records = [kind for kind in members if isinstance(kind, type) and issubclass(kind, Struct)]
        others = [kind for kind in members if kind is not NoneType and kind not in records]
        if records and (isinstance(data, Mapping) or not others):
            tag = records[0].__struct_config__.tag_field
            if tag is None or not isinstance(data, Mapping):
                return self._record(records[0], data, path)
            if tag not in data:
                return self._missing((*path, tag))
            named = {kind.__struct_config__.tag: kind for kind in records}
            if not isinstance(data[tag], str) or data[tag] not in named:
                return self._none_of(named, data[tag], (*path, tag), "unknown tag")
            return self._record(named[data[tag]], data, path)
        lists = [kind for kind in others if get_origin(kind) in (list, tuple)]
        if len(others) == 1 or (lists and isinstance(data, list | tuple)):
            return self.value(lists[0] if lists else others[0], data, path)
        return self._plain(hint, data, path)

    def _plain(self, hint: Any, data: Any, path: KeyPath) -> Any:
        """As :meth:`value`, where no part of it can have a problem of its own."""
        if isinstance(data, str) and _SURROGATE.search(data):
            return self._add(path, f"{data!a} is no text: it holds half of a surrogate pair")
        try:
            return convert(data, hint)
        except ValidationError as error:
            message = str(error)
        values = _values(hint)
        if values:
            return self._none_of(values, data, path)
        if " matching regex " in message:
            (pattern,) = (limit.pattern for limit in get_args(hint)[1:])
            strange = "".join(dict.fromkeys(ch for ch in data if not re.match(pattern, ch)))
            because = f" because of {strange!r}" if strange else ""
            return self._add(path, f"{data!r} can't stand here{because}")
        expected = re.sub(", got `[^`]*`| - at `.*", "", message)
        return self._add(path, f"{expected[:1].lower()}{expected[1:]}, found {_short(data)}")

    def _none_of(
        self, values: Iterable[object], data: object, path: KeyPath,
        kind: Literal["unknown tag", "value"] = "value",
    ) -> None:
        self.problems.append(Problem(
            path, f"{_short(data)} is none of {', '.join(map(repr, values))}",
            did_you_mean(data, map(str, values)) if isinstance(data, str) else None, kind,
            data if isinstance(data, str) else _short(data),
        ))

    def _missing(self, path: KeyPath) -> None:
        self.problems.append(Problem(path, "this key is missing", kind="missing key"))

    def _add(self, path: KeyPath, text: str, hint: str | None = None) -> None:
        self.problems.append(Problem(path, text, hint))


@functools.cache
def _fields(kind: type[Struct]) -> dict[str, FieldInfo]:
    return {field.encode_name: field for field in fields(kind)}


def _values(hint: Any) -> tuple[object, ...]:
    """Returns all values of a type that has a few words or numbers."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(member.value for member in hint)
    return get_args(hint) if get_origin(hint) is Literal else ()


def _short(value: object) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
