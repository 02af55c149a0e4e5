"""The CMake function in a build for a Cortex-M3 without an operating system: what it links, what it
counts, and when it exports again. Zephyr is a few stubs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.helpers import ROOT, require, require_module

MODULE = ROOT / "zephyr_app" / "cmake" / "crtexport.cmake"
COUNT = 300
# As Zephyr 3.4 links: the compiler's library stands before those that applications add.
PROJECT = """
cmake_minimum_required(VERSION 3.20)
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
project(app C)
add_library(zephyr_interface INTERFACE)
target_compile_options(zephyr_interface INTERFACE -mcpu=cortex-m3 -mthumb -ffreestanding)
set(PYTHON_EXECUTABLE {python})
set(CONFIG_CRTEXPORT y)
set(CONFIG_CRTEXPORT_BACKEND llvm)
set(CONFIG_CRTEXPORT_OPTIMIZE balanced)
{settings}
file(WRITE ${{CMAKE_BINARY_DIR}}/zephyr/.config "{config}")
include({module})
add_executable(app main.c)
target_link_libraries(app PRIVATE zephyr_interface gcc)
target_link_options(app PRIVATE -mcpu=cortex-m3 -mthumb -nostdlib -Wl,-e,main)
crtexport_model(TARGET app NAME scaled MODEL model.json {arguments})
"""
CONFIG = {"XIP": "y", "FLASH_SIZE": 64, "SRAM_SIZE": 8, "SRAM_BASE_ADDRESS": "0x20000000"}
MAIN = """
#include <stddef.h>
#include "tvmgen_scaled.h"
static float x[TVMGEN_SCALED_X_ELEMENTS], y[TVMGEN_SCALED_Y_ELEMENTS];
void *memcpy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; i++) ((char *)to)[i] = (char)value;
    return to;
}
int main(void)
{
    struct tvmgen_scaled_inputs in = {x};
    struct tvmgen_scaled_outputs out = {y};
    return tvmgen_scaled_run(&in, &out);
}
"""


class Project:
    """An application with a model that multiplies floats, on a processor without an FPU."""

    def __init__(self, folder: Path) -> None:
        for tool in ("cmake", "ninja", "arm-none-eabi-gcc"):
            require(tool)
        self.folder, self.build = folder, folder / "build"
        (folder / "main.c").write_text(MAIN)
        self.model()

    def model(self, **more: object) -> None:
        tensors = [{"name": n, "dtype": "float32", "shape": [COUNT]} for n in ("x", "y")]
        (self.folder / "model.json").write_text(json.dumps({
            "format": "crtexport-model", "version": 1, "name": "scaled",
            "inputs": ["x"], "outputs": ["y"], "tensors": tensors,
            "nodes": [{"op": "Mul", "inputs": ["x", "x"], "outputs": ["y"]}],
            **more,
        }))

    def configure(
        self, arguments: str = "", *, settings: str = "", **config: object
    ) -> subprocess.CompletedProcess[str]:
        lines = [f"CONFIG_{key}={value}" for key, value in (CONFIG | config).items()]
        text = 'CONFIG_BOARD=\\"a_stub\\"\\n' + "\\n".join(lines) + "\\n"
        (self.folder / "CMakeLists.txt").write_text(PROJECT.format(
            python=sys.executable, module=MODULE, arguments=arguments, settings=settings,
            config=text,
        ))
        return self._run("cmake", "-GNinja", "-S", str(self.folder), "-B", str(self.build))

    def make(self) -> subprocess.CompletedProcess[str]:
        return self._run("ninja", "-C", str(self.build))

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment
        )


def words(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("backend", ["llvm", "c"])
def test_the_compilers_library_is_linked_behind_the_models(tmp_path: Path, backend: str) -> None:
    if backend == "llvm":
        require_module("llvmlite")
    project = Project(tmp_path)
    done = project.configure(f"BACKEND {backend}")
    assert done.returncode == 0, done.stderr
    done = project.make()
    assert done.returncode == 0, done.stdout
    with (project.build / "app").open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".symtab")
        names = {symbol.name for symbol in symbols.iter_symbols()}
    assert {"tvmgen_scaled_run", "__aeabi_fmul"} <= names


def test_inputs_that_are_constants_take_no_ram_and_the_hint_says_so(tmp_path: Path) -> None:
    project = Project(tmp_path)
    # Inputs and outputs take 1,200 bytes each.
    assert project.configure("BACKEND c", SRAM_SIZE=2).returncode == 0
    done = project.make()
    assert done.returncode != 0
    text = words(done)
    assert "608 bytes" in text
    assert "too much for ram" in text
    assert "--const-inputs, or INPUTS CONST" in text
    assert "--io workspace" in text
    assert "it would fit" not in text, "the build's board can't be exchanged"
    assert project.configure("BACKEND c INPUTS CONST", SRAM_SIZE=2).returncode == 0
    done = project.make()
    assert done.returncode == 0, done.stdout
    done = project.configure("INPUTS FLASH")
    assert "INPUTS can be CONST, not 'FLASH'" in words(done)


def test_only_changes_of_kconfig_that_matter_export_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert project.configure("BACKEND c").returncode == 0
    assert "Exporting model scaled" in project.make().stdout
    for config in ({"LOG": "y"}, {"LOG": "y", "MAIN_STACK_SIZE": 4096}, {"BOOT_DELAY": 5}):
        assert project.configure("BACKEND c", **config).returncode == 0
        assert "Exporting" not in project.make().stdout, config
    assert project.configure("BACKEND c", SRAM_SIZE=16).returncode == 0
    assert "Exporting model scaled" in project.make().stdout


DEVICETREE = """
function(dt_chosen out)
  set(${{out}} {node} PARENT_SCOPE)
endfunction()
function(dt_node_has_status out)
  set(${{out}} {enabled} PARENT_SCOPE)
endfunction()
function(dt_prop out)
endfunction()
set(CONFIG_CRTEXPORT_WORKSPACE_CHOSEN y)
"""


@pytest.mark.parametrize(("node", "enabled", "problem"), [
    ("", "TRUE", "/chosen in the devicetree has no crtexport,workspace; add it in an overlay"),
    ("/memory@0", "FALSE", "crtexport,workspace is /memory@0, which is not enabled"),
])
def test_a_chosen_memory_that_is_not_there_ends_the_configuration(
    tmp_path: Path, node: str, enabled: str, problem: str
) -> None:
    done = Project(tmp_path).configure(
        settings=DEVICETREE.format(node=node, enabled=enabled)
    )
    assert done.returncode != 0
    assert problem in words(done)


def test_a_model_that_brings_sources_of_others_is_refused_while_configuring(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "acc.c").write_text("int acc(const float *x, float *y) { *y = *x; return 0; }\n")
    project.model(
        modules=[{"name": "acc", "kind": "c-source", "files": ["acc.c"],
                  "functions": [{"name": "acc"}]}],
        nodes=[{"op": "External", "inputs": ["x"], "outputs": ["y"],
                "attributes": {"function": "acc"}}],
    )
    done = project.configure()
    assert done.returncode != 0
    assert "brings external C sources: acc.c" in words(done)
    assert "name the PACKAGE instead" in words(done)
