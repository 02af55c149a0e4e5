"""docs/operators.md is true: its table is made of what there is."""

from __future__ import annotations

import re

import pytest
import tflite

from crtexport.importers.tflite.schema import constant_names
from crtexport.importers.tflite.tflite_ops import DECODERS
from tests.docs.operator_table import operator_table
from tests.helpers import ROOT

DOCUMENT = ROOT / "docs" / "operators.md"
TABLE = re.compile(r"(<!-- operators: .*? -->\n)(.*?)(\n<!-- end of operators -->)", re.DOTALL)


def test_the_table_of_operators_is_true(request: pytest.FixtureRequest) -> None:
    """``pytest --update-golden`` writes it."""
    text, table = DOCUMENT.read_text(encoding="utf-8"), operator_table()
    found = TABLE.search(text)
    assert found is not None
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(
            text[: found.start(2)] + table + text[found.end(2) :], encoding="utf-8"
        )
        return
    again = f"pytest --update-golden {request.node.nodeid!r} writes docs/operators.md"
    assert found[2].splitlines() == table.splitlines(), again


def test_every_operator_that_can_be_imported_is_in_the_table() -> None:
    titles = constant_names(tflite.BuiltinOperator)
    cells = [row.split("|")[2].strip() for row in operator_table().splitlines()]
    listed = {name for cell in cells for name in cell.split(", ")}
    assert {titles[code] for code in DECODERS} <= listed


def test_every_operator_has_types() -> None:
    for row in operator_table().splitlines()[2:]:
        _, name, _, types, _ = (cell.strip() for cell in row.split("|", 4))
        assert types, name
