"""Targets, a small model made by hand, and kernels run on this computer through LLVM."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile
from msgspec.structs import replace

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
from crtexport.backends.constants import ConstantPlacement, constants_module, constants_object
from crtexport.backends.llvm.compile import compile_modules
from crtexport.backends.llvm.kernel import print_kernel
from crtexport.backends.llvm.module import emit_llvm
from crtexport.backends.llvm.types import ModuleText, literal, value_type
from crtexport.backends.modules import Module
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.kir.builder import KernelBuilder, add, cast, clamp, const, load, mul, shr
from crtexport.kir.language import Const, Kernel, Scalar
from crtexport.simulation.library import load_objects
from crtexport.support.target import Target

Array = npt.NDArray[Any]

HOST = Target(
    "x86_64-unknown-linux-gnu", "x86-64-v2", pointer_bits=64, stack_align=16, reloc="pic"
)
TARGETS = {
    "host": HOST,
    "i386": Target("i386-unknown-none-elf", "i686", ("-sse", "-sse2", "-mmx"), stack_align=4),
    "i386sse": Target("i386-unknown-none-elf", "i686", ("+sse", "+sse2"), stack_align=4),
    "m0": Target("thumbv6m-none-eabi", "cortex-m0", float_abi="soft"),
    "m3": Target("thumbv7m-none-eabi", "cortex-m3", float_abi="soft"),
    "m4": Target("thumbv7em-none-eabihf", "cortex-m4", ("+vfp4d16sp",), float_abi="hard"),
    "m4soft": Target("thumbv7em-none-eabi", "cortex-m4", ("-fpregs",), float_abi="soft"),
    "m33": Target(
        "thumbv8m.main-none-eabihf", "cortex-m33", ("+dsp", "+fp-armv8d16sp"), float_abi="hard"
    ),
    "m55": Target(
        "thumbv8.1m.main-none-eabihf", "cortex-m55", ("+mve.fp",), float_abi="hard"
    ),
    "rv32": Target("riscv32-unknown-none-elf", "generic-rv32", ("+m", "+a", "+c"), abi="ilp32"),
}
GCC = {  # the compiler and the flags that mean the same as the target
    "m0": ("arm-none-eabi-gcc", "-mcpu=cortex-m0"),
    "m3": ("arm-none-eabi-gcc", "-mcpu=cortex-m3"),
    "m4": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
    "m4soft": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mfloat-abi=soft"),
    "m33": ("arm-none-eabi-gcc", "-mcpu=cortex-m33", "-mfloat-abi=hard"),
    "m55": ("arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mfloat-abi=hard"),
    "rv32": ("riscv64-unknown-elf-gcc", "-march=rv32imac", "-mabi=ilp32"),
    "i386": ("gcc", "-m32", "-march=i686", "-ffreestanding", "-fno-pic"),
}

INPUTS, HIDDEN, OUTPUTS = 64, 24, 10
_rng = np.random.default_rng(7)
WEIGHTS = (
    _rng.integers(-128, 128, (HIDDEN, INPUTS), dtype=np.int8),
    _rng.integers(-128, 128, (OUTPUTS, HIDDEN), dtype=np.int8),
)
BIASES = (
    _rng.integers(-5000, 5000, HIDDEN, dtype=np.int32),
    _rng.integers(-5000, 5000, OUTPUTS, dtype=np.int32),
)


def dense(rows: int, columns: int) -> Kernel:
    """y = clamp((w x + bias) >> shift); ``shift`` is a parameter."""
    b = KernelBuilder("dense")
    x, w = b.buffer("x", Scalar.I8, columns), b.buffer("w", Scalar.I8, rows * columns)
    bias = b.buffer("bias", Scalar.I32, rows)
    y = b.buffer("y", Scalar.I8, rows, writable=True)
    shift = b.param("shift", Scalar.I32)
    with b.loop("row", rows) as row:
        acc = b.local("acc", load(bias, row))
        with b.loop("column", columns, unroll=4) as column:
            product = mul(
                cast(load(x, column), Scalar.I32),
                cast(load(w, add(mul(row, const(columns)), column)), Scalar.I32),
            )
            b.assign(acc, add(acc, product))
        b.store(y, row, cast(clamp(shr(acc, shift), -128, 127), Scalar.I8))
    return b.finish("a layer */ with\nodd \x1b \ud800 日本 text")


def floating(size: int) -> Kernel:
    """y = x * scale + 0.5 as half precision; uses what soft-float targets call helpers for."""
    b = KernelBuilder("floating")
    x = b.buffer("x", Scalar.I8, size)
    y = b.buffer("y", Scalar.F16, size, writable=True)
    scale = b.param("scale", Scalar.F32)
    with b.loop("i", size) as i:
        real = mul(cast(load(x, i), Scalar.F32), scale)
        b.store(y, i, cast(add(real, Const(0.5, Scalar.F32)), Scalar.F16))
    return b.finish()


def model(**changes: Any) -> Artifact:
    """Two dense layers through the workspace, and a float view of the last as second output."""
    constants = tuple(
        Constant(f"{name}_{layer}", dtype, array.size, ConstantRef.of(array), 16, f"of {layer}\n}}")
        for layer in (0, 1)
        for name, dtype, array in (
            ("weights", Scalar.I8, WEIGHTS[layer]), ("bias", Scalar.I32, BIASES[layer])
        )
    )
    artifact = Artifact(
        module="m",
        inputs=(Interface('in "x"\n:0', "in_x_0", TensorType(DType.INT8, (1, INPUTS))),),
        outputs=(
            Interface("Identity", "Identity", TensorType(DType.INT8, (1, OUTPUTS))),
            Interface("half", "half", TensorType(DType.FLOAT16, (OUTPUTS,))),
        ),
        constants=constants,
        functions=(
            Function("m_dense", dense(HIDDEN, INPUTS)),
            Function("m_dense_2", dense(OUTPUTS, HIDDEN)),
            Function("m_floating", floating(OUTPUTS)),
        ),
        calls=(
            FunctionCall("m_dense", (
                InputArg(0), ConstantArg("weights_0"), ConstantArg("bias_0"), WorkspaceArg(16),
                ScalarArg(7, Scalar.I32),
            ), "first"),
            FunctionCall("m_dense_2", (
                WorkspaceArg(16), ConstantArg("weights_1"), ConstantArg("bias_1"), OutputArg(0),
                ScalarArg(8, Scalar.I32),
            ), "second"),
            FunctionCall("m_floating", (OutputArg(0), OutputArg(1), ScalarArg(0.1, Scalar.F32))),
        ),
        workspace_size=16 + HIDDEN,
        workspace_align=16,
        workspace_caller=False,
        system_lib=True,
        registry=(
            RegistryEntry("tvmgen_m_run", "tvmgen_m_run_packed"),
            RegistryEntry("tvmgen_m_get_c_metadata", "tvmgen_m_get_c_metadata"),
        ),
        header_comment=("crtexport", "sha-256: \n; no comment"),
    )
    return replace(artifact, **changes)


def model_input() -> npt.NDArray[np.int8]:
    return np.random.default_rng(1).integers(-128, 128, (1, INPUTS), dtype=np.int8)


def model_outputs(x: Array) -> list[Array]:
    """Returns what :func:`model` gives, by NumPy."""
    values: Array = x[0]
    for weights, bias, shift in zip(WEIGHTS, BIASES, (7, 8), strict=True):
        sums = weights.astype(np.int32) @ values.astype(np.int32) + bias
        values = np.clip(sums >> shift, -128, 127).astype(np.int8)
    real = values.astype(np.float32) * np.float32(0.1) + np.float32(0.5)
    return [values.reshape(1, -1), real.astype(np.float16)]


def objects_of(
    artifact: Artifact, target: Target, optimize: str = "balanced"
) -> dict[str, bytes]:
    """All objects of a model: its code, and its constants."""
    made = compile_modules(emit_llvm(artifact, target, optimize), target, optimize)
    constants = constants_of(artifact, target)
    return made | {f"{module.name}.o": content for module, content in constants.items()}


def constants_of(artifact: Artifact, target: Target) -> dict[Module, bytes]:
    """The object of a model's constants, if it has any."""
    made = constants_object(artifact, target, ConstantPlacement())
    return {} if made is None else {constants_module(artifact): made.read()}


@cache
def objects(target: str, optimize: str = "balanced") -> dict[str, bytes]:
    """The objects of :func:`model`."""
    return objects_of(model(), TARGETS[target], optimize)


def elf(data: bytes) -> ELFFile:
    return ELFFile(io.BytesIO(data))


def run_kernels(
    kernels: Sequence[tuple[Kernel, Mapping[str, Array], Sequence[int | float]]],
    optimize: str = "balanced",
    target: Target = HOST,
) -> list[dict[str, Array]]:
    """Runs each kernel on copies of its arrays (by buffer) and with its parameters."""
    module = ModuleText(target, optimize)
    body = []
    for number, (kernel, _, params) in enumerate(kernels):
        body.append(print_kernel(f"kernel{number}", kernel, module))
        names = [f"ptr %p{i}" for i in range(len(kernel.buffers))]
        values = [
            f"{value_type(p.type, target)} {literal(Const(v, p.type))}"
            for p, v in zip(kernel.params, params, strict=True)
        ]
        body.append(
            f"define void @run{number}({', '.join(names)}) #0 {{\n"
            f"  call void @kernel{number}({', '.join([*names, *values])})\n  ret void\n}}\n"
        )
    text = module.text("kernels.ll", (), body)
    library = load_objects(compile_modules({"kernels.ll": text}, target, optimize).values())
    results = []
    for number, (kernel, arrays, _) in enumerate(kernels):
        copies = {name: array.copy() for name, array in arrays.items()}
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(copies))(
            library.address(f"run{number}")
        )
        function(*(copies[b.name].ctypes.data for b in kernel.buffers))
        results.append(copies)
    return results


