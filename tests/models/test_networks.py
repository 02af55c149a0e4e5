"""Whole trained networks: exported code gives what TensorFlow Lite's reference kernels give."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.firmware.run import RunResult
from crtexport.mlf.arrays import Array
from crtexport.support.errors import ToolMissingError
from crtexport.verification import VerifyResult
from tests.exports import exported_network
from tests.helpers import (
    FLOAT_NETWORKS,
    HASHED_INPUTS,
    INT8_NETWORKS,
    fnv1a,
    hashed_input,
    shared_model,
    standard_input,
    tflm_outputs,
    unavailable,
)

pytestmark = pytest.mark.models

BACKENDS = ("c", "llvm")
BOARDS = ("qemu_x86", "mps2_an386", "mps3_an547", "qemu_riscv32")
LONG = {("resnet8_fp32", "qemu_riscv32"), ("vww96_fp32", "qemu_riscv32")}
QEMU = {
    "qemu_x86": "qemu-system-i386", "mps2_an386": "qemu-system-arm",
    "mps3_an547": "qemu-system-arm", "qemu_riscv32": "qemu-system-riscv32",
}

IN_TURNS = [(name, BACKENDS[number % 2]) for number, name in enumerate(INT8_NETWORKS)]
"""Each network, and each backend for two of them."""


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("name", INT8_NETWORKS)
def test_int8_networks_equal_the_reference_bit_for_bit(name: str, emit: str) -> None:
    result = compared(name, emit=emit, samples=100)
    assert "tflite-runtime 2.14" in result.reference
    assert [o.largest_difference for o in result.outputs] == [0.0]


@pytest.mark.parametrize(("name", "emit"), IN_TURNS)
def test_single_rounding_equals_litert_bit_for_bit(name: str, emit: str) -> None:
    result = compared(name, emit=emit, samples=100, numerics="litert")
    assert "ai-edge-litert 2" in result.reference
    assert [o.largest_difference for o in result.outputs] == [0.0]


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("name", FLOAT_NETWORKS)
def test_float_networks_stay_within_1e_5_of_full_scale(name: str, emit: str) -> None:
    result = compared(name, emit=emit, samples=20)
    assert result.agrees, result


def compared(name: str, **options: object) -> VerifyResult:
    try:
        return crtexport.verify(shared_model(name), **options)
    except ToolMissingError as error:
        tool = "ai-edge-litert" if options.get("numerics") == "litert" else "tflite-runtime"
        unavailable(tool, str(error))


@pytest.mark.parametrize(("name", "emit"), IN_TURNS)
def test_outputs_are_those_measured_on_devices(name: str, emit: str) -> None:
    package = exported_network(name, "host", emit)
    (tensor,) = package.inputs
    samples = [standard_input(tensor.shape)]
    samples += [hashed_input(k, tensor.shape) for k in range(HASHED_INPUTS)]
    results = crtexport.simulate(package.path, {tensor.field: np.stack(samples)})
    (outputs,) = zip(*(row.values() for row in results), strict=True)
    measured = tflm_outputs()[name]
    assert outputs[0].reshape(-1).tolist() == measured["out"]
    assert fnv1a(outputs[0].tobytes()) == measured["fnv1a"]
    assert fnv1a(b"".join(o.tobytes() for o in outputs[1:])) == measured["fpr_all"]


@functools.cache
def samples(name: str) -> Array:
    """Three inputs of an int8 network; one of a float network, for emulators without an FPU."""
    (tensor,) = exported_network(name, "host", "llvm").inputs
    if tensor.dtype != "int8":
        rng = np.random.default_rng(0)
        return rng.standard_normal((1, *tensor.shape)).astype(np.float32)
    shape = tensor.shape
    return np.stack([standard_input(shape), hashed_input(0, shape), hashed_input(1, shape)])


@functools.cache
def computed_here(name: str) -> list[dict[str, Array]]:
    """The outputs for :func:`samples` on this computer, whatever the board is."""
    package = exported_network(name, "host", "llvm")
    return crtexport.simulate(package.path, {package.inputs[0].field: samples(name)})


def programs() -> Iterator[tuple[str, str, str]]:
    """(network, board, backend): all pairs of two of them, but for two that take long: without an
    FPU the other float networks run, of the same layers, and Add in test_workspace_io."""
    for networks in (INT8_NETWORKS, FLOAT_NETWORKS):
        for i, j in itertools.product(range(len(networks)), range(len(BOARDS))):
            if (networks[i], BOARDS[j]) not in LONG:
                yield networks[i], BOARDS[j], BACKENDS[(i + j) % 2]


@pytest.mark.qemu
@pytest.mark.parametrize(("name", "board", "emit"), [*programs()])
def test_firmware_computes_what_this_computer_does(name: str, board: str, emit: str) -> None:
    package = exported_network(name, board, emit)
    (tensor,) = package.inputs
    result = run_on(board, package.path, {tensor.field: samples(name)})
    for got, expected in zip(result.outputs, computed_here(name), strict=True):
        (ours,), (theirs,) = got, expected.values()
        if tensor.dtype == "int8":
            np.testing.assert_array_equal(ours, theirs)
        else:
            scale = float(np.abs(theirs).max())
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * scale)
    if tensor.dtype == "int8":
        assert result.outputs[0][0].reshape(-1).tolist() == tflm_outputs()[name]["out"]
    assert result.exact
    assert result.instructions_first == result.instructions_second
    assert result.instructions_first


def run_on(board: str, package: Path, inputs: Mapping[str, Array]) -> RunResult:
    try:
        return crtexport.run(package, inputs)
    except ToolMissingError as error:
        unavailable(QEMU[board], str(error))
