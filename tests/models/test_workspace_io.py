"""Inputs and outputs in the workspace: less memory, the same numbers, a clean interface."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import crtexport
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add
from crtexport.mlf.reader import Package, open_package
from crtexport.simulation.package import load_package
from crtexport.support.errors import CrtExportError
from tests.exports import exported_network, unpacked_network
from tests.helpers import (
    HASHED_INPUTS,
    INT8_NETWORKS,
    fnv1a,
    hashed_input,
    require,
    shared_model,
    standard_input,
    tflm_outputs,
)
from tests.packages import compile_strictly
from tests.packed_functions import run_packed
from tests.plan.graphs import GraphBuilder

BACKENDS = ("c", "llvm")
OWNERS = ("static", "caller")
T = TypeVar("T")
LIMITS = {"ad01_int8": 1935, "kws_int8": 12000, "resnet8_int8": 36864, "vww96_int8": 49152}
"""Bytes, inputs and outputs included; the tensors alive at once have 768 to 55296."""


def exported(
    graph: Graph, folder: Path, emit: str, workspace: str, board: str = "host"
) -> Package:
    path = folder / "model.tar"
    crtexport.export(
        graph, board=board, emit=emit, workspace=workspace, io="workspace", output=path,
    )
    return open_package(path)


def network(name: str, board: str, emit: str, workspace: str) -> Package:
    return exported_network(name, board, emit, workspace=workspace, io="workspace")


def samples(package: Package, count: int) -> list[np.ndarray]:
    (tensor,) = package.inputs
    assert tensor.shape is not None
    return [standard_input(tensor.shape), *(hashed_input(k, tensor.shape) for k in range(count))]


def ways(first: Iterable[T]) -> list[tuple[T, str, str]]:
    """(one of ``first``, backend, owner of the workspace): all pairs of two of them."""
    return [
        (one, emit, OWNERS[(i + j) % 2])
        for i, one in enumerate(first) for j, emit in enumerate(BACKENDS)
    ]


@pytest.mark.models
@pytest.mark.parametrize(("name", "emit", "workspace"), ways(INT8_NETWORKS))
def test_outputs_are_those_measured_on_devices(
    name: str, emit: str, workspace: str
) -> None:
    package = network(name, "host", emit, workspace)
    simulation = load_package(package)
    rows = samples(package, HASHED_INPUTS)
    measured = tflm_outputs()[name]
    for run in (simulation.run, partial(run_packed, simulation)):
        outputs = [run([row])[0] for row in rows]
        assert outputs[0].reshape(-1).tolist() == measured["out"]
        assert fnv1a(b"".join(o.tobytes() for o in outputs[1:])) == measured["fpr_all"]
    section = package.module_section
    assert section is not None
    assert section.io == "workspace"
    assert section.workspace.bytes <= LIMITS[name]
    for tensor in (*section.inputs, *section.outputs):
        assert tensor.offset is not None
        assert tensor.offset + tensor.bytes <= section.workspace.bytes


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize(("name", "board", "emit", "workspace"), [
    (*program, emit, workspace) for program, emit, workspace in ways([
        *((name, "mps2_an386") for name in INT8_NETWORKS), ("kws_int8", "qemu_x86"),
    ])
])
def test_firmware_has_no_other_buffers(
    name: str, board: str, emit: str, workspace: str
) -> None:
    require("qemu-system-i386" if board == "qemu_x86" else "qemu-system-arm")
    package = network(name, board, emit, workspace)
    (tensor,) = package.inputs
    rows = samples(package, 2)
    result = crtexport.run(package.path, {tensor.field: np.stack(rows)})
    measured = tflm_outputs()[name]
    assert result.outputs[0][0].reshape(-1).tolist() == measured["out"]
    assert result.instructions_first == result.instructions_second
    assert ".io" not in result.ram
    section = package.module_section
    assert section is not None
    assert result.ram[".model_bss"] - section.workspace.bytes in range(16)
    here = load_package(network(name, "host", "llvm", workspace))
    for row, outputs in zip(rows, result.outputs, strict=True):
        np.testing.assert_array_equal(here.run([row])[0], outputs[0])


@pytest.mark.models
@pytest.mark.parametrize("workspace", OWNERS)
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_generated_c_compiles_without_a_warning(
    compiler: str, workspace: str
) -> None:
    package, folder = unpacked_network(
        "ad01_int8", "mps2_an386", "c", workspace=workspace, io="workspace"
    )
    compile_strictly(package, folder, compiler)


# ---- structs of any size come back by value, as every calling convention has it


def ring(count: int) -> Graph:
    """``count`` inputs, and as many outputs: each input plus the next one."""
    b = GraphBuilder()
    inputs = [b.input(4) for _ in range(count)]
    outputs = [b.node(Add(), x, inputs[(i + 1) % count]) for i, x in enumerate(inputs)]
    return b.finish(*outputs)


@pytest.mark.qemu
@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("workspace", OWNERS)
@pytest.mark.parametrize("board", ["host", "qemu_x86", "mps2_an386", "qemu_riscv32"])
def test_firmware_finds_any_number_of_tensors(
    board: str, workspace: str, emit: str, tmp_path: Path
) -> None:
    """Models of 1, 2 and 3 tensors a side in one firmware: each has functions of its own, which
    return structs of other sizes."""
    tools = {"host": "cc", "qemu_x86": "qemu-system-i386", "mps2_an386": "qemu-system-arm"}
    require(tools.get(board, "qemu-system-riscv32"))
    names = ["ring1", "ring2", "ring3"]
    path = crtexport.export(
        [ring(1), ring(2), ring(3)], board=board, emit=emit, workspace=workspace, io="workspace",
        module_name=names, output=tmp_path / "model.tar",
    ).path
    rng = np.random.default_rng(3)
    inputs = {
        name: {t.field: rng.standard_normal((3, 4)).astype(np.float32) for t in model.inputs}
        for name, model in zip(names, open_package(path).each, strict=True)
    }
    results = crtexport.run_all(path, {
        f"{name}/{field}": array for name, own in inputs.items() for field, array in own.items()
    })
    for name, own in inputs.items():
        rows = list(own.values())
        for i, row in enumerate(rows):
            got = np.stack([outputs[i] for outputs in results[name].outputs])
            np.testing.assert_array_equal(got, row + rows[(i + 1) % len(rows)])


class Three(ctypes.Structure):
    _fields_ = (("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("c", ctypes.c_void_p))


class Pools(ctypes.Structure):
    _fields_ = (("workspace", ctypes.c_void_p),)


@pytest.mark.parametrize("emit", BACKENDS)
def test_a_missing_workspace_has_no_tensors_and_is_refused(emit: str, tmp_path: Path) -> None:
    package = exported(ring(3), tmp_path, emit, "caller", "host")
    library = load_package(package).library
    for side in ("inputs", "outputs"):
        address = library.address(f"tvmgen_{package.module}_map_{side}")
        assert address is not None
        function = ctypes.CFUNCTYPE(Three, ctypes.c_void_p)(address)
        for pools in (None, ctypes.byref(Pools(None))):
            found = function(pools)
            assert [found.a, found.b, found.c] == [None] * 3
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(
        library.address(f"tvmgen_{package.module}_run") or 0
    )
    assert run(None) == -1
    assert run(ctypes.byref(Pools(None))) == -1


# ---- a workspace in two memories


POOLS = (("dtcm", 9000), ("ram", 1 << 20))


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize(("io", "emit", "workspace"), ways(["caller", "workspace"]))
def test_a_workspace_in_two_memories_computes_the_same(
    emit: str, workspace: str, io: str, tmp_path: Path
) -> None:
    require("qemu-system-arm")
    path = tmp_path / "model.tar"
    made = crtexport.export(
        shared_model("resnet8_int8"), board="mps3_an547", emit=emit, workspace=workspace, io=io,
        pools=POOLS, output=path,
    )
    package = open_package(path)
    section = package.module_section
    assert section is not None
    (spilled,) = section.workspace.spilled
    assert section.workspace.bytes <= 9000
    assert (spilled.memory, spilled.bytes) == ("ram", made.plan.spilled[0])
    (tensor,) = package.inputs
    rows = samples(package, 1)
    result = crtexport.run(path, {tensor.field: np.stack(rows)})
    wanted = tflm_outputs()["resnet8_int8"]["out"]
    assert result.outputs[0][0].reshape(-1).tolist() == wanted
    assert result.instructions_first == result.instructions_second
    assert result.ram[".model_bss_ram"] == spilled.bytes
    assert result.ram[".model_bss"] - section.workspace.bytes in range(16)
    if emit == "c":
        simulation = load_package(package)
        for run in (simulation.run, partial(run_packed, simulation)):
            assert run([rows[0]])[0].reshape(-1).tolist() == wanted


@pytest.mark.models
@pytest.mark.parametrize("workspace", OWNERS)
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_c_of_a_workspace_in_two_memories_compiles_without_a_warning(
    compiler: str, workspace: str, tmp_path: Path
) -> None:
    made = crtexport.export(
        shared_model("kws_int8"), board="mps2_an386", emit="c", workspace=workspace,
        io="workspace", pools=(("ram", 8300), ("flash", 1 << 20)), output=tmp_path / "m.tar",
    )
    package = open_package(made.path)
    package.extract(tmp_path)
    assert package.header is not None
    assert f"_WORKSPACE_FLASH_SIZE {made.plan.spilled[0]}\n" in package.header
    compile_strictly(package, tmp_path, compiler)


def test_a_pool_that_cannot_hold_the_workspace_is_refused(tmp_path: Path) -> None:
    for pools, problem in (
        ((("ram", 16),), r"the workspace needs \d+ bytes of ram, it may take 16"),
        ((("tcm", 16),), "no memory called 'tcm'"),
        ((("ram", 64), ("ram", 64)), "'ram' is named twice"),
    ):
        with pytest.raises(CrtExportError, match=problem):
            crtexport.export(
                ring(3), board="mps2_an386", io="workspace", pools=pools,
                output=tmp_path / "model.tar",
            )
    assert not (tmp_path / "model.tar").exists()
