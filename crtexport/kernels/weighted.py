"""What convolution, depthwise convolution and fully connected share: bias, products, result.

Three numeric modes. *Integer*: int8 input and weights, int32 accumulator; the input's zero point
is folded into the bias while exporting (sum of (x - z)*w = sum of x*w - z * sum of w), so inner
loops are plain products and a padded cell contributes z*w. *Float*: everything float32. *Hybrid*:
float32 activations times int8 weights, scaled once per output.
"""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from crtexport.ir.ops import Activation
from crtexport.ir.types import DType, Quantization, Rounding
from crtexport.kernels.build import (
    add,
    cast,
    clamp,
    f32,
    i32,
    load,
    mul,
    wrap_add,
)
from crtexport.kernels.ir import Buffer, Expr, Scalar, Var
from crtexport.kernels.registry import Context, Lowering
from crtexport.kernels.requantize import (
    Multiplier,
    Requantizer,
    activation_range,
    float_range,
    quantized_result,
)


class Mode(enum.Enum):
    INTEGER = "integer"
    FLOAT = "float"
    HYBRID = "hybrid"

    @staticmethod
    def of(context: Context) -> Mode:
        if context.input(0).dtype is DType.INT8:
            return Mode.INTEGER
        return Mode.HYBRID if context.input(1).dtype is DType.INT8 else Mode.FLOAT


class Weighted:
    """Emits the parts of one output value of a node with inputs (x, weights, bias?)."""

    def __init__(
        self, lowering: Lowering, channel_axis: int, activation: Activation, *,
        fully_connected: bool = False,
    ) -> None:
        """``channel_axis``: the weights' axis of output channels. ``fully_connected``: scaled as
        TFLite does for such layers: with DOUBLE rounding and one scale, the product of input and
        weight scale is float32 (``GetQuantizedConvolutionMultipler``); SINGLE applies to them."""
        self.lowering, self.b, self.context = lowering, lowering.b, lowering.context
        self.activation = activation
        self.mode = Mode.of(self.context)
        self.channels = self.context.input(1).shape[channel_axis]
        self._axis = channel_axis
        self._fully_connected = fully_connected
        self.x = lowering.input(0, "input")
        self.weights = lowering.input(1, "weights")
        self._rounding = self.context.rounding if fully_connected else Rounding.DOUBLE
        self.zero_point = 0
        self.bias: Buffer | None = None
        self._scales: Buffer | None = None
        self._requantizer: Requantizer | None = None
        self._wraps = False
        if self.mode is Mode.INTEGER:
            self._prepare_integer()
        else:
            self._prepare_float()
        self.output = lowering.output()

    def _weight_scales(self) -> Quantization:
        quant = self.context.input(1).quant
        if quant is None:
            raise self.context.refuse("int8 weights need a quantization scale")
        if len(quant.scale) not in (1, self.channels):
            raise self.context.refuse(
                f"the weights have {len(quant.scale)} scales for {self.channels} output channels"
            )
        return quant

    def _prepare_integer(self) -> None:
        weights = self._channel_major(self.context.values(1)).astype(np.int64)
        self.zero_point = self.context.quant(self.context.input(0)).zero_point[0]
        raw = (
            self.context.values(2).astype(np.int64).reshape(-1)
            if self.context.has(2) else np.zeros(self.channels, np.int64)
        )
        folded = raw - self.zero_point * weights.sum(axis=1)
        reach = np.abs(folded) + 128 * np.abs(weights).sum(axis=1)
        bound = int(reach.max(initial=0))
        self._wraps = bound >= 1 << 31
        if self.context.has(2) and np.array_equal(folded, raw):
            self.bias = self.lowering.input(2, "bias")
        elif folded.any():
            wrapped = (folded & 0xFFFFFFFF).astype(np.uint32).astype(np.int32)
            self.bias = self.lowering.derived("bias", Scalar.I32, wrapped)
        self._requantizer = Requantizer(
            self.lowering, self._multiplier(), self._rounding, bound
        )

    def _channel_major(self, weights: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.moveaxis(weights, self._axis, 0).reshape(self.channels, -1)

    def _multiplier(self) -> Multiplier:
        scale_in = self.context.quant(self.context.input(0)).scale[0]
        scale_out = self.context.quant(self.context.output()).scale[0]
        scales = self._weight_scales().scale
        if self._fully_connected and self._rounding is Rounding.DOUBLE and len(scales) == 1:
            product = float(np.float32(scale_in) * np.float32(scales[0]))
            return Multiplier.of([product / scale_out])
        return Multiplier.of([scale_in * s / scale_out for s in scales])

    def _prepare_float(self) -> None:
        if self.mode is Mode.HYBRID and len(self._weight_scales().scale) > 1:
            self._scales = self.lowering.derived(
                "scales", Scalar.F32, np.array(self._weight_scales().scale, np.float32)
            )
        if self.context.has(2):
            self.bias = self.lowering.input(2, "bias")

    def start(self, channel: Expr) -> Var:
        """The accumulator of an output channel (index)."""
        if self.mode is Mode.INTEGER:
            return self.b.local("acc", load(self.bias, channel) if self.bias else i32(0))
        if self.mode is Mode.FLOAT and self.bias:
            return self.b.local("acc", load(self.bias, channel))
        return self.b.local("acc", f32(0.0))

    def accumulate(self, acc: Var, x_index: Expr, w_index: Expr) -> None:
        """acc += x * w"""
        work = Scalar.I32 if self.mode is Mode.INTEGER else Scalar.F32
        x = cast(load(self.x, x_index), work)
        self._plus(acc, mul(x, cast(load(self.weights, w_index), work)))

    @property
    def padding_counts(self) -> bool:
        """Whether a padded cell contributes anything (it does where real 0 is stored as z)."""
        return self.mode is Mode.INTEGER and self.zero_point != 0

    def accumulate_padded(self, acc: Var, w_index: Expr) -> None:
        """acc += z * w, what a padded cell must contribute to meet the folded bias."""
        w = cast(load(self.weights, w_index), Scalar.I32)
        self._plus(acc, mul(w, i32(self.zero_point)))

    def _plus(self, acc: Var, term: Expr) -> None:
        self.b.assign(acc, wrap_add(acc, term) if self._wraps else add(acc, term))

    def finish(self, acc: Var, channel: Expr, out_index: Expr) -> None:
        """Scales, clamps and stores the result."""
        if self._requantizer is not None:
            scaled = self._requantizer(acc, channel)
            out = self.context.output()
            result = quantized_result(
                scaled, self.context.quant(out).zero_point[0],
                activation_range(self.activation, out), Scalar.I8,
            )
        else:
            result = clamp(self._float_result(acc, channel), *float_range(self.activation))
        self.b.store(self.output, out_index, result)

    def _float_result(self, acc: Var, channel: Expr) -> Expr:
        if self.mode is Mode.FLOAT:
            return acc
        scale: Expr = (
            load(self._scales, channel) if self._scales
            else f32(self._weight_scales().scale[0])
        )
        scaled = mul(acc, scale)
        return self.b.let("real", add(scaled, load(self.bias, channel)) if self.bias else scaled)
