"""Vector forms for x86-64: floats as the plain forms but for rounding, both backends alike."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.kernels import families
from crtexport.kernels.intrinsics import INTRINSICS
from crtexport.kernels.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.schedules import lower
from crtexport.schedules.x86_machine import machine_of
from tests.lowered import run
from tests.support import require, unavailable
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
BOARDS = ("host", "host_avx2")


def needs(board: str) -> None:
    """Skips where this computer can't run the board's code."""
    flags = Path("/proc/cpuinfo")
    text = flags.read_text(encoding="ascii") if flags.exists() else ""
    if board == "host_avx2" and not {"avx2", "fma"} <= set(text.split()):
        unavailable("avx2", "this computer has no AVX2")


def float_layer(kind: str, weights: str, draw: Any, rng: np.random.Generator) -> bytes:
    """One layer with floats at both ends and weights of a type."""
    m = ModelBuilder()
    height, width, channels = (draw(1, 6) for _ in range(3))
    channels *= draw(1, 5)
    kernel = (draw(1, min(3, height)), draw(1, min(3, width)))
    padding, stride = ("VALID", "SAME")[draw(0, 1)], (draw(1, 2), draw(1, 2))
    units = channels if kind == "depthwise" else draw(1, 37)
    shape: tuple[int, ...] = (1, height, width, channels)
    w_shape: tuple[int, ...] = (units, *kernel, channels)
    out: tuple[int, ...] = (1, *(
        -(-n // s) if padding == "SAME" else -(-(n - k + 1) // s)
        for n, k, s in zip((height, width), kernel, stride, strict=True)
    ), units)
    attributes: dict[str, Any] = {"padding": padding, "stride": stride}
    if kind == "dense":
        shape, w_shape, out, attributes = (1, channels), (units, channels), (1, units), {}
    elif kind == "depthwise":
        w_shape = (1, *kernel, units)
    x = m.tensor("x", shape, "float32")
    if weights == "int8":
        scales = rng.uniform(0.01, 0.1, units).astype(np.float32).tolist()
        w = m.tensor(
            "w", w_shape, "int8", scale=scales if kind != "dense" else scales[0], axis=0,
            data=rng.integers(-127, 128, w_shape),
        ) if kind != "dense" else m.tensor(
            "w", w_shape, "int8", scale=scales[0], data=rng.integers(-127, 128, w_shape)
        )
    else:
        w = m.tensor("w", w_shape, "float32", data=rng.normal(size=w_shape).astype(np.float32))
    b = m.tensor("b", (units,), "float32", data=rng.normal(size=units).astype(np.float32))
    y = m.tensor("y", out, "float32")
    name = {"dense": "FULLY_CONNECTED", "conv": "CONV_2D", "depthwise": "DEPTHWISE_CONV_2D"}[kind]
    m.op(name, [x, w, b], [y], **attributes)
    return m.build([x], [y])


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(("kind", "weights"), [
    ("conv", "float32"), ("depthwise", "float32"), ("dense", "float32"), ("conv", "int8"),
    ("dense", "int8"),
])
@settings(max_examples=12)
@given(data=st.data())
def test_floats_are_those_of_the_plain_form_but_for_rounding(
    board: str, kind: str, weights: str, tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    path = tmp_path_factory.mktemp("m") / "m.tflite"
    path.write_bytes(
        float_layer(kind, weights, lambda a, b: data.draw(st.integers(a, b)), rng)
    )
    graph = load(path)
    context = Context(graph, graph.nodes[0])
    lowered = lower(context, load_board(board).target, "balanced")
    assert "x86_" in repr(lowered.kernel)
    value = rng.normal(size=context.input(0).shape).astype(np.float32)
    expected = run(graph, families.lower(context), value)
    scale = float(np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(run(graph, lowered, value), expected, atol=2e-5 * scale, rtol=0)


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(("kind", "weights"), [
    ("conv", "float32"), ("depthwise", "float32"), ("dense", "int8"),
])
def test_both_backends_give_the_interpreters_floats(
    kind: str, weights: str, board: str, emit: str, tmp_path: Path
) -> None:
    require("gcc")
    needs(board)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        path = tmp_path / "m.tflite"
        path.write_bytes(float_layer(
            kind, weights, lambda low, high, rng=rng: int(rng.integers(low, high + 1)), rng
        ))
        package = tmp_path / "m.tar"
        crtexport.export(path, board=board, emit=emit, output=package)  # type: ignore[arg-type]
        graph = load(path)
        context = Context(graph, graph.nodes[0])
        lowered = lower(context, load_board(board).target, "balanced")
        value = rng.normal(size=context.input(0).shape).astype(np.float32)
        (given_,) = open_package(package).inputs
        (result,) = crtexport.simulate(package, {str(given_.field): value})
        (output,) = result.values()
        np.testing.assert_array_equal(output, run(graph, lowered, value))


def test_vectors_follow_the_processor() -> None:
    small, large = (machine_of(load_board(board).target) for board in BOARDS)
    assert small is not None
    assert large is not None
    assert (small.lanes, small.fma, large.lanes, large.fma) == (4, False, 8, True)
    assert machine_of(load_board("mps2_an386").target) is None


def nearest(value: Fraction) -> float:
    """The float32 next to a fraction, even where two are."""
    if value == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(value)))
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - 23, -149)
    return float(round(value / unit) * unit)


floats = st.floats(-(2.0**40), 2.0**40, width=32)


@settings(max_examples=400)
@example(1.0 + 2**-23, 1.0 + 2**-23, 2.0**-40)
@example(1.0 + 2**-12, 1.0 + 2**-12, -(2.0**-60))
@given(floats, floats, floats)
def test_products_are_added_with_one_rounding(a: float, b: float, c: float) -> None:
    lanes: Any = INTRINSICS["x86_fma_4"].evaluate((a,) * 4, (b,) * 4, (c,) * 4)
    (result,) = set(lanes)
    assert result == nearest(Fraction(a) * Fraction(b) + Fraction(c))
