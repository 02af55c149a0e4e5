"""docs/api.md is what the docstrings say, and has all that is public."""

from __future__ import annotations

import pytest

import crtexport
from tests.docs.api_page import VERBS, api_page
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "api.md"


def test_the_page_is_made_of_what_there_is(request: pytest.FixtureRequest) -> None:
    """``pytest --update-golden`` writes it."""
    text = api_page()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text, encoding="utf-8")
        return
    again = f"pytest --update-golden {request.node.nodeid!r} writes docs/api.md"
    assert PAGE.read_text(encoding="utf-8").splitlines() == text.splitlines(), again


def test_all_public_names_are_on_the_page() -> None:
    assert {*VERBS} == {*crtexport.__all__} - {"__version__"}


def test_no_marks_of_docstrings_are_left() -> None:
    text = api_page()
    assert "``" not in text.replace("```", "")
    assert ":func:" not in text
