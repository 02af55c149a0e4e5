"""Operators that run graphs of their own, which their nodes hold."""

from __future__ import annotations

from typing import ClassVar

from crtexport.ir.ops.base import Control


class If(Control, frozen=True):
    """Runs its first graph if the first input, one truth value, is true, else its second."""

    graphs: ClassVar[int] = 2
    first: ClassVar[int] = 1


class While(Control, frozen=True):
    """A loop: outputs start as the inputs; while the first graph gives true, the second computes
    new ones. An input is left out where its output is written before it is read."""

    graphs: ClassVar[int] = 2
    first: ClassVar[int] = 0
