"""A hand-written model on every board that something here can run."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.firmware import run as firmware_run
from crtexport.firmware.board import Board, list_boards, load_board
from crtexport.firmware.board_schema import NoRunner, QemuRunner
from crtexport.firmware.run import RunResult, run
from tests.firmware.handmade import SOURCE, toy_expected, toy_inputs, toy_parts
from tests.helpers import require, require_processor

BOARDS = [board for board in list_boards() if not isinstance(board.runner, NoRunner)]
EMULATED = [board for board in BOARDS if isinstance(board.runner, QemuRunner)]

LOOP = """\
#include "tvmgen_toy.h"
#include <string.h>
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *inputs, struct tvmgen_toy_outputs *outputs)
{
    /* How often comes from the input, so that one program does for every count. */
    const int turns = *(const int8_t *)inputs->x * SCALE;
    for (volatile int i = 0; i < turns; i++) {
    }
    memset(outputs->y, 1, 160);
    memset(outputs->g, 0, 12);
    return 0;
}
"""


def tools_of(board: Board) -> None:
    require(board.toolchain.compiler[0])
    require("make")
    require_processor(board.name)
    if isinstance(board.runner, QemuRunner):
        require(board.runner.command[0])


def each(boards: list[Board]) -> Any:
    return pytest.mark.parametrize("board", boards, ids=[board.name for board in boards])


def loop(board: Board, turns: int, scale: int = 1000) -> RunResult:
    """Runs a loop of ``turns * scale`` turns."""
    sample = toy_inputs(1)[0] | {"x": np.full((1, 40), turns, dtype=np.int8)}
    return run(toy_parts(LOOP.replace("SCALE", str(scale))), board, [sample], timeout=60)


@functools.cache
def toy_result(name: str) -> RunResult:
    """Returns what running the model with three samples gives on the board called ``name``."""
    return run(toy_parts(), load_board(name), toy_inputs(3), timeout=60)


@pytest.mark.qemu
@each(BOARDS)
def test_a_model_gives_the_right_outputs_for_every_sample(board: Board) -> None:
    tools_of(board)
    result = toy_result(board.name)
    assert len(result.outputs) == 3
    for sample, (y, g) in zip(toy_inputs(3), result.outputs, strict=True):
        assert np.array_equal(y, toy_expected(sample))
        np.testing.assert_allclose(g, sample["f"].astype(np.float64) * 1.5 + 0.25, rtol=1e-6)


@pytest.mark.qemu
@each(EMULATED)
def test_counts_are_exact_and_the_same_every_time(board: Board) -> None:
    tools_of(board)
    few, more, most = (loop(board, turns) for turns in (1, 2, 3))
    for result in (few, more, most):
        assert result.exact
        assert result.instructions_first == result.instructions_second
    counts = [r.instructions_first or 0 for r in (few, more, most)]
    steps = [b - a for a, b in itertools.pairwise(counts)]
    # What 1000 more turns cost is a whole number of instructions per turn, the same each time.
    assert steps[0] == steps[1]
    assert steps[0] % 1000 == 0
    assert 4 <= steps[0] // 1000 <= 12
    again = loop(board, 2)
    assert (again.instructions_first, again.stack) == (more.instructions_first, more.stack)


@pytest.mark.qemu
@each(EMULATED)
def test_a_function_of_two_instructions_counts_as_two(board: Board) -> None:
    tools_of(board)
    body = "{\n    (void)inputs;\n    (void)outputs;\n    return 0;\n}\n"
    result = run(toy_parts(LOOP.split("{", 1)[0] + body), board, toy_inputs(1), timeout=60)
    assert (result.instructions_first, result.instructions_second) == (2, 2)
    assert result.exact


@pytest.mark.qemu
@each(EMULATED)
def test_stack_is_what_the_model_uses(board: Board) -> None:
    tools_of(board)
    frame = "volatile char frame[600]; for (int i = 0; i < 600; i++) { frame[i] = 1; }"
    small = toy_result(board.name).stack
    large = run(
        toy_parts(SOURCE.replace("{\n    const int8_t", f"{{\n    {frame}\n    const int8_t", 1)),
        board, toy_inputs(1), timeout=60,
    ).stack
    assert small is not None
    assert large is not None
    assert 16 <= small <= 300
    assert 600 - 32 <= large - small <= 600 + 32


@pytest.mark.qemu
@each(EMULATED)
def test_sections_tell_the_model_from_the_firmware(board: Board) -> None:
    tools_of(board)
    result = toy_result(board.name)
    assert result.ram[".model_bss"] == 256
    assert result.ram[".stack"] == board.stack_size
    assert 16 <= result.flash[".model_rodata"] <= 32
    assert 100 <= result.flash[".model_text"] <= 600
    assert result.flash[".test_inputs"] == 64
    assert ".data" not in result.ram


@pytest.mark.qemu
@each([board for board in EMULATED if board.counter.kind == "systick"])
def test_without_the_plugin_a_timer_estimates(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools_of(board)
    exact = loop(board, 50)
    monkeypatch.setattr(firmware_run, "build_plugin", lambda *_: None)
    rough = loop(board, 50)
    assert not rough.exact
    assert exact.instructions_first is not None
    assert rough.instructions_first is not None
    assert abs(rough.instructions_first - exact.instructions_first) <= 2 * 1e9 / 16e6


@pytest.mark.qemu
def test_a_plugin_that_qemu_does_not_take_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = load_board("mps2_an386")
    tools_of(board)
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no plugin")
    monkeypatch.setattr(firmware_run, "build_plugin", lambda *_: broken)
    result = run(toy_parts(), board, toy_inputs(1), timeout=60)
    assert not result.exact
    assert result.instructions_first is not None


@pytest.mark.qemu
def test_the_timer_survives_its_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("mps2_an386")
    tools_of(board)
    monkeypatch.setattr(firmware_run, "build_plugin", lambda *_: None)
    result = loop(board, 13, 10_000_000)  # 24 bits of ticks wrap after 671 million instructions
    assert result.instructions_first is not None
    assert abs(result.instructions_first / 130_000_000 - 6) < 0.01


@pytest.mark.qemu
def test_samples_that_do_not_fit_together_take_several_boots(tmp_path: Path) -> None:
    board = load_board("qemu_cortex_m0")
    tools_of(board)
    flash = replace(board.memory["flash"], size=4800)
    small = replace(board, memory={**board.memory, "flash": flash})
    samples = toy_inputs(30)
    result = run(toy_parts(), small, samples, timeout=60, out_dir=tmp_path)
    # 30 samples of 64 bytes do not fit, so the last boot had fewer.
    assert (tmp_path / "inputs.bin").stat().st_size < 30 * 64
    for sample, (y, _) in zip(samples, result.outputs, strict=True):
        assert np.array_equal(y, toy_expected(sample))


@pytest.mark.qemu
def test_the_caller_may_own_the_workspace() -> None:
    board = load_board("mps2_an386")
    tools_of(board)
    parts = toy_parts(
        SOURCE.replace("static int32_t workspace[64];\n", "")
        .replace("*outputs)\n{", "*outputs, const struct tvmgen_toy_workspace_pools *pools)\n"
                 "{\n    int32_t *workspace = pools->workspace;")
    )
    header = parts.header.replace("*outputs);", "*outputs, const struct "
                                  "tvmgen_toy_workspace_pools *pools);")
    header = header.replace("int32_t", "struct tvmgen_toy_workspace_pools { void *workspace; };\n"
                            "int32_t", 1)
    parts = replace(parts, header=header, workspace_caller=True, workspace_size=256)
    samples = toy_inputs(1)
    result = run(parts, board, samples, timeout=60)
    assert np.array_equal(result.outputs[0][0], toy_expected(samples[0]))
    assert result.ram[".model_bss"] == 256
    assert result.instructions_first == result.instructions_second


def test_nothing_is_counted_on_the_host() -> None:
    board = load_board("host")
    tools_of(board)
    result = run(toy_parts(), board, toy_inputs(1), timeout=60)
    assert (result.instructions_first, result.instructions_second, result.stack) == (None,) * 3
    assert not result.exact


@pytest.mark.qemu
def test_clang_and_lld_build_the_same_project(tmp_path: Path) -> None:
    require("clang")
    require("ld.lld")
    require("qemu-system-i386")
    (tmp_path / "x86_clang.yaml").write_text(
        "name: x86_clang\ndescription: d\nextends: qemu_x86\n"
        "cpu: {cflags: [-m32, -march=i686, -mno-sse, -mno-mmx, -mstack-alignment=4, -fno-pic,"
        " -fno-asynchronous-unwind-tables]}\n"
        "toolchain: {kind: clang, compiler: [clang, --target=i686-none-elf], package: clang,"
        " ldflags: [-fuse-ld=lld, -no-pie]}\n"
    )
    samples = toy_inputs(1)
    result = run(toy_parts(), load_board(tmp_path / "x86_clang.yaml"), samples, timeout=60)
    assert np.array_equal(result.outputs[0][0], toy_expected(samples[0]))
