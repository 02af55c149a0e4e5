"""Compilers and hand-made artifacts for the tests of the C backend."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from crtexport.artifact import abi
from crtexport.artifact.model import (
    Artifact,
    Constant,
    ConstantArg,
    Function,
    FunctionCall,
    InputArg,
    Interface,
    OutputArg,
    RegistryEntry,
    ScalarArg,
    WorkspaceArg,
)
from crtexport.backends.c.header import emit_header
from crtexport.backends.c.helpers import select_helpers
from crtexport.backends.c.kernel import KernelText, print_kernel, variable_type
from crtexport.backends.c.source import emit_c
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.kir.builder import KernelBuilder, add, cast, clamp, const, load, max_, mul, shr
from crtexport.kir.builder import f32 as real
from crtexport.kir.builder import i32 as whole
from crtexport.kir.language import Kernel, Scalar
from crtexport.support.resources import templates_dir
from tests.helpers import require

Array = npt.NDArray[Any]

STRICT = (
    "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow",
    "-Wundef", "-Wmissing-prototypes", "-Wcast-qual", "-Werror",
)
COMPILERS = {
    "gcc": ("gcc",),
    "gcc-i386": ("gcc", "-m32", "-ffreestanding"),
    "clang": ("clang",),
    "arm": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard"),
    "riscv": ("riscv64-unknown-elf-gcc", "-march=rv32imac", "-mabi=ilp32", "-ffreestanding"),
}


def runtime_include() -> Path:
    return templates_dir() / "runtime" / "include"


def run_tool(*command: str | Path) -> str:
    """Runs a command; fails the test with its messages. Returns its standard output."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def compile_object(source: Path, compiler: str, *flags: str) -> Path:
    """Compiles one file without a warning."""
    tool, *own = COMPILERS[compiler]
    require(tool)
    result = source.with_suffix(f".{compiler}.o")
    run_tool(
        tool, *own, *STRICT, *flags, f"-I{runtime_include()}", f"-I{source.parent}",
        "-c", source, "-o", result,
    )
    return result


def shared_library(sources: Sequence[Path], *flags: str, compiler: str = "gcc") -> ctypes.CDLL:
    """``sources`` as a shared library in this process."""
    require(compiler)
    result = sources[0].parent / f"{sources[0].stem}-{compiler}{len(flags)}.so"
    run_tool(
        compiler, "-std=c99", "-ffp-contract=off", "-fPIC", "-shared", *flags,
        f"-I{runtime_include()}", f"-I{sources[0].parent}", *sources, "-o", result,
    )
    return ctypes.CDLL(str(result))


def write(artifact: Artifact, folder: Path) -> list[Path]:
    """All files of an artifact; the paths of its C files."""
    (folder / f"{artifact.prefix}.h").write_text(emit_header(artifact), encoding="utf-8")
    paths = []
    for name, text in emit_c(artifact).items():
        paths.append(folder / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


# ---- a network of two layers: int8 dense, then a scaled float output

INPUT = np.array([[3, -128, 127, 0, 5, -7]], np.int8)
WEIGHTS = np.arange(-9, 9, dtype=np.int8).reshape(3, 6)
BIAS = np.array([100, -2000, 7], np.int32)
SCALES = np.array([0.1, 1e-3, -0.0], np.float32)


def expected(x: np.ndarray[Any, Any] = INPUT) -> np.ndarray[Any, Any]:
    acc = (x.astype(np.int32) + 3) @ WEIGHTS.T.astype(np.int32) + BIAS
    return np.maximum(np.clip(acc >> 3, -128, 127).astype(np.float32) * SCALES, np.float32(-5))


def dense() -> Kernel:
    """int8 output[3] = clamp((input[6] + offset) * weights[3][6] + bias >> 3)."""
    b = KernelBuilder("dense")
    x = b.buffer("input", Scalar.I8, 6)
    w = b.buffer("weights", Scalar.I8, 18)
    bias = b.buffer("bias", Scalar.I32, 3)
    y = b.buffer("output", Scalar.I8, 3, writable=True)
    offset = b.param("offset", Scalar.I32)
    with b.loop("row", 3) as row:
        acc = b.local("acc", load(bias, row))
        with b.loop("column", 6, unroll=2) as column:
            left = add(cast(load(x, column), Scalar.I32), offset)
            right = cast(load(w, add(mul(row, const(6)), column)), Scalar.I32)
            b.assign(acc, add(acc, mul(left, right)))
        b.store(y, row, cast(clamp(shr(acc, whole(3)), -128, 127), Scalar.I8))
    return b.finish("dense: first layer")


def rescale() -> Kernel:
    """float output[3] = max(input[3] * scales[3], low)."""
    b = KernelBuilder("rescale")
    x = b.buffer("input", Scalar.I8, 3)
    scales = b.buffer("scales", Scalar.F32, 3)
    y = b.buffer("output", Scalar.F32, 3, writable=True)
    with b.loop("i", 3) as i:
        value = mul(cast(load(x, i), Scalar.F32), load(scales, i))
        b.store(y, i, max_(value, real(-5.0)))
    return b.finish("rescale: second layer", "with a comment of two lines")


def network(module: str = "demo", **changes: Any) -> Artifact:
    """The two layers as an artifact; ``changes`` replace its fields."""
    own = f"tvmgen_{module}"
    w, bias, scales = (f"{own}_{name}" for name in ("weights", "bias", "scales"))
    fields: dict[str, Any] = {
        "module": module,
        "inputs": (Interface(
            "serving:0", "serving_0",
            TensorType(DType.INT8, (1, 6), Quantization((0.5,), (-3,))),
        ),),
        "outputs": (Interface("Identity", "Identity", TensorType(DType.FLOAT32, (1, 3))),),
        "constants": (
            Constant(
                w, Scalar.I8, 18, ConstantRef.of(WEIGHTS), 16, "weights of layer 1", row=6,
            ),
            Constant(bias, Scalar.I32, 3, ConstantRef.of(BIAS), 4, "bias of layer 1"),
            Constant(
                scales, Scalar.F32, 3, ConstantRef.of(SCALES), 32, "scales of layer 2",
                "for each channel: scale",
            ),
        ),
        "functions": (Function(f"{own}_dense", dense()), Function(f"{own}_rescale", rescale())),
        "calls": (
            FunctionCall(
                f"{own}_dense",
                (InputArg(0), ConstantArg(w), ConstantArg(bias), WorkspaceArg(16),
                 ScalarArg(3, Scalar.I32)),
                "layer 1",
            ),
            FunctionCall(
                f"{own}_rescale", (WorkspaceArg(16), ConstantArg(scales), OutputArg(0)), "second"
            ),
        ),
        "workspace_size": 32,
        "workspace_align": 16,
        "workspace_caller": False,
        "system_lib": True,
        "registry": (
            RegistryEntry(f"{own}_run", f"{own}_run_packed"),
            RegistryEntry(f"{own}_get_c_metadata", f"{own}_get_c_metadata"),
        ),
        "header_comment": ("Generated by crtexport 0.1.0 for a test.", "Model: demo.json"),
    }
    return Artifact(**(fields | changes))


class Pointers(ctypes.Structure):
    """``struct tvmgen_<m>_inputs`` and its kin, of one member."""

    _fields_ = (("member", ctypes.c_void_p),)


def call_run(library: ctypes.CDLL, module: str, *pools: np.ndarray) -> np.ndarray:
    x, y = INPUT.copy(), np.full((1, 3), 99, np.float32)
    structs = [Pointers(a.ctypes.data) for a in (x, y, *pools)]
    run = getattr(library, f"tvmgen_{module}_run")
    assert run(*(ctypes.byref(s) for s in structs)) == abi.OK
    np.testing.assert_array_equal(x, INPUT)
    return y


def writable_sections(path: Path) -> dict[bytes, int]:
    with path.open("rb") as stream:
        return {
            s.name.encode(): s["sh_size"] for s in ELFFile(stream).iter_sections()
            if s["sh_flags"] & SH_FLAGS.SHF_WRITE and s["sh_size"]
        }


# ---- kernels alone

PRELUDE = (
    "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
    "#define CRT_KERNEL __attribute__((noinline))\n"
)


def file_text(texts: list[KernelText]) -> str:
    needs = {need for text in texts for need in text.needs}
    helpers = select_helpers(needs)
    includes = dict.fromkeys(f"{h.include}\n" for h in helpers if h.include)
    definitions = dict.fromkeys(h.text for h in helpers)
    return PRELUDE + "".join(includes) + "\n".join([*definitions, *(t.text for t in texts)])


def entry(k: Kernel, symbol: str) -> str:
    """An external function ``call_<symbol>(void **buffers, params...)``."""
    params = [f"{variable_type(p.type)} p{i}" for i, p in enumerate(k.params)]
    args = [f"b[{i}]" for i in range(len(k.buffers))] + [f"p{i}" for i in range(len(k.params))]
    head = f"void call_{symbol}({', '.join(['void **b', *params])})"
    return f"{head};\n{head}\n{{\n    {symbol}({', '.join(args)});\n}}\n"


def assert_same(found: Array, wanted: Array) -> None:
    """Bits are equal; any NaN equals any other."""
    if wanted.dtype.kind == "f":
        nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(found), nan)
        found, wanted = found[~nan], wanted[~nan]
    assert found.tobytes() == wanted.tobytes()


_CTYPES = {
    Scalar.INDEX: ctypes.c_ssize_t, Scalar.I32: ctypes.c_int32, Scalar.F32: ctypes.c_float,
}


def call_kernel(
    library: ctypes.CDLL, symbol: str, k: Kernel, arrays: list[Array], params: tuple[Any, ...]
) -> None:
    pointers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
    values = [_CTYPES[p.type](v) for p, v in zip(k.params, params, strict=True)]
    getattr(library, f"call_{symbol}")(pointers, *values)


def run_kernels(
    kernels: Sequence[tuple[Kernel, Sequence[Array]]], folder: Path, *flags: str
) -> list[list[Array]]:
    """Runs each kernel, without parameters, on copies of its arrays; all are one C file."""
    made = compiled([kernel for kernel, _ in kernels], folder, *flags)
    return [run(arrays) for run, (_, arrays) in zip(made, kernels, strict=True)]


def compiled(
    kernels: Sequence[Kernel], folder: Path, *flags: str
) -> list[Callable[[Sequence[Array]], list[Array]]]:
    """Compiles kernels, without parameters, of one C file: what runs each on copies of arrays."""
    symbols = [f"kernel{i}" for i in range(len(kernels))]
    texts = [print_kernel(k, s) for k, s in zip(kernels, symbols, strict=True)]
    entries = [entry(k, s) for k, s in zip(kernels, symbols, strict=True)]
    path = folder / "kernels.c"
    path.write_text(file_text(texts) + "\n".join(entries), encoding="utf-8")
    library = shared_library([path], *flags)

    def run(symbol: str, kernel: Kernel, arrays: Sequence[Array]) -> list[Array]:
        copies = [array.copy() for array in arrays]
        call_kernel(library, symbol, kernel, copies, ())
        return copies

    return [functools.partial(run, s, k) for s, k in zip(symbols, kernels, strict=True)]
