"""Variants for RISC-V's vectors compute what the plain kernels do: interpreted, as C anywhere, on a
processor that has them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.schedules.common import padded_row_ring, target_features
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.rvv import candidates as rvv
from crtexport.schedules.select import choose
from crtexport.schedules.select.choose import by_default
from crtexport.schedules.variants import variants_of
from tests.differential.network import interpret
from tests.helpers import target_of
from tests.lowered import run
from tests.schedules.common.test_float_layers import Floats, assert_near
from tests.schedules.layers import drawing, outputs_as_code, search
from tests.schedules.mve import test_mve
from tests.schedules.scalar.test_blocks import Network
from tests.schedules.vector_targets import RVV, RVV_FLOATS

BOARD = "qemu_riscv32_v"
KINDS = ("conv", "depthwise", "pointwise", "dense")
WITH_SUMS = (*KINDS, "sum")


def candidates(context: Context) -> list[Candidate]:
    return rvv.candidates(context, RVV)


@pytest.mark.parametrize("kind", WITH_SUMS)
@search(25)
@given(data=st.data())
def test_a_vector_variant_equals_the_plain_kernel(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    with patch.object(test_mve, "MOST_UNITS", data.draw(st.sampled_from([9, 21, 70]))):
        test_mve.check_variant(kind, tmp_path, data, candidates)


@pytest.mark.parametrize("size", [1, 31, 32, 97, 1 << 16])
@pytest.mark.parametrize("op", ["ADD", "SUB"])
def test_a_sum_equals_the_plain_kernel(op: str, size: int, tmp_path: Path) -> None:
    n = Network(lambda low, high: high, 1)
    inputs = [n.tensor((1, size), scale) for scale in (0.04, 0.1)]
    y = n.tensor((1, size), 0.11)
    n.m.op(op, inputs, [y], activation="RELU" if size % 2 else "NONE")
    (tmp_path / "m.tflite").write_bytes(n.m.build(inputs, [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    (variant,) = candidates(context)
    pairs = np.stack(np.divmod(np.arange(1 << 16), 256)) - 128
    if size < 1 << 16:
        pairs = n.rng.permuted(pairs, axis=1)[:, :size]
    first, second = pairs.astype(np.int8)
    np.testing.assert_array_equal(
        run(graph, variant.make(), first, second),
        run(graph, operator_table.lower(context), first, second),
    )


def test_a_sum_that_no_linear_function_equals_follows_tflites_steps(tmp_path: Path) -> None:
    n = Network(lambda low, high: high, 1)
    inputs = [n.tensor((1, 1 << 16), scale) for scale in (0.02, 0.09)]
    y = n.tensor((1, 1 << 16), 0.1)
    n.m.op("ADD", inputs, [y])
    (tmp_path / "m.tflite").write_bytes(n.m.build(inputs, [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    (variant,) = candidates(context)
    assert "rvv_vsmul" in repr(variant.make().kernel)
    pairs = (np.stack(np.divmod(np.arange(1 << 16), 256)) - 128).astype(np.int8)
    np.testing.assert_array_equal(
        run(graph, variant.make(), *pairs), run(graph, operator_table.lower(context), *pairs)
    )


@pytest.mark.parametrize("where", ["c here", pytest.param("llvm", marks=pytest.mark.qemu)])
def test_odd_layers_agree_as_code(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In C, too, although that gets other variants by default.
    monkeypatch.setattr(choose, "_first", lambda _, found, _part: found[0])
    with patch.object(test_mve, "MOST_UNITS", 50):
        test_mve.check_code(tmp_path, BOARD, where)


@pytest.mark.parametrize("kind", KINDS)
@search(12)
@given(data=st.data())
def test_a_variant_of_floats_is_near_the_plain_kernel(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    n = Floats(drawing(data), data.draw(st.integers(0, 99)))
    shape, *_ = layer = n.add(kind)
    graph = load(n.write(tmp_path, [layer]))
    context = Context(graph, graph.nodes[0])
    with patch.object(padded_row_ring, "SCRATCH", data.draw(st.sampled_from([2048, 400, 1]))):
        found = rvv.candidates(context, RVV_FLOATS)
        if not found:  # of int8 weights
            assert kind == "depthwise"
            return
        vectors = data.draw(st.sampled_from(found)).make()
    value = n.values(shape)
    assert_near(run(graph, vectors, value), run(graph, operator_table.lower(context), value))


@pytest.mark.qemu
def test_floats_are_near_on_the_machine(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    n = Floats(lambda low, high: int(rng.integers(low, high + 1)), 8)
    layers = [n.add(KINDS[i % len(KINDS)]) for i in range(16)]
    path = n.write(tmp_path, layers)
    values = [rng.standard_normal(shape).astype(np.float32) for shape, _, _ in layers]
    (row,) = outputs_as_code(path, [v[None] for v in values], BOARD, "llvm")
    for got, wanted in zip(row, interpret(load(path), values), strict=True):
        assert_near(got, wanted)


def test_registers_must_be_long_enough() -> None:
    target = target_of(BOARD)
    assert target_features.has_rvv(target)
    assert target_features.has_rvv_floats(target)
    for features, vectors, floats in (
        (("+v",), True, True), (("+zve32x", "+zvl128b"), True, False),
        (("+zve32f", "+zvl256b"), True, True), (("+zve32x",), False, False),
        (("+zve64x", "+zvl64b"), False, False), (("+zvl128b",), False, False), ((), False, False),
    ):
        other = replace(target, features=features)
        assert target_features.has_rvv(other) is vectors
        assert target_features.has_rvv_floats(other) is floats


def test_processors_without_vectors_get_none(tmp_path: Path) -> None:
    n = Network(lambda low, high: high, 1)
    _, inputs, y = test_mve.add_layer(n, "dense")
    (tmp_path / "m.tflite").write_bytes(n.m.build(inputs, [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    for board, vectors in ((BOARD, True), ("qemu_riscv32", False), ("mps3_an547", False)):
        target = target_of(board)
        found = variants_of(context, target, "balanced")
        assert ("rvv_mac" in repr(found[0].make().kernel)) is vectors
        # Compilers of C get what they make good code of.
        chosen = by_default(target, "balanced", "c")(context, found, 1.0)
        assert "rvv_" not in repr(chosen.make().kernel)
