"""The operator whose meaning is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Foreign


@dataclass(frozen=True)
class External(Foreign):
    """Calls a function of a module: with a pointer to each input, then to each output."""

    function: str
