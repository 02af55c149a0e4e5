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


SIGNAL_CASES: Mapping[str, Callable[[Draw], Streamed]] = {
    f.__name__: f
    for f in (window, fft_auto_scale, energy, filter_bank, square_root, log)
}
