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
import itertools

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.ir.types import DType
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
from crtexport.kir.intrinsics.in_order import word_in_order
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.numerics.integer_sums import IntegerSums
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.scalar.int8_epilogue import int8_epilogue
from crtexport.schedules.scalar.plane_geometry import (
    MOST_TAPS,
    PAIRS,
    PlaneGeometry,
    PlaneLayout,
    TapProduct,
    geometries,
    row_products,
    weight_pairs,
)
from crtexport.schedules.scalar.requantize_int8 import RequantMethod, ScalarEpilogue
from crtexport.schedules.scalar.requantize_int16 import Int16Epilogue
from crtexport.schedules.scalar.requantize_mul32 import Mul32Epilogue

_SHORT = 8
"""Words of a row up to which each is spread by instructions of its own."""
_FEW_ROWS = 7
"""Rows of a plane up to which each is spread by instructions of its own: of more, some at once."""
_PAIRS = 2
"""Pairs of outputs that leave registers for scaling by products of 64 bits, and for more where
there is no loop over rows."""
_SHORT_PRODUCTS = (RequantMethod.MUL32_ONLY, RequantMethod.MUL64)
"""Methods of machines on which two products of 32 bits take less time than those of 64 bits."""
LIKELY = 3
"""Geometries that are compared exactly."""
_SMALL = 2
"""Neighbouring outputs of a geometry that takes little code: on Cortex-M with DSP instructions, of
these the one that looks fastest is compared, too."""


def candidates(
    context: Context, layout: PlaneLayout = PAIRS, kind: type[IntegerPlanes] | None = None
) -> list[Candidate]:
    """Returns the variants of a node that keeps its operator's rules, by planes; none where it
    can't be. ``kind``: what emits them, where it isn't :class:`IntegerPlanes`."""
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
    if layout.method in _SHORT_PRODUCTS and dtype is DType.INT8:
        scaling = Mul32Epilogue.of(context, sums, op.activation)
    if scaling is None:
        epilogue_of = int8_epilogue if dtype is DType.INT8 else Int16Epilogue.of
        scaling = epilogue_of(context, sums, op.activation, layout.method)
    if scaling is None:
        return []
    shapes = geometries(context, op, layout)
    if layout.paired:
        short = isinstance(scaling, Mul32Epilogue)
        shapes = [
            one for one in shapes if one.outputs_per_block <= _PAIRS or (short and one.band > 1)
        ]
    compared = {*range(1 if layout.outputs_per_block else LIKELY)}
    if layout is PAIRS:
        small = (n for n, shape in enumerate(shapes) if shape.outputs_per_block <= _SMALL)
        compared.update(itertools.islice(small, 1))
    return [
        Candidate(
            f"{layout.name}, {geometry.band} rows, {geometry.outputs_per_block} columns",
            functools.partial(_lower, context, layout, sums, scaling, geometry, kind),
            rare=number not in compared, fusable=not layout.paired,
        )
        for number, geometry in enumerate(shapes)
    ]


def _lower(
    context: Context, layout: PlaneLayout, sums: IntegerSums, scaling: ScalarEpilogue,
    shape: PlaneGeometry, kind: type[IntegerPlanes] | None,
) -> Lowered:
    lowering = Lowering("depthwise_conv2d", context)
    x, weights = lowering.input(0, "input"), lowering.input(1, "weights")
    scaling.begin(lowering)
    output = lowering.output(noalias=False)
    value = Scalar.I16 if (layout.value, x.dtype) == (Scalar.I8, Scalar.I16) else layout.value
    # What may be overwritten by a store to the output is loaded anew, not held in registers.
    plane = lowering.scratch(
        "plane", value, shape.band_rows * shape.words,
        noalias=not layout.few_registers,
    )
    pairs = weight_pairs(shape)
    count = shape.kernel[0] * len(pairs)
    copied = not (layout is PAIRS and _is_small(shape))
    stored = count + (scaling.count if copied else 0)
    taps = None if count <= layout.held else lowering.scratch(
        "taps", Scalar.I32, stored, noalias=False
    )
    (kind or IntegerPlanes)(
        lowering.b, shape, pairs, (x, weights, output, plane), taps, scaling, sums.zero_point,
        copied=copied, few_registers=layout.few_registers,
    ).emit()
    return lowering.finish()


def _is_small(shape: PlaneGeometry) -> bool:
    """Returns whether there is so little of a plane that what is done once for it takes much of the
    time: each of its rows is spread by instructions of its own then, and what scales a channel is
    read where it is."""
    return (
        shape.per_word == 2 and shape.bands == 1 and shape.band_rows <= _FEW_ROWS
        and shape.words <= _SHORT
    )


class Planes(abc.ABC):
    """Emits the kernel; what is done with a plane is for those below to say."""

    def __init__(
        self, b: KernelBuilder, shape: PlaneGeometry, x: Buffer, plane: Buffer, zero: int
    ) -> None:
        """``plane``: of ``shape.band_rows`` times ``shape.words``; ``zero``: what padding holds."""
        self.b, self.shape, self.x, self.plane = b, shape, x, plane
        self.zero = const(zero, plane.dtype)
        self.filler = self.padding()

    def padding(self) -> Expr:
        """Returns a word of nothing but padding."""
        zero = self.zero.value
        if self.shape.per_word == 2:
            zero = (int(zero) & 0xFFFF) | int(zero) << 16
        return const(zero, self.plane.dtype)

    @abc.abstractmethod
    def prepare(self, channel: Expr) -> None:
        """Emits what is done once for an output channel of a band."""

    @abc.abstractmethod
    def outputs_block(self, begin: Expr, to: Expr, count: int, *, lone: int = 0) -> None:
        """Makes the outputs of ``count`` neighbouring places, from ``to`` on, of words from
        ``begin`` on; the last ``lone`` have one less."""

    def emit(self) -> None:
        """Bands of all images, and in them channel by channel."""
        b, shape = self.b, self.shape
        self._fill_edges()
        with b.loop("n", shape.y[0]) as n, b.loop("band", shape.bands) as band:
            top = mul(band, const(shape.band))
            if shape.y[1] % shape.band:  # the last one does some rows again
                top = min_(top, const(shape.y[1] - shape.band))
            top = b.let("top", top)
            with b.loop("ic", shape.x[3], assembled=True) as ic:
                self._spread(n, top, ic)
                with b.loop("m", shape.multiplier) as m:
                    channel = b.let("channel", add(mul(ic, const(shape.multiplier)), m))
                    self.prepare(channel)
                    self._outputs(n, top, channel)

    # -- the plane

    def _columns(self, word: int) -> list[int]:
        """Returns the columns of the image in a word, which may be outside."""
        first = self.shape.per_word * word - self.shape.pad_before[1]
        return [first + offset for offset in self.shape.offsets]

    def _kinds(self) -> tuple[list[int], list[int], list[int]]:
        """Returns the words of a row that lie in the image, on its edge, outside."""
        inside: list[int] = []
        edge: list[int] = []
        outside: list[int] = []
        for word in range(self.shape.words):
            there = [0 <= c < self.shape.x[2] for c in self._columns(word)]
            kind = inside if all(there) else edge if any(there) else outside
            kind.append(word)
        return inside, edge, outside

    def _fill_edges(self) -> None:
        """Words of nothing but padding never change."""
        b, shape, outside = self.b, self.shape, self._kinds()[2]
        if outside:
            with b.loop("edge_row", shape.band_rows) as row:
                for word in outside:
                    self._put(row, const(word), self.filler)
        if shape.bands == 1:
            for row_ in sorted(set(range(shape.band_rows)) - set(shape.rows_inside)):
                with b.loop("edge_word", shape.words) as word_:
                    self._put(const(row_), word_, self.filler)

    def _put(self, row: Expr, word: Expr, value: Expr) -> None:
        shape = self.shape
        place = add(mul(row, const(shape.row_step)), mul(word, const(shape.word_step)))
        self.b.store(self.plane, place, value)

    def word(self, begin: Expr, ky: int, number: int) -> Expr:
        """Returns a word that a window sees which begins at ``begin``, loaded."""
        place = self.shape.place(ky * self.shape.dilation[0], number)
        return load(self.plane, add(begin, const(place)))

    def _spread(self, n: Expr, top: Expr, ic: Expr) -> None:
        """Emits a band of a channel's rows into the plane."""
        b, rows = self.b, self.shape.rows_inside
        first = sub(mul(top, const(self.shape.stride[0])), const(self.shape.pad_before[0]))
        for row in (*range(rows.start), *range(rows.stop, self.shape.band_rows)):
            if self.shape.bands > 1:
                with b.named(f"row{row}"):
                    self._spread_row_if(n, b.let("iy", add(first, const(row))), ic, const(row))
        if rows:
            unroll = len(rows) if _is_small(self.shape) else None
            with b.loop("row", len(rows), unroll=unroll) as number:
                row_ = add(number, const(rows.start))
                self._spread_row(n, add(first, row_), ic, row_)

    def _spread_row_if(self, n: Expr, iy: Expr, ic: Expr, row: Expr) -> None:
        """Emits a row that may be outside of the image."""
        b = self.b
        with b.if_(and_(ge(iy, const(0)), lt(iy, const(self.shape.x[1])))):
            self._spread_row(n, iy, ic, row)
        with b.else_():
            for word in range(self.shape.words):
                self._put(row, const(word), self.filler)

    def _spread_row(self, n: Expr, iy: Expr, ic: Expr, row: Expr) -> None:
        b = self.b
        inside, edge, _ = self._kinds()
        start = b.let("start", flat_index([n, iy, const(0), ic], self.shape.x))
        for word in edge:
            halves = [
                self._value(start, const(c)) if 0 <= c < self.shape.x[2] else self.zero
                for c in self._columns(word)
            ]
            self._put(row, const(word), self.joined(*halves))
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
        values = [self._value(start, add(column, const(i))) for i in self.shape.offsets]
        self._put(row, word, values[0] if len(values) == 1 else self.joined(*values))

    def joined(self, first: Expr, second: Expr) -> Expr:
        """Returns the word of two columns."""
        return _i32("arm_pkhbt", first, second)

    def _value(self, start: Expr, column: Expr) -> Expr:
        at = add(start, mul(column, const(self.shape.x[3])))
        return cast(load(self.x, at), self.plane.dtype)

    # -- outputs

    def _outputs(self, n: Expr, top: Expr, channel: Expr) -> None:
        """Emits all outputs of a channel in a band."""
        b, shape = self.b, self.shape
        places, outputs_per_block = shape.places, shape.outputs_per_block
        count = shape.blocks
        left = places - count * outputs_per_block
        with b.loop("out_row", shape.band) as row:
            line = b.let("line", flat_index([n, add(top, row), const(0), channel], shape.y))
            first = b.let("first", mul(row, const(shape.stride[0] * shape.row_step)))
            step = shape.stride[1] * outputs_per_block // shape.per_word * shape.word_step
            if count:
                with b.loop("column", count, unroll=count if shape.unrolled else 1) as column:
                    begin = add(first, mul(column, const(step)))
                    to = add(line, mul(column, const(outputs_per_block * shape.y[3])))
                    self.outputs_block(begin, to, outputs_per_block)
            if left:
                begin = add(first, const(count * step))
                to = add(line, const((places - left) * shape.y[3]))
                self.outputs_block(begin, to, left, lone=shape.lone)


class IntegerPlanes(Planes):
    """int8 or int16 times int8, scaled."""

    def __init__(
        self, b: KernelBuilder, shape: PlaneGeometry, pairs: list[tuple[int, int]],
        buffers: tuple[Buffer, Buffer, Buffer, Buffer], taps: Buffer | None,
        scaling: ScalarEpilogue, zero_point: int, *, copied: bool, few_registers: bool,
    ) -> None:
        """``taps``: where weights are kept, and constants if these are ``copied``, None for
        registers."""
        x, self.weights, self.output, plane = buffers
        super().__init__(b, shape, x, plane, zero_point)
        self.pairs, self.taps, self.scaling, self.copied = pairs, taps, scaling, copied
        self.few_registers = few_registers
        self.channel: Expr = const(0)
        self.products = [row_products(shape, start, pairs) for start in shape.starts]
        self.kept: list[Expr] = []

    def prepare(self, channel: Expr) -> None:
        """Keeps the weights of a channel as sums want them, in pairs, and what scales it."""
        shape = self.shape

        known: dict[int, Expr] = {}

        def weight(tap: int) -> Expr:
            """Returns the weight of a tap (i32), computed once where several words have it."""
            if tap not in known:
                at = add(const(tap * shape.y[3]), channel)
                value = self.weight(cast(load(self.weights, at), Scalar.I32))
                several = sum(tap % shape.kernel[1] in pair for pair in self.pairs) > 1
                known[tap] = self.b.let(f"weight{tap}", value) if several else value
            return known[tap]

        self.kept = []
        for ky in range(shape.kernel[0]):
            row = ky * shape.kernel[1]
            for first, second in self.pairs:
                word = weight(row + first)
                if second >= 0:
                    word = _i32("arm_pkhbt", word, weight(row + second))
                self._keep(word)
        self.channel = channel
        if self.copied:
            for value in self.scaling.values(channel):
                self._keep(value)

    def weight(self, value: Expr) -> Expr:
        """Returns a weight (i32) as sums want it."""
        return self.scaling.moved(value)

    def _keep(self, value: Expr) -> None:
        if self.taps is None:
            self.kept.append(self.b.let(f"taps{len(self.kept)}", value))
            return
        place = const(len(self.kept))
        self.b.store(self.taps, place, value)
        self.kept.append(load(self.taps, place))

    def constants(self) -> list[Expr]:
        """Returns the constants of the channel, loaded."""
        if not self.copied:
            return list(self.scaling.values(self.channel))
        names = [name for name, _ in self.scaling.words]
        kept = self.kept[-self.scaling.count :]
        return [
            self.b.let(f"loaded_{name}", value)
            for name, value in zip(names, kept, strict=False)
        ]

    def outputs_block(self, begin: Expr, to: Expr, count: int, *, lone: int = 0) -> None:
        del lone
        b, shape, pairs = self.b, self.shape, len(self.pairs)
        begin = b.let("begin", begin)
        if self.few_registers:
            self._few_registers(begin, to, count)
            return
        constants = self.constants()
        totals = [self.scaling.start(constants)] * count
        for ky in range(shape.kernel[0]):
            used = sorted({p.word for products in self.products[:count] for p in products})
            words = {
                w: b.let(f"values_ky{ky}_at{w}", cast(self.word(begin, ky, w), Scalar.I32))
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
            weights: dict[int, Expr] = {}
            for word in range(shape.starts[count - 1] + width):
                met = [i for i in range(count) if 0 <= word - shape.starts[i] < width]
                if not met:
                    continue
                value = b.let(f"value_ky{ky}_at{word}", self.word(begin, ky, word))
                for i in met:
                    tap = word - shape.starts[i]
                    if tap not in weights:
                        weights[tap] = b.let(f"weight_ky{ky}_kx{tap}", self.kept[ky * width + tap])
                    total = add(totals[i], mul(value, weights[tap]))
                    if self.taps is None:  # else compilers of C would put off what is in variables
                        total = word_in_order(total)
                    totals[i] = b.let(f"total_ky{ky}_kx{tap}_x{i}", total)
        constants = self.constants()
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
