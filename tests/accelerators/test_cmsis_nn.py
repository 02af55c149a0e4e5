"""CMSIS-NN: what is generated fits its declarations; with the library, it computes the same."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.accelerators.cmsis_nn.buffers import (
    Implementation,
    average_pool,
    convolution,
    depthwise,
)
from crtexport.cli.main import main
from crtexport.ir.numerics import Numerics
from crtexport.ir.window import WindowGeometry
from crtexport.mlf.libraries import Located, locate
from crtexport.mlf.reader import open_package
from crtexport.simulation import library as simulated
from crtexport.support.errors import CrtExportError
from tests.accelerators.cmsis import OPERATORS, drawn, joined, library
from tests.helpers import INT8_NETWORKS, hashed_input, require, shared_model
from tests.mlf.consumers import complaints
from tests.packages import STRICT
from tests.tflite_builder import run_reference

HEADERS = Path(__file__).parent / "headers"
CPUS = {"mps2_an386": "cortex-m4", "mps3_an547": "cortex-m55"}
COMPILERS = {
    "arm-none-eabi-gcc": (), "clang": ("--target=arm-none-eabi", "-ffreestanding"),
}
EACH = 4  # operators in a network: more would be more arguments than packed functions have


def exported(graph: Any, folder: Path, board: str = "host", **options: Any) -> Any:
    return crtexport.export(
        graph, board=board, output=folder / f"{board}.tar", accelerators=["cmsis-nn"], **options
    )


def sources(package: Path, folder: Path) -> list[Path]:
    """The generated files that call the library."""
    folder.mkdir(exist_ok=True)
    found = []
    for name, text in open_package(package).sources.items():
        if "cmsis" in name:
            found.append(folder / name)
            found[-1].write_text(text)
    assert found
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("board", CPUS)
def test_calls_fit_the_librarys_declarations(compiler: str, board: str, tmp_path: Path) -> None:
    for operator in OPERATORS:
        graph = joined(drawn(operator, range(EACH)), tmp_path)
        made = exported(graph, tmp_path, board)
        assert any(decision.function for decision in made.decisions)
        for source in sources(made.path, tmp_path / "src"):
            subprocess.run(
                [require(compiler), *COMPILERS[compiler], f"-mcpu={CPUS[board]}", "-mthumb",
                 *STRICT, f"-I{HEADERS}", "-c", str(source), "-o", str(tmp_path / "out.o")],
                check=True,
            )


@pytest.mark.parametrize(("define", "message"), [
    ("-UREVERSE_TCOL_EFFICIENT_THRESHOLD", "version 7.0 or newer"),
    ("-DCMSIS_NN_USE_SINGLE_ROUNDING", "rounds twice"),
])
def test_libraries_that_compute_otherwise_do_not_compile(
    define: str, message: str, tmp_path: Path
) -> None:
    headers = tmp_path / "headers"
    headers.mkdir()
    for header in HEADERS.iterdir():
        text = header.read_text()
        old = define.startswith("-U") and "support" in header.name
        (headers / header.name).write_text("" if old else text)
    made = exported(joined(drawn("softmax", range(1)), tmp_path), tmp_path)
    (source,) = sources(made.path, tmp_path / "src")
    done = subprocess.run(
        [require("gcc"), define, f"-I{headers}", "-fsyntax-only", str(source)],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode
    assert message in done.stderr


def test_packages_say_what_they_are_built_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = exported(joined(drawn("softmax", range(1)), tmp_path), tmp_path)
    package = open_package(made.path)
    (dependency,) = package.raw_metadata["modules"]["joined"]["external_dependencies"]
    assert dependency["short_name"] == "CMSIS-NN"
    # TVM's own template finds out by itself, and asks its user where the library is.
    (complaint,) = complaints(made.path)
    assert complaint.endswith("cmsis_nn.c would make the template ask for cmsis_path")
    monkeypatch.delenv("CMSIS_NN_PATH", raising=False)
    assert main(["simulate", str(made.path)]) == 3
    assert "set CMSIS_NN_PATH to its folder" in capsys.readouterr().err
    monkeypatch.setenv("CMSIS_NN_PATH", str(tmp_path))
    with pytest.raises(CrtExportError, match="not the folder of CMSIS-NN"):
        crtexport.build(made.path, tmp_path / "firmware")
    (tmp_path / "a b" / "Include").mkdir(parents=True)
    monkeypatch.setenv("CMSIS_NN_PATH", str(tmp_path / "a b"))
    monkeypatch.setenv("CMSIS_NN_LIBRARY", str(tmp_path / "a b" / "x.a"))
    with pytest.raises(CrtExportError, match="without spaces"):
        crtexport.build(made.path, tmp_path / "firmware")


def test_what_the_library_computes_otherwise_stays_ours(tmp_path: Path) -> None:
    graph = joined(drawn("conv_2d", range(2)), tmp_path)
    made = crtexport.export(
        graph.from_file("x", "", Numerics.LITERT),
        output=tmp_path / "single.tar", accelerators=["cmsis-nn"],
    )
    assert {d.reason for d in made.decisions} == {
        "results are rounded once here, but twice in CMSIS-NN"
    }
    assert "cmsis" not in " ".join(open_package(made.path).sources)


# -- with the library


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """CMSIS-NN built for this computer and for boards, by board, once for all tests."""
    folder = library()
    made = exported(
        joined(drawn("softmax", range(1)), tmp_path_factory.mktemp("probe")),
        tmp_path_factory.mktemp("probe"),
    )
    section = open_package(made.path).module_section
    assert section is not None
    located = locate(section.libraries, archives=False)
    assert located[0].folder == folder.absolute()
    place = tmp_path_factory.mktemp("archives")
    found = {"host": Path(simulated._archives("gcc", located, place)[0])}
    for board, cpu in CPUS.items():
        if shutil.which("arm-none-eabi-gcc"):
            found[board] = _built(located[0], place / board, cpu)
    return found


def _built(located: Located, folder: Path, cpu: str) -> Path:
    folder.mkdir()
    abi = ["-mfpu=fpv4-sp-d16"] if cpu == "cortex-m4" else ["-mfpu=auto"]
    subprocess.run(
        ["arm-none-eabi-gcc", f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=hard", *abi, "-O2",
         "-ffunction-sections", f"-I{located.include[0]}", "-c", *map(str, located.sources)],
        cwd=folder, check=True,
    )
    archive = folder / "cmsis_nn.a"
    objects = sorted(folder.glob("*.o"))
    subprocess.run(["arm-none-eabi-ar", "rcs", str(archive), *map(str, objects)], check=True)
    return archive


@pytest.fixture
def computed(archives: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Any:
    """``computed(package, board, inputs)``: outputs of each sample as computed there."""
    monkeypatch.setattr(simulated, "_archives", lambda *_: [str(archives["host"])])

    def run(package: Path, board: str, inputs: dict[str, Any]) -> list[list[Any]]:
        if board == "host":
            return [list(sample.values()) for sample in crtexport.simulate(package, inputs)]
        require("qemu-system-arm")
        require("arm-none-eabi-gcc")
        monkeypatch.setenv("CMSIS_NN_LIBRARY", str(archives[board]))
        return [list(sample) for sample in crtexport.run(package, inputs).outputs]

    return run


@pytest.mark.parametrize("board", ["host", *CPUS])
@pytest.mark.parametrize("operator", OPERATORS)
def test_layers_are_bit_for_bit_those_of_the_reference(
    operator: str, board: str, tmp_path: Path, computed: Any
) -> None:
    taken = 0
    for start in range(0, 16 if board == "host" else 8, EACH):
        cases = drawn(operator, range(start, start + EACH))
        made = exported(joined(cases, tmp_path), tmp_path, board)
        taken += sum(bool(decision.function) for decision in made.decisions)
        names = [tensor.name for tensor in made.artifact.inputs]
        arrays = [array for case in cases for array in case.inputs]
        (found,) = computed(made.path, board, dict(zip(names, arrays, strict=True)))
        wanted = [array for case in cases for array in run_reference(case.content, *case.inputs)]
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert taken >= 4


@pytest.mark.parametrize("board", ["host", *CPUS])
@pytest.mark.parametrize("name", INT8_NETWORKS)
def test_networks_are_bit_for_bit_our_own(
    name: str, board: str, tmp_path: Path, computed: Any
) -> None:
    model = shared_model(name)
    plain = crtexport.export(model, output=tmp_path / "plain.tar", accelerators=[])
    made = exported(model, tmp_path, board)
    assert not [d for d in made.decisions if d.reason]
    (tensor,) = made.artifact.inputs
    x = np.stack([hashed_input(k, tensor.type.shape) for k in range(4)])
    ours = crtexport.simulate(plain.path, {tensor.name: x})
    theirs = computed(made.path, board, {tensor.name: x})
    for mine, other in zip(ours, theirs, strict=True):
        for a, b in zip(mine.values(), other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="session")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The library's own functions for sizes of scratch, for every kind of processor."""
    made = tmp_path_factory.mktemp("sizes") / "sizes.so"
    source = library() / "Source"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-I{library() / 'Include'}", "-o", str(made),
         *map(str, sorted(source.glob("*/arm_convolve_get_buffer_sizes_s8.c"))),
         *map(str, sorted(source.glob("*/arm_depthwise_conv_get_buffer_sizes_s8.c"))),
         *map(str, sorted(source.glob("*/arm_avgpool_get_buffer_sizes_s8.c")))],
        check=True,
    )
    return ctypes.CDLL(str(made))


SUFFIXES = {Implementation.PLAIN: "", Implementation.DSP: "_dsp", Implementation.MVE: "_mve"}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_planned_scratch_is_what_the_library_asks_for(
    sizes: ctypes.CDLL, data: st.DataObject
) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    def numbers(*values: int) -> ctypes.Array[ctypes.c_int32]:
        return (ctypes.c_int32 * len(values))(*values)

    channels, made = data.draw(st.integers(1, 140)), data.draw(st.integers(1, 9))
    size, out, window = pair(1, 20), pair(1, 20), pair(1, 5)
    stride, padding, dilation = pair(1, 3), pair(0, 2), data.draw(st.sampled_from([(1, 1), (2, 1)]))
    rest = (*stride[::-1], *padding[::-1], *dilation[::-1], -128, 127)
    machine = data.draw(st.sampled_from(list(Implementation)))
    x, filters = numbers(1, *size, channels), numbers(made, *window, channels)

    def shaped(result: int) -> WindowGeometry:
        return WindowGeometry(
            (1, *size, channels), (1, *out, result), window, stride, dilation, padding
        )

    asked = getattr(sizes, f"arm_convolve_wrapper_s8_get_buffer_size{SUFFIXES[machine]}")
    y = numbers(1, *out, made)
    assert convolution(machine, shaped(made)) == asked(numbers(0, 0, *rest), x, filters, y)
    total = channels * made
    asked = getattr(sizes, f"arm_depthwise_conv_wrapper_s8_get_buffer_size{SUFFIXES[machine]}")
    assert depthwise(machine, shaped(total)) == asked(
        numbers(0, 0, made, *rest), x, numbers(1, *window, total), numbers(1, *out, total)
    )
    asked = getattr(sizes, f"arm_avgpool_s8_get_buffer_size{SUFFIXES[machine]}")
    assert average_pool(machine, channels) == asked(out[1], channels)
