"""Literals in C read back as the same bits, and no text escapes its string or comment."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.backends.c.helpers import SPECIAL, select_helpers
from crtexport.backends.c.literals import (
    LINE,
    STORAGE,
    array_literals,
    block_comment,
    c_string,
    comment_text,
    layer_comment,
    literal,
    readable,
    wrapped,
)
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError
from tests.backends.c.c_support import compile_object, shared_library

DTYPES = {
    Scalar.I8: "<i1", Scalar.U8: "<u1", Scalar.I16: "<i2", Scalar.U16: "<u2", Scalar.I32: "<i4",
    Scalar.U32: "<u4", Scalar.I64: "<i8", Scalar.F32: "<f4", Scalar.F64: "<f8", Scalar.F16: "<u2",
}
SPECIALS = {
    Scalar.F32: np.array(
        [0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 0.1,
         1e-7, 16777216, 1e16, np.inf, -np.inf, np.nan], "<f4"),
    Scalar.F64: np.array(
        [0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1e23, np.inf,
         -np.inf, np.nan], "<f8"),
}


def same_bits(found: bytes, wanted: bytes, type_: Scalar) -> bool:
    """Equality of bits, but any NaN equals any other."""
    if type_ in (Scalar.F32, Scalar.F64):
        a, b = (np.frombuffer(raw, DTYPES[type_]) for raw in (found, wanted))
        keep = ~np.isnan(b)
        return bool((np.isnan(a) == ~keep).all() and a[keep].tobytes() == b[keep].tobytes())
    return found == wanted


def source_of(arrays: dict[Scalar, bytes]) -> str:
    parts = ["#include <stdint.h>\n", *(h.text for h in select_helpers([SPECIAL]))]
    for type_, data in arrays.items():
        items = array_literals(data, type_)
        parts.append(
            f"extern const {STORAGE[type_]} values_{type_.value}[{len(items)}];\n"
            f"const {STORAGE[type_]} values_{type_.value}[{len(items)}] = {{\n{wrapped(items)}\n}};"
        )
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_arrays_of_any_bits_survive_the_compiler(compiler: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {}
    for type_, dtype in DTYPES.items():
        data = rng.integers(0, 256, 400 * type_.itemsize, np.uint8).tobytes()
        if not type_.is_float:
            info = np.iinfo(dtype)
            data += np.array([info.min, info.max, 0], dtype).tobytes()
        elif type_ in SPECIALS:
            data += SPECIALS[type_].tobytes()
        arrays[type_] = data
    with TemporaryDirectory() as folder:
        path = Path(folder) / "values.c"
        path.write_text(source_of(arrays))
        compile_object(path, compiler)
        library = shared_library([path], compiler=compiler)
        for type_, data in arrays.items():
            found = bytes((ctypes.c_char * len(data)).in_dll(library, f"values_{type_.value}"))
            assert same_bits(found, data, type_), type_


def test_constants_of_a_cross_compiler_have_the_right_type(tmp_path: Path) -> None:
    path = tmp_path / "values.c"
    limits = {
        type_: np.array([np.iinfo(d).min, np.iinfo(d).max], d).tobytes()
        for type_, d in DTYPES.items() if not type_.is_float
    }
    path.write_text(source_of({**limits, **{t: a.tobytes() for t, a in SPECIALS.items()}}))
    compile_object(path, "arm")
    compile_object(path, "gcc-i386")


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (-(2**31), Scalar.I32, "INT32_MIN"),
        (-(2**63), Scalar.I64, "INT64_MIN"),
        (-5, Scalar.I64, "-INT64_C(5)"),
        (2**32 - 1, Scalar.U32, "4294967295u"),
        (7, Scalar.INDEX, "7"),
        (0.1, Scalar.F32, "0.1f"),
        (-0.0, Scalar.F32, "-0.0f"),
        (1e-7, Scalar.F32, "1e-07f"),
        (0.1, Scalar.F64, "0.1"),
        (float("-inf"), Scalar.F32, "-CRT_INFINITY"),
        (1.0, Scalar.F16, "0x3c00"),
    ],
)
def test_literals_are_short_and_legal(value: float, type_: Scalar, text: str) -> None:
    assert literal(value, type_) == text


@pytest.mark.parametrize(
    ("value", "type_"), [(128, Scalar.I8), (-1, Scalar.U32), (2**31, Scalar.I32), (0.5, Scalar.I32)]
)
def test_a_value_outside_its_type_is_refused(value: float, type_: Scalar) -> None:
    with pytest.raises(CrtExportError, match="is no value of type"):
        literal(value, type_)


def test_a_piece_of_an_element_is_refused() -> None:
    with pytest.raises(CrtExportError, match="no whole number"):
        array_literals(b"abc", Scalar.I16)


def test_a_megabyte_of_floats_is_broken_into_lines() -> None:
    data = np.random.default_rng(0).standard_normal(1 << 18).astype("<f4").tobytes()
    text = wrapped(array_literals(data, Scalar.F32))
    assert text.count("f") == 1 << 18
    assert max(map(len, text.splitlines())) <= LINE


HOSTILE = [
    'quote " backslash \\ end', "new\nline\r\t", "trigraph ??= ??/ ???", "*/ int x; /*", "\0nul",
    "日本 é \u202e bidi", "\\", "%s %n", "12\x013", "/*/", "**//", '\\"', "\ud800", "??/\n",
]


def unescape(text: str) -> bytes:
    """Returns what a C compiler makes of a literal that has only octal and single-character
    escapes."""
    assert text.startswith('"')
    assert text.endswith('"')

    def one(match: re.Match[str]) -> str:
        body = match[1]
        return chr(int(body, 8)) if body[0].isdigit() else body

    return re.sub(r"\\([0-7]{3}|.)", one, text[1:-1]).encode("latin-1")


@given(st.binary())
def test_string_literals_hold_their_bytes_in_plain_ascii(raw: bytes) -> None:
    text = c_string(raw)
    assert re.fullmatch(r'"([ !#-\[\]-~]|\\["\\?]|\\[0-7]{3})*"', text)
    assert "??" not in text
    assert unescape(text) == raw


@given(st.text())
def test_comments_can_not_be_left(text: str) -> None:
    safe = comment_text(text)
    assert safe.isprintable()
    for sequence in ("*/", "/*", "??", "\n"):
        assert sequence not in safe


def test_hostile_text_survives_the_compilers(tmp_path: Path) -> None:
    raws = [text.encode("utf-8", "backslashreplace") for text in HOSTILE]
    lines = [block_comment([text]) + "\n" + block_comment([text, text]) for text in HOSTILE]
    for number, text in enumerate(HOSTILE):
        size = len(raws[number]) + 1
        lines.append(f"extern const char s{number}[{size}];")
        lines.append(f"const char s{number}[{size}] = {c_string(text)};")
    path = tmp_path / "strings.c"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for compiler in ("gcc", "clang", "arm"):
        compile_object(path, compiler)
    library = shared_library([path], "-pedantic")
    for number, raw in enumerate(raws):
        found = bytes((ctypes.c_char * (len(raw) + 1)).in_dll(library, f"s{number}"))
        assert found == raw + b"\0"


@pytest.mark.parametrize(("name", "part"), [
    ("functional_1/activation/Relu;functional_1/batch_normalization/FusedBatchNormV3",
     "activation/Relu"),
    ("model/conv2d_3/BiasAdd;model/batch_normalization_3/FusedBatchNormV3/ReadVariableOp",
     "conv2d_3/BiasAdd"),
    ("StatefulPartitionedCall/mobilenet/block_1/project/Conv2D", "project/Conv2D"),
    ("functional_1/dense/BiasAdd", "functional_1/dense/BiasAdd"),
    ("a_name_without_any_parts_that_is_long_all_the_same",
     "a_name_without_any_parts_that_is_long_all_the_same"),
])
def test_comments_about_layers_have_the_telling_part_of_long_names(name: str, part: str) -> None:
    assert layer_comment([f"operator 0 (CONV_2D) -> {name} int8[1]"]) == (
        f"/* operator 0 (CONV_2D) -> {part} int8[1] */"
    )


def test_rows_of_arrays_begin_lines() -> None:
    assert wrapped(["1", "2", "3", "4", "5"], 3) == "    1, 2, 3,\n    4, 5"
    long = wrapped(["100000000"] * 24, 12).split(",\n")
    assert [line.count("100000000") for line in long] == [8, 4, 8, 4]
    assert [len(line) - len(line.lstrip()) for line in long] == [4, 6, 4, 6]
    assert max(map(len, long)) <= LINE


@pytest.mark.parametrize(("value", "type_", "bits", "text"), [
    (1 << 30, Scalar.I32, 32, "(1 << 30)"), (-(1 << 29), Scalar.I32, 32, "-(1 << 29)"),
    ((1 << 29) - 1, Scalar.I32, 32, "((1 << 29) - 1)"),
    ((1 << 31) - 1, Scalar.I32, 32, "INT32_MAX"),
    (-(1 << 31), Scalar.I32, 32, "INT32_MIN"), (32768, Scalar.I32, 32, "32768"),
    (1 << 30, Scalar.I64, 32, "(INT64_C(1) << 30)"), (1 << 31, Scalar.U32, 32, "(1u << 31)"),
    (1 << 30, Scalar.I32, 16, "(INT32_C(1) << 30)"), (1 << 30, Scalar.INDEX, 32, "1073741824"),
    (65536.0, Scalar.F32, 32, "65536.0f"),
])
def test_large_powers_of_two_are_shifts(
    value: int | float, type_: Scalar, bits: Literal[16, 32], text: str
) -> None:
    assert readable(value, type_, bits) == text
