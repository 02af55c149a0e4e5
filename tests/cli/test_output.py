"""Tables in files and pipes look as they do on terminals."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from crtexport.cli.output import Output, plain_table
from crtexport.cli.terminal import Terminal

TABLES: list[tuple[Sequence[str], list[list[str]], list[bool]]] = [
    (("what", "bytes"), [["constants", "48,208"], ["state", "0"]], [False, True]),
    (("layer", "MACs", "why"), [["", "1", "é → ö"], ["名前", "22", ""]], [False, True, False]),
    (("a name", "b"), [], [False, False]),
]


@pytest.mark.parametrize(("columns", "cells", "right"), TABLES)
def test_plain_tables_are_richs(
    columns: Sequence[str], cells: list[list[str]], right: list[bool]
) -> None:
    drawn = Terminal()
    drawn._out = Console(file=io.StringIO(), width=200, color_system=None)
    drawn.table("Title", columns, cells, right)
    expected = [line.rstrip() for line in drawn._out.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert plain_table("Title", columns, cells, right).split("\n") == expected


def test_text_of_models_does_nothing_to_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(verbosity=1)
    out.line("a\x1b[2J\nb")
    out.table("t\x1b", ("name", "bytes"), [("x\n\x1b", 1234), ("y", 5)])
    with out.steps() as step:
        step("load \x1b")
    said, steps = capsys.readouterr()
    assert said.splitlines() == [
        r"a\x1b[2J", "b", r"t\x1b", "name     bytes", r"x\n\x1b  1,234", "y            5", "",
    ]
    assert steps == "load \\x1b\n"


def test_nothing_is_said_where_nothing_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    for out in (Output(as_json=True), Output(verbosity=-1)):
        out.line("a")
        out.table("t", ("name",), [("x",)])
    assert capsys.readouterr() == ("", "")
