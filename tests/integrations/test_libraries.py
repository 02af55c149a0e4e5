"""Libraries of build systems: built as these build them, their examples run and see mistakes."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml

from crtexport import CrtExportError, write_library
from crtexport.firmware.parts import TensorPart
from crtexport.integrations.formats import FORMATS
from crtexport.integrations.test_vector import values
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add, Slice
from crtexport.ir.types import DType, Quantization
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.pipeline.driver import export
from tests.cli.support import exported
from tests.control.networks import layers, remembering
from tests.helpers import require
from tests.packages import STRICT
from tests.plan.graphs import GraphBuilder

ARDUINO = """\
#include <stdio.h>
struct Port {
    void begin(long) {}
    void print(const char *text) { printf("%s", text); }
    void println(const char *text) { printf("%s\\n", text); }
    void println(long value) { printf("%ld\\n", value); }
};
static Port Serial;
static void delay(unsigned long) {}
"""


@functools.cache
def folder_of_packages() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="crtexport-tests-")


@functools.cache
def package(kind: str, *, emit: driver.Emit = "c", board: str = "mps2_an386") -> Path:
    """A package: of integers; of floats that are kept from run to run, in the workspace; of two
    models; of the shape of MLPerf Tiny's keywords."""
    folder = Path(folder_of_packages().name) / f"{emit}-{board}"
    folder.mkdir(exist_ok=True)
    path = folder / f"{kind}.tar"
    if kind == "digits":
        return exported(folder, board=board, emit=emit).rename(path)
    if kind == "floats":
        return export(remembering().graph, board=board, emit=emit, output=path, io="workspace",
                      module_name="floats").path
    if kind == "speech":
        return export(speech(), board=board, emit=emit, output=path).path
    graphs = [remembering().graph, layers().graph]
    return export(graphs, board=board, emit=emit, output=path, module_name=["one", "two"]).path


def speech(dtype: DType = DType.INT8) -> Graph:
    """490 values, of which 12 are the scores: a network of the shape of MLPerf Tiny's."""
    b, quant = GraphBuilder(), Quantization((0.25,), (-7,))
    x = b.input(1, 490, dtype=dtype, quant=quant if dtype is DType.INT8 else None)
    op = Slice((0, 5), (1, 12), (1, 1), (1, 12))
    return b.finish(b.node(op, x, quant=quant if dtype is DType.INT8 else None))


KINDS = ("digits", "floats", "several")


@pytest.fixture(params=KINDS)
def sources(request: pytest.FixtureRequest) -> Path:
    return package(request.param)


def run(*words: str | Path, folder: Path, code: int = 0) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False,
        timeout=300,
    )
    assert (done.returncode != 0) == bool(code), done.stdout + done.stderr
    return done.stdout


def compiled(folder: Path, sources: list[Path], include: list[str], target: Path) -> None:
    """A program of C sources of a library, by the compiler of this computer."""
    flags = [f"-I{folder / name}" for name in include]
    run(require("cc"), *STRICT, "-ffp-contract=off", *flags, *sources, "-lm", "-o", target,
        folder=folder)


def sources_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.c"))


def test_cmake_builds_tests_installs_and_finds_the_library(sources: Path, tmp_path: Path) -> None:
    for tool in ("cmake", "ninja", "cc"):
        require(tool)
    library = tmp_path / "library"
    name = open_package(sources).modules
    write_library(sources, library, "cmake")
    for words in (("cmake", "--preset", "example", "-G", "Ninja"),
                  ("cmake", "--build", "--preset", "example"), ("ctest", "--preset", "example")):
        run(*words, folder=library)
    program, = (library / "build" / "example").glob("crtexport_*_example")
    assert run(program, folder=library).splitlines()[-1] == "PASS"
    run("cmake", "--install", "build/example", "--prefix", tmp_path / "prefix", folder=library)
    target = program.name.removeprefix("crtexport_").removesuffix("_example")
    user = tmp_path / "user"
    user.mkdir()
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(user LANGUAGES C)\n"
        f"find_package(crtexport_{target} 1.0.0 EXACT REQUIRED)\nadd_executable(user main.c)\n"
        f"target_link_libraries(user PRIVATE crtexport::{target} m)\n"
    )
    (user / "main.c").write_text("".join(
        f"#include <tvmgen_{model}.h>\n" for model in name
    ) + "int main(void) { return 0; }\n")
    run("cmake", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", "-B", "build",
        folder=user)
    run("cmake", "--build", "build", folder=user)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_cmake_builds_the_library_for_the_board(emit: driver.Emit, tmp_path: Path) -> None:
    require("arm-none-eabi-gcc")
    require("cmake")
    library = tmp_path / "library"
    written = write_library(package("digits", emit=emit), library, "cmake")
    assert not written.unrecorded  # QEMU runs the objects
    run("cmake", "--preset", "board", folder=library)
    run("cmake", "--build", "--preset", "board", folder=library)
    archive, = (library / "build" / "board").glob("*.a")
    symbols = run(require("arm-none-eabi-nm"), archive, folder=library)
    assert " T tvmgen_digits_run" in symbols
    presets = json.loads((library / "CMakePresets.json").read_text())
    assert [one["name"] for one in presets["configurePresets"]] == (
        ["board", "example"] if emit == "c" else ["board"]
    )


def main_of(sketch: Path, folder: Path) -> Path:
    """Writes a program that runs a sketch once, and a header in the place of Arduino's, to
    ``folder``; returns the program's file."""
    (folder / "Arduino.h").write_text(ARDUINO)
    main = folder / "main.cpp"
    main.write_text(
        f'#include "Arduino.h"\n#include "{sketch / "run.ino"}"\n'
        "int main() { setup(); loop(); return 0; }\n"
    )
    return main


def test_an_arduino_sketch_compiles_as_cpp_and_passes(sources: Path, tmp_path: Path) -> None:
    require("g++")
    library = tmp_path / "library"
    write_library(sources, library, "arduino")
    sketch = library / "examples" / "run"
    main = main_of(sketch, tmp_path)
    objects = []
    for source in [*sources_in(library / "src"), *sources_in(sketch)]:
        objects.append(tmp_path / f"{source.stem}.o")
        run(require("cc"), *STRICT, f"-I{library / 'src'}", "-c", source, "-o", objects[-1],
            folder=tmp_path)
    run("g++", "-Wall", "-Wextra", "-Werror", f"-I{library / 'src'}", f"-I{sketch}", main,
        *objects, "-lm", "-o", "program", folder=tmp_path)
    said = run(tmp_path / "program", folder=tmp_path).splitlines()
    assert len(said) == len(open_package(sources).modules)
    assert all("PASS" in line for line in said)


def test_a_packs_sources_and_example_make_a_program_that_passes(
    sources: Path, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    write_library(sources, library, "cmsis-pack")
    files = [*sources_in(library / "src"), *sources_in(library / "example")]
    compiled(library, files, ["include", "example"], tmp_path / "program")
    assert run(tmp_path / "program", folder=tmp_path).splitlines()[-1] == "PASS"


@pytest.mark.parametrize(("defined", "caller"), [
    ("ARDUINO", "void setup(); void loop(); int main() { setup(); loop(); return 0; }"),
    ("ESP_PLATFORM", 'extern "C" void app_main(void); int main() { app_main(); return 0; }'),
])
def test_platformios_example_runs_with_the_frameworks(
    defined: str, caller: str, tmp_path: Path
) -> None:
    """With functions in the place of theirs."""
    require("g++")
    library = tmp_path / "library"
    write_library(package("digits"), library, "platformio")
    example = library / "examples" / "run" / "src"
    (tmp_path / "Arduino.h").write_text(ARDUINO)
    (tmp_path / "start.cpp").write_text(f"{caller}\n")
    for source in [*sources_in(library / "src"), *sources_in(example)]:
        run(require("cc"), *STRICT, f"-I{library / 'include'}", "-c", source, folder=tmp_path)
    run("g++", f"-D{defined}", "-Wall", "-Wextra", "-Werror", "-I.", f"-I{example}",
        example / "main.cpp", "start.cpp", *sorted(tmp_path.glob("*.o")), "-lm", "-o", "program",
        folder=tmp_path)
    assert "PASS" in run(tmp_path / "program", folder=tmp_path)


def test_an_esp_idf_components_files_are_those_it_names(sources: Path, tmp_path: Path) -> None:
    library = tmp_path / "component"
    write_library(sources, library, "esp-idf")
    text = (library / "CMakeLists.txt").read_text()
    assert {f'"src/{path.name}"' for path in sources_in(library / "src")} == {
        line.strip() for line in text.splitlines() if line.strip().startswith('"src/')
    }
    described = yaml.safe_load((library / "idf_component.yml").read_text())
    assert described["version"] == "1.0.0"
    assert all((library / one["path"]).is_dir() for one in described["examples"])
    main_ = library / "examples" / "run" / "main"
    text = (main_ / "main.c").read_text()
    (main_ / "start.c").write_text("void app_main(void);\nint main(void) { app_main(); return 0; }")
    assert "app_main" in text
    flags = [flag for flag in STRICT if flag != "-Wmissing-prototypes"]  # ESP-IDF has its prototype
    run(require("cc"), *flags, f"-I{library / 'include'}", *sources_in(library / "src"),
        *sources_in(main_), "-lm", "-o", tmp_path / "program", folder=tmp_path)
    assert run(tmp_path / "program", folder=tmp_path).splitlines()[-1] == "PASS"


def test_an_esp_idf_component_is_configured_by_cmake(tmp_path: Path) -> None:
    """With functions in the place of ESP-IDF's, which note what they are given."""
    require("cmake")
    library = tmp_path / "digits"
    write_library(package("digits"), library, "esp-idf")
    for part in (library, library / "examples" / "run" / "main"):
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(idf LANGUAGES C)\n"
            "function(idf_component_register)\n"
            '  cmake_parse_arguments(A "" "" "SRCS;INCLUDE_DIRS;REQUIRES" ${ARGN})\n'
            "  add_library(component STATIC ${A_SRCS})\n"
            "  target_include_directories(component PRIVATE ${A_INCLUDE_DIRS}"
            f" {library}/include)\n"
            '  set(COMPONENT_LIB component PARENT_SCOPE)\n'
            '  file(WRITE "${CMAKE_BINARY_DIR}/requires" "${A_REQUIRES}")\n'
            f"endfunction()\nadd_subdirectory({part} part)\n"
        )
        build = tmp_path / f"build-{part.name}"
        run("cmake", "-B", build, folder=tmp_path)
        run("cmake", "--build", build, folder=tmp_path)
        assert (build / "requires").read_text() == ("" if part == library else "digits")


def test_expected_outputs_must_be_the_models(tmp_path: Path) -> None:
    for name, shape, words in (("scores", (1, 10), "no array for this output"),
                               ("probabilities", (10,), "the output has")):
        with pytest.raises(CrtExportError, match=words):
            write_library(package("digits"), tmp_path / "l", "cmake",
                          outputs={name: np.zeros(shape, np.int8)})
    assert not (tmp_path / "l").exists()


def test_an_example_sees_that_outputs_differ(tmp_path: Path) -> None:
    path = package("digits")
    expected = np.full((1, 10), 5, np.int8)
    written = write_library(path, tmp_path / "l", "cmake", outputs={"probabilities": expected})
    assert not written.unrecorded
    folder = tmp_path / "l"
    files = [*sources_in(folder / "src"), *sources_in(folder / "example")]
    compiled(folder, files, ["include", "example"], tmp_path / "program")
    said = run(tmp_path / "program", folder=tmp_path, code=1)
    assert said == "digits: output 1 differs from what was recorded\nFAIL\n"


@pytest.mark.parametrize(("change", "differs"), [
    ({}, False), ({0: 1e-6}, False), ({0: 1e-3}, True), ({1: np.nan}, True), ({2: 1.0}, True),
])
def test_floats_may_differ_in_their_last_digits(
    change: Mapping[int, float], differs: bool, tmp_path: Path
) -> None:
    """The model gives back its inputs 1, 0.25 and infinity, through a sum with 0."""
    b = GraphBuilder()
    x = b.input(3)
    graph = b.finish(b.node(Add(), x, b.constant(np.zeros(3, np.float32))))
    path = export(graph, board="host", emit="c", output=tmp_path / "p.tar").path
    opened = open_package(path)
    sample = np.array([1, 0.25, np.inf], np.float32)
    expected = sample.copy()
    for place, value in change.items():
        expected[place] = expected[place] + value if place == 0 else value
    write_library(path, tmp_path / "l", "cmake",
                  {opened.inputs[0].name: sample}, {opened.outputs[0].name: expected})
    folder = tmp_path / "l"
    files = [*sources_in(folder / "src"), *sources_in(folder / "example")]
    compiled(folder, files, ["include", "example"], tmp_path / "program")
    run(tmp_path / "program", folder=tmp_path, code=int(differs))


@pytest.mark.parametrize("dtype", [one for one in DType if one is not DType.BOOL])
def test_literals_are_the_values(dtype: DType, tmp_path: Path) -> None:
    """Compiled and read back, the extreme ones among them."""
    drawn = np.random.default_rng(5)
    bits = drawn.integers(0, 256, 64 * dtype.itemsize, np.uint8).view(dtype.numpy)
    extremes = [*dtype.limits, 0] if dtype.is_integer else [0.0, -0.0, np.inf, -np.inf, 1e-40, 0.1]
    array = np.concatenate([bits, np.array(extremes, dtype.numpy)])
    array = array[~np.isnan(array)]
    found = values(TensorPart("t", "t", dtype, array.shape), array)
    (tmp_path / "a.c").write_text(
        "#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n"
        f"static const {found.c_type} t[{found.count}] = {{{' '.join(found.lines)}}};\n"
        "int main(void) { return fwrite(t, sizeof(t), 1, stdout) != 1; }\n"
    )
    run(require("cc"), *STRICT, "a.c", "-o", "a", folder=tmp_path)
    done = subprocess.run([tmp_path / "a"], capture_output=True, check=True)
    assert done.stdout == array.tobytes()


@pytest.mark.parametrize(("format_", "options", "words"), [
    ("arduino", {"emit": "llvm"}, "compiles its libraries from sources"),
    ("esp-idf", {"emit": "llvm"}, "compiles its libraries from sources"),
    ("cmsis-pack", {"board": "qemu_riscv32"}, "are for Arm's processors"),
])
def test_what_a_format_cannot_hold_is_refused(
    format_: str, options: dict[str, str], words: str, tmp_path: Path
) -> None:
    path = package("digits", **options)  # type: ignore[arg-type]
    with pytest.raises(CrtExportError, match=words):
        write_library(path, tmp_path / "l", format_)
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize("version", ["1", "1.0", "1.0.0-a", "01.0.0", "1.0.0\nname=x", ""])
def test_versions_that_build_systems_do_not_know_are_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="three numbers"):
        write_library(package("digits"), tmp_path / "l", "arduino", version=version)


@pytest.mark.parametrize("format_", FORMATS)
def test_writing_again_replaces_only_what_was_written(format_: str, tmp_path: Path) -> None:
    path, folder = package("speech" if format_ == "mlperf-tiny" else "digits"), tmp_path / "library"
    first = write_library(path, folder, format_)
    before = {file: file.stat().st_mtime_ns for file in first.files}
    assert len((folder / "README.md").read_text().splitlines()) <= 30
    (folder / "mine.c").write_text("mine")
    again = write_library(path, folder, format_)
    assert again == first
    assert {file: file.stat().st_mtime_ns for file in again.files} == before
    assert (folder / "mine.c").read_text() == "mine"
    changed = first.files[0]
    changed.write_text("changed by me")
    with pytest.raises(CrtExportError, match="were changed since"):
        write_library(path, folder, format_, version="2.0.0",
                      inputs={one.name: np.ones(one.shape, np.int8)
                              for one in open_package(path).inputs})
    assert changed.read_text() == "changed by me"
    shutil.rmtree(folder)
    assert write_library(path, folder, format_).files == first.files
