"""Forms of float layers for some processor are as near to the truth as the plain forms, wherever
they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.kernels import families
from crtexport.kernels.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.schedules import forms, mve, mve_rows
from tests.differential.network import interpret
from tests.lowered import lower, run, usual
from tests.support import require
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
KINDS = ("conv", "depthwise", "pointwise", "dense")
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
TOLERANCE = 2e-6
"""Of the sum of magnitudes that a result is made of; a rounding is 6e-8."""


class Layers:
    """float32 layers of drawn geometry, with float32 or int8 weights; depthwise ones have
    ``multiplier`` outputs of each channel."""

    def __init__(
        self, integer: Callable[[int, int], int], seed: int, multiplier: int = 1
    ) -> None:
        self.multiplier = multiplier
        self.integer, self.rng, self.m = integer, np.random.default_rng(seed), ModelBuilder()
        self.count = 0

    def tensor(self, shape: tuple[int, ...], data: Array | None = None) -> int:
        self.count += 1
        return self.m.tensor(f"t{self.count}", shape, data=data)

    def weights(self, shape: tuple[int, ...], axis: int) -> list[int | None]:
        units = shape[axis]
        if self.integer(0, 1):
            w = self.tensor(shape, self.rng.standard_normal(shape).astype(np.float32))
        else:
            self.count += 1
            scales = self.rng.uniform(0.001, 0.02, units).astype(np.float32).tolist()
            data = self.rng.integers(-127, 128, shape)
            w = self.m.tensor(f"t{self.count}", shape, "int8", scale=scales, axis=axis, data=data)
        if not self.integer(0, 3):
            return [w, None]
        return [w, self.tensor((units,), self.rng.standard_normal(units).astype(np.float32))]

    def add(self, kind: str) -> tuple[tuple[int, ...], int, int]:
        """(shape of the input, input, output) of one more layer."""
        integer = self.integer
        activation = ACTIVATIONS[integer(0, 3)]
        if kind == "dense":
            shape: tuple[int, ...] = (integer(1, 5), integer(1, 40))
            x, units = self.tensor(shape), integer(1, 30)
            y = self.tensor((shape[0], units))
            self.m.op(
                "FULLY_CONNECTED", [x, *self.weights((units, shape[1]), 0)], [y],
                activation=activation,
            )
            return shape, x, y
        shape = (integer(1, 2), integer(1, 7), integer(1, 7), integer(1, 14))
        x = self.tensor(shape)
        most = 1 if kind == "pointwise" else 3
        kernel, stride = (integer(1, most), integer(1, most)), (integer(1, 2), integer(1, 2))
        dilation = (integer(1, 2), 1)
        span = (kernel[0] - 1) * dilation[0] + 1, kernel[1]
        fits = span[0] <= shape[1] and span[1] <= shape[2]
        padding = ("SAME", "VALID")[integer(0, 1)] if fits else "SAME"
        out = tuple(
            -(-size // s) if padding == "SAME" else -(-(size - k + 1) // s)
            for size, k, s in zip(shape[1:3], span, stride, strict=True)
        )
        depthwise = kind == "depthwise"
        multiplier = self.multiplier if depthwise else 1
        units = shape[3] * multiplier if depthwise else integer(1, 20)
        y = self.tensor((shape[0], *out, units))
        w_shape = (1, *kernel, units) if depthwise else (units, *kernel, shape[3])
        self.m.op(
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            [x, *self.weights(w_shape, 3 if depthwise else 0)], [y],
            padding=padding, stride=stride, activation=activation, dilation=dilation,
            **({"depth_multiplier": multiplier} if depthwise else {}),
        )
        return shape, x, y


def assert_near(got: Array, wanted: Array) -> None:
    """Magnitudes of these layers' sums are below 100."""
    np.testing.assert_allclose(got, wanted, rtol=TOLERANCE, atol=100 * TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=25, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_vector_form_is_near_the_plain_form(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    n = Layers(lambda low, high: data.draw(st.integers(low, high)), data.draw(st.integers(0, 99)))
    shape, x, y = n.add(kind)
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    with patch.object(mve_rows, "SCRATCH", data.draw(st.sampled_from([2048, 400, 1]))):
        vectors = usual(mve.candidates(context, floats=True))
    assert not mve.candidates(context)
    if vectors is None:
        assert kind == "depthwise"
        assert shape[3] < 4
        return
    value = n.rng.standard_normal(shape).astype(np.float32)
    assert_near(run(graph, vectors, value), run(graph, families.lower(context), value))


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=25, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_sums_in_registers_are_near_the_plain_form(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    """On Cortex-M with a floating-point unit, for several outputs of a channel, too."""
    n = Layers(
        lambda low, high: data.draw(st.integers(low, high)), data.draw(st.integers(0, 99)),
        data.draw(st.integers(1, 3)),
    )
    shape, x, y = n.add(kind)
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    found = forms(context, load_board("mps2_an386").target, "balanced")
    lowered = found[data.draw(st.integers(0, len(found) - 1))].make()
    assert "fma_f32" in repr(lowered.kernel)
    value = n.rng.standard_normal(shape).astype(np.float32)
    assert_near(run(graph, lowered, value), run(graph, families.lower(context), value))


def test_processors_without_floats_keep_the_plain_form(tmp_path: Path) -> None:
    n = Layers(lambda low, high: high, 1)
    _, x, y = n.add("dense")
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    for board, fused in (("mps2_an386", True), ("mps2_an500", True), ("mps2_an385", False)):
        lowered = lower(Context(graph, graph.nodes[0]), load_board(board).target, "balanced")
        assert ("fma_f32" in repr(lowered.kernel)) == fused


@pytest.mark.parametrize("where", ["c here", pytest.param("c", marks=pytest.mark.qemu),
                                   pytest.param("llvm", marks=pytest.mark.qemu)])
@pytest.mark.parametrize("board", ["mps3_an547", "mps2_an386"])
def test_odd_layers_agree_as_code(board: str, where: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    n = Layers(lambda low, high: int(rng.integers(low, high + 1)), 8)
    layers = [n.add(KINDS[i % len(KINDS)]) for i in range(8 if where == "c here" else 24)]
    path, package = tmp_path / "m.tflite", tmp_path / "m.tar"
    path.write_bytes(n.m.build([x for _, x, _ in layers], [y for _, _, y in layers]))
    values = [rng.standard_normal((1, *shape)).astype(np.float32) for shape, _, _ in layers]
    with patch.object(mve_rows, "SCRATCH", 600):
        crtexport.export(
            path, board=board, emit="llvm" if where == "llvm" else "c", output=package,
            system_lib=False,
        )
    given_ = {t.field: v for t, v in zip(open_package(package).inputs, values, strict=True)}
    if where == "c here":
        rows = [list(row.values()) for row in crtexport.simulate(package, given_)]
    else:
        require("qemu-system-arm")
        rows = [list(row) for row in crtexport.run(package, given_).outputs]
    (row,) = rows
    for got, wanted in zip(row, interpret(load(path), [v[0] for v in values]), strict=True):
        assert_near(got, wanted)
