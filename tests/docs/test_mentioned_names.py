"""Files, folders and classes of the code that pages for contributors name exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import crtexport

PACKAGE = Path(crtexport.__file__).resolve().parent
CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")
NAMES = re.compile(r"`([\w./]+)`")
OUTSIDE = {"build/mutation/", "msgspec.Struct", "templates/baremetal/NAME/"}
"""Names of what commands make, of other libraries, and of what readers add."""


def code_spans(page: str) -> set[str]:
    """Returns the names in backquotes outside of code blocks."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    return set(NAMES.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))) - OUTSIDE


@functools.cache
def classes() -> set[str]:
    return {
        node.name for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }


def exists(path: str) -> bool:
    """Returns whether a path is below the package, the checkout or the tests, as a whole or from
    one of their folders on."""
    path = path.rstrip("/")
    if any((root / path).exists() for root in (PACKAGE, CHECKOUT, CHECKOUT / "tests")):
        return True
    return any(PACKAGE.rglob(path)) or any((CHECKOUT / "tests").rglob(path))


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    paths = {name for name in code_spans(page) if re.fullmatch(r"\.?[\w/]+(/|\.(py|md))", name)}
    assert len(paths) > 10
    assert not [path for path in sorted(paths) if not exists(path)]


@pytest.mark.parametrize("page", PAGES)
def test_classes_exist(page: str) -> None:
    words = {name.rpartition(".")[2] for name in code_spans(page) if "/" not in name}
    named = {word for word in words if re.fullmatch(r"(?:[A-Z][a-z0-9]+){2,}", word)}
    qualified = {name for name in code_spans(page) if re.fullmatch(r"([a-z_]+\.)+[A-Z]\w+", name)}
    named |= {name.rpartition(".")[2] for name in qualified}
    assert named
    assert not sorted(named - classes())
