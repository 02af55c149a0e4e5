"""Objects for AVX-VNNI and AVX-512 compute what the operators' plain kernels do.

Few computers have VPDPBUSD, and VPDPWSSD, which LLVM makes of sums of products. On others with AVX2
they trap, and ``vnni.c`` does what they would do.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.importers import load
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.support import this_processor
from tests.helpers import (
    INT8_NETWORKS,
    fnv1a,
    require,
    require_processor,
    shared_model,
    standard_input,
    tflm_outputs,
)
from tests.lowered import run
from tests.schedules.x86.test_x86 import SHAPES, banded_layer, integer_layer

BOARDS = ("host_vnni", "host_avx512")


@pytest.fixture(scope="module", params=BOARDS)
def board(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of one whose instructions this computer has, or seems to."""
    if request.param == "host_avx512":
        require_processor(request.param)
        yield request.param
        return
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        pytest.skip("this is no x86-64 Linux")
    require_processor("host_avx2")
    there = this_processor.instructions()
    if "avx_vnni" in there:
        yield request.param
        return
    library = tmp_path_factory.mktemp("vnni") / "vnni.so"
    subprocess.run(
        [require("gcc"), "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
         Path(__file__).with_name("vnni.c"), "-o", library],
        check=True,
    )
    emulator = ctypes.CDLL(str(library))
    emulator.vnni_end.restype = ctypes.c_ulong
    assert emulator.vnni_begin()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(this_processor, "instructions", lambda: there | {"avx_vnni"})
            yield request.param
    finally:
        assert emulator.vnni_end() > 0, "the objects had no such instruction"


def check(model: Path, board: str, tmp_path: Path) -> None:
    """Compares an object's outputs with those of the plain kernel for extreme and other values."""
    package = tmp_path / "m.tar"
    crtexport.export(model, board=board, emit="llvm", output=package)
    graph = load(model)
    context = Context(graph, graph.nodes[0])
    (given,) = open_package(package).inputs
    rng = np.random.default_rng(7)
    shape = context.input(0).shape
    for value in (
        rng.integers(-128, 128, shape), rng.choice(np.array([-128, 127, 0, -9]), shape),
        np.full(shape, -128), np.full(shape, 127),
    ):
        sample = value.astype(np.int8)
        (result,) = crtexport.simulate(package, {str(given.field): sample})
        (output,) = result.values()
        np.testing.assert_array_equal(output, run(graph, operator_table.lower(context), sample))


def test_a_convolution_whose_runs_of_taps_are_filled_up(board: str, tmp_path: Path) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(integer_layer())
    check(model, board, tmp_path)


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("case", SHAPES)
def test_windows_of_every_kind(case: str, depthwise: bool, board: str, tmp_path: Path) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(banded_layer(case, "int8", depthwise=depthwise))
    check(model, board, tmp_path)


@pytest.mark.parametrize("name", INT8_NETWORKS)
def test_networks_give_what_tflm_gives(name: str, board: str, tmp_path: Path) -> None:
    package = tmp_path / "m.tar"
    crtexport.export(shared_model(name), board=board, emit="llvm", output=package)
    (given,) = open_package(package).inputs
    (result,) = crtexport.simulate(
        package, {str(given.field): standard_input(tuple(given.shape or ()))}
    )
    (output,) = result.values()
    assert fnv1a(output.tobytes()) == tflm_outputs()[name]["fnv1a"]
