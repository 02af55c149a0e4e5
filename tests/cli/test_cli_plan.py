"""``crtexport plan`` lists plans with the options that give them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crtexport.cli.main import main
from crtexport.importers import crtjson
from tests.reports.test_plans import GRAPH


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.json"
    crtjson.save(GRAPH, path)
    return str(path)


def test_plans_are_a_table(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plans.png"
    assert main(["plan", model, "--board", "mps2_an386", "-o", str(picture)]) == 0
    shown = capsys.readouterr().out
    for word in ("--optimize ram", "--optimize balanced", "--feed", "+0.0 %", f"{picture}"):
        assert word in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_plans_are_data(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", model, "--board", "mps2_an386", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["usual"]["options"] == ["--optimize", "balanced"]
    assert data["chosen"] in data["points"]
    assert data["fed"]["by_rows"] > 0


def test_a_picture_of_another_format_is_refused_before_any_work(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", model, "-o", "plans.gif"]) == 2
    assert ".svg or .png" in capsys.readouterr().err
