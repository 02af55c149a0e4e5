"""How much scratch CMSIS-NN's functions want, as its ``arm_*_get_buffer_sizes_s8.c`` say it.

All sizes are in bytes. The generated calls ask the library as well, and refuse to run when a
version of it wants more.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from crtexport.target import Target

Shape = tuple[int, ...]
_CHANNELS_AT_ONCE = 124  # CH_IN_BLOCK_MVE


class Machine(enum.Enum):
    """Which of its forms the library has for a processor."""

    PLAIN = "plain C"
    DSP = "DSP extension"
    MVE = "vectors"

    @staticmethod
    def of(target: Target) -> Machine:
        if any(feature in ("+mve", "+mve.fp") for feature in target.features):
            return Machine.MVE
        return Machine.DSP if "+dsp" in target.features else Machine.PLAIN


class Window(Struct, frozen=True):
    """What convolutions share. Shapes are (n, h, w, c); ``filter`` is (h, w); pairs are (y, x)."""

    source: Shape
    result: Shape
    filter: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]


def convolution(machine: Machine, window: Window) -> int:
    """``arm_convolve_wrapper_s8_get_buffer_size``"""
    channels = window.source[3]
    if window.padding == (0, 0) and window.filter == (1, 1) and window.dilation == (1, 1):
        return 0
    taps = window.filter[0] * window.filter[1] * channels
    if machine is not Machine.MVE:
        return 2 * 2 * (-(-taps // 4) * 4)
    one_row = window.source[1] == 1 and window.filter[0] == 1 and window.dilation[1] == 1
    if one_row and window.stride[1] * channels % 4 == 0:
        return _row(window)
    return 4 * 16 * -(-taps // 16)


def _row(window: Window) -> int:
    """``arm_convolve_1_x_n_s8_get_buffer_size_mve``"""
    pad, stride, taps = window.padding[1], window.stride[1], window.filter[1]
    columns, channels, width = window.result[2], window.source[3], window.source[2]
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


def depthwise(machine: Machine, window: Window) -> int:
    """``arm_depthwise_conv_wrapper_s8_get_buffer_size``, whatever the compiler."""
    channels, made = window.source[3], window.result[3]
    taps = window.filter[0] * window.filter[1]
    size = 0
    if channels == made and window.source[0] == 1 and window.dilation == (1, 1):
        small = window.filter == (3, 3) and max(window.padding) <= 1
        if machine is Machine.MVE:
            size = 4 * _CHANNELS_AT_ONCE * taps
        elif machine is Machine.DSP and not small:
            size = 2 * channels * taps
    if machine is Machine.MVE and channels == 1 and made > 1:
        size = max(size, convolution(machine, window) + taps * made)
    return size


def average_pool(machine: Machine, channels: int) -> int:
    """``arm_avgpool_s8_get_buffer_size``"""
    return 4 * channels if machine is Machine.DSP else 0
