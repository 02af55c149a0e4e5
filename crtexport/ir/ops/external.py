"""Operators that run code or commands that other tools made."""

from __future__ import annotations

from typing import ClassVar

from crtexport.ir.ops.base import Foreign


class External(Foreign, frozen=True):
    """Calls a function of a module with a pointer to each input, then to each output."""


class EthosU(Foreign, frozen=True):
    """Runs commands of an Arm Ethos-U. Inputs: the commands, constant data, then the tensors that
    they read."""

    # What the commands read and write lies in a memory of `arena` bytes that they use as they like:
    # each input and then each output from the byte in `places` on. `fast` bytes more are a memory
    # apart; with 0, that is the arena, too. `accelerator` is what the commands were made for, such
    # as ethos-u55-128.
    arena: int
    fast: int
    places: tuple[int, ...]
    accelerator: str

    commands: ClassVar[int] = 0
    constants: ClassVar[int] = 1
    first: ClassVar[int] = 2

    @property
    def fast_start(self) -> int:
        """Returns the byte of the arena at which the fast memory begins."""
        return -(-self.arena // ETHOS_U_ALIGN) * ETHOS_U_ALIGN if self.fast else 0

    @property
    def scratch(self) -> int:
        """Returns the bytes of arena and fast memory together."""
        return self.fast_start + self.fast if self.fast else self.arena


ETHOS_U_ALIGN = 16
"""Alignment of an Ethos-U's base addresses, in bytes."""
