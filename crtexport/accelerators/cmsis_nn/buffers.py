"""Scratch sizes of CMSIS-NN's functions, computed as its ``arm_*_get_buffer_sizes_s8.c`` do.

All sizes are in bytes. The generated calls ask the library as well, and refuse to run when a
version of it needs more.
"""

from __future__ import annotations

import enum

from crtexport.ir.window import WindowGeometry
from crtexport.support.target import Target

_CHANNELS_AT_ONCE = 124  # CH_IN_BLOCK_MVE


class Implementation(enum.Enum):
    """The implementations that the library has for a processor."""

    PLAIN = "plain C"
    DSP = "DSP extension"
    MVE = "vectors"

    @staticmethod
    def of(target: Target) -> Implementation:
        if any(feature in ("+mve", "+mve.fp") for feature in target.features):
            return Implementation.MVE
        return Implementation.DSP if "+dsp" in target.features else Implementation.PLAIN


def convolution(machine: Implementation, window: WindowGeometry) -> int:
    """``arm_convolve_wrapper_s8_get_buffer_size``"""
    channels = window.x[3]
    if window.pad_before == (0, 0) and window.kernel == (1, 1) and window.dilation == (1, 1):
        return 0
    taps = window.kernel[0] * window.kernel[1] * channels
    if machine is not Implementation.MVE:
        return 2 * 2 * (-(-taps // 4) * 4)
    one_row = window.x[1] == 1 and window.kernel[0] == 1 and window.dilation[1] == 1
    if one_row and window.stride[1] * channels % 4 == 0:
        return _row(window)
    return 4 * 16 * -(-taps // 16)


def _row(window: WindowGeometry) -> int:
    """``arm_convolve_1_x_n_s8_get_buffer_size_mve``"""
    pad, stride, taps = window.pad_before[1], window.stride[1], window.kernel[1]
    columns, channels, width = window.y[2], window.x[3], window.x[2]
    odd = _remainder((columns - 1) * stride + taps - width)
    right = max(1, (pad + odd + stride - 1) // stride) if pad + odd else 0
    left = max(1, (pad + stride - 1) // stride) if pad else 0
    if right + max(columns - right - left, 0) + left != columns:
        return 4 * 16 * -(-taps * channels // 16)
    before = pad * channels
    after = right * channels if odd else before
    return max(taps * channels + before, (taps - 1) * channels + after)


def _remainder(value: int) -> int:
    """``value % 2`` as C has it: -1 for negative odd numbers."""
    return value % 2 if value >= 0 else -(-value % 2)


def depthwise(machine: Implementation, window: WindowGeometry) -> int:
    """``arm_depthwise_conv_wrapper_s8_get_buffer_size``, whatever the compiler."""
    channels, made = window.x[3], window.y[3]
    taps = window.kernel[0] * window.kernel[1]
    size = 0
    if channels == made and window.x[0] == 1 and window.dilation == (1, 1):
        small = window.kernel == (3, 3) and max(window.pad_before) <= 1
        if machine is Implementation.MVE:
            size = 4 * _CHANNELS_AT_ONCE * taps
        elif machine is Implementation.DSP and not small:
            size = 2 * channels * taps
    if machine is Implementation.MVE and channels == 1 and made > 1:
        size = max(size, convolution(machine, window) + taps * made)
    return size


def average_pool(machine: Implementation, channels: int) -> int:
    """``arm_avgpool_s8_get_buffer_size``"""
    return 4 * channels if machine is Implementation.DSP else 0
