"""All that errors and pages tell users to write is there: commands, options, functions."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import crtexport
from crtexport.cli.main import cli
from tests.docs.mentions import OPTION, all_options, check_command
from tests.docs.pages import page_paths
from tests.helpers import ROOT

OTHERS = {
    "--cpu-tensor-alignment", "--cop-format",  # Vela's
}
"""Options of other programs that hints name."""

MODULES = sorted((ROOT / "crtexport").rglob("*.py"))

COMMAND = re.compile(r"`(crtexport [^`]*)`")
FUNCTION = re.compile(r"\bcrtexport\.([a-z_]+)(?=\(|\b makes)")


def hints(path: Path) -> Iterator[tuple[int, str]]:
    """The lines and texts of all errors and their hints in a module: every text that isn't a
    docstring, put together where it is made of pieces."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        and isinstance(node.body[0], ast.Expr)
    } | {
        id(after.value)
        for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)
        for after in node.body if isinstance(after, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            yield node.value.lineno, texts(node.value)
        elif isinstance(node, ast.Assign) and named() & {
            target.id for target in node.targets if isinstance(target, ast.Name)
        }:
            yield node.lineno, texts(node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in named():
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield inner.lineno, texts(inner.value)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
            and "crtexport " in node.value and id(node) not in documentation
        ):
            yield node.lineno, node.value


@functools.cache
def named() -> frozenset[str]:
    """Names of variables and functions of which hints are made."""
    values = (
        node.value.func if isinstance(node.value, ast.Call) else node.value
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "hint"
    )
    return frozenset(value.id for value in values if isinstance(value, ast.Name))


def texts(expression: ast.expr) -> str:
    """The texts in an expression; what is only known later is …"""
    if isinstance(expression, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in expression.values
        )
    return " ".join(
        texts(part) if isinstance(part, ast.JoinedStr) else str(part.value)
        for part in ast.walk(expression)
        if isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
    )



def test_hints_name_what_there_is() -> None:
    known = all_options(cli) | OTHERS
    for path in MODULES:
        for line, text in hints(path):
            where = f"{path}:{line}"
            for option in OPTION.findall(text):
                if option.startswith("--"):
                    assert option in known, f"{where}: there is no option {option}"
            for command in COMMAND.findall(text):
                check_command(cli, command)
            for function in FUNCTION.findall(text):
                assert function in crtexport.__all__, f"{where}: no crtexport.{function}"


def test_the_hints_are_found() -> None:
    found = [text for path in MODULES for _, text in hints(path)]
    assert len(found) > 150
    assert sum("--" in text for text in found) > 20
    assert any("`crtexport boards`" in text for text in found)
    assert any("`crtexport build` makes" in text for text in found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("crtexport flash p.tar", "no command 'flash'"),
        ("crtexport run p.tar --emit c", "no option --emit"),
        ("crtexport zephyr flash", "no command zephyr 'flash'"),
        ("crtexport m.json --boards x", "no option --boards"),
    ],
)
def test_what_there_is_not_is_noticed(text: str, problem: str) -> None:
    with pytest.raises(LookupError, match=problem):
        check_command(cli, text)


@pytest.mark.parametrize("page", page_paths())
def test_pages_name_commands_and_options_that_there_are(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for command in COMMAND.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        check_command(cli, " ".join(command.replace("…", "").split()))
