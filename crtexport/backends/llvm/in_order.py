"""Floats in the order of a kernel, where LLVM would choose another one.

An operand of each operation seems to be changed by an instruction that also reads the result of the
operation before, so that neither can be moved across the other. There is no such instruction: it is
inline assembly without text.
"""

from __future__ import annotations

from collections.abc import Callable

from crtexport.kir import language as kir
from crtexport.kir.intrinsics.base import Intrinsic
from crtexport.kir.intrinsics.in_order import PRODUCT, SUM
from crtexport.kir.language import Expr
from crtexport.support.target import Target


class InOrder:
    """The operations of a function. ``values``: names of the values of its variables; ``assign``
    defines one more."""

    def __init__(
        self, target: Target, values: dict[str, str], assign: Callable[[str], str]
    ) -> None:
        self._kept = target.triple.startswith("thumb") and target.float_abi == "hard"
        self._values, self._assign = values, assign
        self._last: str | None = None
        self._earlier: dict[str, str] = {}

    def begin_block(self) -> None:
        """Forgets what other blocks may not know."""
        self._values.update(self._earlier)
        self._earlier.clear()
        self._last = None

    def compute(
        self, intrinsic: Intrinsic, args: tuple[Expr, ...], operand: Callable[[Expr], str]
    ) -> str:
        """Returns the result's name; ``operand`` has the names of ``args``."""
        texts = [operand(arg) for arg in args]
        waits = 1 if intrinsic is SUM else 0
        texts[waits] = self._behind(texts[waits], args[waits])
        if intrinsic in (PRODUCT, SUM):
            self._last = self._assign(intrinsic.llvm.format(*texts))
        else:
            self._last = texts[0]
        return self._last

    def _behind(self, value: str, arg: Expr) -> str:
        """Returns another name for a value, which is known only when the last result is."""
        if self._last is None or not self._kept:
            return value
        found = self._assign(f'call float asm "", "=t,0,t"(float {value}, float {self._last})')
        if isinstance(arg, kir.Var) and arg.name in self._values:
            # The value stays in its register if nothing wants the earlier name again.
            self._earlier.setdefault(arg.name, value)
            self._values[arg.name] = found
        return found
