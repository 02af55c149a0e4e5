"""The submitter's part of MLPerf Tiny, driven as the benchmark's runner does: it prints what the
network gives, with timestamps around the inferences."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import crtexport
from crtexport import CrtExportError, write_library
from crtexport.ir.ops import Add
from crtexport.ir.types import DType, Quantization
from crtexport.pipeline.driver import export
from tests.helpers import require, shared_model
from tests.integrations.test_libraries import package, run, speech
from tests.plan.graphs import GraphBuilder

BENCHMARK = Path(__file__).with_name("mlperf")
Array = npt.NDArray[Any]


def built(library: Path) -> Path:
    """The program of this computer."""
    for tool in ("cmake", "ninja", "c++"):
        require(tool)
    flags = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wconversion -Wno-format-security -Werror"
    run("cmake", "-G", "Ninja", "-B", "build", f"-DMLPERF_TINY={BENCHMARK}", flags, folder=library)
    run("cmake", "--build", "build", folder=library)
    return library / "build" / "mlperf_tiny"


def asked(program: Path, sent: bytes, *commands: str) -> list[str]:
    """What the device says when it is sent an input and then ``commands``."""
    digits = [sent[at:at + 32].hex() for at in range(0, len(sent), 32)]
    words = [f"db load {len(sent)}", *(f"db {each}" for each in digits), *commands]
    done = subprocess.run([program], input="".join(f"{each}%" for each in words), text=True,
                          capture_output=True, check=True, timeout=300)
    return done.stdout.splitlines()


def results(lines: list[str]) -> list[Array]:
    found = [line for line in lines if line.startswith("m-results-")]
    assert all(re.fullmatch(r"m-results-\[-?\d+\.\d{3}(,-?\d+\.\d{3})*\]", line) for line in found)
    return [np.array(line[11:-1].split(","), np.float64) for line in found]


def real(values: Array, quant: Quantization | None) -> Array:
    if quant is None:
        return values.astype(np.float64)
    return (values.astype(np.float64) - quant.zero_point[0]) * quant.scale[0]


@pytest.mark.parametrize(("name", "version"), [
    ("kws_int8", "kws01"), ("resnet8_int8", "ic01"), ("ad01_int8", "ad01"),
])
def test_the_benchmarks_networks_answer_its_runner(
    name: str, version: str, tmp_path: Path
) -> None:
    graph = crtexport.load(shared_model(name))
    source, result = (graph.type(one) for one in (graph.inputs[0], graph.outputs[0]))
    path = export(graph, board="host", emit="c", output=tmp_path / "p.tar").path
    drawn = np.random.default_rng(3)
    x = drawn.integers(-128, 128, source.shape, np.int8)
    sent = x.tobytes()
    if version == "ad01":
        floats = drawn.normal(0, 2, source.shape).astype(np.float32)
        sent, x = floats.tobytes(), floats
        if source.quant is not None:
            steps = np.trunc(floats / np.float32(source.quant.scale[0]) + np.copysign(0.5, floats))
            x = np.clip(steps + source.quant.zero_point[0], -128, 127).astype(np.int8)
    elif version != "kws01":
        sent = (x.astype(np.int16) + 128).astype(np.uint8).tobytes()
    inputs = {graph.tensors[graph.inputs[0]].name: x}
    (row,) = crtexport.simulate(path, inputs)
    expected = real(next(iter(row.values())), result.quant).ravel()
    if version == "ad01":
        expected = np.mean((expected - floats.ravel()) ** 2, keepdims=True)
    write_library(path, tmp_path / "l", "mlperf-tiny", inputs, row)
    program = built(tmp_path / "l")
    said = asked(program, sent, "profile", "infer 2 1", "infer 1 0", "results", "name")
    assert f"m-model-[{version}]" in said
    for found in results(said):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0.0006)
    assert len(results(said)) == 3
    assert not [line for line in said if line.startswith("e-")]
    run("ctest", "--test-dir", "build", folder=tmp_path / "l")


def test_a_float_network_is_sent_floats(tmp_path: Path) -> None:
    """Its results are half a unit away from its inputs."""
    b = GraphBuilder()
    graph = b.finish(b.node(Add(), b.input(1, 640), b.constant(np.full(640, 0.5, np.float32))))
    path = export(graph, board="host", emit="c", output=tmp_path / "p.tar").path
    write_library(path, tmp_path / "l", "mlperf-tiny")
    sent = np.linspace(-3, 3, 640, dtype=np.float32).tobytes()
    (found,) = results(asked(built(tmp_path / "l"), sent, "infer 1 0"))
    np.testing.assert_allclose(found, [0.25])


@pytest.mark.parametrize("io", ["caller", "workspace"])
def test_timestamps_stand_around_inferences_of_one_input(io: Any, tmp_path: Path) -> None:
    """Where it lies in the workspace, the network writes over it, and it is copied anew."""
    path = export(speech(), board="host", emit="c", output=tmp_path / "p.tar", io=io,
                  workspace="caller").path
    write_library(path, tmp_path / "l", "mlperf-tiny")
    program = built(tmp_path / "l")
    x = np.arange(490, dtype=np.uint8)
    said = asked(program, x.tobytes(), "infer 3 1", "infer 1 0", "timestamp")
    laps = [int(line.removeprefix("m-lap-us-")) for line in said if line.startswith("m-lap-us-")]
    assert len(laps) == 6  # at the start, around the inferences twice, by command
    assert laps == sorted(laps)
    assert said[0] == "m-timestamp-mode-performance"
    start = said.index("m-infer-start-3")
    assert all(re.fullmatch(r"m-lap-us-\d+", line) for line in said[start + 1:start + 3])
    assert said[start + 3] == "m-infer-done"
    for found in results(said):
        np.testing.assert_allclose(found, (x[5:17].view(np.int8) + 7) * 0.25)
    said = asked(program, bytes(489), "infer 1 0")
    assert "e-[Input has 489 bytes, expected 490]" in said


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_it_compiles_for_the_board(emit: Any, tmp_path: Path) -> None:
    require("arm-none-eabi-g++")
    require("cmake")
    path = export(speech(), board="mps2_an386", emit=emit, output=tmp_path / "p.tar").path
    library = tmp_path / "l"
    write_library(path, library, "mlperf-tiny")
    run("cmake", "-B", "build", "--toolchain", "cmake/toolchain.cmake",
        f"-DMLPERF_TINY={BENCHMARK}", folder=library)
    run("cmake", "--build", "build", folder=library)
    objects = [*(library / "build").rglob("submitter_implemented.cpp.o*")]
    assert len([one for one in objects if one.suffix != ".d"]) == 1


def test_networks_of_other_shapes_and_types_are_refused(tmp_path: Path) -> None:
    for graph, words in ((speech(DType.FLOAT32), "sends integers"),):
        path = export(graph, board="host", emit="c", output=tmp_path / "p.tar").path
        with pytest.raises(CrtExportError, match=words):
            write_library(path, tmp_path / "l", "mlperf-tiny")
    for kind, words in (("digits", "64 inputs and 10 outputs"), ("several", "one network")):
        with pytest.raises(CrtExportError, match=words):
            write_library(package(kind), tmp_path / "l", "mlperf-tiny")
    assert not (tmp_path / "l").exists()
