"""LLVM computes what the interpreter computes, on random kernels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.backends.llvm.compile import compile_modules
from crtexport.backends.llvm.kernel import print_kernel
from crtexport.backends.llvm.types import ModuleText
from crtexport.kir.builder import KernelBuilder, call, load
from crtexport.kir.interpreter import run
from crtexport.kir.language import Scalar
from crtexport.support.fixedpoint import fused_multiply_add
from crtexport.support.levels import LEVELS
from crtexport.support.target import Target
from tests.backends.llvm.llvm_support import HOST, TARGETS, run_kernels
from tests.kir.strategies import Case, cases

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
_F16C = replace(HOST, cpu="x86-64-v3", features=("+f16c",))


def _has_f16c() -> bool:
    try:
        return " f16c " in Path("/proc/cpuinfo").read_text(encoding="ascii")
    except OSError:
        return False


def _compare(batch: list[Case], optimize: str, target: Target = HOST) -> None:
    kernels = [(c.kernel, c.buffers(), c.params) for c in batch]
    computed = run_kernels(kernels, optimize, target)
    for case, got in zip(batch, computed, strict=True):
        expected = case.buffers()
        run(case.kernel, expected, case.params, index_bits=64)
        for name, values in expected.items():
            np.testing.assert_array_equal(got[name], values, f"{name} of {case.kernel}")
            if values.dtype.kind == "f":
                known = ~np.isnan(values)
                np.testing.assert_array_equal(
                    np.signbit(got[name][known]), np.signbit(values[known]), name
                )


@pytest.mark.parametrize("optimize", LEVELS)
@settings(max_examples=6, deadline=None, suppress_health_check=_SLOW)
@given(batch=st.lists(cases(half=True), min_size=5, max_size=12))
def test_llvm_equals_the_interpreter(optimize: str, batch: list[Case]) -> None:
    _compare(batch, optimize)


@pytest.mark.skipif(not _has_f16c(), reason="this processor has no F16C")
@settings(max_examples=4, deadline=None, suppress_health_check=_SLOW)
@given(batch=st.lists(cases(half=True), min_size=5, max_size=12))
def test_instructions_for_half_precision_equal_the_interpreter(batch: list[Case]) -> None:
    _compare(batch, "speed", _F16C)


def _products(count: int) -> KernelBuilder:
    b = KernelBuilder("products")
    factors = [b.buffer(name, Scalar.F32, count) for name in "abc"]
    y = b.buffer("y", Scalar.F32, count, writable=True)
    with b.loop("i", count) as i:
        b.store(y, i, call("fma_f32", *(load(x, i) for x in factors), type_=Scalar.F32))
    return b


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_products_are_added_with_one_rounding(cpu: str) -> None:
    """Most sums lie next to the middle between two floats, where a double is no help."""
    if cpu == "x86-64-v3" and " fma " not in Path("/proc/cpuinfo").read_text(encoding="ascii"):
        pytest.skip("this processor doesn't fuse products and sums")
    rng = np.random.default_rng(0)
    short = (1 + rng.integers(0, 1 << 12, (2, 4000)) / (1 << 12)).astype(np.float32)
    a, b = short * rng.choice([-1, 1], short.shape).astype(np.float32)
    c = (rng.choice([-1, 1], 4000) * 2.0 ** rng.integers(-70, 3, 4000)).astype(np.float32)
    wild = rng.standard_normal((3, 1000)) * 2.0 ** rng.integers(-60, 40, (3, 1000))
    odd = np.array([[0, -0.0, np.inf, 1, np.nan], [1, 1, 0, np.inf, 1], [0, -0.0, 1, -np.inf, 1]])
    a, b, c = (
        np.concatenate([first, *rest]).astype(np.float32)
        for first, *rest in zip((a, b, c), wild, odd, strict=True)
    )
    kernel = _products(len(a)).finish()
    arrays = {"a": a, "b": b, "c": c, "y": np.zeros_like(a)}
    (found,) = run_kernels([(kernel, arrays, ())], "balanced", replace(HOST, cpu=cpu))
    expected = [fused_multiply_add(*map(float, row)) for row in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(found["y"], np.array(expected, np.float32))
    near = [x[:4000].astype(np.float64) for x in (a, b, c)]
    twice = (near[0] * near[1] + near[2]).astype(np.float32)
    assert (twice != found["y"][:4000]).sum() > 100


@pytest.mark.parametrize("name", ["m0", "m3", "rv32"])
def test_fused_products_need_the_compilers_library_alone(name: str) -> None:
    target = TARGETS[name]
    module = ModuleText(target, "balanced")
    body = [print_kernel("k", _products(8).finish(), module, "hidden")]
    data = compile_modules({"k.ll": module.text("k.ll", (), body)}, target, "balanced")["k.o"]
    symbols = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab").iter_symbols()
    undefined = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name}
    assert undefined
    assert undefined <= set(UNDEFINED_ALLOWED)
