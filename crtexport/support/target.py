"""The target of code generation: processor, ABI and code model, without any board's memories."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

X86_32 = ("i386", "i486", "i586", "i686")
"""The architectures of 32-bit x86 in LLVM's triples."""


class Flash(Struct, frozen=True, kw_only=True):
    """Caches before a flash, in bytes, 0 for none, of lines of ``line`` bytes; ``wait_states``: the
    cycles that a read of a line takes more than one from a cache."""

    wait_states: int
    code_cache: int
    data_cache: int
    line: int


USUAL_FLASH = Flash(wait_states=5, code_cache=1 << 10, data_cache=1 << 8, line=16)
"""An STM32L4+ at 120 MHz reads its flash so: the assumption where a board says nothing."""


class Target(Struct, frozen=True):
    """A code generation target.

    ``features`` are LLVM's, signed (``+dsp``, ``-fpregs``): they decide which instructions an
    object may hold. ``float_abi`` is "soft" or "hard" (Arm) or "" where the triple says it.
    ``stack_align`` is the alignment in bytes that callers guarantee (i386 bare metal: 4).
    ``flash`` is what code is read from, where that is known.
    """

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    float_abi: str = ""
    abi: str = ""  # RISC-V: ilp32, ilp32f …
    pointer_bits: int = 32
    little_endian: bool = True
    stack_align: int = 8
    reloc: str = "static"  # or "pic"
    cflags: tuple[str, ...] = ()  # what a C compiler needs to agree with all this
    flash: Flash | None = None

    @property
    def is_i386(self) -> bool:
        """Returns whether this is 32-bit x86."""
        return self.triple.split("-")[0] in X86_32

    @property
    def int_bits(self) -> Literal[16, 32]:
        """Bits of C's ``int``, which is as wide as pointers where these have 16."""
        return 16 if self.pointer_bits == 16 else 32
