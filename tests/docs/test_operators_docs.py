"""docs/operators.md is true: its table is made of what there is."""

from __future__ import annotations

import re

import pytest
import tflite

from crtexport.importers.onnx import domains, registry
from crtexport.importers.tflite.schema import constant_names
from crtexport.importers.tflite.tflite_ops import DECODERS
from tests.docs.operator_table import operator_table
from tests.helpers import ROOT

DOCUMENT = ROOT / "docs" / "operators.md"
TABLE = re.compile(r"(<!-- operators: .*? -->\n)(.*?)(\n<!-- end of operators -->)", re.DOTALL)


def rows() -> list[str]:
    return [line for line in operator_table().splitlines()[2:] if line.startswith("|")]


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
    cells = [row.split("|")[2].strip() for row in rows()]
    listed = {name for cell in cells for name in cell.split(", ")}
    assert {titles[code] for code in DECODERS} <= listed


def test_every_operator_of_onnx_is_in_the_table_or_below_it_once() -> None:
    registry.load_table()
    cells = [row.split("|")[3].strip() for row in rows()]
    listed = [name for cell in cells if cell != "—" for name in cell.split(", ")]
    below = re.split(r"[:,.] ", operator_table().splitlines()[-1].rstrip("."))
    for domain, name in registry.TABLE:
        if domain in (domains.ONNX, domains.LEARNING):
            assert [*listed, *below].count(name) == 1, name


def test_every_operator_has_types() -> None:
    for row in rows():
        _, name, _, _, types, _ = (cell.strip() for cell in row.split("|", 5))
        assert types, name
