"""The examples of docs/python.md run as they stand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.support import DIGITS
from tests.support import ROOT


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in DIGITS.parent.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(examples) == 4
    scope: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "docs/python.md", "exec"), scope)  # noqa: S102
    said = capsys.readouterr().out
    assert said.startswith("digits.tar {")
    assert "again dict_keys(['probabilities'])" in said
    assert "digits_lib0 model (" in said
    assert said.endswith("b'\\x7fELF'\n")
