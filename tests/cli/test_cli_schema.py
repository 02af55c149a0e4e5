"""``crtexport schema``"""

from __future__ import annotations

import json

import pytest

from crtexport.cli.main import main
from crtexport.importers.crtjson import schema


@pytest.mark.parametrize("options", [[], ["--json"], ["-q"]])
def test_the_schema_is_json_in_any_case(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", *options]) == 0
    assert json.loads(capsys.readouterr().out) == schema()
