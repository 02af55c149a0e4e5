"""Packages as modules of Zephyr: their CMake and Kconfig, with functions in the place of Zephyr's.
``tests/zephyr`` builds and runs them where there is a tree of Zephyr."""

from __future__ import annotations

from pathlib import Path

import yaml

from crtexport import write_library
from crtexport.integrations.formats import FORMATS
from crtexport.integrations.library import name_of
from crtexport.mlf.reader import open_package
from tests.helpers import require, require_module
from tests.integrations.test_libraries import package, run, sources  # noqa: F401  (a fixture)

ZEPHYR = """\
project(kernel LANGUAGES C)
set(APPLICATION ${CMAKE_SOURCE_DIR})
file(STRINGS ${APPLICATION}/prj.conf settings)
foreach(setting IN LISTS settings)
  string(REGEX MATCH "^([^=]+)=(.*)$" _ ${setting})
  set(${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()
add_library(zephyr_interface INTERFACE)
macro(zephyr_include_directories folder)
  target_include_directories(zephyr_interface INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
endmacro()
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_link_libraries(${name} PUBLIC zephyr_interface)
  link_libraries(${name})
endmacro()
macro(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endmacro()
macro(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endmacro()
macro(zephyr_library_compile_definitions)
  target_compile_definitions(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endmacro()
file(WRITE ${CMAKE_BINARY_DIR}/empty.c "")
foreach(module IN LISTS ZEPHYR_EXTRA_MODULES)
  add_subdirectory(${module} module)
  get_property(libraries DIRECTORY ${module} PROPERTY BUILDSYSTEM_TARGETS)
endforeach()
add_executable(app)
target_link_libraries(app PRIVATE ${libraries} m)
"""


def test_the_sample_is_built_with_the_module_and_passes(sources: Path, tmp_path: Path) -> None:  # noqa: F811
    require("cmake")
    require("ninja")
    library = tmp_path / "library"
    write_library(sources, library, "zephyr")
    (tmp_path / "ZephyrConfig.cmake").write_text(ZEPHYR)
    run("cmake", "-G", "Ninja", "-S", library / "samples" / "run", "-B", "build",
        f"-DZephyr_DIR={tmp_path}", folder=tmp_path)
    run("cmake", "--build", "build", folder=tmp_path)
    said = run(tmp_path / "build" / "app", folder=tmp_path).splitlines()
    assert said[-1] == "PASS"
    assert len(said) == 1 + len(open_package(sources).modules)


def test_its_files_are_those_that_zephyr_reads(tmp_path: Path) -> None:
    require_module("kconfiglib")
    from kconfiglib import Kconfig

    path = package("several")
    name = name_of(open_package(path), FORMATS["zephyr"])
    write_library(path, tmp_path, "zephyr")
    described = yaml.safe_load((tmp_path / "zephyr" / "module.yml").read_text())
    assert described["name"] == f"crtexport_{name}"
    assert (tmp_path / described["build"]["cmake"] / "CMakeLists.txt").is_file()
    kconfig = Kconfig(str(tmp_path / described["build"]["kconfig"]), warn_to_stderr=False)
    kconfig.load_config(str(tmp_path / "samples" / "run" / "prj.conf"))
    symbol = kconfig.syms[f"CRTEXPORT_MODEL_{name.upper()}"]
    assert symbol.str_value == "y"
    assert not [one for one in kconfig.warnings if "CRTEXPORT" in one]
    (test,) = yaml.safe_load((tmp_path / "samples/run/sample.yaml").read_text())["tests"].values()
    assert test["harness_config"]["regex"] == ["^PASS"]


def test_workspaces_go_to_the_section_that_kconfig_names(tmp_path: Path) -> None:
    require("cmake")
    require("ninja")
    library = tmp_path / "library"
    write_library(package("digits"), library, "zephyr")
    with (library / "samples" / "run" / "prj.conf").open("a") as stream:
        stream.write("CONFIG_CRTEXPORT_MODEL_DIGITS_SECTION=.noinit.model\n")
    (tmp_path / "ZephyrConfig.cmake").write_text(ZEPHYR)
    run("cmake", "-G", "Ninja", "-S", library / "samples" / "run", "-B", "build",
        f"-DZephyr_DIR={tmp_path}", folder=tmp_path)
    run("cmake", "--build", "build", folder=tmp_path)
    archive, = (tmp_path / "build").rglob("libcrtexport_digits.a")
    assert ".noinit.model" in run(require("objdump"), "-h", archive, folder=tmp_path)
