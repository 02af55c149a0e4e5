"""Firmware that goes wrong: each way ends in an error that says what happened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.firmware import qemu
from crtexport.firmware.board import Board, load_board
from crtexport.firmware.parts import TensorPart
from crtexport.firmware.run import build, run
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from tests.firmware.handmade import toy_inputs, toy_parts
from tests.helpers import require

EMULATED = ("qemu_x86", "mps2_an386", "mps3_an547", "qemu_cortex_m0", "qemu_riscv32",
            "qemu_riscv32_v")

SHELL = """\
#include "tvmgen_toy.h"
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *inputs, struct tvmgen_toy_outputs *outputs)
{
    BODY
    (void)inputs;
    (void)outputs;
    return 0;
}
"""


def emulated(name: str) -> Board:
    board = load_board(name)
    require(board.toolchain.compiler[0])
    require("make")
    if board.runner.kind == "qemu":
        require(board.runner.command[0])
    return board


def failure(board: Board, body: str, timeout: float = 60) -> str:
    with pytest.raises(RunFailedError) as caught:
        run(toy_parts(SHELL.replace("BODY", body)), board, toy_inputs(1), timeout=timeout)
    return str(caught.value)


@pytest.mark.qemu
@pytest.mark.parametrize("name", EMULATED)
def test_a_trap_is_reported_with_the_function(name: str) -> None:
    text = failure(emulated(name), "__builtin_trap();")
    assert "the processor faulted" in text
    assert "tvmgen_toy_run+" in text


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["qemu_x86", "mps2_an386"])
def test_a_model_that_hangs_meets_the_deadline(name: str) -> None:
    text = failure(emulated(name), "for (volatile int i = 0; i < 1; ) { }", timeout=2)
    assert "had not ended after 2 seconds" in text
    assert "CRT:BEGIN toy" in text


@pytest.mark.qemu
@pytest.mark.parametrize("name", EMULATED)
def test_too_much_stack_is_no_silent_corruption(name: str) -> None:
    board = emulated(name)
    size = board.stack_size + 512
    body = f"volatile char frame[{size}]; for (int i = {size} - 1; i >= 0; i--) {{ frame[i] = 1; }}"
    text = failure(board, body)
    assert any(word in text for word in ("more stack than", "faulted", "locks up")), text


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["mps2_an386", "host"])
def test_an_error_code_of_the_model_is_reported(name: str) -> None:
    assert "tvmgen_toy_run returned -7 for sample 0" in failure(emulated(name), "return -7;")


@pytest.mark.parametrize("name", ["host"])
def test_a_program_that_is_killed_is_reported(name: str) -> None:
    assert "ended by signal" in failure(emulated(name), "__builtin_trap();")


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["mps2_an386", "host"])
def test_a_second_inference_that_differs_is_an_error(name: str) -> None:
    body = "static int8_t calls; *(int8_t *)outputs->y = ++calls;"
    assert "gives other outputs than the first" in failure(emulated(name), body)


@pytest.mark.qemu
def test_a_model_that_prints_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "MAX_CONSOLE", 10_000)
    body = 'extern void crt_write(const char *); for (;;) { crt_write("again and again\\n"); }'
    assert "printed without end" in failure(emulated("mps2_an386"), body)


def test_a_source_that_does_not_compile_quotes_the_compiler() -> None:
    text = failure(emulated("host"), "this is not C;")
    assert "building firmware for host failed" in text
    assert "toy_lib0.c:4" in text


def test_a_program_that_does_not_fit_quotes_the_linker() -> None:
    board = emulated("qemu_cortex_m0")
    text = failure(board, "static volatile char big[20000]; big[7] = 1;")
    assert "overflowed" in text


def test_a_missing_compiler_names_its_debian_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="arm-none-eabi-gcc is not installed") as caught:
        run(toy_parts(), load_board("mps2_an386"), toy_inputs(1))
    assert "apt-get install gcc-arm-none-eabi" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "emulator", "package"),
    [("qemu_x86", "qemu-system-i386", "qemu-system-x86"),
     ("mps2_an386", "qemu-system-arm", "qemu-system-arm")],
)
def test_a_missing_qemu_names_its_debian_package(
    name: str, emulator: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = load_board(name)
    for tool in (board.toolchain.compiler[0], "make"):
        (tmp_path / tool).symlink_to(require(tool))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match=f"{emulator} is not installed") as caught:
        run(toy_parts(), board, toy_inputs(1), out_dir=tmp_path / "firmware")
    assert f"apt-get install {package}" in str(caught.value)
    assert not (tmp_path / "firmware").exists()  # it is said before anything is built


def test_a_board_without_runner_can_be_built_for_but_not_run(tmp_path: Path) -> None:
    board = load_board("nrf52840dk")
    require(board.toolchain.compiler[0])
    with pytest.raises(CrtExportError, match="debug probe"):
        run(toy_parts(), board, toy_inputs(1))
    built = build(toy_parts(), board, tmp_path)
    assert built.elf.read_bytes()[:4] == b"\x7fELF"
    assert built.sections.flash_size < board.memory["flash"].size
    assert built.sections.ram_size < board.memory["ram"].size


def refusal(sample: object) -> str:
    with pytest.raises(CrtExportError) as caught:
        run(toy_parts(), load_board("host"), [sample])  # type: ignore[list-item]
    return str(caught.value)


def test_inputs_of_the_wrong_shape_type_name_or_number_are_refused() -> None:
    x, f = np.zeros((1, 40), np.int8), np.zeros(3, np.float32)
    assert "sample 0 → x: the model wants int8 of shape [1, 40]" in refusal([x[0], f])
    assert "this is float64 of shape [3]" in refusal([x, f.astype(np.float64)])
    assert "the model's inputs are x, f, these are x, z" in refusal({"x": x, "z": f})
    assert "the model has 2 inputs (x, f), these are 1" in refusal([x])


def test_no_inputs_at_all_are_refused() -> None:
    with pytest.raises(CrtExportError, match="no inputs"):
        run(toy_parts(), load_board("host"), [])


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CrtExportError, match="can't be written"):
        build(toy_parts(), load_board("host"), tmp_path / "file" / "project")


def test_names_that_would_break_out_of_c_or_the_folder_are_refused() -> None:
    parts = toy_parts()
    bad = TensorPart("x", "x; evil", DType.INT8, (1,))
    with pytest.raises(CrtExportError, match="member of a C struct"):
        replace(parts, inputs=(bad,))
    for name in ("../evil.c", "a b.c", "evil.cpp", "$(evil).c"):
        with pytest.raises(CrtExportError):
            replace(parts, sources={name: ""})
    with pytest.raises(CrtExportError):
        replace(parts, runtime_headers={"../../evil.h": b""})
    with pytest.raises(CrtExportError):
        replace(parts, module="Evil Module")
