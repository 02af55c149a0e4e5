"""Sources of the choices of single-operator networks, and the choices that all of them make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SCALED = ("int8", "uint8", "int16")
"""Element types that stand for real numbers."""


class Draw(Protocol):
    """Makes a case's choices: Hypothesis, or a seeded generator."""

    def integer(self, low: int, high: int) -> int: ...

    def choice(self, options: Sequence[Any]) -> Any: ...


class SeededDraw:
    """Choices from NumPy's generator."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]


@dataclass(frozen=True)
class Case:
    content: bytes
    inputs: tuple[Array, ...]


def scale(draw: Draw) -> float:
    """A float32 scale between 2**-10 and 2, powers of two among them."""
    mantissa = draw.choice([1.0, 1.5, 1.0 + draw.integer(1, 999) / 1000])
    return float(np.float32(mantissa * 2.0 ** draw.integer(-10, 0)))


def zero(draw: Draw, dtype: str = "int8") -> int:
    """A zero point; int16 has none but 0."""
    if dtype == "int16":
        return 0
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    return int(draw.choice([low, high, low + 128, draw.integer(low, high)]))


def values(draw: Draw, shape: Sequence[int], dtype: str) -> Array:
    """Data of a tensor, its extremes among them."""
    rng = np.random.default_rng(draw.integer(0, 2**31))
    if dtype == "bool":
        return rng.integers(0, 2, tuple(shape)).astype(np.bool_)
    if dtype.startswith("float"):
        return rng.normal(0, draw.choice([0.3, 3.0]), tuple(shape)).astype(dtype)
    info = np.iinfo(dtype)
    if draw.choice([True, False, False]):
        return rng.choice(np.array([info.min, info.max, 0], dtype), tuple(shape))
    return rng.integers(info.min, info.max, tuple(shape), dtype, endpoint=True)


def activation(draw: Draw) -> str:
    return str(draw.choice(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]))


def quantization(draw: Draw, dtype: str) -> dict[str, Any]:
    """Scale and zero point of a tensor, for types that have them."""
    return {"scale": scale(draw), "zero_point": zero(draw, dtype)} if dtype in SCALED else {}


def same_or_valid(size: int, window: int, stride: int, dilation: int, padding: str) -> int:
    """Output extent of a window, as TFLite computes it."""
    reach = (window - 1) * dilation + 1
    return -(-size // stride) if padding == "SAME" else -(-(size - reach + 1) // stride)


def geometry(draw: Draw) -> tuple[list[int], list[int], list[int], list[int], str, list[int]]:
    """Of a window over an image: size, window, stride, dilation, padding, output size."""
    window = [draw.integer(1, 4), draw.integer(1, 3)]
    dilation = [draw.choice([1, 1, 2]), draw.choice([1, 1, 3])]
    stride = [draw.integer(1, 3), draw.integer(1, 2)]
    padding = draw.choice(["SAME", "VALID"])
    least = [
        (w - 1) * d + 1 if padding == "VALID" else 1 for w, d in zip(window, dilation, strict=True)
    ]
    size = [n + draw.integer(0, 5) for n in least]
    out = [
        same_or_valid(*axis, padding) for axis in zip(size, window, stride, dilation, strict=True)
    ]
    return size, window, stride, dilation, padding, out
