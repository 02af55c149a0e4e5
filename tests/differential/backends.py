"""Runs kernels as compiled C and as LLVM's code: bit for bit what the interpreter gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.backends.c import c_support
from tests.backends.llvm import llvm_support
from tests.differential.network import Step


def assert_backends_agree(found: Sequence[Step], folder: Path) -> None:
    """Compares all buffers of all kernels; ``folder`` is for what is compiled."""
    by_c = c_support.run_kernels([(s.kernel, s.before) for s in found], folder, "-O1")
    by_llvm = llvm_support.run_kernels([
        (s.kernel, {b.name: a for b, a in zip(s.kernel.buffers, s.before, strict=True)}, ())
        for s in found
    ])
    for step, c, llvm in zip(found, by_c, by_llvm, strict=True):
        for buffer, expected, ours in zip(step.kernel.buffers, step.after, c, strict=True):
            c_support.assert_same(ours, expected)
            c_support.assert_same(llvm[buffer.name], expected)
