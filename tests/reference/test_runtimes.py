"""The reference runtimes reproduce what was measured on devices, and fail in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crtexport.ir.numerics import Numerics
from crtexport.simulation import runtimes
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.runtimes import ReferenceRuntime, find_reference
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from tests.helpers import (
    HASHED_INPUTS,
    INT8_NETWORKS,
    fnv1a,
    hashed_input,
    reference,
    require_reference,
    shared_model,
    standard_input,
    tflm_outputs,
)

AD01_LITERT_HASH = 3884838229


def nowhere(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """No runtime is installed, as far as find_runtime() looks."""
    monkeypatch.delenv("CRTEXPORT_TFLITE_PYTHON", raising=False)
    monkeypatch.delenv("CRTEXPORT_LITERT_PYTHON", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(runtimes.importlib.util, "find_spec", lambda _: None)


@pytest.fixture
def ad01() -> Iterator[ReferenceModel]:
    with ReferenceModel(shared_model("ad01_int8"), runtime=require_reference()) as model:
        yield model


@pytest.mark.models
@pytest.mark.parametrize("network", INT8_NETWORKS)
def test_tflite_runtime_gives_what_tflm_gave_on_devices(network: str) -> None:
    measured = tflm_outputs()[network]
    with ReferenceModel(shared_model(network), runtime=require_reference()) as model:
        shape = model.inputs[0].shape
        (output,) = model.run([standard_input(shape)])
        state = fnv1a(b"")
        for k in range(HASHED_INPUTS):
            state = fnv1a(model.run([hashed_input(k, shape)])[0].tobytes(), state)
    assert output.ravel().tolist() == measured["out"]
    assert fnv1a(output.tobytes()) == measured["fnv1a"]
    assert state == measured["fpr_all"]


@pytest.mark.models
def test_litert_rounds_fully_connected_layers_otherwise() -> None:
    model = reference(shared_model("ad01_int8"), "ai-edge-litert")
    (output,) = model.run([standard_input(model.inputs[0].shape)])
    assert fnv1a(output.tobytes()) == AD01_LITERT_HASH
    assert fnv1a(output.tobytes()) != tflm_outputs()["ad01_int8"]["fnv1a"]


@pytest.mark.models
def test_a_model_is_described_as_the_runtime_sees_it(ad01: ReferenceModel) -> None:
    assert ad01.description.startswith("tflite-runtime 2.")
    assert ad01.description.endswith(" BUILTIN_REF")
    assert [(info.dtype, info.shape) for info in ad01.inputs] == [("int8", (1, 640))]
    assert [(info.dtype, info.shape) for info in ad01.outputs] == [("int8", (1, 640))]


@pytest.mark.models
def test_intermediate_tensors_end_in_the_output(ad01: ReferenceModel) -> None:
    x = standard_input((1, 640))
    (output,) = ad01.run([x])
    tensors = ad01.intermediate([x])
    assert any(np.array_equal(value, output) for value in tensors.values())
    assert {value.shape for value in tensors.values()} >= {(1, 8), (1, 128), (1, 640)}
    assert np.array_equal(ad01.run([x])[0], output)


@pytest.mark.models
def test_one_process_runs_one_model_after_another(ad01: ReferenceModel) -> None:
    ad01.load(shared_model("kws_int8"))
    assert ad01.inputs[0].shape == (1, 49, 10, 1)
    (output,) = ad01.run([standard_input((1, 49, 10, 1))])
    assert output.ravel().tolist() == tflm_outputs()["kws_int8"]["out"]


@pytest.mark.models
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "the model has 1 inputs, not 0"),
        ([np.zeros((640,), np.int8)], r"input 0 wants int8\[1, 640\], not int8\[640\]"),
        ([np.zeros((1, 640), np.float32)], r"input 0 wants int8.*, not float32"),
    ],
)
def test_wrong_inputs_are_refused_and_the_process_goes_on(
    ad01: ReferenceModel, inputs: list[np.ndarray], message: str
) -> None:
    with pytest.raises(CrtExportError, match=message):
        ad01.run(inputs)
    assert ad01.run([standard_input((1, 640))])[0].shape == (1, 640)


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.tflite"
    path.write_bytes(b"not a model at all, only text")
    with pytest.raises(CrtExportError, match=r"notes\.tflite: tflite-runtime: .*identifier"):
        ReferenceModel(path, runtime=require_reference())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=r"gone\.tflite: no such file"):
        ReferenceModel(tmp_path / "gone.tflite", runtime=require_reference())


@pytest.mark.models
def test_a_closed_reference_says_so() -> None:
    model = ReferenceModel(shared_model("ad01_int8"), runtime=require_reference())
    model.close()
    model.close()
    with pytest.raises(CrtExportError, match="was closed"):
        model.run([standard_input((1, 640))])


@pytest.mark.models
def test_a_runtime_that_dies_is_an_error_with_its_status(ad01: ReferenceModel) -> None:
    ad01._process.kill()
    with pytest.raises(RunFailedError, match="tflite-runtime ended with status -9"):
        ad01.run([standard_input((1, 640))])


def run_for_ever(reference: ReferenceModel) -> None:
    while True:
        reference.run([standard_input((1, 640))])


@pytest.mark.models
def test_a_runtime_that_takes_too_long_is_ended(ad01: ReferenceModel) -> None:
    with ad01.ended_after(60.0):
        ad01.run([standard_input((1, 640))])
    ad01.run([standard_input((1, 640))])
    with ad01.ended_after(0.0), pytest.raises(RunFailedError, match="ended with status -9"):
        run_for_ever(ad01)


def test_a_missing_runtime_names_the_option_the_extra_and_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere(monkeypatch, tmp_path)
    with pytest.raises(ToolMissingError) as double:
        find_reference(Numerics.TFLITE)
    with pytest.raises(ToolMissingError) as single:
        find_reference(Numerics.LITERT)
    for error, extra, variable in (
        (double, "reference", "CRTEXPORT_TFLITE_PYTHON"),
        (single, "litert", "CRTEXPORT_LITERT_PYTHON"),
    ):
        assert error.value.exit_code == 3
        for way in ("crtexport verify --install-reference", f"'crtexport[{extra}]'", variable):
            assert way in str(error.value)


def test_a_python_named_by_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRTEXPORT_LITERT_PYTHON", "/opt/litert/bin/python")
    found = find_reference(Numerics.LITERT)
    assert found == ReferenceRuntime("ai-edge-litert", "/opt/litert/bin/python")


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("/no/such/python", "/no/such/python: can't be started: No such file"),
        ("/bin/false", "can't be loaded: ai-edge-litert ended with status 1"),
    ],
)
def test_a_python_that_does_not_work_is_a_missing_tool(
    python: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRTEXPORT_LITERT_PYTHON", python)
    with pytest.raises(ToolMissingError, match=message):
        ReferenceModel(tmp_path / "any.tflite", runtime="ai-edge-litert")


def test_a_python_without_the_runtime_is_a_missing_tool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "ai_edge_litert"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('built for another Python')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CRTEXPORT_LITERT_PYTHON", sys.executable)
    with pytest.raises(ToolMissingError, match="built for another Python") as caught:
        ReferenceModel(tmp_path / "any.tflite", runtime="ai-edge-litert")
    assert "pip install" in str(caught.value)
