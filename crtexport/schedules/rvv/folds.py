"""Folds of many vectors, elementwise: sums, minima and maxima."""

from __future__ import annotations

import enum
from collections.abc import Callable

from msgspec import Struct

from crtexport.ir.types import DType
from crtexport.kir.builder import i32, load_vector
from crtexport.kir.language import Buffer, Expr
from crtexport.lowering.ops.pool import LOWEST
from crtexport.schedules.rvv.machine import RvvMachine

DTYPES = (DType.INT8, DType.INT16, DType.FLOAT32)
"""Types of elements that are folded."""
_SMALL = 32767 // 128
"""Most int8 values whose sum always has 16 bits."""


class FoldKind(enum.Enum):
    SUM = "add"
    MAX = "max"
    MIN = "min"


class Fold(Struct, frozen=True):
    """Folds at most ``count`` elements of ``dtype`` in each lane. Elements keep their type, except
    for sums of integers, which have 32 bits, or 16 bits where these suffice until :meth:`whole`
    widens them."""

    kind: FoldKind
    dtype: DType
    count: int
    machine: RvvMachine

    @staticmethod
    def of(kind: FoldKind, dtype: DType, count: int, channels: int) -> Fold | None:
        """Returns a fold for ``channels`` in neighbouring lanes; None where sums may need 64 bits.
        """
        if dtype not in DTYPES:
            return None
        if kind is FoldKind.SUM and dtype.is_integer and -dtype.limits[0] * count >= 1 << 31:
            return None
        return Fold(kind, dtype, count, RvvMachine(32 if channels > 16 else 16))

    @property
    def _short(self) -> bool:
        return self.dtype is DType.INT8 and self.count <= _SMALL

    def start(self) -> Expr:
        """Returns the initial value."""
        if self.dtype is DType.FLOAT32:
            first = {FoldKind.SUM: 0.0, FoldKind.MAX: LOWEST, FoldKind.MIN: -LOWEST}[self.kind]
            return self.machine.real_everywhere(first)
        if self.kind is FoldKind.SUM:
            if self._short:
                return self.machine.of_halves("halves", i32(0))
            return self.machine.int_everywhere(0)
        return self._everywhere(self.dtype.limits[0 if self.kind is FoldKind.MAX else 1])

    def plus(self, acc: Expr, buffer: Buffer, index: Expr, count: int) -> Expr:
        """Returns ``acc`` with ``count`` more elements from ``index`` on."""
        machine = self.machine
        if self.dtype is DType.FLOAT32:
            value = load_vector(buffer, index, machine.reals, count)
            return machine.of_reals(f"f{self.kind.value}", acc, value)
        if self.kind is not FoldKind.SUM:
            elements = machine.bytes if self.dtype is DType.INT8 else machine.halves
            return self._extreme(
                self.kind.value, acc, load_vector(buffer, index, elements, count)
            )
        if self._short:
            value = load_vector(buffer, index, machine.bytes, count)
            return machine.of_halves("short_add", acc, value)
        return machine.of_ints("widen", acc, load_vector(buffer, index, machine.halves, count))

    def whole(self, acc: Expr) -> Expr:
        """Returns sums of integers in 32 bits."""
        if not self._short:
            return acc
        return self.machine.of_ints("widen", self.machine.int_everywhere(0), acc)

    def clamped(self, acc: Expr, bounds: tuple[float, float]) -> Expr:
        """Returns minima, maxima or floats clamped to ``bounds``."""
        if self.dtype is DType.FLOAT32:
            everywhere: Callable[[float], Expr] = self.machine.real_everywhere
            widest = -float("inf"), float("inf")
        else:
            everywhere, widest = self._everywhere, self.dtype.limits
        for name, bound, most in zip(("max", "min"), bounds, widest, strict=True):
            if bound != most:
                acc = self._extreme(name, acc, everywhere(bound))
        return acc

    def _extreme(self, name: str, a: Expr, b: Expr) -> Expr:
        if self.dtype is DType.FLOAT32:
            return self.machine.of_reals(f"f{name}", a, b)
        if self.dtype is DType.INT8:
            return self.machine.of_bytes(f"byte_{name}", a, b)
        return self.machine.of_halves(f"half_{name}", a, b)

    def _everywhere(self, value: float) -> Expr:
        if self.dtype is DType.INT8:
            return self.machine.of_bytes("bytes", i32(int(value)))
        return self.machine.of_halves("halves", i32(int(value)))
