"""Networks with compressed constants: x beside TFLM_DECODE(codes, table)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.differential.draw import Array, Case, Draw, values
from tests.tflite_builder import ModelBuilder

LUT, HUFFMAN, PRUNE = 0, 1, 2


def header(kind: int, parameters: int = 0, stride: int = 0) -> bytes:
    """Returns what a table begins with."""
    return bytes([kind, 1, 0, 0, 1, parameters, stride, *[0] * 9])


def network(
    codes: bytes, table: bytes, shape: tuple[int, ...], dtype: str, zeros: tuple[int, ...] = (0,),
    axis: int = 0,
) -> bytes:
    """Returns a network that puts what is decoded behind its input."""
    m = ModelBuilder()
    x = m.tensor("x", shape, dtype, scale=0.5, zero_point=zeros[0])
    c = m.tensor("codes", (len(codes),), "uint8", data=list(codes))
    t = m.tensor("table", (len(table),), "uint8", data=list(table))
    several = len(zeros) > 1
    decoded = m.tensor(
        "decoded", shape, dtype, scale=[0.5] * len(zeros) if several else 0.5,
        zero_point=list(zeros) if several else zeros[0], axis=axis if several else None,
    )
    m.op("custom:TFLM_DECODE", [c, t], [decoded])
    y = m.tensor("y", (2 * shape[0], *shape[1:]), dtype, scale=0.5, zero_point=zeros[0])
    m.op("CONCATENATION", [x, decoded], [y], axis=0)
    return m.build([x], [y])


def lut(draw: Draw, dtype: str) -> tuple[Case, Array]:
    """Indices of 1 to 7 bits into a table, or into one for each channel; and the values."""
    width, channels = draw.integer(1, 7), draw.choice([1, 3])
    axis, rest = draw.choice([0, 1]), draw.integer(1, 40)
    shape = ((channels, rest), (rest, channels))[axis] if channels > 1 else (2, rest)
    stride = min(1 << width, 128 // 3)
    table = values(draw, (channels * stride,), dtype)
    indices = np.array([draw.integer(0, stride - 1) for _ in range(shape[0] * shape[1])])
    bits = indices[:, None] >> np.arange(width - 1, -1, -1) & 1
    channel = np.indices(shape)[axis].ravel() if channels > 1 else 0
    wanted = table[indices + channel * stride].reshape(shape)
    content = network(
        np.packbits(bits.astype(np.uint8)).tobytes(),
        header(LUT, width, stride) + table.tobytes(), shape, dtype,
        (0,) * channels, axis,
    )
    return Case(content, (values(draw, shape, dtype),)), wanted


def prune(draw: Draw, dtype: str) -> tuple[Case, Array]:
    """Elements that aren't their zero point, and where they are."""
    shape = (draw.integer(1, 4), draw.integer(1, 30))
    zeros = (draw.integer(-9, 9) if dtype == "int8" else 0,)
    wanted = values(draw, shape, dtype)
    kept = np.array([draw.choice([True, False]) for _ in range(wanted.size)]).reshape(shape)
    wanted = np.where(kept, wanted, np.array(zeros[0], wanted.dtype))
    content = network(
        np.packbits(kept.ravel()).tobytes(), header(PRUNE) + wanted[kept].tobytes(), shape, dtype,
        zeros,
    )
    return Case(content, (values(draw, shape, dtype),)), wanted


def huffman(draw: Draw, dtype: str) -> tuple[Case, Array]:
    """Codewords 0, 10, 110 and 111, in a table of 2 bits and another one of 1 bit."""
    wide = dtype == "int16" or draw.choice([True, False])
    bits, places = (32, 27) if wide else (16, 11)
    mask, found = (1 << places) - 1, 1 << (bits - 1)
    symbols = values(draw, (4,), dtype)
    ends = [found | length << places | int(s) & (mask if wide else 255)
            for s, length in zip(symbols[[0, 0, 1]], (1, 1, 2), strict=True)]
    second = [found | 1 << places | int(s) & (mask if wide else 255) for s in symbols[2:]]
    table = np.array([*ends, 1, *second], "<u4" if wide else "<u2")
    shape = (draw.integer(1, 4), draw.integer(1, 30))
    chosen = np.array([draw.integer(0, 3) for _ in range(shape[0] * shape[1])])
    stream = "".join(("0", "10", "110", "111")[index] for index in chosen)
    stream += "0" * (-len(stream) % 32)
    codes = np.packbits(np.array(list(stream), np.uint8)).tobytes()
    wanted = symbols[chosen].reshape(shape)
    content = network(
        codes, header(HUFFMAN, 1 << 4 | wide) + table.tobytes(), shape, dtype
    )
    return Case(content, (values(draw, shape, dtype),)), wanted


CODES: dict[str, Callable[[Draw, str], tuple[Case, Array]]] = {
    "lut": lut, "prune": prune, "huffman": huffman,
}
