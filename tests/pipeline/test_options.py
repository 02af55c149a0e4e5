"""The record of an export's options: what verbs and the command line can say of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest
from msgspec.structs import fields

import crtexport
from crtexport.cli import export as command
from crtexport.importers.formats import InputChoices
from crtexport.pipeline.options import DEFAULTS, ExportChanges, ExportOptions
from tests.cli.support import DIGITS


def test_keyword_arguments_are_the_fields_of_the_record() -> None:
    names = [field.name for field in fields(ExportOptions)]
    hints = get_type_hints(ExportOptions)
    assert get_type_hints(ExportChanges) == {name: hints[name] for name in names}


def test_the_command_has_an_option_for_each_field_with_its_default() -> None:
    given = command.command.make_context("export", [str(DIGITS)]).params
    for field in fields(ExportOptions):
        match field.name:
            case "module_name":
                assert "names" in given
            case "choices":  # each of them is an option
                for choice in fields(InputChoices):
                    assert _same(given[choice.name], getattr(DEFAULTS.choices, choice.name))
            case name:
                assert _same(given[name], getattr(DEFAULTS, name)), name


def _same(value: object, default: object) -> bool:
    """Returns whether both are equal, or both are nothing."""
    return value == default or not (value or default)


def test_keyword_arguments_change_options(tmp_path: Path) -> None:
    options = ExportOptions(emit="llvm", module_name="one", workspace="caller")
    exported = crtexport.export(DIGITS, options, output=tmp_path / "x.tar", emit="c")
    assert exported.emit == "c"
    assert exported.artifact.module == "one"
    assert exported.artifact.workspace_caller


def test_unknown_keyword_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="optimise"):
        crtexport.export(DIGITS, output=tmp_path / "x.tar", optimise="size")  # type: ignore[call-arg]
    assert not [*tmp_path.iterdir()]
