"""Names from models become identifiers that C and C++ accept, or a clear error."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.artifact.symbols import (
    MAX_MODULE,
    MAX_TENSOR_NAME,
    RESERVED,
    Namer,
    c_identifier,
    interface_fields,
    macro_stems,
    sanitize_module,
)
from crtexport.support.errors import CrtExportError

PLAIN = re.compile(r"[a-z][a-z0-9_]*")
FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("default", "default"),
        ("My-Model.v2", "my_model_v2"),
        ("1st try", "1st_try"),
        ("__a__b__", "a_b"),
        ('evil"; */ \n#include', "evil_include"),
    ],
)
def test_module_names_are_lower_case_words(text: str, module: str) -> None:
    assert sanitize_module(text) == module


@pytest.mark.parametrize("text", ["", "_", "日本語", "*/"])
def test_a_module_name_without_usable_characters_is_refused(text: str) -> None:
    with pytest.raises(CrtExportError, match="no module name") as caught:
        sanitize_module(text)
    assert "--module-name" in str(caught.value)


def test_a_module_name_is_as_long_as_the_runtime_can_look_up() -> None:
    assert sanitize_module("m" * MAX_MODULE) == "m" * MAX_MODULE
    with pytest.raises(CrtExportError, match=f"{MAX_MODULE + 1} characters"):
        sanitize_module("m" * (MAX_MODULE + 1))


@given(st.text())
def test_every_text_has_an_identifier(text: str) -> None:
    name = c_identifier(text)
    assert PLAIN.fullmatch(name)
    assert name not in RESERVED


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("conv 1/BiasAdd", "conv_1_biasadd"),
        ("int", "int_"),
        ("Class", "class_"),
        ("_Bool", "bool_"),
        ("__x", "x"),
        ("9lives", "t_9lives"),
        ("ß", "unnamed"),
        ("linux", "linux_"),
    ],
)
def test_identifiers_avoid_what_the_languages_reserve(text: str, name: str) -> None:
    assert c_identifier(text) == name


def test_fields_are_spelled_as_microtvm_spells_them() -> None:
    names = ("serving_default_input:0", "input_1", "Identity", "a/b c")
    assert interface_fields(names, "input") == (
        "serving_default_input_0", "input_1", "Identity", "a_b_c"
    )


def test_fields_that_c_would_misread_are_changed() -> None:
    names = ("0", "__hidden", "class", "INPUT", "日本", "")
    assert interface_fields(names, "output") == (
        "t_0", "t_hidden", "class_", "input", "output4", "output5"
    )


@given(st.lists(st.text(), max_size=4))
def test_fields_are_identifiers_or_an_error_that_names_both(names: list[str]) -> None:
    try:
        fields = interface_fields(names, "input")
    except CrtExportError:
        assert len(names) > 1
        return
    assert len(fields) == len(names)
    assert all(FIELD.fullmatch(f) and f not in RESERVED for f in fields)
    assert len({f.upper() for f in fields}) == len(names)


@pytest.mark.parametrize("names", [("a:0", "a/0"), ("x", "x"), ("Image", "image")])
def test_two_names_for_one_field_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(CrtExportError) as caught:
        interface_fields(names, "input")
    for name in names:
        assert repr(name) in str(caught.value)


def test_a_name_that_is_too_long_for_a_string_of_c_is_refused() -> None:
    longest = "é" * (MAX_TENSOR_NAME // 2)
    assert len(interface_fields([longest], "input")) == 1
    with pytest.raises(CrtExportError, match="has 4096 bytes, C allows for 4095"):
        interface_fields([longest + "ab"], "input")


def test_macro_stems_are_microtvms_where_nothing_clashes() -> None:
    assert macro_stems(("input_1",), ("Identity",)) == (("INPUT_1",), ("IDENTITY",))


def test_macro_stems_carry_the_kind_where_names_are_ambiguous() -> None:
    assert macro_stems(("x", "workspace"), ("X", "constants")) == (
        ("INPUT_X", "INPUT_WORKSPACE"), ("OUTPUT_X", "OUTPUT_CONSTANTS")
    )


def test_a_clash_that_remains_is_refused() -> None:
    with pytest.raises(CrtExportError, match="'x' and 'input_x' would share"):
        macro_stems(("x", "input_x"), ("x",))


def test_a_namer_gives_each_symbol_once() -> None:
    namer = Namer({"conv2d_3"})
    assert [namer.name(n) for n in ("conv2d", "Conv2D", "conv2d", "conv2d_2")] == [
        "conv2d", "conv2d_2", "conv2d_4", "conv2d_2_2"
    ]
