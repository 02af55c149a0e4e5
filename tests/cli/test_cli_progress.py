"""Progress of long work: counts on terminals, nothing in pipes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from crtexport.cli.main import main
from crtexport.cli.output import Steps
from crtexport.cli.terminal import Terminal
from crtexport.pipeline.driver import export
from tests.cli.support import DIGITS


def test_objects_are_counted_while_they_are_compiled(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    made = export(DIGITS, board="mps2_an386", emit="llvm", split="operator",
                  output=tmp_path / "p.tar", compiled=lambda *counts: told.append(counts))
    total = told[0][1]
    assert total > len(made.artifact.functions) / 2 > 1
    assert told == [(done, total) for done in range(1, total + 1)]


def test_a_bar_shows_counts_with_their_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, shown = Terminal(), io.StringIO()
    monkeypatch.setattr(
        terminal, "_err", Console(file=shown, force_terminal=True, width=120, color_system=None)
    )
    with terminal.progress() as (show, bar):
        steps = Steps(show, bar)
        steps("generate llvm")
        steps.counter("objects")(3, 7)
    assert "generate llvm" in shown.getvalue()
    assert "3/7" in shown.getvalue()
    assert "objects" in shown.getvalue()


def test_one_of_one_needs_no_bar() -> None:
    shown: list[tuple[int, int, str]] = []
    steps = Steps(lambda _: None, lambda *counts: shown.append(counts))
    steps.counter("objects")(1, 1)
    steps.counter("objects")(1, 2)
    assert shown == [(1, 2, "objects")]


def test_pipes_get_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [str(DIGITS), "--board", "mps2_an386", "--split", "operator", "--emit", "llvm"]
    assert main([*words, "-o", str(tmp_path / "p.tar")]) == 0
    assert capfd.readouterr().err == ""
