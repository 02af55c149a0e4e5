"""Drawn networks of TensorFlow Lite Micro's signal library, with what each run is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.differential.draw import Array, Draw, values
from tests.differential.tflm_cases import Streamed
from tests.tflite_builder import ModelBuilder


def signal(m: ModelBuilder, name: str, inputs: Sequence[int], outputs: Sequence[int],
           **options: Any) -> None:
    """Adds an operator of the library with its options."""
    m.op(f"custom:Signal{name}", inputs, outputs, custom=bytes(flexbuffers.Dumps(options)))


def _numbers(draw: Draw, count: int) -> Array:
    """Numbers of 32 bits of all magnitudes."""
    rng = np.random.default_rng(draw.integer(0, 2**31))
    found = rng.integers(0, 1 << rng.integers(1, 33, count), dtype=np.uint64)
    extreme = rng.choice(np.array([0, 1, 2, 0xFFFFFFFF], np.uint64), count)
    return np.where(rng.random(count) < 0.1, extreme, found).astype(np.uint32)


def window(draw: Draw) -> Streamed:
    rows, width = draw.integer(1, 3), draw.integer(4, 20)
    m = ModelBuilder()
    x, y = (m.tensor(name, (rows, width), "int16") for name in "xy")
    w = m.tensor("w", (width,), "int16", data=values(draw, (width,), "int16"))
    signal(m, "Window", [x, w], [y], shift=draw.choice([0, 7, 12, 15, 31]))
    return Streamed(m.build([x], [y]), ((values(draw, (rows, width), "int16"),),))


def fft_auto_scale(draw: Draw) -> Streamed:
    count = draw.integer(1, 30)
    m = ModelBuilder()
    x, y = (m.tensor(name, (count,), "int16") for name in "xy")
    bits = m.tensor("bits", (), "int32")
    signal(m, "FftAutoScale", [x], [y, bits])
    runs = (values(draw, (count,), "int16") >> draw.integer(0, 15) for _ in range(8))
    return Streamed(m.build([x], [y, bits]), tuple((run,) for run in runs))


def energy(draw: Draw) -> Streamed:
    """All bins: TensorFlow Lite Micro leaves whatever there is in those that aren't asked for."""
    bins = draw.integer(1, 20)
    m = ModelBuilder()
    x = m.tensor("x", (2 * bins,), "int16")
    y = m.tensor("y", (bins,), "uint32")
    signal(m, "Energy", [x], [y], start_index=0, end_index=bins)
    return Streamed(m.build([x], [y]), ((values(draw, (2 * bins,), "int16"),),))


def bank(m: ModelBuilder, draw: Draw, x: int, bins: int) -> tuple[int, int]:
    """Adds a filter bank of ``bins`` bins; its result, and the number of channels."""
    rng = np.random.default_rng(draw.integer(0, 2**31))
    channels = draw.integer(1, 9)
    widths = rng.integers(0, bins + 1, channels + 1)
    starts = rng.integers(0, bins - widths + 1)
    firsts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    total = max(int(widths.sum()), 1)
    weights = rng.integers(0, (1 << 15) - 1, (2, total), endpoint=True)
    if draw.choice([True, False]):
        weights[:] = (1 << 15) - 1
    tables = [
        m.tensor(name, (len(table),), "int16", data=table)
        for name, table in zip(
            ("weights", "unweights", "starts", "firsts", "widths"),
            (*weights, starts, firsts, widths), strict=True,
        )
    ]
    y = m.tensor("sums", (channels,), "uint64")
    signal(m, "FilterBank", [x, *tables], [y], num_channels=channels)
    return y, channels


def filter_bank(draw: Draw) -> Streamed:
    """With square roots: sums of 64 bits are no outputs of the runtime's for Python."""
    bins = draw.integer(1, 40)
    m = ModelBuilder()
    x = m.tensor("x", (bins,), "uint32")
    bits = m.tensor("bits", (), "int32")
    sums, channels = bank(m, draw, x, bins)
    y = m.tensor("y", (channels,), "uint32")
    signal(m, "FilterBankSquareRoot", [sums, bits], [y])
    runs = (
        (_numbers(draw, bins), np.array(draw.integer(0, 15), np.int32)) for _ in range(4)
    )
    return Streamed(m.build([x, bits], [y]), tuple(runs))


def square_root(draw: Draw) -> Streamed:
    """Of sums of one product each: their own numbers, as far up as there are any."""
    count = 40
    m = ModelBuilder()
    x = m.tensor("x", (count,), "uint32")
    bits = m.tensor("bits", (), "int32", data=[0])
    zeros, ones = np.zeros(count + 1), np.minimum(np.arange(count + 1), 1)
    weights = [0, *(1 << draw.integer(0, 14) for _ in range(count))]
    places = np.maximum(np.arange(count + 1) - 1, 0)
    tables = [
        m.tensor(name, (count + 1,), "int16", data=table) for name, table in (
            ("w", weights), ("u", zeros), ("s", places), ("f", np.arange(count + 1)), ("n", ones),
        )
    ]
    sums = m.tensor("sums", (count,), "uint64")
    y = m.tensor("y", (count,), "uint32")
    signal(m, "FilterBank", [x, *tables], [sums], num_channels=count)
    signal(m, "FilterBankSquareRoot", [sums, bits], [y])
    return Streamed(m.build([x], [y]), tuple((_numbers(draw, count),) for _ in range(4)))


def log(draw: Draw) -> Streamed:
    count = 40
    m = ModelBuilder()
    x, y = m.tensor("x", (count,), "uint32"), m.tensor("y", (count,), "int16")
    signal(
        m, "FilterBankLog", [x], [y], output_scale=draw.choice([1, 64, 1600, 70000]),
        input_correction_bits=draw.integer(0, 5),
    )
    return Streamed(m.build([x], [y]), tuple((_numbers(draw, count),) for _ in range(4)))


def _finish(
    m: ModelBuilder, draw: Draw, x: int, shape: tuple[int, ...], dtype: str, y: int, steps: int
) -> Streamed:
    runs = tuple((values(draw, shape, dtype),) for _ in range(steps))
    return Streamed(m.build([x], [y]), runs)


_CODES = {"float32": 0, "int32": 2, "int16": 7}
_HALVES = (2, 3, 15, 24, 30, 32, 40, 60)
"""Half the lengths of transforms: products of the radices 4, 2, 3 and 5."""


def rfft(dtype: str) -> Callable[[Draw], Streamed]:
    def case(draw: Draw) -> Streamed:
        length = 2 * draw.choice(_HALVES)
        given, rows = draw.choice([length, draw.integer(1, length)]), draw.integer(1, 2)
        m = ModelBuilder()
        x, y = m.tensor("x", (rows, given), dtype), m.tensor("y", (rows, length + 2), dtype)
        signal(m, "Rfft", [x], [y], T=_CODES[dtype], fft_length=length)
        return _finish(m, draw, x, (rows, given), dtype, y, 2)

    return case


def irfft(dtype: str) -> Callable[[Draw], Streamed]:
    def case(draw: Draw) -> Streamed:
        length = 2 * draw.choice(_HALVES)
        shape = draw.integer(1, 2), length + 2
        m = ModelBuilder()
        x, y = m.tensor("x", shape, dtype), m.tensor("y", (shape[0], length), dtype)
        signal(m, "Irfft", [x], [y], T=_CODES[dtype], fft_length=length)
        return _finish(m, draw, x, shape, dtype, y, 2)

    return case


def spectral_subtraction(draw: Draw) -> Streamed:
    count, bits = draw.integer(2, 9), draw.choice([14, 16])
    shares = [draw.integer(0, 1 << bits) for _ in range(2)]
    m = ModelBuilder()
    x, y, noise = (m.tensor(name, (count,), "uint32") for name in ("x", "y", "noise"))
    signal(
        m, "FilterBankSpectralSubtraction", [x], [y, noise], num_channels=count,
        smoothing=shares[0], one_minus_smoothing=(1 << bits) - shares[0],
        alternate_smoothing=shares[1], alternate_one_minus_smoothing=(1 << bits) - shares[1],
        min_signal_remaining=draw.integer(0, 1 << bits), smoothing_bits=draw.integer(0, 10),
        spectral_subtraction_bits=bits, clamping=draw.choice([True, False]),
    )
    return Streamed(m.build([x], [y, noise]), tuple((_numbers(draw, count),) for _ in range(6)))


def pcan(draw: Draw) -> Streamed:
    count = 40
    m = ModelBuilder()
    x, noise, y = (m.tensor(name, (count,), "uint32") for name in ("x", "noise", "y"))
    gains = m.tensor("gains", (125,), "int16", data=values(draw, (125,), "int16"))
    signal(m, "PCAN", [x, noise, gains], [y], snr_shift=draw.integer(0, 31))
    runs = tuple((_numbers(draw, count), _numbers(draw, count)) for _ in range(3))
    return Streamed(m.build([x, noise], [y]), runs)


def delay(draw: Draw) -> Streamed:
    shape = draw.integer(1, 3), draw.integer(2, 5)
    m = ModelBuilder()
    x, y = (m.tensor(name, shape, "int16") for name in "xy")
    signal(m, "Delay", [x], [y], delay_length=draw.integer(0, 9))
    return _finish(m, draw, x, shape, "int16", y, 7)


def _valid(m: ModelBuilder, shape: tuple[int, ...], y: int, valid: int) -> int:
    """Returns the valid part, and zeros elsewhere."""
    zeros = m.tensor("zeros", shape, "int16", data=np.zeros(shape))
    chosen = m.tensor("chosen", shape, "int16")
    m.op("SELECT_V2", [valid, y, zeros], [chosen])
    return chosen


def framer(draw: Draw) -> Streamed:
    outer, count, step = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 4)
    size, shape = step + draw.integer(0, 9), (outer, count * step)
    m = ModelBuilder()
    x, y = m.tensor("x", shape, "int16"), m.tensor("y", (outer, count, size), "int16")
    valid = m.tensor("valid", (), "bool")
    signal(
        m, "Framer", [x], [y, valid], frame_size=size, frame_step=step,
        prefill=draw.choice([True, False]),
    )
    chosen = _valid(m, (outer, count, size), y, valid)
    runs = tuple((values(draw, shape, "int16"),) for _ in range(9))
    return Streamed(m.build([x], [chosen, valid]), runs)


def stacker(draw: Draw) -> Streamed:
    channels, left, right = draw.integer(1, 4), draw.integer(0, 3), draw.integer(0, 3)
    frames = left + right + 1
    m = ModelBuilder()
    x, y = m.tensor("x", (channels,), "int16"), m.tensor("y", (channels * frames,), "int16")
    valid = m.tensor("valid", (), "bool")
    signal(
        m, "Stacker", [x], [y, valid], num_channels=channels, stacker_left_context=left,
        stacker_right_context=right, stacker_step=draw.integer(1, frames),
    )
    chosen = _valid(m, (channels * frames,), y, valid)
    runs = tuple((values(draw, (channels,), "int16"),) for _ in range(12))
    return Streamed(m.build([x], [chosen, valid]), runs)


def overlap_add(dtype: str) -> Callable[[Draw], Streamed]:
    def case(draw: Draw) -> Streamed:
        outer, count, step = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 4)
        shape = outer, count, step + draw.integer(0, 7)
        m = ModelBuilder()
        x, y = m.tensor("x", shape, dtype), m.tensor("y", (outer, count * step), dtype)
        signal(m, "OverlapAdd", [x], [y], T=_CODES[dtype], frame_step=step)
        return _finish(m, draw, x, shape, dtype, y, 6)

    return case


SIGNAL_CASES: Mapping[str, Callable[[Draw], Streamed]] = {
    **{f.__name__: f for f in (
        window, fft_auto_scale, energy, filter_bank, square_root, log, spectral_subtraction, pcan,
        delay, framer, stacker,
    )},
    **{f"rfft of {dtype}": rfft(dtype) for dtype in _CODES},
    **{f"irfft of {dtype}": irfft(dtype) for dtype in _CODES},
    **{f"overlap_add of {dtype}": overlap_add(dtype) for dtype in ("int16", "float32")},
}
