"""The steps of boards/README.md for a new architecture are enough to run its firmware: a family
of boards and start-up code in a folder of templates, here for an ARM926 with C sources.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.firmware.board import load_board
from crtexport.firmware.run import run
from crtexport.support import resources
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS
from tests.firmware.handmade import toy_expected, toy_inputs, toy_parts
from tests.helpers import require

FAMILY = """
name: arm926
description: Arm's ARM926EJ-S
abstract: true
architecture: arm_classic
cpu:
  name: arm926ej-s
  pointer_bits: 32
  endian: little
  stack_align: 8
  cflags: [-mcpu=arm926ej-s, -marm]
toolchain:
  kind: gcc
  compiler: [arm-none-eabi-gcc]
  libraries: [-lgcc]
console: {kind: semihosting}
"""
BOARD = """
name: versatilepb
description: Arm's Versatile PB in QEMU
extends: arm926
memory:
  flash: {origin: 0x00010000, size: 4MiB}
  ram: {origin: 0x01000000, size: 4MiB}
runner:
  kind: qemu
  command: [qemu-system-arm, -machine, versatilepb]
  package: qemu-system-arm
"""
START = """
    .section .vectors, "ax", %progbits
    .global crt_reset
crt_reset:
    ldr sp, =crt_stack_top
    ldr r0, =crt_model_bss_start
    ldr r1, =crt_model_bss_end
    bl clear
    ldr r0, =crt_bss_start
    ldr r1, =crt_bss_end
    bl clear
    bl crt_main
    bl crt_exit
clear:
    mov r2, #0
1:  cmp r0, r1
    strlo r2, [r0], #4
    blo 1b
    bx lr

    .global crt_nothing
crt_nothing:
    bx lr

    .global crt_stack_pointer
crt_stack_pointer:
    mov r0, sp
    bx lr
"""
PLATFORM = """
#include "crt_platform.h"

static void semihost(uint32_t operation, uintptr_t argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = argument;

    __asm__ volatile("svc 0x123456" : "+r"(r0) : "r"(r1) : "lr", "memory");
}

void crt_write(const char *text)
{
    semihost(0x04u, (uintptr_t)text);
}

void crt_exit(int status)
{
    const uint32_t block[2] = { 0x20026u, (uint32_t)status };

    for (;;) {
        semihost(0x20u, (uintptr_t)block);
    }
}

uint64_t crt_counter(void)
{
    return 0;
}
"""


@pytest.fixture
def board_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The board's file, beside its family's and with a copy of the templates."""
    for name, text in {"arm926": FAMILY, "versatilepb": BOARD}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    shutil.copytree(resources.templates_dir(), tmp_path / "templates")
    monkeypatch.setattr(resources, "templates_dir", lambda: tmp_path / "templates")
    return tmp_path / "versatilepb.yaml"


def add_start_up_code(board_file: Path) -> None:
    folder = board_file.parent / "templates" / "baremetal" / "arm_classic"
    folder.mkdir()
    (folder / "start.S").write_text(START)
    (folder / "platform.c").write_text(PLATFORM)


@pytest.mark.qemu
def test_a_family_and_start_up_code_run_a_model(board_file: Path) -> None:
    require("arm-none-eabi-gcc")
    require("qemu-system-arm")
    add_start_up_code(board_file)
    samples = toy_inputs(2)
    result = run(toy_parts(), load_board(board_file), samples, timeout=60)
    for sample, (y, g) in zip(samples, result.outputs, strict=True):
        assert np.array_equal(y, toy_expected(sample))
        np.testing.assert_allclose(g, sample["f"].astype(np.float64) * 1.5 + 0.25, rtol=1e-6)
    assert result.stack


def test_exports_for_it_are_c_sources(board_file: Path, tmp_path: Path) -> None:
    add_start_up_code(board_file)
    board = load_board(board_file)
    assert (board.c_only, board.backend, board.hosted) == (True, "c", False)
    package = crtexport.export(DIGITS, board=board, output=tmp_path / "digits.tar")
    assert package.path.is_file()
    board_file.write_text(f"{BOARD}\nbackend: llvm\n")
    with pytest.raises(CrtExportError, match="code for other processors is C source only"):
        load_board(board_file)


def test_without_start_up_code_it_is_unknown(board_file: Path) -> None:
    with pytest.raises(CrtExportError, match="there is no architecture 'arm_classic'"):
        load_board(board_file)
