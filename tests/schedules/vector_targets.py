"""Processors with vectors, of integers alone and of floats, too."""

from __future__ import annotations

from crtexport.support.target import Target

MVE = Target("thumbv8.1m.main-none-none-eabihf", "cortex-m55", ("+mve",))
MVE_FLOATS = Target("thumbv8.1m.main-none-none-eabihf", "cortex-m55", ("+mve.fp",))
RVV = Target("riscv32-none-elf", "generic-rv32", ("+zve32x", "+zvl128b"))
RVV_FLOATS = Target("riscv32-none-elf", "generic-rv32", ("+zve32f", "+zvl128b"))
