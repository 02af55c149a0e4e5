"""Encodings are those of GNU's assembler."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.armv7em.text import short
from crtexport.kir.assembly.encode import encode
from tests.helpers import require

_REGISTERS = st.sampled_from([*(f"r{number}" for number in range(13)), "lr"])
_THREE = (
    "add", "sub", "and", "orr", "eor", "lsl", "lsr", "asr", "mul", "smuad", "smulbb", "smulbt",
    "smultb", "smultt", "smmul", "smmulr", "sdiv", "udiv", "sadd16", "ssub16",
)
_FOUR = ("mla", "mls", "smlad", "smlabb", "smlabt", "smlatb", "smlatt", "smmla", "smmlar")
_ACCESSES = ("ldr", "ldrb", "ldrsb", "ldrh", "ldrsh", "str", "strb", "strh")


@st.composite
def operands(draw: st.DrawFn) -> int:
    """Numbers that instructions have."""
    byte = draw(st.integers(0, 255))
    return draw(st.sampled_from([byte, byte << draw(st.integers(0, 24)), byte * 0x01010101,
                                 byte * 0x00010001, byte * 0x01000100]))


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Returns one instruction."""
    a, b, c, d = (draw(_REGISTERS) for _ in range(4))
    shift = draw(st.sampled_from(["lsl", "lsr", "asr"])), draw(st.integers(1, 31))
    offset = draw(st.integers(-255, 4095) | st.integers(0, 31).map(lambda n: 4 * n))
    match draw(st.integers(0, 9)):
        case 0:
            return f"{draw(st.sampled_from(_THREE))} {a}, {b}, {c}"
        case 1:
            return f"{draw(st.sampled_from(_FOUR))} {a}, {b}, {c}, {d}"
        case 2:
            name = draw(st.sampled_from(["add", "sub", "and", "orr", "eor", "cmp"]))
            first = f"{a}, " if name == "cmp" else f"{a}, {b}, "
            return f"{name} {first}{c}, {shift[0]} #{shift[1]}"
        case 3:
            name = draw(st.sampled_from(["add", "sub"]))
            if draw(st.booleans()):
                return f"{name}s {a}, {b}, #{draw(operands())}"
            return f"{name} {a}, {b}, #{draw(st.integers(0, 4095))}"
        case 4:
            name = draw(st.sampled_from(["mov", "mvn", "cmp"]))
            return f"{name} {a}, #{draw(operands())}"
        case 5:
            return f"{shift[0]} {a}, {b}, #{shift[1]}"
        case 6:
            name, base = draw(st.sampled_from(_ACCESSES)), draw(st.sampled_from([b, "sp"]))
            if name.startswith("ldr") and a != b and draw(st.booleans()):
                return f"{name} {a}, [{b}, #{draw(st.integers(-255, 255))}]!"
            return f"{name} {a}, [{base}, #{offset}]" if offset else f"{name} {a}, [{base}]"
        case 7:
            name = draw(st.sampled_from(["movw", "movt"]))
            return f"{name} {a}, #{draw(st.integers(0, 65535))}"
        case 8:
            return draw(st.sampled_from([
                f"sxtb16 {a}, {b}", f"sxtb16 {a}, {b}, ror #8", f"sxtb {a}, {b}", f"uxth {a}, {b}",
                f"pkhbt {a}, {b}, {c}, lsl #16", f"mov {a}, {b}", f"cmp {a}, {b}", f"bx {a}",
                f"rsb {a}, {b}, #{draw(operands())}",
            ]))
        case _:
            name, bits = draw(st.sampled_from(["ssat", "usat"])), draw(st.integers(1, 31))
            moved = f", {shift[0]} #{shift[1]}" if shift[0] != "lsr" else ""
            return f"{name} {a}, #{bits}, {b}{moved}"


def assembled(text: str, folder: Path, processor: str = "-mcpu=cortex-m4") -> bytes:
    """Returns what GNU's assembler makes of lines."""
    (folder / "t.s").write_text(f".syntax unified\n.thumb\n{text}\n")
    flags = (processor, "-mthumb")
    for command in (
        (require("arm-none-eabi-as"), *flags, "t.s", "-o", "t.o"),
        (require("arm-none-eabi-objcopy"), "-O", "binary", "-j", ".text", "t.o", "t.bin"),
    ):
        subprocess.run(command, cwd=folder, check=True)
    return (folder / "t.bin").read_bytes()


@settings(max_examples=15, deadline=None)
@given(drawn=st.lists(lines(), min_size=60, max_size=60))
def test_instructions_are_encoded_as_gnu_does(
    drawn: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    wanted = [short(line) for line in drawn]
    found = assembled("\n".join(wanted), tmp_path_factory.mktemp("as"))
    at = 0
    for line in wanted:
        own = encode([line])
        assert found[at : at + len(own)] == own, line
        at += len(own)
    assert not any(found[at:])


@pytest.mark.parametrize("between", [0, 100, 126, 127, 128, 129, 1022, 1023, 1024, 1025, 3000])
def test_branches_are_as_long_as_they_must_be(between: int, tmp_path: Path) -> None:
    body = ["adds r0, r0, #1"] * between
    wanted = ["1:", "beq 2f", "b 2f", *body, "2:", "bne 1b", "b 1b"]
    found = assembled("\n".join(wanted), tmp_path)
    assert encode(wanted) == found[: len(encode(wanted))]


@pytest.mark.parametrize("names", ["r4", "r4, lr", "r4, r5, r6, r7", "r0, r8, r11", "lr"])
def test_registers_are_pushed_and_popped(names: str, tmp_path: Path) -> None:
    wanted = [f"push {{{names}}}", f"pop {{{names.replace('lr', 'pc')}}}", "it gt", "movgt r3, r9",
              "it ls", "movls r3, #5", "sub sp, sp, #20", "add sp, sp, #20", "smull r1, r2, r3, r4"]
    found = assembled("\n".join(wanted), tmp_path)
    assert encode(wanted) == found[: len(encode(wanted))]


def test_a_line_that_is_no_instruction_of_these_is_refused() -> None:
    for line in ("vadd.f32 s0, s0, s1", "add r0, r0, #70000", "ldr r0, [r1, r2]"):
        with pytest.raises((ValueError, KeyError)):
            encode([line])
