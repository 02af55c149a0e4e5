"""Products and sums of floats stay in the order of their kernel, and compute what they say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from crtexport.backends.llvm.compile import compile_modules
from crtexport.backends.llvm.kernel import print_kernel
from crtexport.backends.llvm.types import ModuleText
from crtexport.firmware.thumb.decode import decoded
from crtexport.firmware.thumb.instruction import OpClass
from crtexport.kir.builder import KernelBuilder, add, const, f32, load, lt, mul
from crtexport.kir.interpreter import run
from crtexport.kir.intrinsics.in_order import product_in_order, sum_in_order, value_in_order
from crtexport.kir.language import Expr, Kernel, Scalar
from crtexport.support.target import Target
from tests.backends.llvm.llvm_support import TARGETS, elf, run_kernels

WIDTH, TURNS = 6, 20


def products(
    product: Callable[[Expr, Expr], Expr], total: Callable[[Expr, Expr], Expr],
    value: Callable[[Expr], Expr],
) -> Kernel:
    """Sums of the products of two values with as many weights; two are multiplied before the first
    is added. Behind them is a branch that changes a value of the loop, and adds others."""
    b = KernelBuilder("products")
    x, w = b.buffer("x", Scalar.F32, TURNS * 2), b.buffer("w", Scalar.F32, TURNS * WIDTH)
    y = b.buffer("y", Scalar.F32, 2 * WIDTH, writable=True)
    sums = [[b.local(f"sum_x{p}_w{i}", f32(0.0)) for i in range(WIDTH)] for p in range(2)]
    with b.loop("i", TURNS, unroll=1) as i:
        weights = [
            b.let(f"w{n}", value(load(w, add(mul(i, const(WIDTH)), const(n)))))
            for n in range(WIDTH)
        ]
        values = [b.let(f"x{p}", value(load(x, add(mul(i, const(2)), const(p)))))
                  for p in range(2)]
        for one, line in zip(values, sums, strict=True):
            for n in range(0, WIDTH, 2):
                found = [b.let("product", product(one, weights[n + k])) for k in range(2)]
                for k, each in enumerate(found):
                    b.assign(line[n + k], total(line[n + k], each))
        with b.if_(lt(values[0], f32(0.0))):
            twice = b.let("twice", product(values[1], weights[1]))
            b.assign(sums[0][0], total(sums[0][0], twice))
        b.assign(sums[1][1], total(sums[1][1], b.let("last", product(values[1], weights[2]))))
    for number, one in enumerate(one for line in sums for one in line):
        b.store(y, const(number), one)
    return b.finish()


def ordered() -> Kernel:
    return products(product_in_order, sum_in_order, value_in_order)


def waits(kernel: Kernel, target: Target) -> tuple[int, int]:
    """Returns how many additions a kernel has, and how many of them need what the instruction
    before computes."""
    module = ModuleText(target, "balanced")
    body = [print_kernel("k", kernel, module, "hidden")]
    data = compile_modules({"k.ll": module.text("k.ll", (), body)}, target, "balanced")["k.o"]
    code = elf(data).get_section_by_name(".text.k").data()
    found = [one for _, one in decoded(code, 0)]
    assert not any(one.kind is OpClass.FLOAT_ACCUMULATE for one in found)
    sums = [
        (before, one) for before, one in pairwise(found)
        if one.kind is OpClass.FLOAT and one.writes & one.reads
    ]
    return len(sums), sum(bool(before.writes & one.reads) for before, one in sums)


@pytest.mark.parametrize("target", ["m4", "m33"])
def test_no_sum_waits_for_its_product(target: str) -> None:
    """As LLVM orders them by itself, some do."""
    count, waiting = waits(ordered(), TARGETS[target])
    assert count >= 2 * WIDTH
    assert waiting <= 2  # behind the loop's products, in blocks of one product
    _, usual = waits(products(mul, add, lambda value: value), TARGETS[target])
    assert usual > waiting + 2


def test_they_are_products_and_sums_of_float32() -> None:
    rng = np.random.default_rng(4)
    arrays = {
        "x": rng.standard_normal(TURNS * 2).astype(np.float32),
        "w": rng.standard_normal(TURNS * WIDTH).astype(np.float32),
        "y": np.zeros(2 * WIDTH, np.float32),
    }
    wild = {name: array.copy() for name, array in arrays.items()}
    wild["x"][:4], wild["w"][3:6] = (np.inf, -np.inf, 3e38, np.nan), (3e38, -0.0, np.inf)
    kernels = [ordered(), products(mul, add, lambda value: value)]
    for inputs in (arrays, wild):
        first, second = run_kernels([(kernel, inputs, ()) for kernel in kernels])
        meant = {name: array.copy() for name, array in inputs.items()}
        run(kernels[0], meant, (), index_bits=64)
        np.testing.assert_array_equal(first["y"], second["y"])
        np.testing.assert_array_equal(first["y"], meant["y"])
