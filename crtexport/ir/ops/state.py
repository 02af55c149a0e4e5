"""Operators on variables: tensors that keep their values from one run to the next."""

from __future__ import annotations

from typing import ClassVar

from crtexport.ir.ops.base import Stateful


class ReadVariable(Stateful, frozen=True):
    """A copy of a variable's present value."""

    reads: ClassVar[tuple[int, ...]] = (0,)


class AssignVariable(Stateful, frozen=True):
    """Makes the second input the value of the first, a variable; no output."""

    writes: ClassVar[tuple[int, ...]] = (0,)
