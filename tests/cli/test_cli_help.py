"""Help in groups, the same options wherever they mean something, and completion of boards."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from crtexport.cli.groups import GROUPS, Verb, title_of
from crtexport.cli.main import cli, main
from crtexport.firmware.board import list_boards, list_families
from tests.cli.support import DIGITS
from tests.cli.test_cli_outputs import leaves

VERBS = dict(leaves(cli))

SHARED = {
    "--output": {"boards new", "build", "convert", "export", "plan", "quantize", "report",
                 "run", "simulate", "zephyr board"},
    "-o": {"boards new", "build", "convert", "export", "plan", "quantize", "report", "run",
           "simulate", "zephyr board"},
    "--board": {"bench", "build", "export", "inspect", "plan", "quantize", "report", "run",
                "verify"},
    "--emit": {"bench", "export", "report", "verify"},
    "--optimize": {"bench", "export", "inspect", "report", "verify"},
    "--weights": {"bench", "export", "inspect", "plan", "report", "verify"},
    "--rounding": {"bench", "export", "inspect", "plan", "report", "verify"},
    "--ram": {"bench", "export", "report"}, "--feed": {"bench", "export", "report"},
    "--stream": {"bench", "export", "report"},
    "--tuning": {"bench", "export", "inspect", "report", "verify"},
    "--timeout": {"bench", "export", "report", "run", "verify"},
    "--input": {"bench", "build", "export", "report", "run", "simulate"},
    "--force": {"build", "convert", "export", "unpack"},
    "--json": set(VERBS), "--verbose": set(VERBS), "--quiet": set(VERBS), "--debug": set(VERBS),
}
"""The verbs that have an option: all for which it means something. Those that generate code take
what decides about it, those that boot firmware a time."""


def option(command: click.Command, spelling: str) -> click.Option | None:
    return next((one for one in command.params
                 if isinstance(one, click.Option) and spelling in one.opts), None)


@pytest.mark.parametrize("spelling", SHARED)
def test_an_option_is_where_it_means_something(spelling: str) -> None:
    found = {name: one for name, verb in VERBS.items() if (one := option(verb, spelling))}
    assert set(found) == SHARED[spelling]
    if spelling not in ("--output", "-o"):
        assert len({repr(one.type.to_info_dict()) for one in found.values()}) == 1


@pytest.mark.parametrize(("name", "command"), VERBS.items(), ids=VERBS)
def test_each_option_has_its_heading(name: str, command: click.Command) -> None:
    assert isinstance(command, Verb)
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [one.opts for one in options if title_of(one) not in GROUPS] == []
    said = CliRunner().invoke(cli, [*name.split(), "--help"]).output
    for one in options:
        below = said.split(f"\n{title_of(one)}:\n")[1].split("\n\n")[0]
        assert one.opts[-1] in below


def test_no_heading_lists_an_option_that_no_verb_has() -> None:
    known = {spelling for verb in VERBS.values() for one in verb.params for spelling in one.opts}
    listed = {spelling for group in GROUPS.values() for spelling in group} - {"--help"}
    assert listed <= known


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    complete = BashComplete(cli, {}, "crtexport", "_CRTEXPORT_COMPLETE")
    return [one.value for one in complete.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize("verb", sorted(SHARED["--board"]))
def test_boards_are_completed(verb: str) -> None:
    boards = [board.name for board in list_boards() if board.name.startswith("mps2")]
    assert len(boards) > 2
    assert completed(verb, "model.tflite", "--board", "mps2") == boards


def test_boards_and_paths_are_completed_without_the_word_export() -> None:
    assert completed("model.tflite", "--board", "esp32c3") == ["esp32c3"]
    assert completed("boards", "nrf5284") == ["nrf52840dk"]
    assert completed("boards", "ne") == ["new"]
    assert completed("boards", "new", "mine", "--extends", "cortex_m4") == ["cortex_m4f"]
    complete = BashComplete(cli, {}, "crtexport", "_CRTEXPORT_COMPLETE")
    (found,) = complete.get_completions(["run", "p.tar", "--board"], "./mi")
    assert found.type == "file"


def test_families_are_listed() -> None:
    said = CliRunner().invoke(cli, ["boards", "--families"]).output
    assert all(f"{family.name} " in said for family in list_families())
    assert "nrf52840dk" not in said


def test_a_stage_is_shown_as_it_would_be_exported(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for goal in ("size", "speed"):
        words = ["inspect", str(DIGITS), "--stage", "kernels", "--board", "mps2_an386"]
        assert main([*words, "--optimize", goal]) == 0
        said[goal] = capsys.readouterr().out
    assert len(said["size"]) < len(said["speed"])


def test_measurements_that_are_not_there_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["inspect", str(DIGITS), "--stage", "c", "--tuning", str(tmp_path / "none.json")]
    assert main(words) == 2
    assert "none.json" in capsys.readouterr().err
