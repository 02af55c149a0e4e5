"""The framed answer: read when whole, refused when anything is wrong with it."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.firmware.frame import Frame, parse_frames
from crtexport.firmware.sections import Sections, Symbol
from crtexport.support.errors import RunFailedError

SECTIONS = Sections({}, {}, (Symbol("tvmgen_toy_run", 0x100, 0x40),))
BODY = (
    "CRT:BEGIN toy\n"
    "CRT:STATUS 1 0\n"
    "CRT:OUT 1 0 0 010203\n"
    "CRT:STATUS 0 fffffff9\n"
    "CRT:OUT 0 0 0 0a0b\n"
    "CRT:OUT 0 0 2 0c\n"
    "CRT:TICKS 5 10 20\n"
    "CRT:STACK 30 2000\n"
)


def framed(body: str) -> str:
    return f"{body}CRT:END {zlib.crc32(body.encode()):x}\n"


def parsed(console: str) -> Frame:
    return parse_frames(console, [(3,)], SECTIONS)[0]


def test_a_whole_answer_is_read() -> None:
    frame = parsed("a boot message\r\n" + framed(BODY) + "more\n")
    assert frame.statuses == (-7, 0)
    assert frame.outputs == ((b"\x0a\x0b\x0c",), (b"\x01\x02\x03",))
    assert frame.ticks == (5, 16, 32)
    assert frame.stack == (48, 0x2000)


def test_carriage_returns_of_a_terminal_do_no_harm() -> None:
    assert parsed(framed(BODY).replace("\n", "\r\n")).ticks == (5, 16, 32)


@given(position=st.integers(0, len(BODY) - 1), character=st.sampled_from("0123456789abcdefXYZ "))
def test_an_answer_with_one_wrong_character_is_refused(position: int, character: str) -> None:
    damaged = BODY[:position] + character + BODY[position + 1 :]
    if damaged == BODY:
        return
    with pytest.raises(RunFailedError):
        parsed(damaged + framed(BODY).removeprefix(BODY))


@given(end=st.integers(0, len(framed(BODY)) - 3))
def test_an_answer_that_breaks_off_is_refused(end: int) -> None:
    with pytest.raises(RunFailedError):
        parsed(framed(BODY)[:end])


@given(st.text())
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(RunFailedError):
        parsed(text)


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace("CRT:OUT 0 0 2 0c\n", ""),  # an output too short
        BODY.replace("OUT 0 0 2", "OUT 0 0 3"),  # a gap
        BODY.replace("CRT:OUT 1 0 0 010203\n", ""),  # a sample without outputs
        BODY.replace("TICKS 5 10 20", "TICKS 5 10"),
        BODY.replace("STATUS 0", "STATUS 9"),
    ],
)
def test_an_answer_that_is_intact_but_senseless_is_refused(body: str) -> None:
    with pytest.raises(RunFailedError, match="makes no sense"):
        parsed(framed(body))


def test_a_fault_names_the_function() -> None:
    where = r"fault 0x10000\) at 0x00000110 \(tvmgen_toy_run\+0x10\)"
    with pytest.raises(RunFailedError, match=where):
        parsed("CRT:BEGIN toy\nCRT:FAULT fault 10000 110\n")


def test_a_fault_report_that_is_damaged_is_still_a_fault() -> None:
    with pytest.raises(RunFailedError, match="the processor faulted"):
        parsed("CRT:FAULT fault 1x\n")


def test_a_stack_overflow_tells_what_to_do() -> None:
    with pytest.raises(RunFailedError, match="larger stack_size"):
        parsed("CRT:FAULT stack-overflow 0 0\n")
