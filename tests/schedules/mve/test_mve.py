"""Vector variants compute what the plain kernels do: interpreted, as C anywhere, on a
Cortex-M55."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crtexport
from crtexport.importers import load
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.schedules.common import padded_row_ring
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.mve import candidates as mve
from tests.differential.network import interpret
from tests.helpers import target_of
from tests.lowered import lower
from tests.schedules.layers import (
    ACTIVATIONS,
    AS_CODE,
    drawing,
    outputs_as_code,
    positions,
    search,
)
from tests.schedules.scalar.test_blocks import Network, run
from tests.schedules.vector_targets import MVE

Array = np.ndarray[Any, Any]
MOST_UNITS = 21


def window(n: Network, x: int, shape: tuple[int, ...], *, depthwise: bool) -> int:
    """A convolution of any geometry; its output."""
    integer = n.integer
    _, height, width, channels = shape
    kernel, dilation = (integer(1, 4), integer(1, 4)), (integer(1, 2), integer(1, 2))
    stride = (integer(1, 3), integer(1, 3))
    padding, out = positions(integer, (height, width), kernel, stride, dilation)
    units = channels if depthwise else integer(1, MOST_UNITS)
    y = n.tensor((shape[0], *out, units))
    w_shape = (1, *kernel, units) if depthwise else (units, *kernel, channels)
    n.m.op(
        "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
        [x, *n.weights(w_shape, 3 if depthwise else 0)], [y],
        padding=padding, stride=stride, dilation=dilation,
        activation=ACTIVATIONS[integer(0, 3)],
    )
    return y


def pointwise(n: Network, x: int, shape: tuple[int, ...]) -> int:
    """A convolution with windows of one pixel."""
    stride, units = (n.integer(1, 2), n.integer(1, 2)), n.integer(1, MOST_UNITS)
    out = tuple(-(-size // s) for size, s in zip(shape[1:3], stride, strict=True))
    y = n.tensor((shape[0], *out, units))
    n.m.op(
        "CONV_2D", [x, *n.weights((units, 1, 1, shape[3]), 0)], [y],
        padding="VALID", stride=stride, activation=ACTIVATIONS[n.integer(0, 3)],
    )
    return y


KINDS = ("conv", "depthwise", "pointwise", "dense", "sum")


def tensor(n: Network, shape: tuple[int, ...]) -> int:
    """A tensor of any scale."""
    return n.tensor(shape, 0.01 * n.integer(1, 20))


def add_layer(n: Network, kind: str) -> tuple[tuple[int, ...], list[int], int]:
    """(shape of the inputs, inputs, output) of one more layer."""
    integer = n.integer
    if kind == "sum":
        shape: tuple[int, ...] = (1, integer(1, 45))
        inputs, y = [tensor(n, shape), tensor(n, shape)], tensor(n, shape)
        op = ("ADD", "SUB", "MUL")[integer(0, 2)]
        n.m.op(op, inputs, [y], activation=ACTIVATIONS[integer(0, 3)])
        return shape, inputs, y
    if kind == "dense":
        shape = (integer(1, 3), integer(1, 70))
        x, units = n.tensor(shape), integer(1, MOST_UNITS)
        y = n.tensor((shape[0], units))
        n.m.op("FULLY_CONNECTED", [x, *n.weights((units, shape[1]), 0)[:1]], [y])
        return shape, [x], y
    channels = (integer(1, 20), 8, 16, 32, integer(17, 37))[integer(0, 4)]
    shape = (integer(1, 2), integer(1, 7), integer(1, 7), channels)
    x = n.tensor(shape)
    if kind == "pointwise":
        return shape, [x], pointwise(n, x, shape)
    return shape, [x], window(n, x, shape, depthwise=kind == "depthwise")


def check_variant(
    kind: str, folder: Path, data: st.DataObject,
    candidates: Callable[[Context], Sequence[Candidate]],
) -> None:
    """Any of a layer's ``candidates`` computes what its plain kernel does."""
    n = Network(drawing(data), data.draw(st.integers(0, 99)))
    shape, inputs, y = add_layer(n, kind)
    (folder / "m.tflite").write_bytes(n.m.build(inputs, [y]))
    graph = load(folder / "m.tflite")
    context = Context(graph, graph.nodes[0])
    # Little scratch makes convolutions copy parts of rows.
    with patch.object(padded_row_ring, "SCRATCH", data.draw(st.sampled_from([2048, 200, 1]))):
        vectors = data.draw(st.sampled_from(candidates(context))).make()
    extreme = data.draw(st.booleans())
    size = (len(inputs), *shape)
    values = n.rng.choice([-128, 127], size) if extreme else n.rng.integers(-128, 128, size)
    values = values.astype(np.int8)
    np.testing.assert_array_equal(
        run(graph, vectors, *values), run(graph, operator_table.lower(context), *values)
    )


@pytest.mark.parametrize("kind", KINDS)
@search(40)
@given(data=st.data())
def test_a_vector_variant_equals_the_plain_kernel(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    check_variant(kind, tmp_path, data, lambda context: mve.candidates(context, MVE))


def uneven(n: Network, kind: str, *, most: int) -> tuple[tuple[int, ...], int, int]:
    """A layer whose channels are multiplied by other powers of two, up to ``most``: some by more
    than one, which shifts their sums to the left, and perhaps some by less."""
    units = n.integer(2, MOST_UNITS)
    channels = units if kind == "depthwise" else n.integer(1, 9)
    shape: tuple[int, ...] = (1, channels) if kind == "dense" else (1, 3, 4, channels)
    x = n.m.tensor("x", shape, "int8", scale=0.5, zero_point=n.integer(-128, 127))
    w_shape = {
        "dense": (units, channels), "depthwise": (1, 2, 2, units),
        "pointwise": (units, 1, 1, channels),
    }[kind]
    powers = [most, *(n.integer(-9, most) for _ in range(units - 1))]
    scales = [float(n.rng.uniform(0.5, 0.99)) * 2.0**power for power in powers]
    axis = 3 if kind == "depthwise" else 0
    w = n.m.tensor(
        "w", w_shape, "int8", scale=scales, axis=axis, data=n.rng.integers(-127, 128, w_shape)
    )
    bias = n.m.tensor(
        "b", (units,), "int32", scale=[0.5 * scale for scale in scales], axis=0,
        data=n.rng.integers(-500, 500, units),
    )
    out = (1, units) if kind == "dense" else (*shape[:3], units)
    y = n.m.tensor("y", out, "int8", scale=0.5, zero_point=n.integer(-128, 127))
    if kind == "dense":
        n.m.op("FULLY_CONNECTED", [x, w, bias], [y], activation=ACTIVATIONS[n.integer(0, 3)])
    else:
        n.m.op(
            "DEPTHWISE_CONV_2D" if kind == "depthwise" else "CONV_2D", [x, w, bias], [y],
            padding="SAME", activation=ACTIVATIONS[n.integer(0, 3)],
        )
    return shape, x, y


@pytest.mark.parametrize("kind", ["dense", "depthwise", "pointwise"])
@search(20)
@given(data=st.data())
def test_sums_of_some_channels_are_shifted_to_the_left(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    n = Network(drawing(data), data.draw(st.integers(0, 99)))
    shape, x, y = uneven(n, kind, most=data.draw(st.integers(0, 6)))
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    vectors = data.draw(st.sampled_from(mve.candidates(context, MVE))).make()
    value = n.rng.choice([-128, -1, 0, 1, 127], shape).astype(np.int8)
    np.testing.assert_array_equal(
        run(graph, vectors, value), run(graph, operator_table.lower(context), value)
    )


def many_layers(folder: Path, seed: int, count: int) -> tuple[Path, list[tuple[int, ...]]]:
    """A network of ``count`` layers beside each other, and the shapes of its inputs."""
    rng = np.random.default_rng(seed)
    n = Network(lambda low, high: int(rng.integers(low, high + 1)), seed)
    layers = [add_layer(n, KINDS[i % len(KINDS)]) for i in range(count)]
    path = folder / "m.tflite"
    inputs = [x for _, xs, _ in layers for x in xs]
    path.write_bytes(n.m.build(inputs, [y for _, _, y in layers]))
    return path, [shape for shape, xs, _ in layers for _ in xs]


def check_code(folder: Path, board: str, where: str) -> None:
    """Layers as code for a board compute what the interpreter does."""
    path, shapes = many_layers(folder, 11, 10 if where == "c here" else 35)
    rng = np.random.default_rng(3)
    values = [rng.integers(-128, 128, (2, *shape)).astype(np.int8) for shape in shapes]
    with patch.object(padded_row_ring, "SCRATCH", 400):
        rows = outputs_as_code(path, values, board, where)
    graph = load(path)
    for sample, row in enumerate(rows):
        expected = interpret(graph, [v[sample] for v in values])
        for got, wanted in zip(row, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


@AS_CODE
def test_odd_layers_agree_as_code(where: str, tmp_path: Path) -> None:
    check_code(tmp_path, "mps3_an547", where)


def test_vectors_are_copied_without_calls(tmp_path: Path) -> None:
    path, _ = many_layers(tmp_path, 11, 10)
    package = tmp_path / "m.tar"
    crtexport.export(
        path, board="mps3_an547", emit="llvm", output=package, system_lib=False
    )
    section = open_package(package).metadata.crtexport
    assert section is not None
    assert not {"memcpy", "memmove", "memset"} & set(section.undefined.used or ())


def test_processors_without_vectors_get_none(tmp_path: Path) -> None:
    n = Network(lambda low, high: high, 1)
    _, inputs, y = add_layer(n, "dense")
    (tmp_path / "m.tflite").write_bytes(n.m.build(inputs, [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    for board, vectors in (("mps3_an547", True), ("mps2_an386", False), ("host", False)):
        lowered = lower(context, target_of(board), "balanced")
        assert ("mve_mladava_s8" in repr(lowered.kernel)) is vectors
