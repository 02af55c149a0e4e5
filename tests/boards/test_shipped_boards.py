"""Every board that ships: it loads, it means what it says, and both compilers agree about it."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from crtexport.firmware.board import Board, Usage, list_boards, load_board
from crtexport.firmware.board_rules import board_from_data
from crtexport.firmware.board_schema import NoRunner, QemuRunner
from crtexport.firmware.budget import excess
from crtexport.support import resources
from tests.helpers import require, require_module

BOARDS = list_boards()
NAMES = [board.name for board in BOARDS]
WANTED = {
    "host", "qemu_x86", "mps2_an385", "mps2_an386", "mps2_an500", "mps2_an505", "mps2_an521",
    "mps3_an547", "qemu_cortex_m0", "qemu_riscv32", "qemu_riscv32_v", "nrf52840dk",
    "nucleo_f746zg", "rpi_pico", "alif_e7_hp", "esp32c3", "esp32c6", "esp32s3", "nucleo_f446re",
    "nucleo_h743zi", "nucleo_u575zi_q", "rpi_pico2", "rpi_pico2_riscv", "nrf5340dk", "nrf54l15dk",
    "arduino_nano_33_ble", "teensy41",
}

# Build attributes that tell a linker whether objects may be mixed; the rest is bookkeeping.
ATTRIBUTES = (
    "TAG_CPU_ARCH", "TAG_CPU_ARCH_PROFILE", "TAG_THUMB_ISA_USE", "TAG_FP_ARCH", "TAG_WMMX_ARCH",
    "TAG_ADVANCED_SIMD_ARCH", "TAG_MVE_ARCH", "TAG_ABI_HARDFP_USE", "TAG_ABI_VFP_ARGS",
    "TAG_ABI_ALIGN_NEEDED", "TAG_ABI_ALIGN_PRESERVED", "TAG_DSP_EXTENSION", "TAG_DIV_USE",
    "TAG_STACK_ALIGN",
)

LLVM_IR = """
source_filename = "attributes"
target triple = "{triple}"
define i32 @integer(i32 %a, i32 %b) nounwind {{
  %product = mul i32 %a, %b
  %quotient = sdiv i32 %product, %b
  ret i32 %quotient
}}
define float @real(float %a, float %b) nounwind {{
  %product = fmul float %a, %b
  ret float %product
}}
"""
C_SOURCE = """
int integer(int a, int b) { return a * b / b; }
float real(float a, float b) { return a * b; }
"""


def test_the_promised_boards_are_there() -> None:
    assert set(NAMES) >= WANTED


@pytest.mark.parametrize("board", BOARDS, ids=NAMES)
def test_a_board_survives_the_way_through_json(board: Board) -> None:
    assert board_from_data(json.loads(json.dumps(board.to_data()))) == board


@pytest.mark.parametrize("name", NAMES)
def test_a_board_is_found_by_its_name_and_by_its_path(name: str) -> None:
    assert load_board(name) == load_board(resources.boards_dir() / f"{name}.yaml")


def test_a_family_is_no_board() -> None:
    with pytest.raises(Exception, match="family of boards"):
        load_board("cortex_m4f")
    assert "cortex_m4f" not in NAMES


@pytest.mark.parametrize(
    ("name", "flash", "ram"),
    [
        ("nrf52840dk", 1 << 20, 256 << 10), ("nucleo_f746zg", 1 << 20, 320 << 10),
        ("rpi_pico", (2 << 20) - 256, 264 << 10), ("qemu_cortex_m0", 256 << 10, 16 << 10),
        ("arduino_nano_33_ble", 960 << 10, 256 << 10), ("nrf54l15dk", 1524 << 10, 256 << 10),
        ("rpi_pico2_riscv", 4 << 20, 520 << 10), ("nucleo_h743zi", 2 << 20, 512 << 10),
    ],
)
def test_small_boards_have_their_true_memories(name: str, flash: int, ram: int) -> None:
    board = load_board(name)
    assert (board.memory["flash"].size, board.memory["ram"].size) == (flash, ram)


@pytest.mark.parametrize("name", ["mps2_an386", "mps3_an547", "qemu_x86", "qemu_riscv32"])
def test_the_largest_reference_network_fits_the_boards_in_qemu(name: str) -> None:
    autoencoder = Usage(constants=1_067_648, workspace=262_144, io=5_120, code=40_000)
    assert excess(load_board(name), autoencoder) == {}


def test_boards_without_a_runner_say_why() -> None:
    idle = [board for board in BOARDS if isinstance(board.runner, NoRunner)]
    assert {board.name for board in idle} >= {"nrf52840dk", "nucleo_f746zg", "rpi_pico"}


def test_the_pc_board_has_no_vector_unit_to_use() -> None:
    board = load_board("qemu_x86")
    assert isinstance(board.runner, QemuRunner)
    assert "pentium2" in board.runner.command
    assert {"-sse", "-mmx"} <= set(board.target.features)
    assert board.target.stack_align == 4


def _attributes(content: bytes) -> dict[str, Any]:
    elf = ELFFile(io.BytesIO(content))
    found: dict[str, Any] = {"machine": elf["e_machine"], "class": elf.elfclass}
    if elf["e_machine"] != "EM_ARM":
        found["flags"] = elf["e_flags"]
    for section in elf.iter_sections():
        if section["sh_type"] in ("SHT_ARM_ATTRIBUTES", "SHT_RISCV_ATTRIBUTES"):
            for vendor in section.iter_subsections():
                for part in vendor.iter_subsubsections():
                    found |= {a.tag: a.value for a in part.iter_attributes() if a.tag in ATTRIBUTES}
    return found


def _with_llvm(board: Board) -> bytes:
    require_module("llvmlite")
    from llvmlite import binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = board.target
    module = llvm.parse_assembly(LLVM_IR.format(triple=target.triple))
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=",".join(target.features), reloc=target.reloc,
        codemodel="small", abiname=target.abi,
    )
    return machine.emit_object(module)


def _with_c_compiler(board: Board, folder: Path) -> bytes:
    require(board.toolchain.compiler[0])
    (folder / "attributes.c").write_text(C_SOURCE)
    subprocess.run(
        [*board.toolchain.compiler, *board.target.cflags, "-O1", "-c", "attributes.c"],
        cwd=folder, check=True,
    )
    return (folder / "attributes.o").read_bytes()


@pytest.mark.parametrize("board", [b for b in BOARDS if b.target.triple], ids=lambda b: b.name)
def test_objects_of_both_compilers_have_the_same_build_attributes(
    board: Board, tmp_path: Path
) -> None:
    assert _attributes(_with_llvm(board)) == _attributes(_with_c_compiler(board, tmp_path))


def test_the_attributes_that_are_compared_exist(tmp_path: Path) -> None:
    found = _attributes(_with_c_compiler(load_board("mps3_an547"), tmp_path))
    assert found["TAG_ABI_VFP_ARGS"] == 1
    assert found["TAG_MVE_ARCH"] == 2
