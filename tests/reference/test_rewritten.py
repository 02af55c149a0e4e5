"""verify doesn't go by tflite-runtime where that is known wrong, or refuses what devices run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.differential.cases_recurrent import svdf
from tests.differential.cases_signal import signal
from tests.differential.draw import SeededDraw
from tests.differential.network import interpret
from tests.helpers import reference, require_reference
from tests.importers.test_converter_habits import BIAS, layer
from tests.tflite_builder import ModelBuilder, run_reference


def tokens() -> bytes:
    """A layer of 40 units over (1, 5, 6), with a scale for each unit, as PyTorch's exporter
    writes it."""
    rng = np.random.default_rng(1)
    scales = [0.01 + i / 4000 for i in range(40)]
    m = ModelBuilder()
    x = m.tensor("x", (1, 5, 6), "int8", scale=0.05, zero_point=3)
    w = m.tensor("w", (40, 6), "int8", scale=scales, axis=0, data=rng.integers(-127, 128, 240))
    b = m.tensor(
        "b", (40,), "int32", scale=[0.05 * s for s in scales], axis=0,
        data=rng.integers(-3000, 3000, 40),
    )
    y = m.tensor("y", (1, 5, 40), "int8", scale=0.1, zero_point=-2)
    m.op("FULLY_CONNECTED", [x, w, b], [y], keep_num_dims=True)
    return m.build([x], [y])


def test_layers_that_the_runtime_computes_wrong_are_rewritten_for_it(tmp_path: Path) -> None:
    require_reference()
    path = tmp_path / "model.tflite"
    path.write_bytes(tokens())
    x = np.arange(-15, 15, dtype=np.int8).reshape(1, 5, 6)
    (ours,), (wrong,) = interpret(load(path), [x]), run_reference(tokens(), x)
    (right,) = reference(tokens(), "ai-edge-litert").run([x])
    np.testing.assert_array_equal(ours, right)
    assert (wrong != right).any()
    result = crtexport.verify(path, samples=3, emit="c")
    assert result.agrees
    assert "wrong with a scale per channel" in result.rewritten


@pytest.mark.parametrize("odd", ["axis", "zeros"])
def test_a_file_that_the_runtime_refuses_is_written_anew(odd: str, tmp_path: Path) -> None:
    require_reference()
    path = tmp_path / "model.tflite"
    path.write_bytes(
        layer("CONV_2D", bias=BIAS, weight_scale=[0.02] * 4, bias_scale=[0.001] * 4, bias_axis=3)
        if odd == "axis" else layer("FULLY_CONNECTED", bias=np.zeros(4), bias_scale=0.5)
    )
    result = crtexport.verify(path, samples=3, emit="c")
    assert result.agrees
    assert result.rewritten.startswith("the network written anew, because of 'tflite-runtime:")


def test_what_the_runtime_would_compute_with_strange_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(svdf(SeededDraw(1), "int8", "int8").content)
    with pytest.raises(CrtExportError, match="only TensorFlow Lite Micro has SVDF with an int8"):
        crtexport.verify(path, samples=1, emit="c")


@pytest.mark.parametrize("numerics", ["tflite", "litert"])
def test_a_runtime_without_an_operator_is_said_to_lack_it(numerics: str, tmp_path: Path) -> None:
    require_reference("tflite-runtime" if numerics == "tflite" else "ai-edge-litert")
    m, path = ModelBuilder(), tmp_path / "model.tflite"
    x, w, y = (m.tensor(name, (7,), "int16") for name in "xwy")
    signal(m, "Window", [x, w], [y], shift=12)
    path.write_bytes(m.build([x, w], [y]))
    with pytest.raises(CrtExportError, match="only TensorFlow Lite Micro has SignalWindow") as told:
        crtexport.verify(path, samples=1, emit="c", numerics=numerics)
    assert told.value.hint == "compare with --numerics tflm"


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_newer_versions_of_operators_get_reference_kernels(dtype: str, tmp_path: Path) -> None:
    """TILE in version 3 is among the optimized kernels alone, beside which LOGISTIC differs."""
    require_reference()
    m, path = ModelBuilder(), tmp_path / "model.tflite"
    x, y = (
        m.tensor(name, shape, dtype, scale=0.06)
        for name, shape in (("x", (3, 5, 7)), ("y", (6, 5, 21)))
    )
    z = m.tensor("z", (6, 5, 21), dtype, scale=2.0 ** (-8 if dtype == "int8" else -15),
                 zero_point=-128 if dtype == "int8" else 0)
    times = m.tensor("times", (3,), "int32", data=np.array([2, 1, 3], np.int32))
    m.op("TILE", [x, times], [y], version=3)
    m.op("LOGISTIC", [y], [z])
    path.write_bytes(m.build([x], [z]))
    result = crtexport.verify(path, samples=2, emit="c")
    assert result.agrees
    assert result.reference.endswith("BUILTIN_REF")
    assert "reference kernels" in result.rewritten
