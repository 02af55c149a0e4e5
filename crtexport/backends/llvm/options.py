"""LLVM's own options (``-unroll-threshold=100``): parsed, compared and checked before any is set.

LLVM keeps them in variables of the whole process and llvmlite ignores unknown ones silently. So
they are only set in worker processes (:mod:`crtexport.backends.llvm.pool`), and a name must be
among those that the installed LLVM lists. LLVM itself checks a value when a worker sets it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from crtexport.support.errors import CrtExportError

_OPTION = re.compile(r"--?(?P<name>[A-Za-z0-9][A-Za-z0-9._+-]*)(?:=(?P<value>.*))?", re.DOTALL)
_NAME = re.compile(r"^  --?([^\s=\[]+)", re.MULTILINE)
_DETAILS = r"\n  --?{}(?P<value>\[?=.*?)?\s+- +(?:[Aa]lias for -+(?P<alias>[^\s=]+))?"
_CATEGORY = re.compile(r"^\S.*:$", re.MULTILINE)
_ONLY_PRINTS = "\nGeneric Options:\n"
_TRUE, _FALSE = ("", "true", "TRUE", "True", "1"), ("false", "FALSE", "False", "0")


class KnownOption(Struct, frozen=True):
    """An option of the installed LLVM.

    ``takes_value``: it can't stand alone, as a flag can. ``only_prints``: it ends LLVM after
    printing a help text or a version. ``alias_of`` is the option that it is another name of.
    """

    takes_value: bool
    only_prints: bool = False
    alias_of: str | None = None


class Option(Struct, frozen=True):
    """One option of the user: ``value`` is None where it has none; ``origin`` is where it was
    written."""

    name: str
    value: str | None
    origin: str

    def __str__(self) -> str:
        return f"-{self.name}" if self.value is None else f"-{self.name}={self.value}"


def parse_option(text: str, origin: str) -> Option:
    """Returns ``-name`` or ``-name=value``, with one dash or two, as an Option.

    Raises CrtExportError that quotes ``text`` and is located at ``origin``.
    """
    match = _OPTION.fullmatch(text)
    if match is not None and "\0" not in text:
        return Option(match["name"], match["value"], origin)
    hint = "write options as for LLVM's own tools: -name or -name=value"
    if ":" in text.split("=", maxsplit=1)[0]:
        hint += "; LLVM knows their types, so none is said"
    raise CrtExportError(f"{text!r} is no option of LLVM", location=origin, hint=hint)


class Listing(Mapping[str, KnownOption]):
    """Every option in LLVM's output for ``-help-hidden``, by name without dashes.

    There are thousands, of which an export uses a few: each is parsed on first access. One that is
    listed without and with a value comes without it first, and needs none.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        before, found, _ = text.partition(_ONLY_PRINTS)
        start = len(before) + len(found)
        end = _CATEGORY.search(text, start)
        self._only_print = range(start - 1, end.start() if end is not None else len(text))

    def __getitem__(self, name: str) -> KnownOption:
        found = re.search(_DETAILS.format(re.escape(name)), self._text)
        if found is None:
            raise KeyError(name)
        value = found["value"] or ""
        return KnownOption(
            value.startswith("="), found.start() in self._only_print, found["alias"]
        )

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(found[1] for found in _NAME.finditer(self._text)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return _NAME.search(self._text) is not None


def combine(options: Iterable[Option], known_options: Mapping[str, KnownOption]) -> tuple[str, ...]:
    """Returns ``options`` as LLVM gets them: sorted, each once.

    Raises CrtExportError, which names the option and where it comes from, for one that this LLVM
    doesn't have, one that only prints, one without the value that it needs, and for two that
    contradict each other.
    """
    chosen: dict[str, Option] = {}
    for option in options:
        name = _checked(option, known_options)
        other = chosen.setdefault(name, option)
        if _meaning(other) != _meaning(option):
            raise CrtExportError(
                f"{option} contradicts {other}"
                + (f" of {other.origin}" if other.origin != option.origin else ""),
                location=option.origin,
                hint="LLVM takes one value for an option; leave one of them out",
            )
    return tuple(sorted(map(str, chosen.values())))


def _checked(option: Option, known_options: Mapping[str, KnownOption]) -> str:
    """Returns the name under which ``option`` is compared with others."""
    definition = known_options.get(option.name)
    if definition is None:
        close = difflib.get_close_matches(option.name, known_options, n=3)
        hint = f"did you mean {' or '.join(f'-{name}' for name in close)}?" if close else None
        raise CrtExportError(
            f"this LLVM has no option -{option.name}", location=option.origin, hint=hint
        )
    if definition.only_prints:
        raise CrtExportError(
            f"-{option.name} only prints a text and generates nothing", location=option.origin,
            hint="leave it out",
        )
    if definition.takes_value and option.value is None:
        raise CrtExportError(
            f"-{option.name} needs a value", location=option.origin,
            hint=f"write -{option.name}=value",
        )
    alias = definition.alias_of
    return alias if alias is not None and alias in known_options else option.name


def _meaning(option: Option) -> str | bool:
    """Returns the value, with the spellings of true and of false unified."""
    value = option.value or ""
    if value in _TRUE:
        return True
    return False if value in _FALSE else value
