"""Exact values as C99 text: numbers, arrays, strings and comments.

Every literal has the type of its place without a conversion, and reading it back gives the
same bits. Floats are the shortest decimal text that does so (a NaN keeps neither sign nor payload).
Text from a model reaches C only through :func:`c_string` and :func:`comment_text`.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError, printable

LINE = 100
"""Longest line of generated C, in characters."""

IntBits = Literal[16, 32]
"""Bits that ``int`` has at least."""

STORAGE = {
    Scalar.I8: "int8_t", Scalar.U8: "uint8_t", Scalar.I16: "int16_t", Scalar.U16: "uint16_t",
    Scalar.I32: "int32_t", Scalar.U32: "uint32_t", Scalar.I64: "int64_t", Scalar.F16: "uint16_t",
    Scalar.F32: "float", Scalar.F64: "double",
}
"""The C type of an element in memory; float16 as its bits."""

_NUMPY = {
    Scalar.I8: "<i1", Scalar.U8: "<u1", Scalar.I16: "<i2", Scalar.U16: "<u2", Scalar.I32: "<i4",
    Scalar.U32: "<u4", Scalar.I64: "<i8", Scalar.F16: "<u2", Scalar.F32: "<f4", Scalar.F64: "<f8",
}
_RANGE = {
    Scalar.I1: (0, 1), Scalar.I8: (-(1 << 7), (1 << 7) - 1), Scalar.U8: (0, (1 << 8) - 1),
    Scalar.I16: (-(1 << 15), (1 << 15) - 1), Scalar.U16: (0, (1 << 16) - 1),
    Scalar.I32: (-(1 << 31), (1 << 31) - 1), Scalar.U32: (0, (1 << 32) - 1),
    Scalar.I64: (-(1 << 63), (1 << 63) - 1), Scalar.INDEX: (-(1 << 63), (1 << 63) - 1),
}


# Enum finds its members slowly.
_I64, _U32, _INDEX = Scalar.I64, Scalar.U32, Scalar.INDEX
_LEAST = -(1 << 63)

_LONG_WORD = re.compile(r"\S{41,}")
_FIXED_POINT = (Scalar.I32, Scalar.U32, Scalar.I64)
_LARGE_POWER = 1 << 16
_PAIRS = re.compile(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)")  # inside */ and /* and ??


def literal(value: int | float, type_: Scalar, int_bits: IntBits = 32) -> str:
    """Returns ``value`` as a C99 constant expression of ``type_``, where ``int`` has so many bits.

    Negative numbers have a sign in front (a unary expression), all else is primary. INT64_C and
    its like need <stdint.h>; for CRT_INFINITY and CRT_NAN see :func:`needs_special`. Raises
    CrtExportError for a value that the type can't hold.
    """
    if type_ is Scalar.F16:
        with np.errstate(over="ignore"):
            return f"0x{int(np.float16(value).view(np.uint16)):04x}"
    if type_.is_float:
        return _float(float(value), type_)
    low, high = _RANGE[type_]
    if not isinstance(value, int) or not low <= value <= high:
        raise CrtExportError(f"{value!r} is no value of type {type_.value}")
    return _integer(value, type_) if int_bits == 32 else _explicit(value, type_)


def readable(value: int | float, type_: Scalar, int_bits: IntBits = 32) -> str:
    """Returns what :func:`literal` does, as readers of fixed-point arithmetic know it: large powers
    of two and what is one less are shifts, and there is INT32_MAX."""
    if type_ in _FIXED_POINT and isinstance(value, int):
        if type_ is Scalar.I32 and value == (1 << 31) - 1:
            return "INT32_MAX"
        size = abs(value)
        if type_ is Scalar.I32 and size > _LARGE_POWER and value & (value + 1) == 0:
            return f"({readable(value + 1, type_, int_bits)} - {literal(1, type_, int_bits)})"
        if size >= _LARGE_POWER and size & (size - 1) == 0 and value != _RANGE[type_][0]:
            shift = f"({literal(1, type_, int_bits)} << {size.bit_length() - 1})"
            return f"-{shift}" if value < 0 else shift
    return literal(value, type_, int_bits)


def _integer(value: int, type_: Scalar) -> str:
    if type_ is _I64:
        sign = "-" if value < 0 else ""
        return "INT64_MIN" if value == _LEAST else f"{sign}INT64_C({abs(value)})"
    if type_ is _U32:
        return f"{value}u"
    if type_ is _INDEX:
        return "PTRDIFF_MIN" if value == _LEAST else str(value)
    return _word(value)


def _explicit(value: int, type_: Scalar) -> str:
    """Returns the same where a word is wider than ``int``."""
    text = _integer(value, type_)
    if type_ is _U32:
        return f"UINT32_C({value})"
    if type_ is not Scalar.I32 or text == "INT32_MIN":
        return text
    return f"{'-' if value < 0 else ''}INT32_C({abs(value)})"


def _word(value: int) -> str:
    return "INT32_MIN" if value == -(1 << 31) else str(value)


def _float(value: float, type_: Scalar) -> str:
    if math.isnan(value):
        return "CRT_NAN" if type_ is Scalar.F32 else "(double)CRT_NAN"
    with np.errstate(over="ignore"):
        number = np.float32(value) if type_ is Scalar.F32 else np.float64(value)
    if np.isinf(number):
        infinity = "-CRT_INFINITY" if number < 0 else "CRT_INFINITY"
        return infinity if type_ is Scalar.F32 else f"(double){infinity}"
    return f"{number!s}f" if type_ is Scalar.F32 else str(number)


def needs_special(text: str) -> bool:
    """Returns whether ``text``, made of literals, uses CRT_INFINITY or CRT_NAN, which C99 lacks."""
    return "CRT_INFINITY" in text or "CRT_NAN" in text


def array_literals(data: bytes, type_: Scalar) -> list[str]:
    """Returns one literal per element of ``data`` (little-endian, C order).

    Raises CrtExportError when ``data`` doesn't hold whole elements.
    """
    if len(data) % type_.itemsize:
        raise CrtExportError(f"{len(data)} bytes are no whole number of {type_.value} elements")
    values = np.frombuffer(data, dtype=_NUMPY[type_])
    match type_:
        case Scalar.F32 | Scalar.F64:
            return _float_literals(values, type_)
        case Scalar.F16:
            return [f"0x{v:04x}" for v in values.tolist()]
        case Scalar.I8 | Scalar.U8:
            text = {int(v): str(v) for v in np.unique(values).tolist()}
            return [text[v] for v in values.tolist()]
        case Scalar.I16 | Scalar.U16:
            return list(map(str, values.tolist()))
        case Scalar.U32:
            return [f"{v}u" for v in values.tolist()]
        case Scalar.I32:
            return [_word(v) for v in values.tolist()]
        case _:
            return [_integer(v, type_) for v in values.tolist()]


def word_literals(data: bytes, type_: Scalar) -> list[str]:
    """Returns the bits of each element of ``data`` (little-endian) in hexadecimal."""
    values = np.frombuffer(data, dtype=f"<u{type_.itemsize}")
    return [f"0x{value:0{2 * type_.itemsize}x}u" for value in values.tolist()]


def _float_literals(values: npt.NDArray[Any], type_: Scalar) -> list[str]:
    suffix = "f" if type_ is Scalar.F32 else ""
    if np.isfinite(values).all():
        return [f"{v!s}{suffix}" for v in values]
    return [_float(float(v), type_) for v in values.tolist()]


def wrapped(items: Sequence[str], row: int = 0, indent: str = "    ") -> str:
    """Returns ``items`` separated by commas on lines of even length, as in an initialiser.

    Each ``row`` of so many items begins a line (0: there are no rows), and what is left of it on
    further ones is indented.
    """
    if not items:
        return ""
    return ",\n".join(_lines(iter(items), len(items), max(map(len, items)), row, indent))


def wrapped_blocks(blocks: Iterable[Sequence[str]], row: int = 0, indent: str = "    ") -> str:
    """Returns the same of items that come in blocks, of which one at a time is in memory, and their
    text."""
    texts, count, longest = list[str](), 0, 0
    for items in blocks:
        texts.append("\n".join(items))
        count, longest = count + len(items), max(longest, *map(len, items))
    found = chain.from_iterable(text.split("\n") for text in texts)
    return ",\n".join(_lines(found, count, longest, row, indent))


def _lines(
    items: Iterator[str], count: int, longest: int, row: int, indent: str
) -> Iterator[str]:
    row = row or count
    many = count > row
    per_line = max(1, (LINE - len(indent) - (2 if many else 0)) // (longest + 2))
    for first in range(0, count, row):
        end = min(first + row, count)
        for start in range(first, end, per_line):
            line = islice(items, min(per_line, end - start))
            yield indent + ("  " if many and start > first else "") + ", ".join(line)


def c_string(text: str | bytes) -> str:
    """Returns a C string literal with the bytes of ``text`` (UTF-8).

    All that isn't a plain printable ASCII character is an octal escape, question marks too
    (trigraphs), so that no text can end the literal or change the one after it.
    """
    raw = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
    return '"' + "".join(_escape(byte) for byte in raw) + '"'


def _escape(byte: int) -> str:
    if byte in b'"\\?':
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def comment_text(text: str) -> str:
    """Returns ``text`` on one line, unable to end a comment, to open one, or to be shown as other
    text."""
    return _PAIRS.sub(" ", printable(text))


def block_comment(lines: Iterable[str], indent: str = "", opening: str = "/*") -> str:
    """Returns a comment of one or more lines, each made safe; no newline at its end.

    One line gives ``/* text */``, more give a block; ``opening`` ``/**`` is for documentation.
    """
    safe = [comment_text(line) for line in lines]
    if len(safe) == 1 and len(safe[0]) + len(indent) < LINE - 6:
        return f"{indent}{opening} {safe[0]} */"
    width = LINE - len(indent) - 3
    parts = [part for line in safe for part in _wrap(line, width)]
    body = "".join(f"{indent} * {part}".rstrip() + "\n" for part in parts)
    return f"{indent}{opening}\n{body}{indent} */"


def layer_comment(lines: Iterable[str], indent: str = "") -> str:
    """Returns a comment about layers: long names in it are their telling parts. Those of fused
    operators are joined by semicolons, and are paths: the last two parts of the first one."""
    return block_comment((_LONG_WORD.sub(_telling_part, line) for line in lines), indent)


def _telling_part(name: re.Match[str]) -> str:
    return "/".join(name[0].split(";", 1)[0].split("/")[-2:])


def _wrap(line: str, width: int) -> list[str]:
    """Returns ``line`` in parts of ``width`` characters, broken at spaces; words stay whole."""
    return textwrap.wrap(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ) or [""]
