"""Kernels that are alike but for numbers get one function, which stays what each of them was."""

from __future__ import annotations

import functools
import itertools
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import crtexport
from crtexport.importers import load
from crtexport.ir.ops import Activation, Conv2D, FullyConnected
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.kir import interpreter
from crtexport.kir.alignment import alignment
from crtexport.kir.analysis.constant_skeleton import skeleton
from crtexport.kir.analysis.kernel_merging import (
    MergeCosts,
    MergedCall,
    MergeLevel,
    Weigh,
    _free,
    _looks,
    _may_differ,
    _Member,
    merge,
)
from crtexport.kir.builder import KernelBuilder, add, cast, const, div, i32, load_word, mul
from crtexport.kir.builder import load as element
from crtexport.kir.fingerprint import fingerprint
from crtexport.kir.language import Binary, Const, Expr, For, Kernel, LoadWord, Scalar, Store
from crtexport.kir.rewrite import substitute
from crtexport.kir.text import dump
from crtexport.kir.verifier import verify
from crtexport.lowering.operator_table import lower
from crtexport.lowering.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.simulation.tflite_writer import to_tflite
from tests.differential.cases import CASES, TYPES
from tests.differential.draw import SeededDraw
from tests.helpers import require_processor
from tests.plan.graphs import GraphBuilder
from tests.tflite_builder import run_reference


@functools.cache
def kernels_of(name: str, seed: int = 0) -> Mapping[str, Sequence[Kernel]]:
    """The kernels of an operator's case, by the element type that it is drawn for."""
    return {dtype: lowered(CASES[name](SeededDraw(seed), dtype).content) for dtype in TYPES[name]}


def lowered(content: bytes) -> list[Kernel]:
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        Path(file.name).write_bytes(content)
        graph = load(Path(file.name))
        return [lower(Context(graph, node)).kernel for node in graph.nodes]


def with_numbers(sharing: MergedCall) -> str:
    """The text of a shared kernel's body with its numbers in the places of its parameters."""
    text = dump(replace(sharing.kernel, doc=(), params=()))
    for param, value in zip(sharing.kernel.params, sharing.values, strict=True):
        number = str(value) if param.type is Scalar.INDEX else f"{value}:{param.type.value}"
        text = re.sub(rf"\bi64\({param.name}\)", f"{value}:i64", text)
        text = re.sub(rf"\b{param.name}\b", number, text)
    return body_of(text)


def body_of(text: str) -> str:
    return text[text.index(") {"):]


@pytest.mark.parametrize("name", CASES)
def test_a_shared_kernel_with_its_numbers_is_the_one_that_was_given(name: str) -> None:
    drawn = [kernels_of(name, seed) for seed in range(3)]
    for dtype in TYPES[name]:
        kernels = [kernel for by_type in drawn for kernel in by_type[dtype]]
        assert merge(kernels, None) == [MergedCall(kernel) for kernel in kernels]
        for level in MergeLevel:
            for kernel, sharing in zip(kernels, merge(kernels, always(level)), strict=True):
                check(kernel, sharing)


@pytest.mark.parametrize("name", CASES)
def test_kernels_with_other_numbers_look_alike_and_have_one_skeleton(name: str) -> None:
    for kernel in itertools.chain(*kernels_of(name).values()):
        rest, numbers = skeleton(kernel)
        own = member(kernel)
        looks = _looks(kernel, own.key)
        for level, number in itertools.product(MergeLevel, (-3, 1234567)):
            other = with_numbers_for(kernel, [
                replace(constant, value=number) if _may_differ(constant, place, level)
                else constant for constant, place in numbers
            ])
            other_rest, other_numbers = skeleton(other)
            assert other_rest == rest
            assert _looks(other, fingerprint(other)) == looks
            assert len(_free([(own, numbers), (member(other), other_numbers)], level)) == 1
        # Each number stands where it stood.
        counted = [replace(c, value=value) for value, (c, _) in enumerate(numbers)]
        assert [c for c, _ in skeleton(with_numbers_for(kernel, counted))[1]] == counted


@pytest.mark.parametrize("name", CASES)
def test_kernels_that_differ_in_anything_else_are_not_alike(name: str) -> None:
    for kernel in itertools.chain(*kernels_of(name).values()):
        rest, numbers = skeleton(kernel)
        own = member(kernel)
        for position, (constant, place) in enumerate(numbers):
            others = [number for number, _ in numbers]
            changed = 2.5 if math.isnan(constant.value) else -constant.value or 1
            others[position] = replace(constant, value=changed)
            other = with_numbers_for(kernel, others)
            pair = [(own, numbers), (member(other), skeleton(other)[1])]
            for level in MergeLevel:
                assert bool(_free(pair, level)) is _may_differ(constant, place, level)
        if kernel.body:
            shorter = replace(kernel, body=kernel.body[1:])
            renamed = replace(kernel, name=f"{kernel.name}_2")
            assert rest not in (skeleton(shorter)[0], skeleton(renamed)[0])


def test_kernels_whose_locals_have_other_bits_are_not_alike() -> None:
    """Of what one knows instructions may make use that isn't there in the other."""
    def sums(bits: int | None) -> Kernel:
        b = KernelBuilder("sums")
        y = b.buffer("y", Scalar.I32, 1, writable=True)
        b.store(y, const(0), b.local("total", i32(0), bits))
        return b.finish()

    kernels = [sums(None), sums(24), sums(23)]
    assert len({skeleton(kernel)[0] for kernel in kernels}) == 3
    assert len({fingerprint(kernel) for kernel in kernels}) == 3


def test_zeros_of_either_sign_make_other_kernels() -> None:
    def stores(value: float) -> Kernel:
        b = KernelBuilder("store")
        y = b.buffer("y", Scalar.F32, 1, writable=True)
        b.store(y, const(0), Const(value, Scalar.F32))
        return b.finish()

    kernels = [stores(0.0), stores(-0.0), stores(float("inf")), stores(float("-inf"))]
    assert kernels[0] == kernels[1]
    assert len({fingerprint(kernel) for kernel in kernels}) == 4
    assert fingerprint(stores(np.float64(0.0))) == fingerprint(stores(0.0))
    numbered = [(member(kernel), skeleton(kernel)[1]) for kernel in kernels]
    assert not any(_free(numbered, level) for level in MergeLevel)


def member(kernel: Kernel) -> _Member:
    return _Member(kernel, fingerprint(kernel), 1, 1)


def with_numbers_for(kernel: Kernel, numbers: Sequence[Expr]) -> Kernel:
    """The kernel, which may make no sense any more, with ``numbers`` for its constants."""
    buffers = {b.name: replace(b, size=b.size + 7, align=64) for b in kernel.buffers}
    return replace(substitute(kernel, numbers, buffers), overlapping=tuple(buffers))


def check(kernel: Kernel, sharing: MergedCall) -> None:
    assert with_numbers(sharing) == body_of(dump(replace(kernel, doc=())))
    names = [param.name for param in sharing.kernel.params]
    verify(sharing.kernel, dict(zip(names, sharing.values, strict=True)))
    for own, common in zip(kernel.buffers, sharing.kernel.buffers, strict=True):
        assert (own.name, own.dtype, own.writable) == (common.name, common.dtype, common.writable)
        assert common.size >= own.size
        assert common.align <= own.align
        assert own.name not in kernel.overlapping or own.name in sharing.kernel.overlapping


def scaled(factor: int, extent: int, step: int = 1, by: int = 3) -> Kernel:
    """output[i*step + j] = input[j] * factor / by, for i < extent, j < 2"""
    b = KernelBuilder("scale")
    x = b.buffer("input", Scalar.I32, 2)
    y = b.buffer("output", Scalar.I32, (extent - 1) * step + 2, writable=True)
    with b.loop("i", extent) as i, b.loop("j", 2) as j:
        value = div(mul(element(x, j), i32(factor)), i32(by))
        b.store(y, add(mul(i, const(step)), j), value)
    return b.finish()


def always(level: MergeLevel) -> Weigh:
    """Code is all that counts."""
    return lambda *_: MergeCosts(lambda *_: 0.0, lambda kernel: 1.0, (level,))


COMPUTED, ANY = always(MergeLevel.COMPUTED), always(MergeLevel.ANY)


def functions(kernels: list[Kernel], weigh: Weigh) -> int:
    return len({dump(sharing.kernel) for sharing in merge(kernels, weigh)})


def test_what_computes_and_what_counts_outside_may_differ() -> None:
    kernels = [scaled(5, 4), scaled(7, 4), scaled(7, 9)]
    assert functions(kernels, COMPUTED) == 1
    assert {sharing.values for sharing in merge(kernels, COMPUTED)} == {(4, 5), (4, 7), (9, 7)}


def test_addresses_differ_only_where_anything_may() -> None:
    kernels = [scaled(5, 4, step=2), scaled(5, 4, step=3)]
    assert functions(kernels, COMPUTED) == 2
    assert functions(kernels, ANY) == 1


def test_divisors_stay_constants() -> None:
    assert functions([scaled(5, 4, by=3), scaled(5, 4, by=10)], ANY) == 2


def test_kernels_take_part_that_gain_by_it() -> None:
    """Parameters cost the second kernel, which is called often, more than its code."""
    kernels = [scaled(5, 4), scaled(7, 4), scaled(7, 4), scaled(9, 4), scaled(11, 4)]

    def weigh(limit: float) -> Weigh:
        return lambda *_: MergeCosts(
            lambda sharing, calls, runs: limit * runs * len(sharing.values), lambda kernel: 100.0,
            (MergeLevel.ANY,)
        )

    assert functions(kernels, weigh(30)) == 1
    found = merge(kernels, weigh(60))
    assert [bool(sharing.values) for sharing in found] == [True, False, False, True, True]
    assert found[1] == found[2] == MergedCall(kernels[1])
    assert {sharing.values for sharing in found if sharing.values} == {(5,), (9,), (11,)}
    # Three that gain 30 each don't pay for the function of all.
    assert merge(kernels, weigh(70)) == [MergedCall(kernel) for kernel in kernels]


def test_what_is_called_more_often_gains_less() -> None:
    kernels = [scaled(5, 4), scaled(7, 4), scaled(9, 4)]

    def weigh(*_: object) -> MergeCosts:
        return MergeCosts(
            lambda sharing, calls, runs: 10.0 * runs * len(sharing.values), lambda kernel: 100.0,
            (MergeLevel.ANY,)
        )

    assert functions(kernels, weigh) == 1
    found = merge(kernels, weigh, runs=[1, 50, 1])
    assert [bool(sharing.values) for sharing in found] == [True, False, True]


def test_those_that_do_not_fit_the_others_share_among_themselves() -> None:
    slow = [scaled(factor, 4, step=3) for factor in (5, 7, 9)]
    fast = [scaled(factor, 4, step=2) for factor in (5, 7, 9)]

    def weigh(kernels: Sequence[Kernel], runs: Sequence[int]) -> MergeCosts:
        # Where the step is a number that is given, nobody gains.
        return MergeCosts(
            lambda sharing, calls, runs: 200.0 * calls * (len(sharing.values) > 1),
            lambda kernel: 100.0, tuple(MergeLevel)
        )

    assert functions([*slow, *fast], weigh) == 2


def test_wide_numbers_that_words_can_hold_are_given_as_words() -> None:
    def product(factor: int) -> Kernel:
        b = KernelBuilder("wide")
        x = b.buffer("x", Scalar.I32, 1)
        y = b.buffer("y", Scalar.I64, 1, writable=True)
        value = cast(element(x, const(0)), Scalar.I64)
        b.store(y, const(0), mul(value, Const(factor, Scalar.I64)))
        return b.finish()

    for factors, type_ in (((3, -(1 << 31)), Scalar.I32), ((3, 1 << 31), Scalar.I64)):
        kernels = [product(factor) for factor in factors]
        for factor, sharing in zip(factors, merge(kernels, ANY), strict=True):
            assert [param.type for param in sharing.kernel.params] == [type_]
            verify(sharing.kernel)
            y = np.zeros(1, np.int64)
            interpreter.run(sharing.kernel, [np.array([-5], np.int32), y], sharing.values)
            assert y[0] == -5 * factor


def test_equal_numbers_are_one_parameter() -> None:
    (first, _) = merge([scaled(6, 6), scaled(8, 8)], ANY)
    assert first.kernel.params[0].type is Scalar.INDEX
    assert len(first.kernel.params) == 2  # one of each type
    (first, _) = merge([scaled(5, 6, step=6), scaled(5, 8, step=8)], ANY)
    assert first.values == (6,)


def test_a_shared_kernel_computes_what_each_did() -> None:
    kernels = [scaled(5, 4, 2), scaled(-7, 6, 3)]
    for kernel, sharing in zip(kernels, merge(kernels, ANY), strict=True):
        x = np.array([100, -3], np.int32)
        ours, theirs = (np.zeros(b.size, np.int32) for b in (kernel.buffers[1],) * 2)
        interpreter.run(kernel, [x, theirs])
        largest = np.zeros(sharing.kernel.buffers[1].size, np.int32)
        interpreter.run(sharing.kernel, [x, largest], sharing.values)
        ours[:] = largest[: ours.size]
        np.testing.assert_array_equal(ours, theirs)


def test_other_structure_is_another_function() -> None:
    unrolled = scaled(5, 4)
    (loop,) = (s for s in unrolled.body if isinstance(s, For))
    unrolled = replace(unrolled, body=(replace(loop, unroll=2),))
    assert functions([scaled(7, 4), unrolled], ANY) == 2


def test_names_of_parameters_are_new() -> None:
    kernels = []
    for factor in (5, 7):
        kernel = scaled(factor, 4)
        source = replace(kernel.buffers[0], name="number_0")
        buffers = {"input": source, "output": kernel.buffers[1]}
        numbers = [constant for constant, _ in skeleton(kernel)[1]]
        kernels.append(substitute(kernel, numbers, buffers))
    (first, _) = merge(kernels, ANY)
    verify(first.kernel)
    assert first.kernel.params[0].name != "number_0"


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_layers_of_small_code_share_and_compute_what_the_reference_does(
    emit: str, tmp_path: Path
) -> None:
    rng, b = np.random.default_rng(3), GraphBuilder()
    x = b.input(1, 12, dtype=DType.INT8, quant=Quantization((0.05,), (4,)))
    for units, scale, zero in ((9, 0.11, -3), (5, 0.07, -20), (8, 0.09, -1)):
        depth = b.tensors[x].type.shape[1]
        weights = b.constant(
            rng.integers(-127, 128, (units, depth)).astype(np.int8),
            Quantization((0.01,), (0,)),
        )
        x = b.node(FullyConnected(), x, weights, quant=Quantization((scale,), (zero,)))
    graph = b.finish(x)
    package = tmp_path / "model.tar"
    exported = crtexport.export(graph, output=package, emit=emit, optimize="size")
    assert len(exported.artifact.functions) < len(exported.artifact.calls)
    assert open_package(package).module == "test"
    given = rng.integers(-128, 128, (1, 12)).astype(np.int8)
    (expected,) = run_reference(to_tflite(graph), given)
    ((found,),) = (row.values() for row in crtexport.simulate(package, {"t0": given[None]}))
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize(("emit", "board"), [("c", "host"), ("llvm", "host"), ("c", "host_avx2")])
def test_layers_that_take_little_time_share_innermost_loops_on_x86_64(
    emit: str, board: str, tmp_path: Path
) -> None:
    require_processor(board)
    rng, b = np.random.default_rng(3), GraphBuilder()

    def layer(x: int, depth: int, units: int, kernel: int, stride: int) -> int:
        values = rng.integers(-127, 128, (units, kernel, kernel, depth)).astype(np.int8)
        scales = tuple(rng.uniform(0.001, 0.004, units).astype(np.float32).tolist())
        weights = b.constant(values, Quantization(scales, (0,) * units, axis=0))
        bias = b.constant(rng.integers(-999, 999, units).astype(np.int32))
        around = Padding2D(*[kernel // 2] * 4)
        op = Conv2D(stride=(stride, stride), padding=around, activation=Activation.RELU)
        return b.node(op, x, weights, bias, quant=Quantization((0.5,), (-128,)))

    x = b.input(1, 47, 47, 16, dtype=DType.INT8, quant=Quantization((0.05,), (4,)))
    x = layer(layer(x, 16, 16, 5, 1), 16, 57, 3, 8)
    graph = b.finish(layer(layer(layer(x, 57, 29, 1, 1), 29, 31, 1, 1), 31, 30, 1, 1))
    package = tmp_path / "model.tar"
    exported = crtexport.export(graph, board=board, output=package, emit=emit)
    functions = exported.artifact.functions
    assert len(functions) < 5
    assert any(function.kernel.params for function in functions)
    given = rng.integers(-128, 128, (1, 47, 47, 16)).astype(np.int8)
    (expected,) = run_reference(to_tflite(graph), given)
    ((found,),) = (row.values() for row in crtexport.simulate(package, {"t0": given[None]}))
    np.testing.assert_array_equal(found, expected, strict=True)


def words(factor: int, align: int) -> Kernel:
    """output[i] = a word of input * factor, of an input at a multiple of ``align``."""
    b = KernelBuilder("words")
    x = b.buffer("input", Scalar.I8, 16, align=align)
    y = b.buffer("output", Scalar.I32, 4, writable=True)
    with b.loop("i", 4) as i:
        b.store(y, i, mul(load_word(x, mul(i, const(4))), i32(factor)))
    return b.finish()


@pytest.mark.parametrize("aligns", [(1, 4), (4, 1), (16, 2), (2, 16)])
def test_a_shared_kernel_promises_the_weakest_alignment_of_all_callers(
    aligns: tuple[int, int]
) -> None:
    kernels = [words(factor, align) for factor, align in zip((5, 7), aligns, strict=True)]
    first, second = merge(kernels, ANY)
    assert first.kernel == second.kernel
    assert first.kernel.buffers[0].align == min(aligns)
    for kernel, sharing in zip(kernels, (first, second), strict=True):
        check(kernel, sharing)
    # So does what its code is made of.
    (loop,) = first.kernel.body
    assert isinstance(loop, For)
    (stored,) = loop.body
    assert isinstance(stored, Store)
    assert isinstance(stored.value, Binary)
    assert isinstance(stored.value.a, LoadWord)
    assert alignment(stored.value.a) == min(*aligns, 4)


def test_kernels_that_differ_in_nothing_but_alignment_are_one_without_parameters() -> None:
    kernels = [words(5, align) for align in (8, 1, 4)]
    assert functions(kernels, ANY) == 1
    for kernel, sharing in zip(kernels, merge(kernels, ANY), strict=True):
        assert sharing.values == ()
        check(kernel, sharing)
    # Where nothing is shared, each keeps its own promise.
    assert [s.kernel.buffers[0].align for s in merge(kernels, None)] == [8, 1, 4]
