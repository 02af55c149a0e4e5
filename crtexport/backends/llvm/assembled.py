"""Prints functions that consist of given instructions."""

from __future__ import annotations

import struct

from crtexport.backends.llvm.types import ModuleText
from crtexport.kir.assembly.assemble import Assembled


def define_assembled(symbol: str, assembled: Assembled, module: ModuleText) -> str:
    """Adds the definition of ``symbol`` to ``module``, unless there is one of the same
    instructions; returns how it is called.

    LLVM puts the instructions before what it makes of the body, which is the return to the caller.
    The fence makes no instruction; it says that there may be others, which read and write memory.
    """
    types = ", ".join("ptr" if argument.buffer else "i32" for argument in assembled.arguments)
    known = module.assembled.setdefault((types, assembled.code), symbol)
    if known != symbol:
        return f"@{known}"
    halves = struct.unpack(f"<{len(assembled.code) // 2}H", assembled.code)
    given = ", ".join(f"i16 {half}" for half in halves)
    module.helpers[symbol] = "\n".join([
        (f"define internal void @{symbol}({types}) naked noinline #0 "
         f'section ".text.{symbol}" align 4 '
         f"prologue [{len(halves)} x i16] [{given}] {{"),
        '  fence syncscope("singlethread") seq_cst', "  ret void", "}", "",
    ])
    return f"@{symbol}"
