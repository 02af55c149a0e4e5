"""Real Fourier transforms as kissfft 130 computes them, in its order and with its roundings.

Pairs of samples are complex numbers, of which half as many are transformed, in stages of radix 4,
2, 3 and 5; then the halves are told apart. Whole numbers are fractions of 15 or 31 binary places;
each stage divides by its radix, so that nothing overflows that doesn't in kissfft.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Irfft, Rfft
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    const,
    div,
    f32,
    i32,
    load,
    lt,
    mul,
    shr,
    sub,
    wrap_add,
    wrap_sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import SCALAR_OF, Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

Complex = tuple[Expr, Expr]
"""Real and imaginary part."""

_TYPES = same_types(DType.FLOAT32, DType.INT16, DType.INT32)


class _Numbers:
    """Arithmetic of one element type."""

    def __init__(self, b: KernelBuilder, dtype: DType) -> None:
        self.b, self.stored, self.real = b, SCALAR_OF[dtype], dtype.is_float
        self.work = Scalar.F32 if self.real else Scalar.I32
        self.wide = Scalar.I64 if dtype is DType.INT32 else Scalar.I32
        self.places = 8 * dtype.itemsize - 1
        self.one = (1 << self.places) - 1

    def fraction(self, value: float) -> Expr:
        """Returns a constant."""
        return f32(float(np.float32(value))) if self.real else i32(self.rounded(value))

    def rounded(self, value: float) -> int:
        return math.floor(0.5 + self.one * value)

    def plus(self, a: Expr, c: Expr) -> Expr:
        return add(a, c) if self.real or self.wide is Scalar.I32 else wrap_add(a, c)

    def minus(self, a: Expr, c: Expr) -> Expr:
        return sub(a, c) if self.real or self.wide is Scalar.I32 else wrap_sub(a, c)

    def negative(self, a: Expr) -> Expr:
        return mul(a, f32(-1.0)) if self.real else self.minus(i32(0), a)

    def halved(self, a: Expr) -> Expr:
        return mul(a, f32(0.5)) if self.real else shr(a, i32(1))

    def kept(self, a: Expr) -> Expr:
        """Returns a number in the type of the elements; integers wrap."""
        return a if self.real else cast(cast(a, self.stored), Scalar.I32)

    def divided(self, a: Expr, by: int) -> Expr:
        """Returns a number divided by a small one; floats are returned unchanged."""
        return a if self.real else self.product(a, i32(self.one // by))

    def product(self, a: Expr, c: Expr) -> Expr:
        return mul(a, c) if self.real else self._rounded(self._product(a, c))

    def turned(self, a: Complex, by: Complex) -> Complex:
        """Returns the product of complex numbers."""
        if self.real:
            return (
                self.let(sub(mul(a[0], by[0]), mul(a[1], by[1]))),
                self.let(add(mul(a[0], by[1]), mul(a[1], by[0]))),
            )
        p = self._product
        return (
            self.let(self._rounded(sub(p(a[0], by[0]), p(a[1], by[1])))),
            self.let(self._rounded(add(p(a[0], by[1]), p(a[1], by[0])))),
        )

    def _product(self, a: Expr, c: Expr) -> Expr:
        return mul(cast(a, self.wide), cast(c, self.wide))

    def _rounded(self, a: Expr) -> Expr:
        half = const(1 << (self.places - 1), self.wide)
        return cast(shr(add(a, half), const(self.places, self.wide)), Scalar.I32)

    def let(self, value: Expr) -> Expr:
        return self.b.let("x", value)

    def each(self, function: Callable[..., Expr], *values: Complex) -> Complex:
        """Returns a function of the real and of the imaginary parts, named."""
        real, imaginary = zip(*values, strict=True)
        return self.let(function(*real)), self.let(function(*imaginary))


class _Transform:
    """A complex transform of ``count`` numbers; those of a row begin at element ``base``."""

    def __init__(self, lowering: Lowering, count: int, *, inverse: bool) -> None:
        self.b, self.count, self.inverse = lowering.b, count, inverse
        self.n = _Numbers(lowering.b, lowering.context.input(0).dtype)
        self.stages = _stages(count)
        sign = 1 if inverse else -1
        self.angles = [sign * 2 * math.pi * i / count for i in range(count)]
        halves = [sign * math.pi * ((i + 1) / count + 0.5) for i in range(count // 2)]
        self.twiddles = self._table(lowering, "twiddles", self.angles)
        self.half_turns = self._table(lowering, "half_turns", halves)

    def _table(self, lowering: Lowering, name: str, angles: Sequence[float]) -> Buffer:
        n, pairs = self.n, [(math.cos(angle), math.sin(angle)) for angle in angles]
        dtype = np.dtype(f"{'f' if n.real else 'i'}{n.stored.itemsize}")
        table: npt.NDArray[np.generic] = np.array(
            pairs if n.real else [[n.rounded(x) for x in pair] for pair in pairs], dtype
        )
        return lowering.derived(name, n.stored, table, "cos and sin")

    def load(self, buffer: Buffer, base: Expr, at: Expr) -> Complex:
        """Returns complex number ``at`` of a row."""
        first = self.b.let("at", add(base, mul(at, const(2))))
        values = (load(buffer, first), load(buffer, add(first, const(1))))
        return self.n.let(cast(values[0], self.n.work)), self.n.let(cast(values[1], self.n.work))

    def store(self, buffer: Buffer, base: Expr, at: Expr, value: Complex) -> None:
        first = self.b.let("at", add(base, mul(at, const(2))))
        for part, number in enumerate(value):
            self.b.store(buffer, add(first, const(part)), cast(number, self.n.stored))

    @contextmanager
    def order(self) -> Iterator[tuple[Expr, Expr]]:
        """Yields the place of a number before the first stage, and which of the given ones it is:
        the digits of one, in the bases of the stages, are those of the other from behind."""
        place: Expr = const(0)
        given: Expr = const(0)
        stride = 1
        with ExitStack() as loops:
            for radix, rest in self.stages:
                digit = loops.enter_context(self.b.loop("digit", radix))
                place = add(place, mul(digit, const(rest)))
                given = add(given, mul(digit, const(stride)))
                stride *= radix
            yield place, given

    def run(self, buffer: Buffer, base: Expr) -> None:
        """Emits the transform of the numbers of a row, which are in :meth:`order`."""
        stride = self.count
        for radix, rest in reversed(self.stages):
            stride //= radix
            with self.b.loop("block", stride) as block, self.b.loop("u", rest) as u:
                self._butterfly(buffer, base, block, u, (radix, rest, stride))

    def _butterfly(
        self, buffer: Buffer, base: Expr, block: Expr, u: Expr, stage: tuple[int, int, int]
    ) -> None:
        radix, rest, stride = stage
        start = self.b.let("start", add(mul(block, const(radix * rest)), u))
        places = [add(start, const(rest * q)) for q in range(radix)]
        values = []
        for q, place in enumerate(places):
            value = self.n.each(
                lambda x: self.n.divided(x, radix), self.load(buffer, base, place)
            )
            if q:
                turn = self.load(self.twiddles, const(0), mul(u, const(q * stride)))
                value = self.n.turned(value, turn)
            values.append(value)
        joined = {2: self._two, 3: self._three, 4: self._four, 5: self._five}[radix](values)
        for place, value in zip(places, joined, strict=True):
            self.store(buffer, base, place, value)

    # No sum of these leaves 16 bits before it is stored: terms were divided by the radix.

    def _two(self, x: list[Complex]) -> list[Complex]:
        n = self.n
        return [n.each(n.plus, *x), n.each(n.minus, *x)]

    def _three(self, x: list[Complex]) -> list[Complex]:
        n = self.n
        total, apart = n.each(n.plus, x[1], x[2]), n.each(n.minus, x[1], x[2])
        middle = n.each(lambda a, c: n.minus(a, n.halved(c)), x[0], total)
        sine = n.fraction(math.sin(self.angles[self.count // 3]))
        apart = n.each(lambda a: n.product(a, sine), apart)
        return [n.each(n.plus, x[0], total), *self._around(middle, apart, flipped=False)]

    def _four(self, x: list[Complex]) -> list[Complex]:
        n = self.n
        even, odd = n.each(n.plus, x[0], x[2]), n.each(n.plus, x[1], x[3])
        across, apart = n.each(n.minus, x[0], x[2]), n.each(n.minus, x[1], x[3])
        first, last = self._around(across, apart, flipped=not self.inverse)
        return [n.each(n.plus, even, odd), first, n.each(n.minus, even, odd), last]

    def _around(self, a: Complex, c: Complex, *, flipped: bool) -> tuple[Complex, Complex]:
        """Returns a + ic and a - ic, or the other way round."""
        n = self.n
        up = n.let(n.minus(a[0], c[1])), n.let(n.plus(a[1], c[0]))
        down = n.let(n.plus(a[0], c[1])), n.let(n.minus(a[1], c[0]))
        return (down, up) if flipped else (up, down)

    def _five(self, x: list[Complex]) -> list[Complex]:
        n = self.n
        near, far = n.each(n.plus, x[1], x[4]), n.each(n.plus, x[2], x[3])
        near_apart, far_apart = n.each(n.minus, x[1], x[4]), n.each(n.minus, x[2], x[3])
        angles = [self.angles[self.count // 5 * i] for i in (1, 2)]
        cos, sin = ([n.fraction(f(angle)) for angle in angles] for f in (math.cos, math.sin))

        def real(first: Expr, second: Expr) -> Complex:
            return n.each(lambda a, c, d: n.plus(
                n.plus(a, n.product(c, first)), n.product(d, second)
            ), x[0], near, far)

        p = n.product
        outer, inner = real(cos[0], cos[1]), real(cos[1], cos[0])
        left = (
            n.let(n.plus(p(near_apart[1], sin[0]), p(far_apart[1], sin[1]))),
            n.let(n.minus(n.negative(p(near_apart[0], sin[0])), p(far_apart[0], sin[1]))),
        )
        right = (
            n.let(n.plus(n.negative(p(near_apart[1], sin[1])), p(far_apart[1], sin[0]))),
            n.let(n.minus(p(near_apart[0], sin[1]), p(far_apart[0], sin[0]))),
        )
        return [
            n.each(lambda a, c, d: n.plus(a, n.plus(c, d)), x[0], near, far),
            n.each(n.minus, outer, left), n.each(n.plus, inner, right),
            n.each(n.minus, inner, right), n.each(n.plus, outer, left),
        ]

    def mirrored(self, buffer: Buffer, base: Expr) -> Iterator[tuple[Expr, Expr, Complex, Complex]]:
        """For each number k, from 1 on, and the one as far from the end, in a loop: both places;
        the sum of the first and the second's conjugate, half of each, and their difference, turned.
        """
        n = self.n
        with self.b.loop("k", self.count // 2) as index:
            k = self.b.let("k", add(index, const(1)))
            opposite = self.b.let("opposite", sub(const(self.count), k))
            near, (real, imaginary) = self.load(buffer, base, k), self.load(buffer, base, opposite)
            far = real, n.let(n.kept(n.negative(imaginary)))
            near, far = (n.each(lambda x: n.divided(x, 2), one) for one in (near, far))
            total = n.each(lambda a, c: n.kept(n.plus(a, c)), near, far)
            apart = n.each(lambda a, c: n.kept(n.minus(a, c)), near, far)
            turned = n.turned(apart, self.load(self.half_turns, const(0), index))
            yield k, opposite, total, n.each(n.kept, turned)


def _stages(count: int) -> list[tuple[int, int]]:
    """Returns the radix of each stage, and the count of what is left after it: fours come first,
    then a two, threes and fives."""
    found = []
    for radix in (4, 2, 3, 5):
        while count % radix == 0:
            count //= radix
            found.append((radix, count))
    return found


@lowers(Rfft, _TYPES)
def rfft(context: Context) -> Lowered:
    """Transforms pairs in place of the spectrum, then tells real and imaginary parts apart."""
    op = context.op(Rfft)
    lowering = Lowering("rfft", context)
    b, type_, count = lowering.b, context.input(0), op.length // 2
    source, output = lowering.input(0, "samples"), lowering.output()
    t = _Transform(lowering, count, inverse=False)
    n, given = t.n, type_.shape[-1]
    with b.loop("row", type_.elements // given) as row:
        base = b.let("base", mul(row, const(op.length + 2)))
        with t.order() as (place, pair):
            for part in (0, 1):
                at = b.let("sample", add(mul(pair, const(2)), const(part)))
                to = add(base, add(mul(place, const(2)), const(part)))
                with b.if_(lt(at, const(given))):
                    b.store(output, to, load(source, add(mul(row, const(given)), at)))
                with b.else_():
                    b.store(output, to, const(0, n.stored))
        t.run(output, base)
        real, imaginary = n.each(lambda x: n.divided(x, 2), t.load(output, base, const(0)))
        zero = const(0, n.work)
        t.store(output, base, const(0), (n.plus(real, imaginary), zero))
        t.store(output, base, const(count), (n.minus(real, imaginary), zero))
        for k, opposite, total, turned in t.mirrored(output, base):
            first = n.each(lambda a, c: n.halved(n.plus(a, c)), total, turned)
            last = (
                n.let(n.halved(n.minus(total[0], turned[0]))),
                n.let(n.halved(n.minus(turned[1], total[1]))),
            )
            t.store(output, base, k, first)
            t.store(output, base, opposite, last)
    return lowering.finish()


@lowers(Irfft, _TYPES)
def irfft(context: Context) -> Lowered:
    """Packs bins into a spectrum of pairs, which is transformed into the samples."""
    op = context.op(Irfft)
    lowering = Lowering("irfft", context)
    b, count = lowering.b, op.length // 2
    source, output = lowering.input(0, "bins"), lowering.output()
    t = _Transform(lowering, count, inverse=True)
    n, zero = t.n, const(0)
    packed = lowering.scratch("packed", n.stored, op.length)
    with b.loop("row", context.output().elements // op.length) as row:
        given = b.let("given", mul(row, const(op.length + 2)))
        (low, _), (high, _) = (t.load(source, given, const(at)) for at in (0, count))
        ends = n.let(n.kept(n.plus(low, high))), n.let(n.kept(n.minus(low, high)))
        t.store(packed, zero, zero, n.each(lambda x: n.divided(x, 2), ends))
        for k, opposite, total, turned in t.mirrored(source, given):
            t.store(packed, zero, k, n.each(n.plus, total, turned))
            real, imaginary = n.each(n.minus, total, turned)
            t.store(packed, zero, opposite, (real, n.negative(imaginary)))
        base = b.let("base", mul(row, const(op.length)))
        with t.order() as (place, pair):
            t.store(output, base, place, t.load(packed, zero, pair))
        t.run(output, base)
        if n.real:
            with b.loop("i", op.length) as i:
                at = b.let("sample", add(base, i))
                b.store(output, at, div(load(output, at), f32(op.length)))
    return lowering.finish()
