"""Cycles of instructions are those of Arm's manuals, and programs are counted with them."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crtexport.firmware import run as firmware_run
from crtexport.firmware.board import load_board
from crtexport.firmware.spent import Cycles, Misses, Spent
from crtexport.firmware.thumb.decode import decoded
from crtexport.firmware.thumb.instruction import Decoded
from crtexport.firmware.thumb.pipelined import Pipelined
from crtexport.firmware.thumb.table import write_table
from crtexport.firmware.thumb.timing import Bound, Core, core_of, cycles, refill
from crtexport.kir.assembly.armv7em.issue import CORTEX_M7, CORTEX_M33
from tests.firmware.handmade import toy_inputs, toy_parts
from tests.helpers import ROOT, require, unavailable

YARDSTICK = ROOT.parent / "shared" / "yardstick"


def timed(text: str, core: Core, folder: Path) -> list[int]:
    """Returns the cycles of instructions that follow each other, in each bound."""
    found = _assembled(text, core, folder)
    pairs = list(itertools.pairwise([None, *found]))
    return [
        sum(cycles(one, before, core, bound) for before, one in pairs if one) for bound in Bound
    ]


def _assembled(text: str, core: Core, folder: Path) -> list[Decoded]:
    (folder / "t.s").write_text(f".syntax unified\n.thumb\n{text}\n")
    fpu = ["-mfpu=fpv4-sp-d16"] if core in (Core.M4, Core.M7) else []
    for command in (
        [require("arm-none-eabi-as"), f"-mcpu={core.value}", *fpu, "t.s", "-o", "t.o"],
        [require("arm-none-eabi-objcopy"), "-O", "binary", "-j", ".text", "t.o", "t.bin"],
    ):
        subprocess.run(command, cwd=folder, check=True)
    return [one for _, one in decoded((folder / "t.bin").read_bytes(), 0)]


@pytest.mark.parametrize(
    ("text", "m4", "m3"),
    [
        # From "Load/store timings": loads overlap, unless one needs what the other loads.
        ("ldr r0, [r1]; ldr r2, [r3]; ldr r4, [r5]", [4, 4, 4], [4, 4, 4]),
        ("ldr r0, [r1]; ldr r2, [r0]", [4, 4, 4], [4, 4, 4]),
        ("ldr r0, [r1]; adds r2, r2, #1; ldr r3, [r1, #4]", [5, 5, 5], [5, 5, 5]),
        ("ldmia r0!, {r1, r2, r3, r4}", [5, 5, 5], [5, 5, 5]),
        ("ldrd r0, r1, [r2]; ldrd r4, r5, [r2, #8]", [6, 6, 6], [6, 6, 6]),
        ("str r0, [r1]; str r2, [r1, #4]", [2, 2, 2], [2, 2, 2]),
        ("adds r1, r1, #4; ldr r0, [r1]", [3, 4, 4], [3, 4, 4]),
        ("ldr r0, [r1], #4; ldr r2, [r1], #4", [3, 3, 4], [4, 4, 4]),
        ("smull r0, r1, r2, r3", [1, 1, 1], [3, 4, 5]),
        ("mla r0, r1, r2, r3", [1, 1, 1], [2, 2, 2]),
        ("sdiv r0, r1, r2", [2, 7, 12], [2, 7, 12]),
        ("push {r4, r5, r6, lr}; nop", [6, 6, 6], [6, 6, 6]),
    ],
)
def test_instructions_take_what_the_manuals_say(
    text: str, m4: list[int], m3: list[int], tmp_path: Path
) -> None:
    lines = text.replace("; ", "\n")
    assert timed(lines, Core.M4, tmp_path) == m4
    assert timed(lines, Core.M3, tmp_path) == m3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("smlad r0, r1, r2, r0\nsmlad r0, r3, r4, r0", [2, 2, 2]),
        ("smlad r0, r1, r2, r0\nadd r5, r0, r6", [2, 2, 3]),
        ("vfma.f32 s0, s1, s2\nvfma.f32 s3, s1, s2", [6, 6, 6]),
        ("vmul.f32 s0, s1, s2\nvadd.f32 s3, s3, s0", [2, 3, 3]),
        ("vdiv.f32 s0, s1, s2", [14, 14, 14]),
    ],
)
def test_products_and_floats_of_the_m4(text: str, expected: list[int], tmp_path: Path) -> None:
    assert timed(text, Core.M4, tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ldr r0, [r1]; smlad r2, r3, r4, r2", [1, 1, 1]),
        ("sxtb16 r0, r1; smlad r2, r3, r4, r2", [1, 1, 1]),
        ("adds r0, r1, r2; subs r3, r4, r5", [1, 1, 1]),
        # What begins behind a product in its cycle would finish before it.
        ("smlad r2, r3, r4, r2; ldr r0, [r1]", [1, 1, 2]),
        ("smlad r2, r3, r4, r2; smlad r5, r3, r4, r5", [2, 2, 2]),
        ("str r0, [r1]; smlad r2, r3, r4, r2", [2, 2, 2]),
        ("lsls r0, r1, #2; lsls r2, r3, #2", [2, 2, 2]),
        ("movs r0, r1; movs r2, r3", [1, 1, 1]),
        ("uxtb r0, r1; rev r2, r3", [2, 2, 2]),
        ("ssat r0, #8, r1, asr #3; ubfx r2, r3, #1, #4", [2, 2, 2]),
        ("ssat r0, #8, r1; add r2, r0, r3", [3, 3, 3]),
        ("usat16 r0, #8, r1; add r2, r0, r3", [3, 3, 3]),
        ("ldr r0, [r1]; smlad r2, r0, r3, r2", [3, 3, 3]),
        ("ldr r0, [r1]; smlad r2, r3, r4, r0", [2, 2, 2]),
        ("add r0, r1, r2; add r3, r4, r0", [2, 2, 2]),
        ("add r0, r1, r2; add r3, r4, r0, lsl #2", [3, 3, 3]),
        ("add r0, r1, r2; pkhbt r3, r4, r0", [3, 3, 3]),
        ("lsl r0, r1, #2; lsl r3, r0, #2", [2, 2, 2]),
        ("add r1, r1, #4; ldr r0, [r1]", [3, 3, 3]),
        ("ldr r0, [r1, #4]!; ldr r2, [r1]", [2, 2, 2]),
        ("ldmia r0, {r1, r2, r3, r4}; adds r5, r6, r7", [3, 3, 3]),
        ("ldrd r0, r1, [r2]; ldrd r4, r5, [r2, #8]", [2, 2, 2]),
        ("vfma.f32 s0, s1, s2; vfma.f32 s3, s1, s2", [2, 2, 2]),
        ("vfma.f32 s0, s1, s2; vfma.f32 s0, s3, s4", [4, 4, 4]),
        ("vdiv.f32 s0, s1, s2; adds r0, r1, r2", [15, 15, 15]),
    ],
)
def test_a_cortex_m7_begins_two_at_once_where_units_and_operands_are_there(
    text: str, expected: list[int], tmp_path: Path
) -> None:
    found = _assembled(text.replace("; ", "\n"), Core.M7, tmp_path)
    for bound, most in zip(Bound, expected, strict=True):
        running = Pipelined(CORTEX_M7, bound)
        assert sum(running.cycles(one) for one in found) == most


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ldr r0, [r1]; ldr r2, [r3]; ldr r4, [r5]", 3),
        ("ldr r0, [r1]; adds r2, r0, r3", 3),
        ("ldr r0, [r1]; ldr r2, [r0]", 3),
        ("adds r1, r1, #4; ldr r0, [r1]", 2),
        ("smlad r0, r1, r2, r0; smlad r0, r3, r4, r0", 2),
        ("smull r0, r1, r2, r3; mul r4, r0, r5", 3),
        ("sxtb16 r0, r1; smlad r2, r0, r3, r2", 3),
        ("sadd16 r0, r1, r2; adds r3, r0, r4", 3),
        ("pkhbt r0, r1, r2, lsl #16; adds r3, r0, r4", 3),
        ("add r0, r1, r2, lsl #2; adds r3, r0, r4", 2),
        ("eor r0, r1, r2, ror #2; adds r3, r0, r4", 3),
        ("ubfx r0, r1, #2, #3; adds r3, r0, r4", 2),
        ("lsls r0, r1, #2; adds r3, r0, r4", 2),
        ("ldrd r0, r1, [r2]; ldrd r4, r5, [r2, #8]", 4),
        ("ldmia r0, {r1, r2, r3, r4}; adds r5, r6, r7", 5),
    ],
)
def test_results_take_longer_than_instructions_on_a_cortex_m33(
    text: str, expected: int, tmp_path: Path
) -> None:
    found = _assembled(text.replace("; ", "\n"), Core.M33, tmp_path)
    for bound in Bound:
        running = Pipelined(CORTEX_M33, bound)
        assert sum(running.cycles(one) for one in found) == expected


@pytest.mark.parametrize("core", [Core.M0, Core.M0PLUS])
def test_small_cores_take_two_cycles_for_each_access(core: Core, tmp_path: Path) -> None:
    assert timed("ldr r0, [r1]\nldr r2, [r3]\nmuls r0, r2, r0", core, tmp_path) == [5, 5, 5]
    assert timed("ldmia r0!, {r1, r2, r3}", core, tmp_path) == [4, 4, 4]


def test_branches_that_are_taken_refill_the_pipeline() -> None:
    assert [refill(Core.M4, bound) for bound in Bound] == [1, 2, 3]
    assert (refill(Core.M0, Bound.MID), refill(Core.M0PLUS, Bound.MID)) == (2, 1)
    assert [refill(Core.M7, bound) for bound in Bound] == [0, 1, 2]
    assert [refill(Core.M33, bound) for bound in Bound] == [1, 2, 3]
    assert (core_of("cortex-m4"), core_of("cortex-m55")) == (Core.M4, None)


def test_what_was_not_counted_stays_unknown_in_sums() -> None:
    known = Spent(3, Cycles(3, 4, 5), Misses(2, 1, 0))
    assert known + known == Spent(6, Cycles(6, 8, 10), Misses(4, 2, 0))
    assert known - known == Spent(0, Cycles(0, 0, 0), Misses(0, 0, 0))
    assert known + Spent(2) == Spent(5)


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "at_once"), [
    ("mps2_an386", 1), ("mps2_an500", 2), ("mps2_an505", 1),
])
def test_the_second_inference_has_cycles_and_misses(
    board: str, at_once: int, tmp_path: Path
) -> None:
    parts = toy_parts()
    result = firmware_run.run(parts, load_board(board), toy_inputs(1), out_dir=tmp_path)
    assert result.spent is not None
    assert result.spent.instructions == result.instructions_second
    counted, misses = result.spent.cycles, result.spent.misses
    assert counted is not None
    least = result.spent.instructions / at_once
    assert least < counted.low <= counted.mid <= counted.high < 2 * result.spent.instructions
    if board != "mps2_an386":  # they don't say how their flash is read
        assert misses is None
        return
    assert misses is not None
    assert misses.following <= misses.code < result.spent.instructions


def test_each_instruction_of_a_program_takes_what_the_yardstick_says(tmp_path: Path) -> None:
    """Another model of the same manuals, which reads what a disassembler prints."""
    if not (YARDSTICK / "cycles.py").is_file() or shutil.which("llvm-objdump-19") is None:
        unavailable("yardstick", "../shared/yardstick or llvm-objdump-19 is missing")
    sys.path.insert(0, str(YARDSTICK))
    import cycles as yardstick  # type: ignore[import-not-found]
    sys.path.pop(0)
    elf = firmware_run.build(toy_parts(), load_board("mps2_an386"), tmp_path).elf
    for core, name in ((Core.M4, "m4"), (Core.M3, "m3")):
        code = yardstick.disassemble(str(elf), "m4")
        write_table(elf, core, tmp_path / "times.txt")
        before = None
        compared = 0
        for line in (tmp_path / "times.txt").read_text().splitlines():
            first, *numbers = line.split()
            one = code[int(first, 16)]
            behind = before if before and before.address + before.size == one.address else None
            wanted = [yardstick.m4_cost(one, x, k, name) for x in (behind, None) for k in range(3)]
            assert [int(number) for number in numbers[:6]] == wanted, one.text
            before, compared = one, compared + 1
        assert compared > 500
