"""Convolutions and fully connected layers: bias, products, result.

Three numeric modes. *Integer*: int8, uint8 or int16 input; the input's zero point is folded into
the bias while exporting (sum of (x - z)*w = sum of x*w - z * sum of w), so inner loops are plain
products and a padded cell contributes z*w. Sums are i32; those that TFLite keeps in 64 bits (int16
with an int64 bias) are i64 only where the weights allow more than 31 bits. *Float*: everything
float32. *Hybrid*: float32 activations times int8 weights, scaled once per output.

Weights of fewer than 8 bits may be packed: a byte has those of neighbouring output channels.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Activation
from crtexport.ir.scaling import activation_range
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    cast,
    clamp,
    const,
    div,
    f32,
    i32,
    load,
    lt,
    mul,
    shl,
    shr,
    sub,
    wrap_add,
)
from crtexport.kir.language import Buffer, Expr, Scalar, Var
from crtexport.lowering.numerics.integer_sums import FOLDED_BIAS, IntegerSums, weight_scales
from crtexport.lowering.numerics.requantize import (
    Requantizer,
    WideRequantizer,
    float_range,
    quantized_result,
)
from crtexport.lowering.registry import SCALAR_OF, Context, Lowering
from crtexport.lowering.weight_packing import BitFields
from crtexport.support.fixedpoint import Rounding

_ONLY_GROUP = const(0)
_SINGLE_LIMIT = 1 << 32  # times 31 bits of a multiplier it is an i64


class Mode(enum.Enum):
    INTEGER = "integer"
    FLOAT = "float"
    HYBRID = "hybrid"

    @staticmethod
    def of(context: Context) -> Mode:
        if not context.input(0).dtype.is_float:
            return Mode.INTEGER
        return Mode.HYBRID if context.input(1).dtype is DType.INT8 else Mode.FLOAT


class Weighted:
    """Emits the parts of one output value of a node with inputs (x, weights, bias?)."""

    def __init__(
        self, lowering: Lowering, channel_axis: int, activation: Activation, *,
        fully_connected: bool = False, every_tap: bool = True, by_units: bool = False,
    ) -> None:
        """``channel_axis``: the weights' axis of output channels.

        ``fully_connected``: scaled as TFLite does for such layers: with DOUBLE rounding and one
        scale, the product of input and weight scale is float32
        (``GetQuantizedConvolutionMultipler``); SINGLE applies to them. ``every_tap``: each output
        accumulates, or pads, all weights of its channel; else no zero point can be folded.
        ``by_units``: the node goes through its channels by :meth:`units`.
        """
        self.lowering, self.b, self.context = lowering, lowering.b, lowering.context
        self.activation = activation
        self.mode = Mode.of(self.context)
        self.channels = self.context.input(1).shape[channel_axis]
        self._axis = channel_axis
        self._fully_connected = fully_connected
        self._every_tap = every_tap
        self.x = lowering.input(0, "input")
        self.bits = self.context.packed_bits
        self._by_units = by_units
        self.weights = self._stored_weights()
        self._above: Expr = i32(0)  # bits of a word above those of a channel
        self.zero_point = 0
        self.bias: Buffer | None = None
        self.weight_zero = 0
        self.sum = Scalar.F32
        self._scale = 1.0
        self._scales: Buffer | None = None
        self._requantizer: Requantizer | WideRequantizer | None = None
        self.wraps = False
        if self.mode is Mode.INTEGER:
            self._prepare_integer()
        else:
            self._prepare_float()
        self.output = lowering.output()

    def _stored_weights(self) -> Buffer:
        if not self.bits:
            return self.lowering.input(1, "weights")
        packing = BitFields(self.bits)
        if self._by_units:
            return self.lowering.packed(
                "weights", Scalar.U8, packing, self.channels,
                note=f"{self.bits} bits of each byte are a channel's, the lowest the first one's",
            )
        return self.lowering.packed(
            "weights", Scalar.U8, packing, self.context.input(1).elements,
            note=f"{self.bits} bits of each byte are a weight, the lowest the first one",
        )

    # -- integers

    def _prepare_integer(self) -> None:
        sums = IntegerSums.of(
            self.context, self._axis, fully_connected=self._fully_connected,
            every_tap=self._every_tap,
        )
        self.zero_point, self.weight_zero = sums.zero_point, sums.weight_zero
        fits = sums.bound < 1 << 31
        self.wraps = not fits and not sums.wide
        self.sum = Scalar.I64 if sums.wide and not fits else Scalar.I32
        self._requantizer = self._scaling(sums)
        self._prepare_bias(sums.raw, sums.folded)

    def _scaling(self, sums: IntegerSums) -> Requantizer | WideRequantizer:
        if not sums.wide:
            return Requantizer(self.lowering, sums.multiplier, sums.rounding, sums.bound)
        if sums.rounding is Rounding.DOUBLE:
            return WideRequantizer(self.lowering, sums.multiplier, sums.bound)
        if sums.bound >= _SINGLE_LIMIT:
            raise self.context.refuse(
                f"sums may reach {sums.bound}; single rounding takes them up to {_SINGLE_LIMIT}",
                hint="export with --numerics tflite",
            )
        return Requantizer(self.lowering, sums.multiplier, sums.rounding, sums.bound)

    def _prepare_bias(self, raw: npt.NDArray[np.int64], folded: npt.NDArray[np.int64]) -> None:
        """Takes the model's own bias where it serves as it is, none where it is all zero."""
        if not folded.any():
            return
        kept = self.context.has(2) and np.array_equal(folded, raw)
        if kept and SCALAR_OF[self.context.input(2).dtype] is self.sum:
            self.bias = self.lowering.input(2, "bias")
            return
        stored = (
            folded if self.sum is Scalar.I64
            else (folded & 0xFFFFFFFF).astype(np.uint32).astype(np.int32)
        )
        self.bias = self.lowering.derived("bias", self.sum, stored, FOLDED_BIAS)

    # -- floats

    def _prepare_float(self) -> None:
        if self.mode is Mode.HYBRID:
            scales = weight_scales(self.context, self.channels).scale
            self._scale = scales[0]
            if len(scales) > 1:
                self._scales = self.lowering.derived(
                    "scales", Scalar.F32, np.array(scales, np.float32),
                    "for each output channel: scale of its weights",
                )
        if self.context.has(2):
            self.bias = self.lowering.input(2, "bias")

    # -- one output value

    @property
    def plain_int8(self) -> bool:
        """Returns True where sums are products of int8 values that fit 32 bits: which fast
        schedules can do."""
        dtypes = {self.x.dtype, self.weights.dtype}
        return dtypes == {Scalar.I8} and self.sum is Scalar.I32 and not (
            self.wraps or self.weight_zero
        )

    @contextmanager
    def units(
        self, name: str, count: int, group: Expr = _ONLY_GROUP
    ) -> Iterator[tuple[Expr, Expr]]:
        """Goes through the ``count`` output channels of a group; yields a channel, and the row of
        the stored weights that it is in. Of packed ones a row has several channels."""
        b = self.b
        if not self.bits:
            with b.loop(name, count) as within:
                unit = b.let("unit", add(mul(group, const(count)), within))
                yield unit, unit
            return
        fields = 8 // self.bits
        rows = -(-count // fields)
        with b.loop("row", rows) as row, b.loop("field", fields) as field:
            left = mul(cast(field, Scalar.I32), i32(self.bits))
            self._above = b.let("above", sub(i32(32 - self.bits), left))
            within = b.let(name, add(mul(row, const(fields)), field))
            with b.if_(lt(within, const(count)) if count % fields else None):
                unit = b.let("unit", add(mul(group, const(count)), within))
                yield unit, add(mul(group, const(rows)), row)

    def start(self, channel: Expr) -> Var:
        """Returns the accumulator of an output channel (index)."""
        if self.bias is not None and self.mode is not Mode.HYBRID:
            return self.b.local("acc", load(self.bias, channel))
        return self.b.local("acc", const(0, self.sum))

    def accumulate(self, acc: Var, x_index: Expr, w_index: Expr) -> None:
        """Emits acc += x * w"""
        if self.mode is not Mode.INTEGER:
            x = cast(load(self.x, x_index), Scalar.F32)
            self._plus(acc, mul(x, cast(self._stored(w_index), Scalar.F32)))
            return
        value: Expr = cast(load(self.x, x_index), Scalar.I32)
        if not self._every_tap:
            value = sub(value, i32(self.zero_point))
        self._plus(acc, mul(value, self._weight(w_index)))

    def _stored(self, index: Expr) -> Expr:
        """Returns a weight as it is stored; of those packed by units, that of the channel of
        :meth:`units`."""
        if not self.bits:
            return load(self.weights, index)
        above = self._above
        if not self._by_units:
            place, several = self.b.let("place", index), const(8 // self.bits)
            index = self.b.let("byte", div(place, several))
            field = cast(sub(place, mul(index, several)), Scalar.I32)
            above = self.b.let("above", sub(i32(32 - self.bits), mul(field, i32(self.bits))))
        stored = cast(load(self.weights, index), Scalar.I32)
        return shr(shl(stored, above), i32(32 - self.bits))

    def _weight(self, index: Expr) -> Expr:
        return sub(cast(self._stored(index), Scalar.I32), i32(self.weight_zero))

    @property
    def padding_counts(self) -> bool:
        """Returns True where a padded cell contributes anything (it does where real 0 is stored as
        z)."""
        return self.mode is Mode.INTEGER and self.zero_point != 0

    def accumulate_padded(self, acc: Var, w_index: Expr) -> None:
        """Emits acc += z * w, what a padded cell must contribute to meet the folded bias."""
        self._plus(acc, mul(self._weight(w_index), i32(self.zero_point)))

    def _plus(self, acc: Var, term: Expr) -> None:
        term = cast(term, self.sum)
        self.b.assign(acc, wrap_add(acc, term) if self.wraps else add(acc, term))

    def finish(self, acc: Var, channel: Expr, out_index: Expr) -> None:
        """Scales, clamps and stores the result."""
        if self._requantizer is not None:
            scaled = self._requantizer(acc, channel)
            out = self.context.output()
            result = quantized_result(
                scaled, self.context.quant(out).zero_point[0],
                activation_range(self.activation, out), SCALAR_OF[out.dtype],
            )
        else:
            result = clamp(self._float_result(acc, channel), *float_range(self.activation))
        self.b.store(self.output, out_index, result)

    def _float_result(self, acc: Var, channel: Expr) -> Expr:
        if self.mode is Mode.FLOAT:
            return acc
        scale: Expr = (
            load(self._scales, channel) if self._scales
            else f32(self._scale)
        )
        scaled = mul(acc, scale)
        return self.b.let("real", add(scaled, load(self.bias, channel)) if self.bias else scaled)
