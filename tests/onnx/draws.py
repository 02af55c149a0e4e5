"""A source of drawn sizes and values, and what is drawn with it: single nodes of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Array = npt.NDArray[Any]
class DrawnNode(Struct, frozen=True):
    """A node with the values of its inputs, None where one is left out; those named in ``computed``
    come from outside, the others are constants."""

    operator: str
    inputs: list[Array | None]
    attributes: dict[str, Any]
    computed: tuple[int, ...] = (0,)
    outputs: int = 1
    domain: str = ""
    domain_version: int = 1


class Draw:
    """A source of sizes, choices and values."""

    def __init__(self, seed: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(seed)

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one(self, *choices: Any) -> Any:
        return choices[self.between(0, len(choices) - 1)]

    def maybe(self) -> bool:
        return self.between(0, 1) == 1

    def shape(self, rank: int, low: int = 1, high: int = 8) -> tuple[int, ...]:
        """Sizes that all differ where there are enough of them, with a 1 among them at times."""
        sizes = self.rng.permutation(np.arange(max(low, 2), max(high, rank + 2) + 1))[:rank]
        if low == 1 and rank and self.between(0, 3) == 0:
            sizes[self.between(0, rank - 1)] = 1
        return tuple(map(int, sizes))

    def floats(self, shape: tuple[int, ...]) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: Any = np.int64) -> Array:
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def axis(self, rank: int) -> int:
        return self.between(-rank, rank - 1)

    def axes(self, rank: int, least: int = 1) -> list[int]:
        """Some axes in any order, some of them counted from the end."""
        found = self.rng.permutation(rank)[: self.between(least, rank)]
        return [int(a) - (rank if self.maybe() else 0) for a in found]


def ints(values: Any) -> Array:
    return np.array(values, np.int64)
