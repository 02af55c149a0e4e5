"""What several operators share: fused clamps, padding, and the mark of elementwise operators."""

from __future__ import annotations

import enum
from typing import ClassVar

from msgspec import Struct


class Activation(enum.Enum):
    """Fused clamp; the value is its name in model.json."""

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    RELU_N1_TO_1 = "relu_n1_to_1"


class Padding2D(Struct, frozen=True):
    """Rows and columns added around an image; they count as real 0 and never as pooled cells."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        return bool(self.top or self.bottom or self.left or self.right)


NO_PADDING = Padding2D()


class Stateful(Struct, frozen=True):
    """Marks operators whose inputs at ``reads`` and ``writes`` are variables: tensors that keep
    their values between runs. What is written may be read as well."""

    reads: ClassVar[tuple[int, ...]] = ()
    writes: ClassVar[tuple[int, ...]] = ()


class Elementwise(Struct, frozen=True):
    """Marks operators whose output element i depends on element i of inputs of its shape only, so
    that an output may take the place of such an input."""


class Foreign(Struct, frozen=True):
    """Marks operators that call a function of one of the graph's modules, whose name is the
    attribute ``function``. Only the network says what types their outputs have."""

    function: str


class Control(Struct, frozen=True):
    """Marks operators whose nodes hold ``graphs`` graphs and run some of them, once or often. The
    node's inputs from position ``first`` on are the inputs of each."""

    graphs: ClassVar[int]
    first: ClassVar[int]
