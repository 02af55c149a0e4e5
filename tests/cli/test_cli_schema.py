"""``crtexport schema``"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from crtexport.cli.main import main
from crtexport.importers.crtjson import schema
from tests.cli.support import DIGITS


@pytest.mark.parametrize("options", [[], ["--json"], ["-q"], ["--of", "model"]])
def test_the_schema_is_json_in_any_case(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", *options]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


def test_a_report_is_what_its_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Every key of the JSON, at any depth, is one of the schema's, with a value of its type."""
    assert main(["schema", "--of", "report"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert main(["report", str(DIGITS), "--board", "mps2_an386", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    fit(whole, described, described["$defs"])
    for key in ("layers", "tensors", "steps", "memories", "findings"):
        assert whole[key] or key == "findings"
    damaged = {**whole, "totals": {**whole["totals"], "flash": "much"}}
    with pytest.raises(AssertionError):
        fit(damaged, described, described["$defs"])


KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "null": (type(None),), "array": (list,), "object": (dict,),
}


def fit(value: Any, described: dict[str, Any], known: dict[str, Any]) -> None:
    """Asserts that a value is as a schema says, in as much as msgspec's schemas use."""
    if "$ref" in described:
        described = known[described["$ref"].rpartition("/")[2]]
    if "anyOf" in described:
        fitting = []
        for one in described["anyOf"]:
            with contextlib.suppress(AssertionError):
                fit(value, one, known)
                fitting.append(one)
        assert fitting, value
        return
    if "enum" in described:
        assert value in described["enum"]
        return
    assert isinstance(value, KINDS[described["type"]]), (value, described)
    if "properties" in described:
        assert value.keys() <= described["properties"].keys()
        assert set(described["required"]) <= value.keys()
        for key, inner in value.items():
            fit(inner, described["properties"][key], known)
    elif described["type"] == "object" and described.get("additionalProperties"):
        for inner in value.values():
            fit(inner, described["additionalProperties"], known)
    elif isinstance(described.get("items"), dict):
        for inner in value:
            fit(inner, described["items"], known)
