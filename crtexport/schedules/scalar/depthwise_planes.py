"""Depthwise convolutions: one channel at a time, as a plane.

In NHWC the neighbours of a value belong to other channels, so nothing meets in one word. Here a
band of rows of one channel is spread into scratch, padding filled in. On Cortex-M with DSP
instructions each word holds two columns, so that SMLAD multiplies two taps of a row at once;
without, LDRD loads two words. RISC-V loads bytes as words. Either way they serve neighbouring
outputs. int8 weights are multiplied by what scaling wants sums times. RISC-V keeps them in
registers; Cortex-M, which doesn't have enough, in scratch, with what scales the channel: compilers
that try registers use the stack for more.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.types import DType
from crtexport.ir.window import WindowGeometry
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    call,
    cast,
    const,
    flat_index,
    ge,
    load,
    lt,
    min_,
    mul,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.scalar.requantize_int8 import Int8Epilogue, RequantMethod, ScalarEpilogue
from crtexport.schedules.scalar.requantize_int16 import Int16Epilogue
from crtexport.schedules.scalar.requantize_mul32 import Mul32Epilogue

_SHORT = 8
"""Words of a row up to which each is spread by instructions of its own."""
_FEW = 2
"""Steps along a row up to which each has instructions of its own."""
MOST_TAPS = 32
"""Windows up to which each tap has an instruction of its own."""
_TALL = 6
"""Most rows of outputs in a band: where the input dies, the output trails it by a band."""


class PlaneLayout(Struct, frozen=True):
    """Planes of integers for a machine.

    ``columns``: of a ``value`` of the plane, where the input is int8. ``outputs_per_block``:
    neighbouring outputs that are made at once, by preference: the first that divides a row.
    ``held``: most weights of a window that are kept in registers.
    """

    columns: int
    value: Scalar
    outputs_per_block: tuple[int, ...]
    held: int
    method: RequantMethod


PAIRS = PlaneLayout(2, Scalar.I32, (2,), 0, RequantMethod.DSP)
FLOAT_PAIRS = replace(PAIRS, method=RequantMethod.FPU)
WORDS = PlaneLayout(1, Scalar.I32, (2,), 0, RequantMethod.MUL64)
LONE_WORDS = PlaneLayout(1, Scalar.I32, (2,), 0, RequantMethod.MUL32_ONLY)
BYTES = PlaneLayout(1, Scalar.I8, (4, 5, 3), 12, RequantMethod.MUL64_SHIFT)


def candidates(context: Context, layout: PlaneLayout = PAIRS) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, by planes; none where it
    can't be."""
    op = context.node.op
    if not isinstance(op, DepthwiseConv2D) or op.dilation[1] != 1:
        return []
    dtype = context.input(0).dtype
    if dtype not in (DType.INT8, DType.INT16) or context.input(1).dtype is not DType.INT8:
        return []
    _, height, width, _ = context.input(1).shape
    if height * width > MOST_TAPS or 0 in context.output().shape:
        return []
    sums = IntegerSums.of(context, 3)
    if sums.weight_zero:
        return []
    scaling: ScalarEpilogue | None = None
    if layout.method is RequantMethod.MUL32_ONLY and dtype is DType.INT8:
        scaling = Mul32Epilogue.of(context, sums, op.activation)
    if scaling is None:
        scaling = (Int8Epilogue if dtype is DType.INT8 else Int16Epilogue).of(
            context, sums, op.activation, layout.method
        )
    if scaling is None:
        return []
    columns = context.output().shape[2]
    counts = layout.outputs_per_block
    most_outputs = next((n for n in counts if columns % n == 0), counts[0])
    usual = PlaneGeometry.at_best(context, op, layout.columns, most_outputs)
    return [
        Candidate(
            f"planes, {band} rows",
            functools.partial(_lower, context, layout, sums, scaling, replace(usual, band=band)),
            rare=band != usual.band,
        )
        for band in sorted(
            range(1, min(usual.y[1], _TALL) + 1), key=lambda band: band != usual.band
        )
    ]


def _lower(
    context: Context, layout: PlaneLayout, sums: IntegerSums, scaling: ScalarEpilogue,
    shape: PlaneGeometry
) -> Lowered:
    lowering = Lowering("depthwise_conv2d", context)
    x, weights = lowering.input(0, "input"), lowering.input(1, "weights")
    scaling.begin(lowering)
    output = lowering.output(noalias=False)
    value = Scalar.I16 if (layout.value, x.dtype) == (Scalar.I8, Scalar.I16) else layout.value
    # What may be overwritten by a store to the output is loaded anew, not held in registers.
    plane = lowering.scratch(
        "plane", value, shape.band_rows * shape.words,
        noalias=layout.method is not RequantMethod.MUL32_ONLY
    )
    pairs = weight_pairs(shape)
    count = shape.kernel[0] * len(pairs)
    taps = None if count <= layout.held else lowering.scratch(
        "taps", Scalar.I32, count + scaling.count, noalias=False
    )
    _IntegerPlanes(
        lowering.b, shape, pairs, (x, weights, output, plane), taps, scaling, sums.zero_point
    ).emit()
    return lowering.finish()


class PlaneGeometry(WindowGeometry, frozen=True, kw_only=True):
    """A depthwise convolution band by band; ``band``: rows of outputs of a band; ``per_word``:
    columns of a word; ``most_outputs``: neighbouring outputs of a row that may be computed
    together."""

    band: int
    per_word: int
    most_outputs: int

    @staticmethod
    def at_best(
        context: Context, op: DepthwiseConv2D, per_word: int, most_outputs: int = 2
    ) -> PlaneGeometry:
        """Returns the geometry with the band that takes fewest instructions, by rough count."""
        x, y, w = context.input(0).shape, context.output().shape, context.input(1).shape
        below = (w[1] - 1) * op.dilation[0] + 1

        def cost(band: int) -> int:
            """Instructions, roughly: outputs and the rows that are spread for them."""
            return -(-y[1] // band) * (
                band * y[2] * w[1] * 4 + ((band - 1) * op.stride[0] + below) * x[2] * 2
            )

        band = min(range(1, min(y[1], _TALL) + 1), key=cost)
        return PlaneGeometry(
            x, y, (w[1], w[2]), op.stride, op.dilation, (op.padding.top, op.padding.left),
            band=band, per_word=per_word, most_outputs=most_outputs,
        )

    @property
    def band_rows(self) -> int:
        """Rows of input that a band needs."""
        return self.rows.covered(self.band)

    @property
    def words(self) -> int:
        """Words of a row of the plane."""
        last = (self.y[2] - 1) * self.stride[1] + self.kernel[1] - 1
        return last // self.per_word + 1

    @property
    def multiplier(self) -> int:
        """Output channels of an input channel."""
        return self.y[3] // self.x[3]

    @property
    def outputs_per_block(self) -> int:
        """Neighbouring outputs that share words and, after which, columns are at the same place in
        words again."""
        return 1 if self.per_word == 2 and self.stride[1] % 2 == 0 else self.most_outputs

    @property
    def starts(self) -> tuple[int, ...]:
        """Returns where, in columns, the windows of neighbouring outputs begin."""
        return tuple(i * self.stride[1] for i in range(self.outputs_per_block))


class TapProduct(Struct, frozen=True):
    """Taps of a row times a word of the plane: both halves, or ``halves`` (of the word, of the
    weights)."""

    word: int
    weights: int
    halves: tuple[int, int] | None


def row_products(
    shape: PlaneGeometry, start: int, pairs: Sequence[tuple[int, int]]
) -> list[TapProduct]:
    """Returns how the taps of a row that begins at column ``start`` of the words meet them."""
    width = shape.kernel[1]
    if shape.per_word == 1:
        return [TapProduct(start + tap, tap, None) for tap in range(width)]
    found, tap = [], 0
    while tap < width:
        word, half = divmod(start + tap, 2)
        if half == 0 and tap + 1 < width:
            found.append(TapProduct(word, pairs.index((tap, tap + 1)), None))
            tap += 2
        else:
            number = next(i for i, pair in enumerate(pairs) if tap in pair)
            found.append(TapProduct(word, number, (half, pairs[number].index(tap))))
            tap += 1
    return found


def weight_pairs(shape: PlaneGeometry) -> list[tuple[int, int]]:
    """Pairs of taps that a row needs in one word, wherever it begins; -1 where one is alone."""
    width = shape.kernel[1]
    pairs = {
        (tap, tap + 1) for start in shape.starts for tap in range(start % 2, width - 1, 2)
        if shape.per_word == 2
    }
    pairs |= {(tap, -1) for tap in range(width) if not any(tap in pair for pair in pairs)}
    return sorted(pairs)


class Planes(abc.ABC):
    """Emits the kernel; what is done with a plane is for those below to say."""

    def __init__(
        self, b: KernelBuilder, shape: PlaneGeometry, x: Buffer, plane: Buffer, zero: int
    ) -> None:
        """``plane``: of ``shape.band_rows`` times ``shape.words``; ``zero``: what padding holds."""
        self.b, self.shape, self.x, self.plane = b, shape, x, plane
        self.zero = const(zero, plane.dtype)
        pair = (zero & 0xFFFF) | zero << 16
        self.filler = const(pair if shape.per_word == 2 else zero, plane.dtype)

    @abc.abstractmethod
    def prepare(self, channel: Expr) -> None:
        """Emits what is done once for an output channel of a band."""

    @abc.abstractmethod
    def outputs_block(self, begin: Expr, to: Expr, count: int) -> None:
        """Makes ``count`` neighbouring outputs, from ``to`` on, of words from ``begin`` on."""

    def emit(self) -> None:
        """Bands of all images, and in them channel by channel."""
        b, shape = self.b, self.shape
        self._fill_edges()
        bands = -(-shape.y[1] // shape.band)
        with b.loop("n", shape.y[0]) as n, b.loop("band", bands) as band:
            top = mul(band, const(shape.band))
            if shape.y[1] % shape.band:  # the last one does some rows again
                top = min_(top, const(shape.y[1] - shape.band))
            top = b.let("top", top)
            with b.loop("ic", shape.x[3]) as ic:
                self._spread(n, top, ic)
                with b.loop("m", shape.multiplier) as m:
                    channel = b.let("channel", add(mul(ic, const(shape.multiplier)), m))
                    self.prepare(channel)
                    self._outputs(n, top, channel)

    # -- the plane

    def _columns(self, word: int) -> range:
        """The columns of the image in a word, which may be outside."""
        first = self.shape.per_word * word - self.shape.pad_before[1]
        return range(first, first + self.shape.per_word)

    def _kinds(self) -> tuple[list[int], list[int], list[int]]:
        """The words of a row that lie in the image, on its edge, outside."""
        inside: list[int] = []
        edge: list[int] = []
        outside: list[int] = []
        for word in range(self.shape.words):
            count = sum(0 <= c < self.shape.x[2] for c in self._columns(word))
            kind = edge if 0 < count < self.shape.per_word else inside if count else outside
            kind.append(word)
        return inside, edge, outside

    def _fill_edges(self) -> None:
        """Words of nothing but padding never change."""
        outside = self._kinds()[2]
        if outside:
            with self.b.loop("edge_row", self.shape.band_rows) as row:
                for word in outside:
                    self._put(row, const(word), self.filler)

    def _put(self, row: Expr, word: Expr, value: Expr) -> None:
        self.b.store(self.plane, add(mul(row, const(self.shape.words)), word), value)

    def _spread(self, n: Expr, top: Expr, ic: Expr) -> None:
        """A band of a channel's rows into the plane."""
        b, shape = self.b, self.shape
        with b.loop("row", shape.band_rows) as row:
            first = sub(mul(top, const(shape.stride[0])), const(shape.pad_before[0]))
            iy = b.let("iy", add(first, row))
            if shape.rows.inside:
                self._spread_row(n, iy, ic, row)
                return
            with b.if_(and_(ge(iy, const(0)), lt(iy, const(shape.x[1])))):
                self._spread_row(n, iy, ic, row)
            with b.else_(), b.loop("fill", shape.words) as word:
                self._put(row, word, self.filler)

    def _spread_row(self, n: Expr, iy: Expr, ic: Expr, row: Expr) -> None:
        b = self.b
        inside, edge, _ = self._kinds()
        start = b.let("start", flat_index([n, iy, const(0), ic], self.shape.x))
        for word in edge:
            halves = [
                self._value(start, const(c)) if 0 <= c < self.shape.x[2] else self.zero
                for c in self._columns(word)
            ]
            self._put(row, const(word), _i32("arm_pkhbt", *halves))
        if len(inside) <= _SHORT:
            for word in inside:
                self._spread_word(start, row, const(word), const(self._columns(word)[0]))
        else:
            with b.loop("word", len(inside)) as number:
                column = add(
                    mul(number, const(self.shape.per_word)), const(self._columns(inside[0])[0])
                )
                self._spread_word(start, row, add(number, const(inside[0])), column)

    def _spread_word(self, start: Expr, row: Expr, word: Expr, column: Expr) -> None:
        values = [self._value(start, add(column, const(i))) for i in range(self.shape.per_word)]
        self._put(row, word, values[0] if len(values) == 1 else _i32("arm_pkhbt", *values))

    def _value(self, start: Expr, column: Expr) -> Expr:
        at = add(start, mul(column, const(self.shape.x[3])))
        return cast(load(self.x, at), self.plane.dtype)

    # -- outputs

    def _outputs(self, n: Expr, top: Expr, channel: Expr) -> None:
        """All outputs of a channel in a band."""
        b, shape = self.b, self.shape
        columns, outputs_per_block = shape.y[2], shape.outputs_per_block
        with b.loop("out_row", shape.band) as row:
            line = b.let("line", flat_index([n, add(top, row), const(0), channel], shape.y))
            first = b.let("first", mul(row, const(shape.stride[0] * shape.words)))
            step = shape.stride[1] * outputs_per_block // shape.per_word
            if columns // outputs_per_block:
                count = columns // outputs_per_block
                with b.loop("column", count, unroll=count if count <= _FEW else 1) as column:
                    begin = add(first, mul(column, const(step)))
                    to = add(line, mul(column, const(outputs_per_block * shape.y[3])))
                    self.outputs_block(begin, to, outputs_per_block)
            if columns % outputs_per_block:
                begin = add(first, const(columns // outputs_per_block * step))
                to = add(line, const((columns - columns % outputs_per_block) * shape.y[3]))
                self.outputs_block(begin, to, columns % outputs_per_block)


class _IntegerPlanes(Planes):
    """int8 or int16 times int8, scaled."""

    def __init__(
        self, b: KernelBuilder, shape: PlaneGeometry, pairs: list[tuple[int, int]],
        buffers: tuple[Buffer, Buffer, Buffer, Buffer], taps: Buffer | None,
        scaling: ScalarEpilogue,
        zero_point: int,
    ) -> None:
        """``taps``: where weights and constants are kept, None for registers."""
        x, self.weights, self.output, plane = buffers
        super().__init__(b, shape, x, plane, zero_point)
        self.pairs, self.taps, self.scaling = pairs, taps, scaling
        self.products = [row_products(shape, start, pairs) for start in shape.starts]
        self.kept: list[Expr] = []

    def prepare(self, channel: Expr) -> None:
        """Keeps the weights of a channel as sums want them, in pairs, and what scales it."""
        shape = self.shape

        def weight(tap: int) -> Expr:
            at = add(const(tap * shape.y[3]), channel)
            value = cast(load(self.weights, at), Scalar.I32)
            return self.scaling.moved(value)

        self.kept = []
        for ky in range(shape.kernel[0]):
            row = ky * shape.kernel[1]
            for first, second in self.pairs:
                word = weight(row + first)
                if second >= 0:
                    word = _i32("arm_pkhbt", word, weight(row + second))
                self._keep(word)
        for value in self.scaling.values(channel):
            self._keep(value)

    def _keep(self, value: Expr) -> None:
        if self.taps is None:
            self.kept.append(self.b.let(f"taps{len(self.kept)}", value))
            return
        place = const(len(self.kept))
        self.b.store(self.taps, place, value)
        self.kept.append(load(self.taps, place))

    def _constants(self) -> list[Expr]:
        """The constants of the channel, loaded."""
        names = [name for name, _ in self.scaling.words]
        kept = self.kept[-self.scaling.count :]
        return [
            self.b.let(f"loaded_{name}", value)
            for name, value in zip(names, kept, strict=False)
        ]

    def outputs_block(self, begin: Expr, to: Expr, count: int) -> None:
        b, shape, pairs = self.b, self.shape, len(self.pairs)
        begin = b.let("begin", begin)
        if self.scaling.method is RequantMethod.MUL32_ONLY:
            self._few_registers(begin, to, count)
            return
        constants = self._constants()
        totals = [self.scaling.start(constants)] * count
        for ky in range(shape.kernel[0]):
            line = ky * shape.dilation[0] * shape.words
            used = sorted({p.word for products in self.products[:count] for p in products})
            words = {
                w: b.let(
                    f"values_ky{ky}_at{w}",
                    cast(load(self.plane, add(begin, const(line + w))), Scalar.I32),
                )
                for w in used
            }
            weights = [
                b.let(f"weights_ky{ky}_at{pair}", self.kept[ky * pairs + pair])
                for pair in range(pairs)
            ]
            for i, products in enumerate(self.products[:count]):
                for p in products:
                    totals[i] = self._accumulate(
                        p, words[p.word], weights[p.weights], totals[i]
                    )
                totals[i] = b.let(f"total_ky{ky}_x{i}", totals[i])
        results = []
        for i, total in enumerate(totals):
            with b.named(f"x{i}"):
                results.append(b.let("result", self.scaling.made(total, constants)))
        for i, result in enumerate(results):
            b.store(self.output, add(to, const(i * shape.y[3])), result)

    def _few_registers(self, begin: Expr, to: Expr, count: int) -> None:
        """The same, word by word of a row: a value is used up before the next one is loaded."""
        b, shape, width = self.b, self.shape, self.shape.kernel[1]
        constants = self.kept[-self.scaling.count :]
        totals = [self.scaling.start(constants)] * count
        for ky in range(shape.kernel[0]):
            line = ky * shape.dilation[0] * shape.words
            weights: dict[int, Expr] = {}
            for word in range(shape.starts[count - 1] + width):
                met = [i for i in range(count) if 0 <= word - shape.starts[i] < width]
                if not met:
                    continue
                value = b.let(
                    f"value_ky{ky}_at{word}", load(self.plane, add(begin, const(line + word)))
                )
                for i in met:
                    tap = word - shape.starts[i]
                    if tap not in weights:
                        weights[tap] = b.let(f"weight_ky{ky}_kx{tap}", self.kept[ky * width + tap])
                    totals[i] = b.let(
                        f"total_ky{ky}_kx{tap}_x{i}", add(totals[i], mul(value, weights[tap]))
                    )
        constants = self._constants()
        for i, total in enumerate(totals):
            with b.named(f"x{i}"):
                result = b.let("result", self.scaling.made(total, constants))
            b.store(self.output, add(to, const(i * shape.y[3])), result)

    def _accumulate(self, product: TapProduct, word: Expr, weights: Expr, total: Expr) -> Expr:
        if self.shape.per_word == 1:
            return add(total, mul(word, weights))
        if product.halves is None:
            return _i32("arm_smlad", word, weights, total)
        mine, other = ("bt"[half] for half in product.halves)
        return _i32(f"arm_smla{mine}{other}", word, weights, total)


def _i32(name: str, *args: Expr) -> Expr:
    return call(name, *args, type_=Scalar.I32)
