"""docs/model_json.md is true: its example loads, its table is the operators that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec import NODEFAULT, to_builtins
from msgspec.structs import FieldInfo, fields

from crtexport.importers import load
from crtexport.importers.crtjson import schema
from crtexport.importers.crtjson.attributes import OPERATORS
from crtexport.ir.ops import Activation, FullyConnected, Softmax
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "model_json.md"
DOCUMENT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```json\n(.*?)```", DOCUMENT, flags=re.DOTALL)
TABLE = re.compile(r"<!-- operators: .*? -->\n(.*?)\n<!-- end of operators -->", re.DOTALL)


def attribute(name: str, field: FieldInfo) -> str:
    if field.default is NODEFAULT:
        return f"`{name}` (required)"
    default = to_builtins(field.default)
    return f"`{name}` {json.dumps(default)}" if name != "padding" else "`padding`"


def operator_table() -> str:
    rows = ["| operator | meaning | attributes and defaults |", "|---|---|---|"]
    for name, kind in OPERATORS.items():
        attributes = ", ".join(attribute(field.name, field) for field in fields(kind))
        meaning = " ".join((kind.__doc__ or "").split())
        rows.append(f"| {name} | {meaning} | {attributes} |")
    return "\n".join(rows)


def test_the_example_is_a_network(tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    path.write_text(BLOCKS[0], encoding="utf-8")
    graph = load(path)
    assert graph.name == "tiny"
    assert [node.op for node in graph.nodes] == [
        FullyConnected(activation=Activation.RELU),
        Softmax(),
    ]
    weights = graph.tensors[1]
    assert weights.constant is not None
    assert weights.constant.array(weights.type)[2].tolist() == [5, 5, -90, 127]


def test_the_forms_of_data_are_in_the_schema() -> None:
    keys = set(schema()["$defs"]["FileData"]["properties"])
    shown = [json.loads(line)["data"] for line in BLOCKS[1].splitlines()]
    assert keys == {key for data in shown if isinstance(data, dict) for key in data}


def test_the_table_lists_every_operator(request: pytest.FixtureRequest) -> None:
    """``pytest --update-golden`` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    found = TABLE.search(text)
    assert found is not None
    if request.config.getoption("--update-golden"):
        PAGE.write_text(
            text[: found.start(1)] + operator_table() + text[found.end(1) :], encoding="utf-8"
        )
        return
    again = f"pytest --update-golden {request.node.nodeid!r} writes docs/model_json.md"
    assert found[1] == operator_table(), again
