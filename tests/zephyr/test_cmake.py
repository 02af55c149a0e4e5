"""The CMake function: its reading of flags, and whole builds in which Zephyr is a few stubs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crtexport.accelerators import Built, Match, registry
from crtexport.ir.graph import Graph
from crtexport.ir.modules import ExternalModule, ModuleFunction, SourceText
from crtexport.ir.ops import Reshape
from crtexport.pipeline import driver
from crtexport.support.target import Target
from tests.cli.support import DIGITS, exported
from tests.helpers import ROOT, require, require_module

MODULE = ROOT / "zephyr_app" / "cmake" / "crtexport.cmake"

# As Zephyr 3.4.99 has them in INTERFACE_COMPILE_OPTIONS while configuring for native_sim.
NATIVE_SIM = r"""
$<$<COMPILE_LANGUAGE:C>:$<TARGET_PROPERTY:compiler,no_strict_aliasing>>
-Os
$<$<COMPILE_LANGUAGE:CXX>:$<TARGET_PROPERTY:compiler-cpp,required>>
SHELL: $<TARGET_PROPERTY:compiler,imacros> /build/zephyr/include/generated/autoconf.h
$<TARGET_PROPERTY:compiler,debug>
$<$<COMPILE_LANGUAGE:C>:$<TARGET_PROPERTY:compiler,no_position_independent>>
$<$<COMPILE_LANGUAGE:CXX>:-mthumb>
-fno-reorder-functions
--param=min-pagesize=0
-fmacro-prefix-map=/a b=CMAKE_SOURCE_DIR
-m32
$<TARGET_PROPERTY:compiler,fpsse2>
$<$<COMPILE_LANGUAGE:C>:$<TARGET_PROPERTY:compiler,cstd>c11>
SHELL:-mfoo -O2 -mbar
"""

SCRIPT = """
cmake_minimum_required(VERSION 3.20)
include({module})
set(flags)
{appends}
crtexport_machine_flags(found ${{flags}})
message(STATUS "found: ${{found}}")
"""

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(app C)
# What the module uses of Zephyr.
add_library(zephyr_interface INTERFACE)
add_custom_target(compiler)
set_property(TARGET compiler PROPERTY position -fno-pic -fno-pie)
target_compile_options(zephyr_interface INTERFACE
  -m64 $<$<COMPILE_LANGUAGE:C>:$<TARGET_PROPERTY:compiler,position>>)
set(PYTHON_EXECUTABLE {python})
set(CONFIG_CRTEXPORT {enabled})
set(CONFIG_CRTEXPORT_BACKEND llvm)
set(CONFIG_CRTEXPORT_OPTIMIZE size)
{settings}
file(WRITE ${{CMAKE_BINARY_DIR}}/zephyr/.config
  "CONFIG_ARCH_POSIX=y\\nCONFIG_BOARD=\\"a_stub\\"\\n")
include({module})
add_executable(app main.c)
target_link_options(app PRIVATE -no-pie)
crtexport_model({arguments})
"""

MAIN = """
#include <stdio.h>
#include "tvmgen_digits.h"
#include "images.h"
int main(void)
{
    int8_t scores[TVMGEN_DIGITS_PROBABILITIES_SIZE];
    int right = 0;
    for (int i = 0; i < IMAGES; i++) {
        struct tvmgen_digits_inputs in = {images[i]};
        struct tvmgen_digits_outputs out = {scores};
        int best = 0;
        if (tvmgen_digits_run(&in, &out) != 0) return 1;
        for (int k = 1; k < 10; k++) best = scores[k] > scores[best] ? k : best;
        right += best == labels[i];
    }
    printf("%d right\\n", right);
    return 0;
}
"""


def test_flags_are_read_as_zephyr_has_them(tmp_path: Path) -> None:
    require("cmake")
    appends = "\n".join(
        f"list(APPEND flags [==[{line}]==])" for line in NATIVE_SIM.strip().splitlines()
    )
    script = tmp_path / "script.cmake"
    script.write_text(SCRIPT.format(module=MODULE, appends=appends))
    done = subprocess.run(
        ["cmake", "-P", str(script)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "found: -m32;-mfoo;-mbar\n" in done.stdout


class Project:
    """A project of plain CMake with the model digits."""

    def __init__(self, folder: Path) -> None:
        require("cmake")
        require("ninja")
        self.folder, self.build = folder, folder / "build"
        (folder / "main.c").write_text(MAIN)
        (folder / "images.h").write_text((ROOT / "zephyr_app" / "src" / "images.h").read_text())
        for file in DIGITS.parent.glob("model.*"):
            (folder / file.name).write_bytes(file.read_bytes())

    def configure(
        self, arguments: str, *, settings: str = "", enabled: str = "y"
    ) -> subprocess.CompletedProcess[str]:
        (self.folder / "CMakeLists.txt").write_text(PROJECT.format(
            python=sys.executable, module=MODULE, arguments=arguments, settings=settings,
            enabled=enabled,
        ))
        return self._run("cmake", "-GNinja", "-S", str(self.folder), "-B", str(self.build))

    def make(self) -> str:
        done = self._run("ninja", "-C", str(self.build))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def answer(self) -> str:
        return self._run(str(self.build / "app")).stdout

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment
        )


@pytest.mark.parametrize("arguments", ["BACKEND llvm", "BACKEND c SYSTEM_LIB"])
def test_a_model_is_exported_while_building_and_again_only_when_it_changes(
    tmp_path: Path, arguments: str
) -> None:
    if "llvm" in arguments:
        require_module("llvmlite")
    project = Project(tmp_path)
    done = project.configure(f"TARGET app NAME digits MODEL model.json {arguments}")
    assert done.returncode == 0, done.stderr
    assert "Exporting model digits" in project.make()
    assert project.answer() == "12 right\n"
    assert "no work to do" in project.make()
    for name in ("model.json", "model.safetensors"):
        os.utime(tmp_path / name)
        assert project.make().count("Exporting model digits") == 1
        assert "no work to do" in project.make()
    # Configuring again changes nothing either.
    assert project.configure(f"TARGET app NAME digits MODEL model.json {arguments}").returncode == 0
    assert "Exporting" not in project.make()
    assert project.answer() == "12 right\n"


@pytest.mark.parametrize("settings", ["", "set(CONFIG_RISCV y)"])
def test_gcc_leaves_the_order_of_instructions_alone_on_riscv(tmp_path: Path, settings: str) -> None:
    require("gcc")
    project = Project(tmp_path)
    arguments = "TARGET app NAME digits MODEL model.json BACKEND c"
    done = project.configure(arguments, settings=f"{settings}\nset(CMAKE_C_COMPILER_ID GNU)")
    assert done.returncode == 0, done.stderr
    flags = [
        line for line in (project.build / "build.ninja").read_text().splitlines()
        if "FLAGS = " in line and "-ffp-contract=off" in line
    ]
    assert len(flags) >= 2
    assert all(("-fno-schedule-insns" in line) is bool(settings) for line in flags)


def test_a_workspace_goes_into_the_section_that_is_asked_for(tmp_path: Path) -> None:
    require_module("llvmlite")
    require("objdump")
    project = Project(tmp_path)
    for backend in ("llvm", "c"):
        arguments = f"TARGET app NAME digits MODEL model.json BACKEND {backend} SECTION .noinit.ws"
        assert project.configure(arguments).returncode == 0
        project.make()
        assert project.answer() == "12 right\n"
        listed = subprocess.run(
            ["objdump", "-h", str(project.build / "app")],
            capture_output=True, text=True, check=True,
        ).stdout
        assert ".noinit.ws    00000" in listed, backend


def test_a_package_that_fits_is_linked_and_another_is_refused_while_configuring(
    tmp_path: Path,
) -> None:
    require_module("llvmlite")
    project = Project(tmp_path)
    package = exported(tmp_path, board="host", emit="llvm")
    done = project.configure(f"TARGET app NAME digits PACKAGE {package}")
    assert done.returncode == 0, done.stderr
    project.make()
    assert project.answer() == "12 right\n"
    other = exported(tmp_path, board="mps2_an386", emit="llvm")
    done = project.configure(f"TARGET app NAME digits PACKAGE {other}")
    assert done.returncode != 0
    assert "another processor: Arm; this build has x86-64" in " ".join(done.stderr.split())


class Copying:
    """A plugin that takes Reshape, and copies by a function of a library."""

    def match(self, graph: Graph, node: int, target: Target) -> Match | None:
        reshape = graph.nodes[node]
        if not isinstance(reshape.op, Reshape):
            return None
        size = graph.type(reshape.outputs[0]).nbytes
        return Match((node,), (graph.required(reshape, 0),), reshape.outputs, data=size)

    def build(self, matches: Sequence[Match], prefix: str) -> Built:
        (match,) = matches
        code = (
            '#include "vendor.h"\n'
            f"int {prefix}_copy(const void *input, void *output)\n"
            f"{{ vendor_copy(output, input, {match.data}); return 0; }}\n"
        )
        module = ExternalModule(
            "copying", "c-source", (SourceText(f"{prefix}.c", code),),
            (ModuleFunction(f"{prefix}_copy"),),
        )
        return Built((f"{prefix}_copy",), (module,))


VENDOR = """
file(WRITE ${CMAKE_BINARY_DIR}/v/vendor.h "void vendor_copy(void *, const void *, unsigned long);")
file(WRITE ${CMAKE_BINARY_DIR}/v/vendor.c "#include <string.h>
void vendor_copy(void *to, const void *from, unsigned long size) { memcpy(to, from, size); }")
add_library(vendor STATIC ${CMAKE_BINARY_DIR}/v/vendor.c)
target_include_directories(vendor PUBLIC ${CMAKE_BINARY_DIR}/v)
"""


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_sources_of_others_are_compiled_and_linked_with_their_library(
    tmp_path: Path, emit: driver.Emit, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("llvmlite")
    monkeypatch.setitem(registry.BUILT_IN, "copying", f"{__name__}:{Copying.__name__}")
    made = driver.export(DIGITS, emit=emit, output=tmp_path / "d.tar", accelerators=["copying"])
    assert [bool(decision.function) for decision in made.decisions] == [True]
    project = Project(tmp_path)
    done = project.configure(
        f"TARGET app NAME digits PACKAGE {made.path} LIBRARIES vendor", settings=VENDOR
    )
    assert done.returncode == 0, done.stderr
    project.make()
    assert project.answer() == "12 right\n"


MISTAKES = [
    ("TARGET app NAME digits", "give either MODEL or PACKAGE"),
    ("TARGET app NAME digits MODEL model.json PACKAGE x.tar", "give either MODEL or PACKAGE"),
    ("TARGET nobody NAME digits MODEL model.json", "TARGET must name the target"),
    ("TARGET app NAME Digits MODEL model.json", "NAME must consist of a-z, 0-9 and _"),
    ("TARGET app NAME digits MODEL missing.json", "there is no file"),
    ("TARGET app NAME digits MODEL model.json BACKEND rust", "BACKEND is llvm or c, not 'rust'"),
    ("TARGET app NAME digits MODEL model.json COLOUR blue", "what is COLOUR;blue"),
    ("TARGET app NAME digits PACKAGE model.json BACKEND c", "BACKEND was decided"),
    ("TARGET app NAME digits PACKAGE model.json", "crtexport: error:"),
    ("TARGET app NAME other PACKAGE digits-host-c.tar", "has no model other"),
]


def test_mistakes_end_the_configuration_with_a_sentence(tmp_path: Path) -> None:
    project = Project(tmp_path)
    exported(tmp_path)
    for arguments, problem in MISTAKES:
        done = project.configure(arguments)
        assert done.returncode != 0, arguments
        assert problem in " ".join(done.stderr.split()), arguments
    done = project.configure("TARGET app NAME digits MODEL model.json", enabled="n")
    assert "needs CONFIG_CRTEXPORT=y" in " ".join(done.stderr.split())


def test_an_export_that_fails_fails_the_build_with_its_words(tmp_path: Path) -> None:
    project = Project(tmp_path)
    arguments = "TARGET app NAME digits MODEL model.json OPTIONS --numerics triple"
    assert project.configure(arguments).returncode == 0
    done = subprocess.run(
        ["ninja", "-C", str(project.build)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "'triple' is not one of" in done.stdout
