"""``crtexport doctor``: what is installed, and what misses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from crtexport.cli.main import main
from crtexport.reports.installed import installed


def test_the_verb_lists_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shutil.copy("/bin/true", tmp_path / "make")
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["installed"] == msgspec.to_builtins(installed())
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.index("Here") < said.index("make") < said.index("Missing")
