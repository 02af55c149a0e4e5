"""float32 depthwise convolutions on Cortex-M with a floating-point unit: channel by channel.

The weights of a channel stay in registers while they meet its plane (see
:mod:`crtexport.schedules.scalar.depthwise_planes`); a value that is loaded serves all neighbouring
outputs that see it.
"""

from __future__ import annotations

from crtexport.ir.ops import DepthwiseConv2D
from crtexport.kir.builder import add, cast, const, load
from crtexport.kir.language import Buffer, Expr, Scalar
from crtexport.lowering.registry import Context, Lowered, Lowering
from crtexport.schedules.common.float_layers import Numbers
from crtexport.schedules.scalar.depthwise_planes import Planes
from crtexport.schedules.scalar.fpu_dense import FpuEpilogue, add_products
from crtexport.schedules.scalar.plane_geometry import MOST_TAPS, PlaneGeometry

TOGETHER = 4
"""Neighbouring outputs whose sums stay in registers, beside the weights."""


def lower(context: Context, op: DepthwiseConv2D, *, fused: bool) -> Lowered | None:
    """Returns a depthwise convolution of floats that keeps its operator's rules; None where this is
    no way. ``fused`` as for :func:`.fpu_dense.add_products`."""
    _, height, width, _ = context.input(1).shape
    if height * width > MOST_TAPS or op.dilation[1] != 1:
        return None
    shape = PlaneGeometry.banded(context, op, per_word=1, outputs_per_block=TOGETHER)
    lowering = Lowering("depthwise_conv2d", context)
    x, weights = lowering.input(0, "input"), lowering.input(1, "weights")
    finish = FpuEpilogue(lowering, Numbers.of(context, op, 3))
    output = lowering.output(noalias=False)
    plane = lowering.scratch("plane", Scalar.F32, shape.band_rows * shape.words)
    _RealPlanes(lowering, shape, (x, weights, output, plane), finish, fused).emit()
    return lowering.finish()


class _RealPlanes(Planes):
    def __init__(
        self, lowering: Lowering, shape: PlaneGeometry,
        buffers: tuple[Buffer, Buffer, Buffer, Buffer], finish: FpuEpilogue, fused: bool,
    ) -> None:
        x, self.weights, self.output, plane = buffers
        super().__init__(lowering.b, shape, x, plane, 0)
        self.finish, self._fused = finish, fused

    def prepare(self, channel: Expr) -> None:
        b, shape = self.b, self.shape
        self._channel, self._start = channel, self.finish.start(channel)
        self._taps: list[Expr] = []
        for tap in range(shape.kernel[0] * shape.kernel[1]):
            weight: Expr = load(self.weights, add(const(tap * shape.y[3]), channel))
            if not weight.type.is_float:
                weight = cast(cast(weight, Scalar.I32), Scalar.F32)
            self._taps.append(b.let(f"weight_tap{tap}", weight))

    def outputs_block(self, begin: Expr, to: Expr, count: int, *, lone: int = 0) -> None:
        del lone
        b, shape = self.b, self.shape
        begin = b.let("begin", begin)
        width, stride = shape.kernel[1], shape.stride[1]
        totals = [b.local(f"total_x{i}", self._start) for i in range(count)]
        for ky in range(shape.kernel[0]):
            taps = self._taps[ky * width : (ky + 1) * width]
            for word in range((count - 1) * stride + width):
                seen = [
                    (i, word - i * stride) for i in range(count) if 0 <= word - i * stride < width
                ]
                if not seen:
                    continue
                value = b.let(f"value_ky{ky}_at{word}", self.word(begin, ky, word))
                products = [(totals[i], value, taps[tap]) for i, tap in seen]
                add_products(b, products, fused=self._fused)
        for i, total in enumerate(totals):
            with b.named(f"x{i}"):
                result = self.finish.result(total, self._channel)
            b.store(self.output, add(to, const(i * shape.y[3])), result)
