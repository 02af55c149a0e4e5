"""LLVM's options: the malformed, unknown and contradictory are refused by name and origin."""

from __future__ import annotations

import re

import pytest

from crtexport.backends.llvm.options import (
    KnownOption,
    Listing,
    Option,
    combine,
    parse_option,
)
from crtexport.backends.llvm.pool import (
    check_options,
    known_options,
    llvm_version,
    parsed_options,
)
from crtexport.support.errors import CrtExportError

LISTING = """\
USAGE: llvm [options]

OPTIONS:

General options:

  --count=<uint>                   - How many
  -counter                         - One dash
  --flag                           - 
  --kind=<value>                   - Choose
    =first                         -   The first
    =second                        -   The second
  --old-flag                       - alias for -flag
  --passes=<pass names>            - Several words
  --remarks[=<string>]             - May stand alone
  --twice                          - Without a value
  --twice=<value>                  - And with one

Generic Options:

  -h                               - Alias for --help
  --help                           - Display available options (--help-hidden for more)
"""  # noqa: W291
KNOWN = Listing(LISTING)
CLI = "--llvm-option"


def combined(*texts: str, board: tuple[str, ...] = ()) -> tuple[str, ...]:
    options = [parse_option(text, "board b: llvm_options") for text in board]
    return combine([*options, *(parse_option(text, CLI) for text in texts)], KNOWN)


def test_llvms_own_list_is_read() -> None:
    expected = {
        "count": KnownOption(True),
        "counter": KnownOption(False),
        "flag": KnownOption(False),
        "kind": KnownOption(True),
        "old-flag": KnownOption(False, alias_of="flag"),
        "passes": KnownOption(True),
        "remarks": KnownOption(False),
        "twice": KnownOption(False),
        "h": KnownOption(False, only_prints=True, alias_of="help"),
        "help": KnownOption(False, only_prints=True),
    }
    assert expected == KNOWN


def test_the_installed_llvm_lists_what_its_passes_and_targets_have() -> None:
    known = known_options()
    assert known["unroll-threshold"] == KnownOption(True)
    assert known["unroll-allow-partial"] == KnownOption(False)
    assert known["arm-force-unroll-threshold"].takes_value
    assert known["version"].only_prints
    assert len(known) > 1000
    assert "no-such-option" not in known


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("-flag", "flag", None), ("--flag", "flag", None), ("-flag=", "flag", ""),
        ("--count=3", "count", "3"), ("-a.b_c-d+e=x y", "a.b_c-d+e", "x y"), ("-k==", "k", "="),
        ("-k=a:b", "k", "a:b"), ("-k=\n", "k", "\n"), ("-k=-3", "k", "-3"),
    ],
)
def test_options_are_read(text: str, name: str, value: str | None) -> None:
    assert parse_option(text, CLI) == Option(name, value, CLI)


@pytest.mark.parametrize(
    "text",
    ["", "-", "--", "---flag", "flag", "count=3", "- flag", "-flag ", " -flag", "-=3", "--=",
     "-fl ag", "-flag\0", "-count:uint=3", "@file", "-flag\n", "-é", "-flag:", "-flag:="],
)
def test_malformed_options_are_quoted(text: str) -> None:
    with pytest.raises(CrtExportError, match="is no option of LLVM") as caught:
        parse_option(text, CLI)
    assert caught.value.location == (CLI,)
    assert repr(text) in caught.value.problem


def test_equal_sets_are_spelled_alike() -> None:
    assert combined("-flag", "--count=3") == combined("--count=3", "-count=3", "-flag")
    assert combined("-flag", board=("--flag",)) == ("-flag",)
    assert combined() == ()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("-cuont=3",), "this LLVM has no option -cuont"),
        (("-count",), "-count needs a value"),
        (("-count=1", "--count=2"), "-count=2 contradicts -count=1"),
        (("-flag", "-flag=false"), "-flag=false contradicts -flag"),
        (("-old-flag=0", "-flag=1"), "-flag=1 contradicts -old-flag=0"),
        (("-help",), "-help only prints"),
        (("-h",), "-h only prints"),
    ],
)
def test_what_can_not_be_meant_is_refused(given: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CrtExportError, match=re.escape(problem)) as caught:
        combined(*given)
    assert caught.value.location == (CLI,)


def test_two_spellings_of_true_agree() -> None:
    assert len(combined("-flag", "-flag=true", "-old-flag=1")) == 1


def test_both_sides_of_a_contradiction_are_named() -> None:
    with pytest.raises(CrtExportError) as caught:
        combined("-count=2", board=("-count=1",))
    assert str(caught.value).startswith(
        "--llvm-option: -count=2 contradicts -count=1 of board b: llvm_options"
    )


def test_what_was_meant_is_suggested() -> None:
    with pytest.raises(CrtExportError, match="did you mean -count"):
        combined("-cuont=3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-unroll-threshold=many", "'many' value invalid for uint"),
        ("-unroll-threshold=", "'' value invalid for uint"),
        ("-unroll-threshold=-1", "'-1' value invalid for uint"),
        ("-unroll-allow-partial=maybe", "'maybe' is invalid value for boolean"),
        ("-x86-asm-syntax=klingon", "Cannot find option named 'klingon'"),
    ],
)
def test_llvm_itself_refuses_values(text: str, said: str) -> None:
    with pytest.raises(CrtExportError, match=re.escape(said)) as caught:
        check_options(parsed_options([("board b: llvm_options", ["-disable-lsr"]), (CLI, [text])]))
    assert caught.value.location == (CLI, text)
    assert caught.value.exit_code == 2


def test_good_options_pass() -> None:
    assert check_options(parsed_options([(CLI, ["--unroll-threshold=20", "-disable-lsr"])])) == (
        "-disable-lsr", "-unroll-threshold=20"
    )
    assert check_options([]) == ()


def test_the_version_is_llvms() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", llvm_version())
