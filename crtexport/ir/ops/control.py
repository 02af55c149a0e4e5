"""Operators that run graphs of their own, which their nodes hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crtexport.ir.ops.base import Control


@dataclass(frozen=True)
class If(Control):
    """Runs its first graph if the first input, one truth value, is true, else its second."""

    graphs: ClassVar[int] = 2
    first: ClassVar[int] = 1


@dataclass(frozen=True)
class While(Control):
    """Outputs begin as inputs; while its first graph gives true, its second makes new ones."""

    graphs: ClassVar[int] = 2
    first: ClassVar[int] = 0
