"""Loops that are functions of instructions: of equal ones there is one in a file."""

from __future__ import annotations

import re

from crtexport.backends.c import kernel as c
from crtexport.backends.llvm import kernel as llvm
from crtexport.backends.llvm.types import ModuleText
from crtexport.kir.builder import KernelBuilder, const, load
from crtexport.kir.language import Kernel, Scalar
from tests.helpers import target_of

M4 = target_of("mps2_an386")


def copied(first: int, stride: int = 1) -> Kernel:
    """Writes a number before a loop that copies."""
    b = KernelBuilder("copied")
    x = b.buffer("x", Scalar.I32, 40)
    y = b.buffer("y", Scalar.I32, 41, writable=True)
    b.store(y, const(40), const(first, Scalar.I32))
    with b.loop("i", 10, assembled=True) as i:
        b.store(y, i, load(x, i if stride == 1 else const(stride)))
    return b.finish()


KERNELS = {"a": copied(1), "b": copied(2), "c": copied(3, 7)}


def test_objects_have_equal_instructions_once() -> None:
    module = ModuleText(M4, "balanced")
    texts = {name: llvm.print_kernel(name, kernel, module) for name, kernel in KERNELS.items()}
    assert list(module.helpers) == ["a_asm_i", "c_asm_i"]
    called = {name: re.findall(r"@(\w+_asm_i)\(", text) for name, text in texts.items()}
    assert called == {"a": ["a_asm_i"], "b": ["a_asm_i"], "c": ["c_asm_i"]}


def test_sources_have_equal_instructions_once() -> None:
    known: dict[str, str] = {}
    texts = {
        name: c.print_kernel(kernel, name, target=M4, assembled=known).text
        for name, kernel in KERNELS.items()
    }
    defined = {name: re.findall(r"static void (\w+_asm_i)\(", text) for name, text in texts.items()}
    assert defined == {"a": ["a_asm_i"], "b": [], "c": ["c_asm_i"]}
    called = {name: re.findall(r"\b(\w+_asm_i)\(&", text) for name, text in texts.items()}
    assert called == {"a": ["a_asm_i"], "b": ["a_asm_i"], "c": ["c_asm_i"]}
    # On its own each has what it needs.
    alone = c.print_kernel(KERNELS["b"], "b", target=M4).text
    assert "static void b_asm_i(" in alone
