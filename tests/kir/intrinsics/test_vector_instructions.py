"""Every vector instruction: its meaning, its C anywhere and on its processor, its LLVM there."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.artifact.model import (
    Artifact,
    Function,
    FunctionCall,
    InputArg,
    Interface,
    OutputArg,
)
from crtexport.backends.c.header import emit_header
from crtexport.backends.c.source import emit_c
from crtexport.backends.llvm.compile import compile_modules
from crtexport.backends.llvm.module import emit_llvm
from crtexport.firmware.board import load_board
from crtexport.firmware.board_schema import QemuRunner
from crtexport.firmware.parts import FirmwareParts, TensorPart
from crtexport.firmware.run import run
from crtexport.ir.types import DType, TensorType
from crtexport.kir import interpreter
from crtexport.kir.builder import KernelBuilder, add, call, const, load, load_vector, mul, sub
from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.mve import INTRINSICS as MVE
from crtexport.kir.intrinsics.rvv import INTRINSICS as RVV
from crtexport.kir.intrinsics.x86 import INTRINSICS as X86
from crtexport.kir.language import LANE_SOURCES, Buffer, Expr, Kernel, Scalar
from crtexport.kir.verifier import verify
from crtexport.lowering.registry import SCALAR_OF
from crtexport.pipeline.package_contents import runtime_headers
from tests.backends.c.c_support import STRICT, run_tool, runtime_include, shared_library, write
from tests.helpers import require, require_processor

Array = npt.NDArray[Any]

COUNT = 24
"""Vectors of each type that every instruction is tried on."""
SIZE, STORED = COUNT * 32, 1 << 15
"""Elements of each input, and of each output."""
INPUTS = (
    DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32, DType.INT32, DType.FLOAT32,
    DType.INT32, DType.INT32, DType.INT64, DType.INT32, DType.FLOAT32,
)
OUTPUTS = (DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32)
SHIFTS, PLACES, FACTORS, COUNTS, SCALES = 5, 7, 8, 10, 11
"""The inputs whose numbers are counts of places, such to the right, multipliers, counts,
and scales of sums."""
SECOND = {"mve_rshl_s32": SHIFTS} | {
    f"rvv_{name}_{lanes}": source
    for name, source in (("vssra", PLACES), ("vsmul", FACTORS), ("mean", COUNTS))
    for lanes in (16, 32)
} | {f"x86_halved_{lanes}": PLACES for lanes in (8, 16)} | {
    f"x86_scaled_{lanes}": SCALES for lanes in (4, 8, 16)
} | {
    f"rvv_scaled_{lanes}": SCALES for lanes in (16, 32)
} | {
    f"x86_results{count}_{width}": SHIFTS for count in (8, 16) for width in (4, 8)
} | {
    f"x86_{name}_{width}": source for name, source in (
        ("mean", COUNTS), ("raised", PLACES), ("rounded", PLACES),
    ) for width in (4, 8, 16)
}
"""The inputs that second operands come from, where they may not be anything."""
MACHINES = {
    "mps3_an547": (MVE, [v for v in LANE_SOURCES if v.itemsize <= 32]),
    "qemu_riscv32_v": (RVV, [v for v in LANE_SOURCES if v.lanes in (16, 32)]),
    "host": (
        [one for one in X86 if one.name.endswith("_4") and one.name != "x86_fma_4"],
        [Scalar.I32X4, Scalar.F32X4, Scalar.I16X8],
    ),
    "host_avx2": (
        [one for one in X86 if one.name.endswith("_8") and one.name != "x86_dot_8"],
        [Scalar.I32X8, Scalar.F32X8, Scalar.I16X16],
    ),
    "host_avx512": (
        [one for one in X86 if one.name.endswith("_16") or one.name == "x86_dot_8"],
        [Scalar.I32X16, Scalar.F32X16, Scalar.I16X32],
    ),
}
"""By boards: instructions, and vectors that are loaded and stored."""


class Everything:
    """A kernel that does everything there is to do with vectors, once a vector."""

    def __init__(self, board: str) -> None:
        self.intrinsics: Sequence[Intrinsic]
        self.intrinsics, self.vectors = MACHINES[board]
        self.b = KernelBuilder("everything")
        self.inputs = [
            self.b.buffer(f"x{i}", SCALAR_OF[dtype], SIZE) for i, dtype in enumerate(INPUTS)
        ]
        self.outputs = {
            SCALAR_OF[dtype]: self.b.buffer(
                f"y_{dtype.value}", SCALAR_OF[dtype], STORED, writable=True
            )
            for dtype in OUTPUTS
        }
        self.used = dict.fromkeys(self.outputs, 0)

    def source(self, dtype: Scalar) -> Buffer:
        return next(b for b in self.inputs if b.dtype is dtype)

    def store(self, value: Expr, v: Expr, element: Scalar, count: int) -> None:
        """``count`` lanes into a place of their own."""
        start = self.used[element]
        at = add(mul(v, const(count)), const(start))
        if value.type.is_vector:
            self.b.store_vector(self.outputs[element], at, value, count)
        else:
            self.b.store(self.outputs[element], at, value)

    def done(self, element: Scalar, count: int) -> None:
        self.used[element] += count * COUNT

    def instructions(self) -> None:
        for intrinsic in self.intrinsics:
            result = intrinsic.result
            lanes = result.lanes if result.is_vector else 1
            lane = result.lane if result.is_vector else result
            with self.b.loop("v", COUNT) as v:
                args = [
                    self.argument(intrinsic.name, i, t, v) for i, t in enumerate(intrinsic.params)
                ]
                value = self.b.let("value", call(intrinsic.name, *args, type_=result))
                self.store(value, v, lane, lanes)
            self.done(lane, lanes)

    def argument(self, name: str, number: int, type_: Scalar, v: Expr) -> Expr:
        at = sub(const(COUNT - 1), v) if number % 2 else v
        buffer = self.source(type_.lane if type_.is_vector else type_)
        if number == 1 and name in SECOND:
            buffer = self.inputs[SECOND[name]]
        if not type_.is_vector:
            return load(buffer, add(mul(at, const(4)), const(number)))
        return load_vector(buffer, mul(at, const(type_.lanes)), type_)

    def accesses(self) -> None:
        """Loads and stores of all widths, whole and in part, from any element on."""
        for type_ in self.vectors:
            for element in LANE_SOURCES[type_]:
                for count in (1, type_.lanes - 1, type_.lanes):
                    with self.b.loop("v", COUNT) as v:
                        at = add(mul(v, const(3)), const(1))
                        loaded = load_vector(self.source(element), at, type_, count)
                        value = self.b.let("value", loaded)
                        self.store(value, v, type_.lane, type_.lanes)
                    self.done(type_.lane, type_.lanes)
                    if element in self.outputs:
                        with self.b.loop("v", COUNT) as v:
                            at = mul(v, const(type_.lanes))
                            whole = load_vector(self.source(type_.lane), at, type_)
                            self.store(self.b.let("value", whole), v, element, count)
                        self.done(element, count)

    def finish(self) -> Kernel:
        self.instructions()
        self.accesses()
        kernel = self.b.finish()
        verify(kernel)
        return kernel


@functools.cache
def everything(board: str) -> Kernel:
    return Everything(board).finish()


@functools.cache
def numbers() -> list[Array]:
    """Returns what the kernel reads: half of it the largest and smallest numbers."""
    rng = np.random.default_rng(9)
    found: list[Array] = []
    for dtype in INPUTS:
        if dtype is DType.FLOAT32:
            # No subnormal numbers: the processor's vectors take them for 0.
            real = rng.standard_normal(SIZE) * 10 ** rng.uniform(-4, 4, SIZE)
            found.append(real.astype(np.float32))
            continue
        low, high = dtype.limits
        values = rng.integers(low, high + 1, SIZE)
        edges = [low, low + 1, 0, 1, high - 1, high, high // 2, low // 2]
        extremes = rng.choice(edges, len(values))
        mixed = np.where(rng.random(len(values)) < 0.5, extremes, values)
        found.append(mixed.astype(dtype.numpy))
    found[SHIFTS] = rng.integers(-31, 32, SIZE).astype(np.int32)
    found[PLACES] = rng.integers(0, 32, SIZE).astype(np.int32)
    found[COUNTS] = rng.integers(1, 600, SIZE).astype(np.int32)
    found[SCALES] = (found[SCALES] * 2.0**-25).astype(np.float32)
    found[FACTORS] = np.maximum(found[FACTORS], -(2**31 - 1))
    return found


@functools.cache
def expected(board: str) -> list[Array]:
    outputs: list[Array] = [np.zeros(STORED, dtype.numpy) for dtype in OUTPUTS]
    interpreter.run(everything(board), [*numbers(), *outputs])
    return outputs


def artifact(kernel: Kernel) -> Artifact:
    inputs = tuple(
        Interface(f"x{i}", f"x{i}", TensorType(dtype, (SIZE,)))
        for i, dtype in enumerate(INPUTS)
    )
    outputs = tuple(
        Interface(f"y{i}", f"y{i}", TensorType(dtype, (STORED,)))
        for i, dtype in enumerate(OUTPUTS)
    )
    args = (*map(InputArg, range(len(inputs))), *map(OutputArg, range(len(outputs))))
    return Artifact(
        module="all", inputs=inputs, outputs=outputs, constants=(),
        functions=(Function("tvmgen_all_everything", kernel),),
        calls=(FunctionCall("tvmgen_all_everything", args),), workspace_size=16, workspace_align=16,
        workspace_caller=False, system_lib=False, registry=(),
    )


@pytest.mark.parametrize("board", MACHINES)
def test_c_without_vectors_does_what_the_interpreter_does(board: str, tmp_path: Path) -> None:
    sources = write(artifact(everything(board)), tmp_path)
    library = shared_library(sources, "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    inputs, outputs = numbers(), [np.zeros(STORED, dtype.numpy) for dtype in OUTPUTS]
    pointers = [
        (ctypes.c_void_p * len(group))(*(a.ctypes.data for a in group))
        for group in (inputs, outputs)
    ]
    assert library.tvmgen_all_run(*map(ctypes.byref, pointers)) == 0
    for got, wanted in zip(outputs, expected(board), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("compiler", "board"), [
    *((compiler, board) for compiler in (("gcc",), ("clang",)) for board in MACHINES),
    (("arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"), "mps3_an547"),
    (("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard"), "qemu_riscv32_v"),
    (
        ("clang", "--target=thumbv8.1m.main-none-eabihf", "-mcpu=cortex-m55", "-ffreestanding"),
        "mps3_an547",
    ),
])
def test_c_compiles_without_a_warning(
    compiler: tuple[str, ...], board: str, tmp_path: Path
) -> None:
    require(compiler[0])
    sources = write(artifact(everything(board)), tmp_path)
    for source in sources:
        run_tool(
            *compiler, *STRICT, "-O1", f"-I{runtime_include()}", f"-I{tmp_path}", "-c", source,
            "-o", tmp_path / "x.o",
        )


@pytest.mark.qemu
@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("name", MACHINES)
def test_the_processor_does_what_the_interpreter_does(name: str, emit: str) -> None:
    board = load_board(name)
    require(board.toolchain.compiler[0])
    if isinstance(board.runner, QemuRunner):
        require(board.runner.command[0])
    require_processor(name)
    made = artifact(everything(name))
    modules = emit_llvm(made, board.target, "balanced") if emit == "llvm" else {}
    parts = FirmwareParts(
        module="all",
        inputs=tuple(TensorPart(i.name, i.field, i.type.dtype, i.type.shape) for i in made.inputs),
        outputs=tuple(
            TensorPart(o.name, o.field, o.type.dtype, o.type.shape) for o in made.outputs
        ),
        header=emit_header(made),
        sources={} if modules else emit_c(made),
        objects=compile_modules(modules, board.target, "balanced"),
        runtime_headers=runtime_headers(),
    )
    sample = {f"x{i}": array for i, array in enumerate(numbers())}
    (row,) = run(parts, board, [sample]).outputs
    for got, wanted in zip(row, expected(name), strict=True):
        np.testing.assert_array_equal(got, wanted)
