"""Packages in builds of others: each takes less of a package than ours do.

Three kinds of project took packages of TVM's: for its host, sources and objects of one library
without the folder of headers; for Arduino, all C sources in one folder and an arena of the size
that the metadata tells; for Zephyr, a library whose language CMake has to find out.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from crtexport.pipeline import driver
from tests.archives import unpack_archive
from tests.cli.support import DIGITS, DIGITS_IMAGES, DIGITS_LABELS
from tests.helpers import require, require_module

CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(other C)
add_library(model)
file(GLOB_RECURSE files model/codegen/host/src/*.c model/codegen/host/lib/*.o)
target_sources(model PRIVATE ${files})
target_include_directories(model PRIVATE %s)
add_executable(main main.c)
target_include_directories(main PRIVATE crt)
target_link_libraries(main PRIVATE model m)
"""
# As a runtime calls a model: found by name, with tensors as arguments.
MAIN = """\
#include <stdio.h>
#include <string.h>
#include <tvm/runtime/crt/module.h>
#include "images.h"
const TVMModule *TVMSystemLibEntryPoint(void);
int main(void)
{
    const TVMFuncRegistry *registry = TVMSystemLibEntryPoint()->registry;
    const char *name = registry->names + 2;
    int at = 0, right = 0;
    for (; strcmp(name, "tvmgen_digits_run") != 0; name += strlen(name) + 1) at++;
    for (int i = 0; i < IMAGES; i++) {
        int8_t scores[10];
        int64_t shape[4] = {1, 8, 8, 1}, flat[2] = {1, 10};
        DLTensor in = {(void *)images[i], {kDLCPU, 0}, 4, {kDLInt, 8, 1}, shape, NULL, 0};
        DLTensor out = {scores, {kDLCPU, 0}, 2, {kDLInt, 8, 1}, flat, NULL, 0};
        TVMValue args[2] = {{.v_handle = &in}, {.v_handle = &out}}, result;
        int codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle}, code, best = 0;
        if (registry->funcs[at](args, codes, 2, &result, &code, NULL) != 0) return 1;
        for (int k = 1; k < 10; k++) best = scores[k] > scores[best] ? k : best;
        right += best == labels[i];
    }
    printf("%d right\\n", right);
    return 0;
}
"""


def unpacked(
    folder: Path, emit: driver.Emit, workspace: driver.Workspace = "static"
) -> Path:
    """``folder/model`` has a package of the digits example, ``folder/crt`` the runtime's headers,
    ``folder/images.h`` the test images."""
    made = driver.export(
        DIGITS, emit=emit, output=folder / "digits.tar", workspace=workspace, board="host"
    )
    unpack_archive(made.path, folder / "model")
    (folder / "model" / "runtime" / "include").rename(folder / "crt")
    images = np.load(DIGITS_IMAGES)["image"].reshape(-1, 64).tolist()
    labels = np.load(DIGITS_LABELS).tolist()
    rows = ",\n".join("{" + ", ".join(map(str, row)) + "}" for row in images)
    (folder / "images.h").write_text(
        f"#include <stdint.h>\n#define IMAGES {len(images)}\n"
        f"static const int8_t images[IMAGES][64] = {{{rows}}};\n"
        f"static const int labels[IMAGES] = {{{', '.join(map(str, labels))}}};\n"
    )
    (folder / "main.c").write_text(MAIN)
    return folder


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("include", ["crt", "crt model/codegen/host/include"])
def test_a_library_of_all_sources_and_objects_needs_no_header_and_no_language(
    tmp_path: Path, emit: driver.Emit, include: str
) -> None:
    if emit == "llvm":
        require_module("llvmlite")
    folder = unpacked(tmp_path, emit)
    (folder / "CMakeLists.txt").write_text(CMAKE % include)
    run(folder, require("cmake"), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={require('ninja')}",
        "-S", ".", "-B", "build")
    run(folder, "ninja", "-C", "build")
    assert run(folder, "build/main") == "12 right\n"


def flattened(folder: Path) -> tuple[list[Path], int]:
    """A sketch of Arduino's: C sources alone, in one folder, which reach the runtime's headers by
    paths from there; and the bytes of its arena."""
    sketch = folder / "sketch"
    sketch.mkdir()
    sources = []
    for source in sorted((folder / "model" / "codegen" / "host" / "src").rglob("*.c")):
        text = re.sub(
            r'#include\s*[<"]([^>"]*)[>"]',
            lambda found: f'#include "../crt/{found[1]}"'
            if (folder / "crt" / found[1]).exists() else f'#include "{found[1]}"',
            source.read_text(),
        )
        sources.append(sketch / source.name)
        sources[-1].write_text(text)
    metadata = json.loads((folder / "model" / "metadata.json").read_text())
    return sources, sum(
        module["memory"]["functions"]["main"][0]["workspace_size_bytes"]
        for module in metadata["modules"].values()
    )


@pytest.mark.parametrize("workspace", ["static", "caller"])
def test_sources_alone_compile_and_their_arena_is_no_second_workspace(
    tmp_path: Path, workspace: driver.Workspace
) -> None:
    folder = unpacked(tmp_path, "c", workspace)
    sources, arena = flattened(folder)
    size = int(re.findall(
        r"TVMGEN_DIGITS_WORKSPACE_SIZE (\d+)",
        (folder / "model" / "codegen" / "host" / "include" / "tvmgen_digits.h").read_text(),
    )[0])
    reserved = 0
    for source in sources:
        # Headers of the runtime include each other; nothing else has a path.
        run(folder, require("gcc"), "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-c", "-Icrt",
            str(source), "-o", str(source.with_suffix(".o")))
        with source.with_suffix(".o").open("rb") as stream:
            reserved += sum(
                section["sh_size"] for section in ELFFile(stream).iter_sections()
                if section["sh_type"] == "SHT_NOBITS"
            )
    assert size > 0
    assert arena + reserved == size
    if workspace == "static":
        run(folder, "gcc", "-Icrt", "-I.", "main.c", *(str(s.with_suffix(".o")) for s in sources),
            "-lm", "-o", "main")
        assert run(folder, "./main") == "12 right\n"


def test_sources_and_the_header_agree_in_one_translation_unit(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, "c")
    header, source = "tvmgen_digits.h", "digits_lib0.c"
    for order in ((header, source), (source, header)):
        (folder / "both.c").write_text("".join(f'#include "{name}"\n' for name in order))
        run(folder, require("gcc"), "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", "-Icrt",
            "-Imodel/codegen/host/include", "-Imodel/codegen/host/src", "both.c")


BYOC = """\
#include <stdint.h>
#include <string.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/c_backend_api.h>
#ifdef __cplusplus
extern "C" {
#endif
TVM_DLL int32_t negate(float* in, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = -in[i];
  return 0;
}
TVM_DLL int32_t twice(TVMValue* args, int* type_code, int num_args, TVMValue* out_value,
                      int* out_type_code) {
  DLTensor* in = (DLTensor*)(((TVMValue*)args)[0].v_handle);
  DLTensor* out = (DLTensor*)(((TVMValue*)args)[1].v_handle);
  for (int i = 0; i < 4; ++i) ((float*)out->data)[i] = 2 * ((float*)in->data)[i];
  return 0;
}
#ifdef __cplusplus
}
#endif
"""


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_functions_marked_as_tvms_code_generators_do_are_compiled(
    tmp_path: Path, emit: driver.Emit
) -> None:
    (tmp_path / "byoc.c").write_text(BYOC)
    tensors = [{"name": name, "dtype": "float32", "shape": [4]} for name in ("x", "h", "y")]
    (tmp_path / "model.json").write_text(json.dumps({
        "format": "crtexport-model", "version": 1, "name": "byoc",
        "inputs": ["x"], "outputs": ["y"], "tensors": tensors,
        "modules": [{"name": "others", "kind": "c-source", "files": ["byoc.c"], "functions": [
            {"name": "negate"}, {"name": "twice", "signature": "packed"},
        ]}],
        "nodes": [
            {"op": "External", "inputs": ["x"], "outputs": ["h"],
             "attributes": {"function": "negate"}},
            {"op": "External", "inputs": ["h"], "outputs": ["y"],
             "attributes": {"function": "twice"}},
        ],
    }))
    made = driver.export(tmp_path / "model.json", emit=emit, output=tmp_path / "byoc.tar")
    x = np.array([1, -2, 3.5, 0], np.float32)
    from crtexport import simulate

    (answer,) = simulate(made.path, {"x": x})
    np.testing.assert_array_equal(answer["y"], -2 * x)
