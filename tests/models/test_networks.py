"""Whole trained networks: exported code gives what TensorFlow Lite's reference kernels give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.compare import VerifyResult
from crtexport.errors import ToolMissingError
from crtexport.firmware.run import RunResult
from crtexport.mlf.reader import open_package
from tests.support import (
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
QEMU = {
    "qemu_x86": "qemu-system-i386", "mps2_an386": "qemu-system-arm",
    "mps3_an547": "qemu-system-arm", "qemu_riscv32": "qemu-system-riscv32",
}


def exported(folder: Path, name: str, board: str, emit: str) -> Path:
    path = folder / f"{name}.tar"
    crtexport.export(shared_model(name), board=board, emit=emit, output=path)
    return path


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("name", INT8_NETWORKS)
def test_int8_networks_equal_the_reference_bit_for_bit(name: str, emit: str) -> None:
    result = compared(name, emit=emit, samples=100)
    assert "tflite-runtime 2.14" in result.reference
    assert [o.largest_difference for o in result.outputs] == [0.0]


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("name", INT8_NETWORKS)
def test_single_rounding_equals_litert_bit_for_bit(name: str, emit: str) -> None:
    result = compared(name, emit=emit, samples=100, rounding="single")
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
        tool = "ai-edge-litert" if options.get("rounding") == "single" else "tflite-runtime"
        unavailable(tool, str(error))


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("name", INT8_NETWORKS)
def test_outputs_are_those_measured_on_devices(name: str, emit: str, tmp_path: Path) -> None:
    package = exported(tmp_path, name, "host", emit)
    (tensor,) = open_package(package).inputs
    samples = [standard_input(tensor.shape)]
    samples += [hashed_input(k, tensor.shape) for k in range(HASHED_INPUTS)]
    results = crtexport.simulate(package, {tensor.field: np.stack(samples)})
    (outputs,) = zip(*(row.values() for row in results), strict=True)
    measured = tflm_outputs()[name]
    assert outputs[0].reshape(-1).tolist() == measured["out"]
    assert fnv1a(outputs[0].tobytes()) == measured["fnv1a"]
    assert fnv1a(b"".join(o.tobytes() for o in outputs[1:])) == measured["fpr_all"]


@pytest.mark.qemu
@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", INT8_NETWORKS + FLOAT_NETWORKS)
def test_firmware_computes_what_this_computer_does(
    name: str, board: str, emit: str, tmp_path: Path
) -> None:
    package = exported(tmp_path, name, board, emit)
    (tensor,) = open_package(package).inputs
    if tensor.dtype == "int8":
        samples = [standard_input(tensor.shape), hashed_input(0, tensor.shape)]
        samples.append(hashed_input(1, tensor.shape))
    else:
        # One sample is enough for soft-float machines' patience.
        rng = np.random.default_rng(0)
        samples = [rng.standard_normal(tensor.shape).astype(np.float32)]
    given = {tensor.field: np.stack(samples)}
    result = run_on(board, package, given)
    host = crtexport.simulate(exported(tmp_path, name, "host", "llvm"), given)
    for got, expected in zip(result.outputs, host, strict=True):
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


def run_on(board: str, package: Path, given: dict[str, object]) -> RunResult:
    try:
        return crtexport.run(package, given)
    except ToolMissingError as error:
        unavailable(QEMU[board], str(error))
