"""The runtime's own C: memory functions, 64-bit division and shifts, and how cleanly it compiles.
"""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import crtexport
from crtexport.firmware.board import Board, list_boards, load_board
from crtexport.firmware.parts import FirmwareParts, TensorPart
from crtexport.firmware.project import write_inputs, write_project
from crtexport.firmware.run import run
from crtexport.importers import load
from crtexport.ir.types import DType
from crtexport.support import resources
from tests.differential.network import interpret
from tests.firmware.handmade import ANY_HEADER, toy_parts
from tests.helpers import require
from tests.tflite_builder import ModelBuilder

BOARDS = [*{
    repr((board.target, board.toolchain, board.console, board.counter.kind, board.placement)): board
    for board in list_boards() if board.cpu.triple
}.values()]
"""One for all that differ in sizes and addresses alone."""
CASES = 400

DIVISIONS = """\
#include "tvmgen_toy.h"
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *inputs, struct tvmgen_toy_outputs *outputs)
{
    const int64_t *a = inputs->a;
    const int64_t *b = inputs->b;
    int64_t *q = outputs->q;
    for (int i = 0; i < CASES; i++) {
        q[4 * i] = a[i] / b[i];
        q[4 * i + 1] = a[i] % b[i];
        q[4 * i + 2] = (int64_t)((uint64_t)a[i] / (uint64_t)b[i]);
        q[4 * i + 3] = (int64_t)((uint64_t)a[i] % (uint64_t)b[i]);
    }
    return 0;
}
"""

SHIFTS = """\
#include "tvmgen_toy.h"
uint64_t __ashldi3(uint64_t, int);
uint64_t __lshrdi3(uint64_t, int);
int64_t __ashrdi3(int64_t, int);
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *inputs, struct tvmgen_toy_outputs *outputs)
{
    const int64_t *a = inputs->a;
    int64_t *q = outputs->q;
    for (int i = 0; i < CASES; i++) {
        for (int count = 0; count < 64; count++) {
            q[3 * (64 * i + count)] = (int64_t)__ashldi3((uint64_t)a[i], count);
            q[3 * (64 * i + count) + 1] = (int64_t)__lshrdi3((uint64_t)a[i], count);
            q[3 * (64 * i + count) + 2] = __ashrdi3(a[i], count);
        }
    }
    return 0;
}
"""


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _divisions() -> list[tuple[int, int]]:
    rng = random.Random(11)  # noqa: S311
    edges = [1, -1, 2, 3, -3, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 63) - 1,
             -(1 << 63), -(1 << 32), 0x7FFFFFFF00000001]
    cases = [(a, b) for a in [0, *edges] for b in edges if (a, b) != (-(1 << 63), -1)]
    while len(cases) < CASES:
        # Every pair of magnitudes, and divisors near the dividend.
        a = _signed(rng.getrandbits(rng.randint(1, 64)))
        b = _signed(rng.getrandbits(rng.randint(1, 64))) or 1
        cases.append((a, b if rng.random() < 0.8 else (_signed(a + rng.randint(-2, 2)) or 1)))
    return [(a, b) for a, b in cases if (a, b) != (-(1 << 63), -1)][:CASES]


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["qemu_x86", "mps2_an386", "qemu_cortex_m0", "qemu_riscv32"])
def test_64_bit_division_is_right(name: str) -> None:
    board = load_board(name)
    require(board.toolchain.compiler[0])
    require(board.runner.command[0])  # type: ignore[union-attr]
    if name == "qemu_cortex_m0":
        board = replace(board, stack_size=1024)
    cases = _divisions()
    half = 100  # at a time, so that the results fit the smallest board
    for start in range(0, CASES, half):
        chosen = cases[start : start + half]
        shape = (half,)
        parts = FirmwareParts(
            module="toy",
            inputs=(TensorPart("a", "a", DType.INT64, shape),
                    TensorPart("b", "b", DType.INT64, shape)),
            outputs=(TensorPart("q", "q", DType.INT64, (4 * half,)),),
            header=ANY_HEADER, sources={"toy_lib0.c": DIVISIONS.replace("CASES", str(half))},
        )
        a, b = (np.array(column, dtype=np.int64) for column in zip(*chosen, strict=True))
        found = run(parts, board, [[a, b]], timeout=60).outputs[0][0].reshape(half, 4)
        for (left, right), row in zip(chosen, found, strict=True):
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            ua, ub = left % (1 << 64), right % (1 << 64)
            wanted = [quotient, left - quotient * right, _signed(ua // ub), _signed(ua % ub)]
            assert row.tolist() == wanted, (left, right)


@pytest.mark.qemu
def test_64_bit_shifts_are_right_without_libgcc() -> None:
    board = load_board("qemu_x86")
    require(board.toolchain.compiler[0])
    require("qemu-system-i386")
    rng = random.Random(5)  # noqa: S311
    values = [0, 1, -1, 1 << 31, (1 << 32) - 1, 1 << 32, -(1 << 63), (1 << 63) - 1]
    values += [_signed(rng.getrandbits(64)) for _ in range(24)]
    parts = FirmwareParts(
        module="toy", inputs=(TensorPart("a", "a", DType.INT64, (len(values),)),),
        outputs=(TensorPart("q", "q", DType.INT64, (3 * 64 * len(values),)),),
        header=ANY_HEADER, sources={"toy_lib0.c": SHIFTS.replace("CASES", str(len(values)))},
    )
    sample = np.array(values, dtype=np.int64)
    found = run(parts, board, [[sample]], timeout=60).outputs[0][0].reshape(-1, 64, 3)
    for value, rows in zip(values, found.tolist(), strict=True):
        for count, row in enumerate(rows):
            logical = (value % (1 << 64)) >> count
            assert row == [_signed(value << count), _signed(logical), value >> count], count


@pytest.mark.qemu
@pytest.mark.parametrize("optimize", ["size", "compact", "balanced"])
def test_code_that_calls_64_bit_shifts_finds_them(optimize: str, tmp_path: Path) -> None:
    """LLVM calls them where code is to be small, as in softmax."""
    require("qemu-system-i386")
    m = ModelBuilder()
    x = m.tensor("x", (1, 12), "int8", scale=0.1, zero_point=3)
    y = m.tensor("y", (1, 12), "int8", scale=1 / 256, zero_point=-128)
    m.op("SOFTMAX", [x], [y], beta=1.0)
    model, package = tmp_path / "m.tflite", tmp_path / "m.tar"
    model.write_bytes(m.build([x], [y]))
    crtexport.export(model, board="qemu_x86", optimize=optimize, output=package)
    value = np.random.default_rng(6).integers(-128, 128, (1, 12)).astype(np.int8)
    result = crtexport.run(package, {"x": value[None]})
    np.testing.assert_array_equal(result.outputs[0][0], interpret(load(model), [value])[0])


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """crt_mem.c for this computer, under names that do not clash with the C library's."""
    require("gcc")
    folder = tmp_path_factory.mktemp("memory")
    source = resources.templates_dir() / "baremetal" / "common" / "crt_mem.c"
    renamed = [f"-D{name}=crt_{name}" for name in ("memcpy", "memmove", "memset", "memcmp")]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-ffreestanding", "-fno-builtin",
         "-fno-tree-loop-distribute-patterns", *renamed, "-I",
         str(resources.templates_dir() / "baremetal" / "include"), "-o", "memory.so", str(source)],
        cwd=folder, check=True,
    )
    return ctypes.CDLL(str(folder / "memory.so"))


def test_memory_functions_do_what_the_standard_says(memory: ctypes.CDLL) -> None:
    for name in ("crt_memcpy", "crt_memmove", "crt_memset"):
        getattr(memory, name).restype = ctypes.c_void_p
    rng = random.Random(3)  # noqa: S311
    for _ in range(2000):
        block = bytearray(rng.randbytes(160))
        buffer = (ctypes.c_uint8 * 160).from_buffer(block)
        base = ctypes.addressof(buffer)
        to, start, count = rng.randint(0, 80), rng.randint(0, 80), rng.randint(0, 79)
        before = bytes(block)
        wanted = bytearray(before)
        kind = rng.choice(["memcpy", "memmove", "memset", "memcmp"])
        if kind == "memset":
            wanted[to : to + count] = bytes([start]) * count
            result = memory.crt_memset(ctypes.c_void_p(base + to), start | 0x300, count)
            wanted[to : to + count] = bytes([start]) * count
        elif kind == "memcmp":
            left, right = before[to : to + count], before[start : start + count]
            sign = memory.crt_memcmp(
                ctypes.c_void_p(base + to), ctypes.c_void_p(base + start), count
            )
            assert (sign > 0) - (sign < 0) == (left > right) - (left < right)
            result = base + to
        else:
            if kind == "memcpy" and abs(to - start) < count:
                continue
            wanted[to : to + count] = before[start : start + count]
            function = getattr(memory, f"crt_{kind}")
            result = function(ctypes.c_void_p(base + to), ctypes.c_void_p(base + start), count)
        assert result == base + to
        assert bytes(block) == bytes(wanted), (kind, to, start, count)


@pytest.mark.parametrize("board", BOARDS, ids=[board.name for board in BOARDS])
@pytest.mark.parametrize("by_timer", [False, True], ids=["plain", "timer"])
def test_the_firmware_compiles_without_a_warning(
    board: Board, by_timer: bool, tmp_path: Path
) -> None:
    require(board.toolchain.compiler[0])
    require("make")
    write_project(toy_parts(), board, tmp_path, count_by_timer=by_timer)
    write_inputs(tmp_path, [bytes(64)])
    done = subprocess.run(
        ["make", "-s"], cwd=tmp_path, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.stdout == b""


def test_a_project_is_the_same_every_time_and_names_no_folder(tmp_path: Path) -> None:
    board = load_board("mps2_an386")
    for name in ("one", "two"):
        write_project(toy_parts(), board, tmp_path / name)
    files = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*.*"))
    assert {"Makefile", "README.md", "link.ld", "main.c", "toy_lib0.c"} <= {
        p.name for p in (tmp_path / "one").rglob("*")
    }
    for file in files:
        first = (tmp_path / "one" / file).read_bytes()
        assert first == (tmp_path / "two" / file).read_bytes()
        assert str(tmp_path).encode() not in first


def test_the_counting_plugin_compiles_without_a_warning(tmp_path: Path) -> None:
    require("cc")
    source = resources.templates_dir() / "baremetal" / "qemu" / "count.c"
    subprocess.run(
        ["cc", "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-fPIC", "-DQEMU_PLUGIN_API=1", "-c",
         "-o", "count.o", str(source)], cwd=tmp_path, check=True,
    )
