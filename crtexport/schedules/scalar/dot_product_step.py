"""The innermost step of the blocked int8 schedules, by instruction set.

On Armv7E-M a step takes four values at a time: SXTB16 spreads a word's bytes 0 and 2 (rotated: 1
and 3) over two halves, alike for input and weights, and SMLAD multiplies both pairs; SMLABB and
SMLATT multiply one of them, for sums that stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from crtexport.kir.builder import KernelBuilder, add, call, cast, load, load_word, mul
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.schedules.common.target_features import has_dsp
from crtexport.support.target import Target

Values = tuple[Expr, ...]
Lanes = Callable[[KernelBuilder, Sequence[Var], Expr, Expr], None]


class DotProductStep(Struct, frozen=True):
    """``width`` values of a dot product at a time, in blocks of at most ``rows`` times ``units``
    accumulators; a row alone is multiplied with ``units_of_one_row`` units. ``lanes`` multiplies
    the four bytes of two words into four sums."""

    width: int
    rows: int
    units: int
    units_of_one_row: int
    spread: Callable[[Buffer, Expr], Values]
    product: Callable[[Expr, Expr, Expr], Expr]
    lanes: Lanes | None = None

    def load(self, b: KernelBuilder, name: str, buffer: Buffer, index: Expr) -> Values:
        """Returns ``width`` values from ``index`` on, ready to be multiplied: in a variable
        ``name``, or those at even and at odd places in one each."""
        values = self.spread(buffer, index)
        names = (f"{name}_even", f"{name}_odd") if len(values) > 1 else (name,)
        return tuple(b.let(own, value) for own, value in zip(names, values, strict=True))

    def multiply(self, b: KernelBuilder, acc: Var, xs: Values, ws: Values) -> None:
        """Emits acc += the products of ``width`` values."""
        total: Expr = acc
        for x, w in zip(xs, ws, strict=True):
            total = self.product(total, x, w)
        b.assign(acc, total)


def _i32(name: str, *args: Expr) -> Expr:
    return call(name, *args, type_=Scalar.I32)


def _halves(word: Expr) -> Values:
    return _i32("arm_sxtb16", word), _i32("arm_sxtb16_ror8", word)


def _four_lanes(b: KernelBuilder, accs: Sequence[Var], x: Expr, w: Expr) -> None:
    x, w = b.let("values", x), b.let("weights", w)
    for odd, (xs, ws) in enumerate(zip(_halves(x), _halves(w), strict=True)):
        parity = "odd" if odd else "even"
        left, right = b.let(f"x_{parity}", xs), b.let(f"w_{parity}", ws)
        b.assign(accs[odd], _i32("arm_smlabb", left, right, accs[odd]))
        b.assign(accs[odd + 2], _i32("arm_smlatt", left, right, accs[odd + 2]))


SCALAR = DotProductStep(
    1, 1, 4, 4,
    spread=lambda buffer, index: (cast(load(buffer, index), Scalar.I32),),
    product=lambda total, x, w: add(total, mul(x, w)),
)
ARM_DSP = DotProductStep(
    4, 2, 2, 4,
    spread=lambda buffer, index: _halves(load_word(buffer, index)),
    product=lambda total, x, w: _i32("arm_smlad", x, w, total),
    lanes=_four_lanes,
)


def step_for(target: Target) -> DotProductStep:
    """Returns the best step of the target's instructions."""
    return ARM_DSP if has_dsp(target) else SCALAR
