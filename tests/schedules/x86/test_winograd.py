"""Winograd's products give what plain sums give, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.importers import load
from crtexport.kir.verifier import verify
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.schedules.x86 import winograd as x86_winograd
from crtexport.schedules.x86.machine import X86Machine
from crtexport.schedules.x86.winograd import Transformed
from tests.helpers import require_processor
from tests.lowered import meaning, run
from tests.tflite_builder import ModelBuilder

Shape = tuple[int, ...]
MACHINES = (
    X86Machine(4, fma=False), X86Machine(8, fma=True), X86Machine(16, fma=True, registers=32),
)
EXTREMES = np.array([-127, 127, 0, 1, -1, 64])


def layer(
    shape: Shape, kernel: tuple[int, int], units: int, *, padding: str = "SAME",
    stride: tuple[int, int] = (1, 1), extremes: bool = True,
) -> bytes:
    """A convolution of int8 values."""
    rng, m = np.random.default_rng(3), ModelBuilder()
    reach = 0 if padding == "SAME" else 1
    out = tuple(
        -(-(n - reach * (k - 1)) // s) for n, k, s in zip(shape[1:3], kernel, stride, strict=True)
    )
    w_shape = (units, *kernel, shape[3])
    x = m.tensor("x", shape, "int8", scale=0.05, zero_point=-9)
    w = m.tensor(
        "w", w_shape, "int8", axis=0, scale=rng.uniform(0.0005, 0.02, units).tolist(),
        data=rng.choice(EXTREMES, w_shape) if extremes else np.full(w_shape, 127),
    )
    bias = m.tensor(
        "b", (units,), "int32", axis=0, scale=[1e-3] * units,
        data=rng.integers(-(1 << 20), 1 << 20, units),
    )
    y = m.tensor("y", (shape[0], *out, units), "int8", scale=0.9, zero_point=5)
    m.op("CONV_2D", [x, w, bias], [y], padding=padding, stride=stride)
    return m.build([x], [y])


def context_of(model: bytes, folder: Path) -> Context:
    (folder / "m.tflite").write_bytes(model)
    graph = load(folder / "m.tflite")
    return Context(graph, graph.nodes[0])


SHAPES: dict[str, tuple[Shape, tuple[int, int], int, dict[str, Any]]] = {
    "whole blocks": ((1, 8, 8, 8), (3, 3), 16, {}),
    "blocks that overlap, channels left over": ((1, 5, 7, 16), (3, 3), 21, {}),
    "several images": ((3, 4, 6, 8), (2, 3), 9, {}),
    "no padding": ((1, 6, 11, 8), (4, 3), 12, {"padding": "VALID"}),
    "one row": ((1, 1, 32, 24), (1, 3), 8, {}),
    "more rows of taps than of the image": ((1, 2, 16, 8), (5, 3), 8, {}),
}


@pytest.mark.parametrize("most", [0, 2500, 1 << 20])
@pytest.mark.parametrize("case", SHAPES)
def test_products_of_any_number_of_tiles_give_plain_sums(
    case: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(x86_winograd, "MOST", most)
    shape, kernel, units, options = SHAPES[case]
    context = context_of(layer(shape, kernel, units, **options), tmp_path)
    value = np.random.default_rng(most).choice(np.array([-128, 127, 0, -9]), shape)
    value = value.astype(np.int8)
    expected = run(context.graph, operator_table.lower(context), value)
    assert len(np.unique(expected)) > 20
    for machine in MACHINES:
        lowered = x86_winograd.lower(context, machine)
        if units < machine.fitting(units).lanes:
            assert lowered is None
            continue
        assert lowered is not None
        verify(lowered.kernel)
        np.testing.assert_array_equal(run(context.graph, lowered, value), expected)


@pytest.mark.parametrize("value", [-128, 127])
def test_the_largest_sums_are_exact(value: int, tmp_path: Path) -> None:
    context = context_of(layer((1, 8, 8, 64), (3, 3), 8, extremes=False), tmp_path)
    full = np.full((1, 8, 8, 64), value, np.int8)
    expected = run(context.graph, operator_table.lower(context), full)
    lowered = x86_winograd.lower(context, MACHINES[0])
    assert lowered is not None
    np.testing.assert_array_equal(run(context.graph, lowered, full), expected)


@pytest.mark.parametrize(("shape", "kernel", "stride"), [
    ((1, 8, 8, 7), (3, 3), (1, 1)),  # channels that aren't eights
    ((1, 8, 8, 8), (3, 2), (1, 1)),  # other rows of taps
    ((1, 16, 16, 8), (3, 3), (1, 2)),  # columns that are left out
    ((1, 8, 5, 8), (3, 3), (1, 1)),  # too few columns for two tiles
    ((1, 1, 32, 6000), (1, 3), (1, 1)),  # sums that could wrap
])
def test_other_layers_are_left_to_sums(
    shape: Shape, kernel: tuple[int, int], stride: tuple[int, int], tmp_path: Path
) -> None:
    context = context_of(layer(shape, kernel, 8, stride=stride, extremes=False), tmp_path)
    assert x86_winograd.lower(context, MACHINES[0]) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(-128, 127), st.data())
def test_parts_are_those_of_the_convolution(first: int, data: st.DataObject) -> None:
    """24 times four sums of three products, by six products: for any cells and taps."""
    cells = np.array([first, *data.draw(st.lists(
        st.integers(-128, 127), min_size=5, max_size=5
    ))])
    taps = np.array(data.draw(st.lists(st.integers(-128, 127), min_size=3, max_size=3)))
    weights = Transformed(1, 1)(np.repeat(taps, 2).reshape(1, 6).astype(np.int8))
    parts = weights.view(np.int16).reshape(6, 2)[:, 0].astype(np.int64)
    seen = np.array([
        [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
    ]) @ cells
    back = np.array([
        [1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1],
    ])
    wanted = [int(cells[i : i + 3] @ taps) for i in range(4)]
    assert (back @ (parts * seen)).tolist() == [24 * total for total in wanted]
    whole: Any = meaning("x86_part24_4")(tuple(24 * total for total in wanted))
    assert list(whole) == wanted


@pytest.mark.parametrize("emit", ["llvm", "c"])
@pytest.mark.parametrize("board", ["host", "host_avx2"])
def test_both_backends_give_plain_sums(board: str, emit: str, tmp_path: Path) -> None:
    require_processor(board)
    shape, kernel, units, _ = SHAPES["blocks that overlap, channels left over"]
    context = context_of(layer(shape, kernel, units), tmp_path)
    package = tmp_path / "m.tar"
    crtexport.export(tmp_path / "m.tflite", board=board, emit=emit, output=package)
    value = np.random.default_rng(5).integers(-128, 128, shape).astype(np.int8)
    (given_,) = open_package(package).inputs
    (result,) = crtexport.simulate(package, {str(given_.field): value})
    (output,) = result.values()
    expected = run(context.graph, operator_table.lower(context), value)
    np.testing.assert_array_equal(output, expected)
