"""The goals of the code of kernels: how much code may be had for less time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

Level = Literal["size", "compact", "balanced", "speed"]
"""``size``: the least code; ``speed``: the least time; the others weigh one against the other."""

LEVELS: tuple[Level, ...] = get_args(Level)
COMPILER_OPTIONS: Mapping[str, str] = MappingProxyType(
    {"size": "-Os", "compact": "-Os", "balanced": "-O2", "speed": "-O3"}
)
"""The option of GCC and Clang, which compile C sources, for each level."""
