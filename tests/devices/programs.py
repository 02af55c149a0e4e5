"""Device programs, made up: like machine code in that much of it repeats."""

from __future__ import annotations

import numpy as np


def program(size: int, seed: int = 0) -> bytes:
    """``size`` bytes of instructions drawn from a few forms, tables and zeros."""
    rng = np.random.default_rng(seed)
    forms = rng.integers(0, 1 << 32, 24, np.uint64).astype("<u4")
    chosen = forms[rng.geometric(0.15, size // 4 + 1) % 24]
    operands = (rng.geometric(0.05, size // 4 + 1) % 64).astype("<u4") << 12
    code = (chosen ^ operands).tobytes()[:size]
    third = size // 3
    table = (np.cumsum(rng.integers(-3, 4, third)) & 0xFF).astype(np.uint8).tobytes()
    return (code[: size - third - size // 8] + table + bytes(size))[:size]
