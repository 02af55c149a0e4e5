"""Generated C files: they compile everywhere, run, and hold to the binary interface."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

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
from crtexport.backends.c.source import emit_c
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.kir.builder import KernelBuilder, add, cast, clamp, const, i32, load, mul, shr
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError
from tests.backends.c.c_support import (
    COMPILERS,
    INPUT,
    Pointers,
    call_run,
    compile_object,
    dense,
    expected,
    network,
    run_tool,
    runtime_include,
    shared_library,
    writable_sections,
    write,
)
from tests.helpers import require


def copier(type_: Scalar, count: int) -> Function:
    b = KernelBuilder("copy")
    source = b.buffer("source", type_, count)
    target = b.buffer("target", type_, count, writable=True)
    with b.loop("i", count) as i:
        b.store(target, i, load(source, i))
    return Function("copy", b.finish())


def test_files_are_named_after_the_module_and_sorted() -> None:
    assert list(emit_c(network("kws"))) == ["kws_lib0.c", "kws_lib1.c", "kws_lib2.c"]
    assert list(emit_c(network(system_lib=False))) == ["demo_lib0.c", "demo_lib1.c"]


def test_the_text_is_what_a_person_would_accept(golden: Callable[[str, str], None]) -> None:
    for name, text in emit_c(network()).items():
        golden(f"c/{name}", text)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("caller", [False, True])
def test_every_file_compiles_without_a_warning(
    compiler: str, caller: bool, tmp_path: Path
) -> None:
    for path in write(network(workspace_caller=caller), tmp_path):
        for level in ("-O0", "-Os", "-O3"):
            compile_object(path, compiler, level)


def test_run_computes_the_network(tmp_path: Path) -> None:
    library = shared_library(write(network(), tmp_path))
    for _ in range(2):
        assert call_run(library, "demo").tobytes() == expected().tobytes()


def test_a_callers_workspace_is_used_and_nothing_else(tmp_path: Path) -> None:
    paths = write(network(workspace_caller=True), tmp_path)
    pool = np.full(64, 0x55, np.uint8)
    assert call_run(shared_library(paths), "demo", pool[16:48]).tobytes() == expected().tobytes()
    assert (pool[:16] == 0x55).all()
    assert (pool[48:] == 0x55).all()
    assert b".bss" not in writable_sections(compile_object(paths[0], "arm"))


@pytest.mark.parametrize("missing", range(4))
def test_run_refuses_null_pointers(missing: int, tmp_path: Path) -> None:
    library = shared_library(write(network(), tmp_path))
    x, y = Pointers(INPUT.ctypes.data), Pointers(np.empty(3, np.float32).ctypes.data)
    args = [ctypes.byref(x), ctypes.byref(y)]
    if missing < 2:
        args[missing] = None
    else:
        (x, y)[missing - 2].member = None
    assert library.tvmgen_demo_run(*args) == abi.ERROR_NULL


MICROTVM_APPLICATION = r"""
#include <stdio.h>
#include <tvmgen_default.h>

static int8_t input_data[] = {3, -128, 127, 0, 5, -7};
static float output_data[TVMGEN_DEFAULT_IDENTITY_SIZE / sizeof(float)];

int main(void) {
  struct tvmgen_default_inputs inputs = {
      .serving_0 = input_data,
  };
  struct tvmgen_default_outputs outputs = {
      .Identity = (void*)&output_data,
  };
  int32_t ret = tvmgen_default_run(&inputs, &outputs);
  if (ret != 0 || sizeof(input_data) != TVMGEN_DEFAULT_SERVING_0_SIZE) return 1;
  for (int i = 0; i < 3; i++) printf("%a\n", (double)output_data[i]);
  return TVMGEN_DEFAULT_WORKSPACE_SIZE == 32 ? 0 : 2;
}
"""

REGISTRY_APPLICATION = r"""
#include <stdio.h>
#include <string.h>
#include <tvm/runtime/crt/module.h>
#include <tvm/runtime/metadata_types.h>

static TVMBackendPackedCFunc find(const char *wanted) {
  const TVMFuncRegistry *registry = TVMSystemLibEntryPoint()->registry;
  const char *name = registry->names + sizeof(uint16_t);
  uint16_t count, index = 0;
  memcpy(&count, registry->names, sizeof(count));
  for (; *name != 0; name += strlen(name) + 1, ++index) {
    if (strcmp(name, wanted) == 0 && index < count) return registry->funcs[index];
  }
  return NULL;
}

int main(void) {
  int8_t input[] = {99, 3, -128, 127, 0, 5, -7};
  float output[3];
  int64_t shape[2] = {1, 6};
  DLTensor x = {input, {kDLCPU, 0}, 2, {kDLInt, 8, 1}, shape, NULL, 1};
  DLTensor y = {output, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  TVMValue args[2], result;
  int codes[2] = {kTVMDLTensorHandle, kTVMNDArrayHandle}, code = kTVMNullptr;
  TVMBackendPackedCFunc run = find("tvmgen_default_run"), about;
  about = find("tvmgen_default_get_c_metadata");
  if (run == NULL || about == NULL || find("tvmgen_default_ru") || find("")) return 1;
  if (about(NULL, NULL, 0, &result, &code, NULL) != 0 || code != kTVMOpaqueHandle) return 2;
  const struct TVMMetadata *m = (const struct TVMMetadata *)result.v_handle;
  if (m->version != 1 || m->num_inputs != 1 || m->num_outputs != 1) return 3;
  if (strcmp(m->mod_name, "tvmgen_default") || strcmp(m->inputs[0].name, "serving_0")) return 4;
  if (m->inputs[0].num_shape != 2 || m->inputs[0].shape[1] != 6) return 5;
  if (m->outputs[0].dtype.code != kDLFloat || m->outputs[0].dtype.bits != 32) return 6;
  if (m->num_workspace_pools != 0 || m->num_constant_pools != 0) return 7;
  if (about(NULL, NULL, 0, NULL, NULL, NULL) != -1) return 8;
  args[0].v_handle = &x;
  args[1].v_handle = &y;
  if (run(args, codes, 1, &result, &code, NULL) != -2) return 9;
  codes[0] = kTVMArgInt;
  if (run(args, codes, 2, &result, &code, NULL) != -2) return 10;
  codes[0] = kTVMDLTensorHandle;
  if (run(NULL, codes, 2, &result, &code, NULL) != -1) return 11;
  args[0].v_handle = NULL;
  if (run(args, codes, 2, &result, &code, NULL) != -1) return 12;
  args[0].v_handle = &x;
  y.data = NULL;
  if (run(args, codes, 2, &result, &code, NULL) != -1) return 13;
  y.data = output;
  if (run(args, codes, 2, &result, &code, NULL) != 0) return 14;
  for (int i = 0; i < 3; i++) printf("%a\n", (double)output[i]);
  return 0;
}
"""


SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("program", [MICROTVM_APPLICATION, REGISTRY_APPLICATION])
@pytest.mark.parametrize(("compiler", "flags"), [("gcc", SANITIZERS), ("clang", ("-O2",))])
def test_applications_find_and_run_the_model(
    program: str, compiler: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    require(compiler)
    sources = write(network("default"), tmp_path)
    (tmp_path / "main.c").write_text(program)
    run_tool(
        compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-g", *flags,
        f"-I{runtime_include()}", f"-I{tmp_path}", *sources, tmp_path / "main.c",
        "-o", tmp_path / "main",
    )
    values = [float.fromhex(line) for line in run_tool(tmp_path / "main").split()]
    np.testing.assert_array_equal(np.array([values], np.float32), expected())


def test_the_packed_function_takes_the_callers_workspace_last(tmp_path: Path) -> None:
    library = shared_library(write(network(workspace_caller=True), tmp_path))
    x, y, pool = INPUT.copy(), np.zeros((1, 3), np.float32), np.zeros(32, np.uint8)

    class DLTensor(ctypes.Structure):
        _fields_ = (
            ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
            ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.c_void_p),
            ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
        )

    tensors = [DLTensor(data=a.ctypes.data) for a in (x, y, pool)]
    args = (ctypes.c_void_p * 3)(*(ctypes.addressof(t) for t in tensors))
    run = library.tvmgen_demo_run_packed
    assert run(args, (ctypes.c_int * 3)(7, 7, 7), 2, None, None, None) == abi.ERROR_ARGUMENTS
    assert run(args, (ctypes.c_int * 3)(7, 13, 7), 3, None, None, None) == abi.OK
    assert y.tobytes() == expected().tobytes()


def pointwise(pixels: int, inputs: int, outputs: int) -> Function:
    """int8 1x1 convolution of a picture, without scaling."""
    b = KernelBuilder("pointwise")
    x = b.buffer("input", Scalar.I8, pixels * inputs)
    w = b.buffer("weights", Scalar.I8, inputs * outputs)
    y = b.buffer("output", Scalar.I8, pixels * outputs, writable=True)
    with b.loop("row", pixels // 48) as row, b.loop("column", 48) as column:
        pixel = add(mul(row, const(48)), column)
        with b.loop("oc", outputs) as oc:
            acc = b.local("acc", i32(0))
            with b.loop("ic", inputs) as ic:
                left = load(x, add(mul(pixel, const(inputs)), ic))
                right = load(w, add(mul(oc, const(inputs)), ic))
                product = mul(cast(left, Scalar.I32), cast(right, Scalar.I32))
                b.assign(acc, add(acc, product))
            scaled = clamp(shr(acc, i32(7)), -128, 127)
            b.store(y, add(mul(pixel, const(outputs)), oc), cast(scaled, Scalar.I8))
    return Function("pointwise", b.finish())


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_kernels_may_read_and_write_the_same_workspace(compiler: str, tmp_path: Path) -> None:
    """Optimized for this computer: GCC 12 drops such calls when it folds addresses into kernels."""
    pixels, inputs, outputs = 48 * 48, 8, 16
    rng = np.random.default_rng(2)
    weights = rng.integers(-128, 128, (outputs, inputs), np.int8)
    picture = rng.integers(-128, 128, (pixels, inputs), np.int8)
    fill = Function("fill", copier(Scalar.I8, pixels * inputs).kernel)
    take = Function("take", copier(Scalar.I8, pixels * outputs).kernel)
    artifact = passing(
        inputs=(Interface("x", "x", TensorType(DType.INT8, picture.shape)),),
        outputs=(Interface("y", "y", TensorType(DType.INT8, (pixels, outputs))),),
        constants=(Constant("w", Scalar.I8, weights.size, ConstantRef.of(weights), 16),),
        functions=(fill, pointwise(pixels, inputs, outputs), take),
        calls=(
            FunctionCall("fill", (InputArg(0), WorkspaceArg(pixels * outputs))),
            FunctionCall(
                "pointwise",
                (WorkspaceArg(pixels * outputs), ConstantArg("w"), WorkspaceArg(0)),
            ),
            FunctionCall("take", (WorkspaceArg(0), OutputArg(0))),
        ),
        workspace_size=pixels * (inputs + outputs),
    )
    library = shared_library(write(artifact, tmp_path), "-O3", "-march=native", compiler=compiler)
    found = np.zeros((pixels, outputs), np.int8)
    structs = [Pointers(picture.ctypes.data), Pointers(found.ctypes.data)]
    assert library.tvmgen_demo_run(*(ctypes.byref(s) for s in structs)) == 0
    sums = picture.astype(np.int32) @ weights.T.astype(np.int32)
    np.testing.assert_array_equal(found, np.clip(sums >> 7, -128, 127))


# ---- shapes of artifacts


def passing(**changes: object) -> Artifact:
    """A network that copies its float input to its output."""
    fields = {
        "inputs": (Interface("x", "x", TensorType(DType.FLOAT32, (4,))),),
        "outputs": (Interface("x", "x", TensorType(DType.FLOAT32, (4,))),),
        "constants": (), "functions": (copier(Scalar.F32, 4),),
        "calls": (FunctionCall("copy", (InputArg(0), OutputArg(0))),),
        "workspace_size": 0,
    }
    return network(**(fields | changes))


def test_without_a_workspace_there_is_none(tmp_path: Path) -> None:
    for caller in (False, True):
        paths = write(passing(workspace_caller=caller), tmp_path)
        code = paths[0].read_text().partition("#endif /* TVMGEN_DEMO_H_ */")[2]
        assert "CRT_KERNEL" in code
        assert "workspace" not in code
        for compiler in ("gcc", "clang", "arm"):
            assert writable_sections(compile_object(paths[0], compiler)) == {}


def test_arguments_reach_into_tensors_and_constants(tmp_path: Path) -> None:
    data = np.arange(4, dtype=np.float32)
    artifact = passing(
        constants=(Constant("raw", Scalar.U8, 16, ConstantRef.of(data.view(np.uint8)), 4),),
        functions=(replace(copier(Scalar.F32, 1), symbol="copy"),),
        calls=(
            FunctionCall("copy", (InputArg(0, 4), OutputArg(0))),
            FunctionCall("copy", (ConstantArg("raw", 12), OutputArg(0, 8))),
            FunctionCall("copy", (ConstantArg("raw"), OutputArg(0, 4))),
        ),
    )
    paths = write(artifact, tmp_path)
    for compiler in ("gcc", "clang", "arm"):
        compile_object(paths[0], compiler)
    library = shared_library(paths)
    x, y = np.array([5, 6, 7, 8], np.float32), np.zeros(4, np.float32)
    structs = [Pointers(x.ctypes.data), Pointers(y.ctypes.data)]
    assert library.tvmgen_demo_run(*(ctypes.byref(s) for s in structs)) == 0
    assert y.tolist() == [6, 0, 3, 0]


def test_scalars_empty_arrays_and_missing_sides_compile(tmp_path: Path) -> None:
    one = TensorType(DType.BOOL, ())
    artifact = passing(
        inputs=(), outputs=(Interface("flag", "flag", one),), functions=(copier(Scalar.U8, 1),),
        constants=(Constant("one", Scalar.U8, 1, ConstantRef(1, b"\1"), 1),
                   Constant("unused", Scalar.I32, 0, ConstantRef(0, b""), 4)),
        calls=(FunctionCall("copy", (ConstantArg("one"), OutputArg(0))),),
    )
    for path in write(artifact, tmp_path):
        for compiler in ("gcc", "clang", "arm"):
            compile_object(path, compiler)


def test_packed_words_are_printed_as_their_bits(tmp_path: Path) -> None:
    words = np.array([1, -1, -(1 << 31), 0x12345678], np.int32)
    artifact = passing(
        inputs=(), outputs=(Interface("y", "y", TensorType(DType.INT32, (4,))),),
        functions=(copier(Scalar.I32, 4),),
        constants=(Constant(
            "w", Scalar.I32, 4, ConstantRef.of(words), 4, "layer 1", "a row for two channels",
            row=2, words=True,
        ),),
        calls=(FunctionCall("copy", (ConstantArg("w"), OutputArg(0))),),
    )
    paths = write(artifact, tmp_path)
    assert """\
/*
 * layer 1
 * a row for two channels
 */
CRT_ALIGNED(4) TVMGEN_DEMO_CONSTANTS_ATTR
static const uint32_t w[4] = {
    0x00000001u, 0xffffffffu,
    0x80000000u, 0x12345678u
};
""" in paths[0].read_text()
    for compiler in ("gcc", "clang", "arm"):
        compile_object(paths[0], compiler)
    y = np.zeros(4, np.int32)
    structs = [Pointers(None), Pointers(y.ctypes.data)]
    assert shared_library(paths).tvmgen_demo_run(*(ctypes.byref(s) for s in structs)) == abi.OK
    np.testing.assert_array_equal(y, words)


HOSTILE = 'q"uo\\te\n*/ int evil; /*??/\u202e日本'


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    base = network(header_comment=(HOSTILE, "second"))
    artifact = replace(
        base,
        inputs=(replace(base.inputs[0], name=HOSTILE),),
        constants=tuple(replace(c, comment=HOSTILE) for c in base.constants),
        functions=tuple(
            replace(f, kernel=replace(f.kernel, doc=(HOSTILE,)))
            for f in base.functions
        ),
        calls=tuple(replace(c, comment=HOSTILE) for c in base.calls),
    )
    paths = write(artifact, tmp_path)
    for path in paths:
        for compiler in ("gcc", "clang", "arm"):
            compile_object(path, compiler)
    assert call_run(shared_library(paths), "demo").tobytes() == expected().tobytes()
    for path in [*paths, tmp_path / "tvmgen_demo.h"]:
        assert "\u202e" not in path.read_text(encoding="utf-8")


def test_output_does_not_depend_on_hashes() -> None:
    code = (
        "from tests.backends.c.c_support import network; from crtexport.backends.c.source import "
        "emit_c; import hashlib; "
        "print(hashlib.sha256(repr(emit_c(network())).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


# ---- refusals


def with_call(*args: object) -> Artifact:
    return passing(calls=(FunctionCall("copy", args),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("artifact", "problem"),
    [
        (with_call(OutputArg(0), InputArg(0)), "target would be written, but is read-only"),
        (with_call(InputArg(0)), "takes 2 arguments, not 1"),
        (with_call(InputArg(0), ScalarArg(1, Scalar.I32)), "target is not a i32"),
        (with_call(ConstantArg("none"), OutputArg(0)), "there is no constant 'none'"),
        (passing(calls=(FunctionCall("other", ()),)), "'other' is wrong: it is not defined"),
        (network(calls=(FunctionCall(
            "tvmgen_demo_dense",
            (InputArg(0), ConstantArg("tvmgen_demo_weights"), ConstantArg("tvmgen_demo_bias"),
             WorkspaceArg(16), WorkspaceArg(0)),
        ),)), "offset is not a pointer"),
        (passing(functions=(copier(Scalar.F32, 4),) * 2), "'copy' would be defined twice"),
        (passing(constants=(Constant("copy", Scalar.U8, 1, ConstantRef(1, b"1"), 1),)),
         "'copy' would be defined twice"),
        (passing(constants=(Constant("c", Scalar.I16, 3, ConstantRef(2, b"12"), 2),),
                 calls=(FunctionCall("copy", (ConstantArg("c"), OutputArg(0))),)),
         "has 1 elements where 3 are announced"),
        (passing(registry=(RegistryEntry("n" * 120, "s"),)), "at most 119 bytes"),
        (passing(registry=(RegistryEntry("n", "s"), RegistryEntry("n", "t"))), "must be unique"),
    ],
)
def test_contradictions_are_refused(artifact: Artifact, problem: str) -> None:
    with pytest.raises(CrtExportError, match=problem):
        emit_c(artifact)


def test_linked_constants_are_found_by_a_table_only() -> None:
    text = emit_c(network(), linked=True)["demo_lib0.c"]
    constants = network().reached_constants
    assert f"extern const void *const tvmgen_demo_constant_table[{len(constants)}];" in text
    assert not re.search(r"^static const .*= \{$", text, re.MULTILINE)
    for index, constant in enumerate(constants):
        assert f"{index}: " in text
        assert f"{constant.symbol}[{constant.count}]" in text  # in the comment of the table
        assert f"tvmgen_demo_constant_table[{index}]" in text


def test_what_no_call_reaches_is_not_printed() -> None:
    text = emit_c(network(functions=(*network().functions, Function("spare", dense()))))
    assert "spare" not in text["demo_lib0.c"]
