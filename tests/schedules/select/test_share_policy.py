"""Kernels become one function where the code that this saves is worth its instructions."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from crtexport.artifact.model import every_call
from crtexport.firmware.board import load_board
from crtexport.ir.graph import Graph
from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.kir.analysis.kernel_merging import merge
from crtexport.kir.assembly.assemble import assembled
from crtexport.kir.builder import KernelBuilder, add, const, i32, load, mul
from crtexport.kir.language import For, Kernel, Scalar
from crtexport.kir.walk import walk
from crtexport.pipeline.driver import prepare
from crtexport.schedules.mve.depthwise import _SMALL_SUM, _groups
from crtexport.schedules.select.cost_model import CORTEX_M4, Work, counted, estimate
from crtexport.schedules.select.share_policy import weighing
from tests.helpers import target_of
from tests.plan.graphs import GraphBuilder

M4 = target_of("mps2_an386")
HOST = target_of("host")


def scaled(count: int, factor: int, step: int = 1, long: bool = True) -> Kernel:
    """``y[i * step] = x[i] * factor + 1``; a ``long`` kernel has more code."""
    b = KernelBuilder("scaled")
    x = b.buffer("x", Scalar.I32, count)
    y = b.buffer("y", Scalar.I32, count * step, writable=True)
    with b.loop("i", count) as i:
        value = load(x, i)
        for number in range(60 if long else 1):
            value = b.let("value", add(mul(value, i32(factor)), i32(number)))
        b.store(y, mul(i, const(step)), value)
    return b.finish()


def summed(turns: int, pitch: int, rows: int, outside: bool = False) -> Kernel:
    """``y[r] = x[r] + x[r + pitch] + ...``, ``turns`` of them, plus some more; ``outside``: x
    begins at ``r * pitch`` instead, and its elements are neighbours."""
    b = KernelBuilder("summed")
    x = b.buffer("x", Scalar.I32, rows * pitch + turns * pitch)
    y = b.buffer("y", Scalar.I32, rows, writable=True)
    with b.loop("r", rows) as r:
        begin = b.let("begin", mul(r, const(pitch)) if outside else r)
        total = b.local("total", i32(0))
        with b.loop("t", turns) as t:
            at = add(begin, t if outside else mul(t, const(pitch)))
            value = load(x, at)
            for number in range(5):
                value = b.let("value", add(mul(value, i32(7)), i32(number)))
            b.assign(total, add(total, value))
        b.store(y, r, total)
    return b.finish()


def functions(kernels: list[Kernel], optimize: str, board: str = "mps2_an386") -> int:
    found = merge(kernels, weighing(target_of(board), optimize))
    return len({id(sharing.kernel) for sharing in found if sharing.values}) + sum(
        not sharing.values for sharing in found
    )


def test_numbers_that_loops_compute_with_cost_next_to_nothing() -> None:
    kernels = [scaled(20000, 5), scaled(20000, 7)]
    assert [functions(kernels, level) for level in ("size", "balanced", "speed")] == [1, 1, 1]


def test_code_that_passing_parameters_would_not_save_is_not_shared() -> None:
    kernels = [scaled(1, 5, long=False), scaled(1, 7, long=False)]
    assert [functions(kernels, level) for level in ("size", "balanced", "speed")] == [2, 2, 2]


def test_addresses_and_extents_are_shared_where_that_time_does_not_matter() -> None:
    hot, cold = [scaled(100000, 5, long=False)], [scaled(9, 5, 2), scaled(7, 5, 3)]
    assert [functions([*hot, *cold], level) for level in ("size", "balanced", "speed")] == [2, 2, 3]
    # Where nothing else is computed, it matters.
    assert [functions(cold, level) for level in ("size", "speed")] == [1, 2]


def test_addresses_outside_of_innermost_loops_cost_next_to_nothing_on_x86_64() -> None:
    kernels = [summed(9, pitch, 20000, outside=True) for pitch in (11, 17, 23)]
    for board in ("host", "host_avx2", "host_avx512"):
        assert functions(kernels, "balanced", board) == 1
    (first, *_) = merge(kernels, weighing(HOST, "balanced"))
    assert first.kernel.params[0].type is Scalar.INDEX


def test_innermost_loops_of_x86_64_take_numbers_only_where_that_time_does_not_matter() -> None:
    hot = [summed(3, pitch, 20000) for pitch in (11, 17)]
    cold = [summed(3, pitch, 20) for pitch in (11, 17)]
    assert functions(hot, "balanced", "host") == 2
    assert functions([*hot, *cold], "balanced", "host") == 3
    assert functions([*hot, *cold], "size", "host") == 1


def test_what_parameters_cost_is_seen() -> None:
    kernels = [scaled(100, 5, 3), scaled(90, 5, 4)]
    first, second = merge(kernels, weighing(M4, "size"))
    assert first.kernel is second.kernel
    names = [param.name for param in first.kernel.params]
    for kernel, sharing in zip(kernels, (first, second), strict=True):
        values = dict(zip(names, sharing.values, strict=True))
        one, many = counted(sharing.kernel, 8, values).run, counted(kernel, 8).run
        assert one[Work.TURN] == many[Work.TURN]
        assert one[Work.LOAD] == many[Work.LOAD]
        assert (
            estimate(sharing.kernel, CORTEX_M4, values).instructions
            > estimate(kernel, CORTEX_M4).instructions
        )


def test_parameters_cost_more_in_loops_whose_registers_are_given() -> None:
    """What stands for a number there is loaded from the stack."""
    def loops(assembled: bool) -> list[Kernel]:
        found = []
        for count, step in ((40, 3), (30, 4), (20, 5)):
            kernel = scaled(count, 5, step)
            (loop,) = kernel.body
            assert isinstance(loop, For)
            found.append(replace(kernel, body=(replace(loop, assembled=assembled),)))
        return found

    hot = [summed(3, 11, 5000)]
    shared, own = (functions([*hot, *loops(assembled)], "balanced") for assembled in (False, True))
    assert (shared, own) == (2, 4)


def rows_of(rows: int) -> Kernel:
    """``rows`` times 40 words, ``y[i] = (x[i] * 7 + 0) * 7 + ...``, in a loop that crtexport
    gives registers to: a function that knows nothing of the rows."""
    b = KernelBuilder("rows")
    x = b.buffer("x", Scalar.I32, 40 * rows)
    y = b.buffer("y", Scalar.I32, 40 * rows, writable=True)
    with b.loop("r", rows) as r:
        begin = b.let("begin", mul(r, const(40)))
        with b.loop("i", 40) as i:
            value = load(x, add(begin, i))
            for number in range(60):
                value = b.let("value", add(mul(value, i32(7)), i32(number)))
            b.store(y, add(begin, i), value)
    kernel = b.finish()
    (outer,) = kernel.body
    assert isinstance(outer, For)
    *before, inner = outer.body
    assert isinstance(inner, For)
    body = (*before, replace(inner, assembled=True))
    return replace(kernel, body=(replace(outer, body=body),))


def test_a_function_that_several_kernels_call_is_no_reason_to_merge_them() -> None:
    kernels = [rows_of(3), rows_of(4)]
    called = set()
    for kernel in kernels:
        (loop,) = (stmt for stmt in walk(kernel.body) if isinstance(stmt, For) and stmt.assembled)
        function = assembled(loop, kernel, M4)
        assert function is not None
        called.add(function.code)
    (code,) = called
    weigh = weighing(M4, "balanced")
    for kernel in kernels:
        alone, both = (weigh(some, [1] * len(some)).code(kernel) for some in ([kernel], kernels))
        assert alone - both == len(code) > 200


def test_layers_of_any_weights_sum_pairs_of_neighbours_where_more_would_not_fit() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        large = rng.integers(90, 128, (9, 16)) * rng.choice([-1, 1], (9, 16))
        assert _groups(large.astype(np.int8)) == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
        small = rng.integers(-40, 41, (9, 16)).astype(np.int8)
        groups = _groups(small)
        assert len(groups) < 5
        assert sorted(tap for group in groups for tap in group) == list(range(9))
        for group in groups:
            assert np.abs(small[group].astype(int)).sum(axis=0).max() <= _SMALL_SUM


def depthwise_layers(count: int) -> Graph:
    rng, b = np.random.default_rng(3), GraphBuilder()
    x = b.input(1, 6, 6, 16, dtype=DType.INT8, quant=Quantization((0.05,), (4,)))
    for number in range(count):
        values = rng.integers(90, 128, (1, 3, 3, 16)).astype(np.int8)
        weights = b.constant(values, Quantization((0.01,), (0,)))
        bias = b.constant(rng.integers(-99, 99, 16).astype(np.int32), Quantization((5e-4,), (0,)))
        op = DepthwiseConv2D(stride=(1, 1), padding=Padding2D(1, 1, 1, 1))
        x = b.node(op, x, weights, bias, quant=Quantization((0.5 + number,), (4,)))
    return b.finish(x)


def test_equal_depthwise_layers_with_other_weights_have_one_function_on_mve() -> None:
    artifact = prepare(depthwise_layers(3), load_board("mps3_an547")).artifact
    assert len(list(every_call(artifact.calls))) == 3
    assert len(artifact.functions) < 3


def test_hot_loops_take_no_parameters_where_registers_are_few() -> None:
    hot, cold = [scaled(20000, 5), scaled(20000, 7)], [scaled(9, 5), scaled(9, 7)]
    assert functions(hot, "balanced") == functions(hot, "size", "qemu_cortex_m0") == 1
    for level in ("compact", "balanced"):
        assert functions(hot, level, "qemu_cortex_m0") == 2
        assert functions([*hot, *cold], level, "qemu_cortex_m0") == 3
