"""Errors say what is wrong, however odd the names are that they quote."""

from __future__ import annotations

from crtexport.support.errors import CrtExportError


def test_places_lead_from_the_outside_in_and_escape_control_characters() -> None:
    error = CrtExportError("it is wrong", location=("a\x1b[31m", "", "b\n"), hint="mend it")
    assert str(error.within("file")) == (
        "file → a\\x1b[31m → b\\n: it is wrong\n  hint: mend it"
    )


def test_a_very_long_name_leaves_the_problem_in_sight() -> None:
    text = str(CrtExportError("it is too long", location="a" * 100_000 + "z"))
    assert text.startswith("aaa")
    assert text.endswith("aaz (100,001 characters): it is too long")
    assert len(text) < 300
