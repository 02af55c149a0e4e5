"""Generated C of a real network, as a reviewer reads it."""

from __future__ import annotations

import re

import pytest

from tests.exports import exported_network

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def source() -> str:
    """The C of a convolutional network for a Cortex-M4."""
    package = exported_network("kws_int8", "mps2_an386", "c")
    return package.read("codegen/host/src/kws_int8_lib0.c").decode()


def table(source: str, name: str) -> tuple[str, list[str]]:
    """The comment of a table, on one line, and its rows."""
    comment, rows = r"/\*\n((?: \* .*\n)+) \*/\n", r"((?:    .*\n)+)};"
    head = rf"CRT_ALIGNED.*\nstatic const \w+ {name}\[.*\n"
    found = re.search(comment + head + rows, source)
    assert found is not None
    text = re.sub(r"^ \* ", "", found[1], flags=re.MULTILINE)
    return " ".join(text.split()), found[2].splitlines()


def test_packed_weights_have_a_row_for_the_channels_of_a_word(source: str) -> None:
    comment, lines = table(source, "tvmgen_kws_int8_weights")
    together = re.search(r"packed, a row for (\d) output channels", comment)
    assert together is not None
    assert "each half word is 256 * c1 + c0" in comment
    assert sum(not line.startswith("      ") for line in lines) == 64 // int(together[1])
    assert re.fullmatch(r"(0x[0-9a-f]{8}u,?\s*)+", " ".join(line.strip() for line in lines))


def test_tables_of_scaling_say_what_a_row_is(source: str) -> None:
    comment, lines = table(source, "tvmgen_kws_int8_scaling_2")
    addend = "addend (bias, half and zero point, by scale / 2**8)"
    assert f"for each output channel: {addend}, factor" in comment
    assert len(lines) == 64
    assert all(re.fullmatch(r"    -?\d+, \d+,?", line) for line in lines)


def test_comments_name_layers_by_the_telling_part(source: str) -> None:
    assert "activation_1/Relu" in source
    assert not re.search(r"\S;\S*/", source)
    assert max(map(len, source.splitlines())) <= 100


def test_the_reciprocal_of_softmax_is_explained(source: str) -> None:
    assert "48/17 - 32/17 * half, Q2.29: 1515870810 = 48/17 * 2**29" in source
    assert "1073741824" not in source


def test_places_in_rows_are_remainders(source: str) -> None:
    assert "pixel % 5" in source
    assert not re.search(r"(\w+) - \(\1 / (\d+)\) \* \2", source)


def test_variables_are_named_and_not_counted(source: str) -> None:
    declared = re.findall(r"^ +(?:const )?\w+ (\w+) =", source, re.MULTILINE)
    some = {"sum_p1_c0", "weights3_c0", "factor_c1", "values_ky2_at1", "total_ky0_x1"}
    assert some <= {*declared}
    assert not [name for name in declared if re.search(r"_\d+$", name)]
