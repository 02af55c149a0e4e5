"""LLVM computes what the interpreter computes, on random kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.kir.interpreter import run
from crtexport.support.target import Target
from tests.backends.llvm.llvm_support import HOST, run_kernels
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


@pytest.mark.parametrize("optimize", ["size", "balanced", "speed"])
@settings(max_examples=6, deadline=None, suppress_health_check=_SLOW)
@given(batch=st.lists(cases(half=True), min_size=5, max_size=12))
def test_llvm_equals_the_interpreter(optimize: str, batch: list[Case]) -> None:
    _compare(batch, optimize)


@pytest.mark.skipif(not _has_f16c(), reason="this processor has no F16C")
@settings(max_examples=4, deadline=None, suppress_health_check=_SLOW)
@given(batch=st.lists(cases(half=True), min_size=5, max_size=12))
def test_instructions_for_half_precision_equal_the_interpreter(batch: list[Case]) -> None:
    _compare(batch, "speed", _F16C)
