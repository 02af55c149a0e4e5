"""The model's header and the runtime headers, in C99 and in C++."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crtexport.artifact.model import Artifact, Interface, Pool
from crtexport.backends.c.header import emit_header
from crtexport.backends.c.source import emit_c
from crtexport.ir.types import DType, Quantization, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.support.resources import templates_dir
from tests.backends.c.c_support import COMPILERS, STRICT, network, run_tool, runtime_include
from tests.helpers import require


def tensor(name: str, dtype: DType = DType.INT8, shape: tuple[int, ...] = (2,),
           quant: Quantization | None = None, field: str | None = None) -> Interface:
    return Interface(name, field or name, TensorType(dtype, shape, quant))


def with_tensors(inputs: tuple[Interface, ...], outputs: tuple[Interface, ...]) -> Artifact:
    return network(inputs=inputs, outputs=outputs)


def macros(text: str) -> dict[str, str]:
    lines = [line.split(" ", 2) for line in text.splitlines() if line.startswith("#define")]
    prefix = "TVMGEN_DEMO_"
    return {line[1].removeprefix(prefix): line[2] for line in lines if len(line) == 3}


def test_the_text_is_what_a_person_would_accept(golden: Callable[[str, str], None]) -> None:
    golden("c/tvmgen_demo.h", emit_header(network()))


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("caller", [False, True])
def test_the_header_with_tensors_in_the_workspace_is_cxx(
    compiler: str, caller: bool, tmp_path: Path
) -> None:
    require(compiler)
    text = emit_header(network(workspace_caller=caller, io_in_workspace=True))
    (tmp_path / "tvmgen_demo.h").write_text(text)
    pools = "&pools" if caller else ""
    (tmp_path / "main.cc").write_text(
        '#include "tvmgen_demo.h"\n'
        "int main() {\n"
        + ("  tvmgen_demo_workspace_pools pools = {0};\n" if caller else "")
        + f"  tvmgen_demo_inputs in = tvmgen_demo_map_inputs({pools});\n"
        "  static_cast<signed char *>(in.serving_0)[0] = 1;\n"
        f"  tvmgen_demo_outputs out = tvmgen_demo_map_outputs({pools});\n"
        f"  return tvmgen_demo_run({pools}) + (out.Identity != 0);\n}}\n"
    )
    run_tool(
        compiler, "-std=c++98", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wold-style-cast",
        "-c", tmp_path / "main.cc", "-o", tmp_path / "main.o",
    )


@pytest.mark.parametrize("standard", ["c++98", "c++11", "c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("caller", [False, True])
def test_the_header_is_cxx(compiler: str, standard: str, caller: bool, tmp_path: Path) -> None:
    require(compiler)
    (tmp_path / "tvmgen_demo.h").write_text(emit_header(network(workspace_caller=caller)))
    pools = ", workspace_pools" if caller else ""
    (tmp_path / "main.cc").write_text(
        '#include "tvmgen_demo.h"\n#include "tvmgen_demo.h"\n'
        "static const signed char image[6] = {0};\n"
        "int main() {\n"
        "  float out[3];\n"
        "  struct tvmgen_demo_inputs inputs = {image};\n"
        "  tvmgen_demo_outputs outputs = {out};\n"
        + (
            "  static char memory[TVMGEN_DEMO_WORKSPACE_WORKSPACE_POOL_SIZE];\n"
            "  tvmgen_demo_workspace_pools pools = {memory};\n"
            "  tvmgen_demo_workspace_pools *workspace_pools = &pools;\n" if caller else ""
        )
        + f"  return tvmgen_demo_run(&inputs, &outputs{pools});\n}}\n"
    )
    run_tool(
        compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror",
        "-Wold-style-cast", "-c", tmp_path / "main.cc", "-o", tmp_path / "main.o",
    )


def test_macros_say_size_type_shape_and_quantization() -> None:
    found = macros(emit_header(with_tensors(
        (tensor("x", DType.INT8, (1, 49, 10, 1), Quantization((0.1,), (-128,))),
         tensor("flag", DType.BOOL, ())),
        (tensor("y", DType.FLOAT16, (3, 2)),
         tensor("z", DType.UINT8, (7,), Quantization((1 / 256,), (3,))),
         tensor("w", DType.INT8, (2,), Quantization((0.5, 0.25), (0, 0), axis=0))),
    )))
    assert found["X_SIZE"] == found["X_ELEMENTS"] == "490"
    assert found["X_DTYPE"] == '"int8"'
    assert found["X_SHAPE"] == "{1, 49, 10, 1}"
    assert found["X_NDIM"] == "4"
    assert (found["X_SCALE"], found["X_ZERO_POINT"]) == ("0.1", "(-128)")
    assert (found["FLAG_SIZE"], found["FLAG_NDIM"], found["FLAG_SHAPE"]) == ("1", "0", "{1}")
    assert (found["FLAG_DTYPE_CODE"], found["FLAG_DTYPE_BITS"]) == ("1", "1")
    assert (found["Y_SIZE"], found["Y_DTYPE_CODE"], found["Y_DTYPE_BITS"]) == ("12", "2", "16")
    assert "Y_SCALE" not in found
    assert (found["Z_SCALE"], found["Z_ZERO_POINT"]) == ("0.00390625f", "3")
    assert "W_SCALE" not in found
    assert (found["WORKSPACE_SIZE"], found["WORKSPACE_ALIGN"]) == ("32", "16")
    assert found["CONSTANTS_SIZE"] == str(18 + 12 + 12)


def test_macros_compile_as_what_they_stand_for(tmp_path: Path) -> None:
    artifact = with_tensors(
        (tensor("x", shape=(2, 3), quant=Quantization((0.1,), (-128,))),), (tensor("y"),)
    )
    (tmp_path / "tvmgen_demo.h").write_text(emit_header(artifact))
    path = tmp_path / "macros.c"
    path.write_text(
        '#include "tvmgen_demo.h"\n#include <stddef.h>\n'
        "extern const int shape[TVMGEN_DEMO_X_NDIM];\n"
        "const int shape[TVMGEN_DEMO_X_NDIM] = TVMGEN_DEMO_X_SHAPE;\n"
        "extern const char dtype[sizeof(TVMGEN_DEMO_X_DTYPE)];\n"
        "const char dtype[sizeof(TVMGEN_DEMO_X_DTYPE)] = TVMGEN_DEMO_X_DTYPE;\n"
        "extern const double quantization[2];\n"
        "const double quantization[2] = {TVMGEN_DEMO_X_SCALE, 1 -TVMGEN_DEMO_X_ZERO_POINT};\n"
        "typedef char order[offsetof(struct tvmgen_demo_inputs, x) == 0 ? 1 : -1];\n"
    )
    for tool in ("gcc", "clang"):
        run_tool(tool, *STRICT, "-c", path, "-o", tmp_path / "macros.o")


def test_an_input_called_workspace_and_one_called_like_an_output_are_told_apart() -> None:
    found = macros(emit_header(with_tensors(
        (tensor("workspace", shape=(5,)), tensor("data", shape=(3,))), (tensor("data", shape=(4,)),)
    )))
    assert found["INPUT_WORKSPACE_SIZE"] == "5"
    assert found["WORKSPACE_SIZE"] == "32"
    assert (found["INPUT_DATA_SIZE"], found["OUTPUT_DATA_SIZE"]) == ("3", "4")


_STATIC = "Not re-entrant: the module's memory is static, one call at a time."


@pytest.mark.parametrize(("changed", "said"), [
    ({}, _STATIC),
    ({"workspace_size": 0, "spilled": (Pool("ram", 64),)}, _STATIC),
    ({"workspace_size": 0, "state_size": 16}, _STATIC),
    ({"workspace_size": 0}, "Re-entrant: there is no workspace, calls may run at the same time."),
    (
        {"workspace_caller": True},
        "Re-entrant: calls with different memory may run at the same time.",
    ),
])
def test_the_header_says_whether_calls_may_run_at_the_same_time(
    changed: dict[str, Any], said: str
) -> None:
    text = emit_header(network(**changed))
    opening, interface = text.split(" */\n", 1)
    assert said in opening
    assert said in interface
    assert len(re.findall(r"[Rr]e-entrant", text)) == 2


def test_every_file_opens_with_its_license_and_whether_it_is_reentrant() -> None:
    artifact = network()
    for text in (emit_header(artifact), *emit_c(artifact).values()):
        opening = text.split(" */", 1)[0]
        assert opening.startswith("/*\n * SPDX-License-Identifier: Apache-2.0\n")
        assert re.search(r"^ \* (Not re|Re)-entrant: ", opening, re.MULTILINE)


def test_all_c_that_goes_into_packages_and_projects_names_its_license() -> None:
    files = [p for p in templates_dir().rglob("*") if re.search(r"\.(c|h|S)(\.j2)?$", p.name)]
    assert len(files) > 20
    first = "/* SPDX-License-Identifier: Apache-2.0 */\n"
    assert not [path for path in files if not path.read_text().startswith(first)]


def test_macros_that_still_clash_are_refused() -> None:
    with pytest.raises(CrtExportError, match="would share the macro"):
        emit_header(with_tensors((tensor("x"), tensor("input_x")), (tensor("x"),)))
    with pytest.raises(CrtExportError, match="would share the macro"):
        emit_header(with_tensors((tensor("a"), tensor("A")), (tensor("y"),)))


# ---- the runtime headers

HEADERS = (
    "dlpack/dlpack.h", "tvm/runtime/c_runtime_api.h", "tvm/runtime/c_backend_api.h",
    "tvm/runtime/metadata_types.h", "tvm/runtime/crt/func_registry.h", "tvm/runtime/crt/module.h",
)
LAYOUT = r"""
#include <stddef.h>
#define IS(name, what, value32, value64) \
  typedef char name[(what) == (sizeof(void *) == 8 ? (value64) : (value32)) ? 1 : -1]
IS(a1, sizeof(DLDevice), 8, 8); IS(a2, sizeof(DLDataType), 4, 4); IS(a3, sizeof(TVMValue), 8, 8);
IS(b1, offsetof(DLTensor, device), 4, 8); IS(b2, offsetof(DLTensor, ndim), 12, 16);
IS(b3, offsetof(DLTensor, dtype), 16, 20); IS(b4, offsetof(DLTensor, shape), 20, 24);
IS(b5, offsetof(DLTensor, strides), 24, 32);
IS(c1, sizeof(struct TVMTensorInfo), 24, 32);
IS(c2, offsetof(struct TVMTensorInfo, num_shape), 8, 16);
IS(c3, offsetof(struct TVMTensorInfo, dtype), 16, 24);
IS(d1, offsetof(struct TVMMetadata, inputs), 8, 8);
IS(d2, offsetof(struct TVMMetadata, num_inputs), 16, 16);
IS(d3, offsetof(struct TVMMetadata, outputs), 24, 24);
IS(d4, offsetof(struct TVMMetadata, workspace_pools), 40, 40);
IS(d5, offsetof(struct TVMMetadata, constant_pools), 56, 56);
IS(d6, offsetof(struct TVMMetadata, mod_name), 72, 72);
IS(e1, offsetof(TVMFuncRegistry, funcs), 4, 8); IS(e2, sizeof(TVMModule), 4, 8);
IS(f1, kTVMOpaqueHandle, 3, 3); IS(f2, kTVMDLTensorHandle, 7, 7); IS(f3, kTVMNDArrayHandle, 13, 13);
"""


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_each_runtime_header_stands_alone_in_c(
    header: str, compiler: str, tmp_path: Path
) -> None:
    tool, *own = COMPILERS[compiler]
    require(tool)
    path = tmp_path / "alone.c"
    path.write_text(f"#include <{header}>\n#include <{header}>\ntypedef int used;\n")
    run_tool(tool, *own, *STRICT, f"-I{runtime_include()}", "-fsyntax-only", path)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_runtime_headers_are_cxx(compiler: str, tmp_path: Path) -> None:
    require(compiler)
    path = tmp_path / "all.cc"
    path.write_text("".join(f"#include <{h}>\n" for h in reversed(HEADERS)) + LAYOUT)
    run_tool(
        compiler, "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror",
        f"-I{runtime_include()}", "-fsyntax-only", path,
    )


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm", "riscv"])
def test_layouts_are_tvms(compiler: str, tmp_path: Path) -> None:
    """Offsets measured with TVM 0.18's own headers."""
    tool, *own = COMPILERS[compiler]
    require(tool)
    path = tmp_path / "layout.c"
    path.write_text("".join(f"#include <{h}>\n" for h in HEADERS) + LAYOUT)
    run_tool(tool, *own, "-std=c99", "-Werror", f"-I{runtime_include()}", "-fsyntax-only", path)


def test_runtime_headers_step_aside_for_tvms(tmp_path: Path) -> None:
    """With TVM's guards defined by TVM's headers, ours add nothing that could conflict."""
    guards = (
        "DLPACK_DLPACK_H_", "TVM_RUNTIME_C_RUNTIME_API_H_", "TVM_RUNTIME_C_BACKEND_API_H_",
        "TVM_RUNTIME_METADATA_TYPES_H_", "TVM_RUNTIME_CRT_FUNC_REGISTRY_H_",
        "TVM_RUNTIME_CRT_MODULE_H_",
    )
    path = tmp_path / "aside.c"
    path.write_text(
        "".join(f"#define {g}\n" for g in guards) + "".join(f"#include <{h}>\n" for h in HEADERS)
    )
    text = run_tool("gcc", "-E", "-P", f"-I{runtime_include()}", path)
    assert text.strip() == ""
