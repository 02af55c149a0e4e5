"""The canonical operators: one frozen dataclass each, attributes and one sentence, nothing else.

Layouts: activations NHWC, convolution weights OHWI, depthwise weights 1HWC, fully connected
weights (units, depth). Tensors that an importer found constant and that only steer an operator
(axes, shapes, paddings) are attributes here, never inputs.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Activation(enum.Enum):
    """Fused clamp; the value is its name in model.json."""

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    RELU_N1_TO_1 = "relu_n1_to_1"


@dataclass(frozen=True)
class Padding2D:
    """Rows and columns added around an image; they count as real 0 and never as pooled cells."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        return bool(self.top or self.bottom or self.left or self.right)


@dataclass(frozen=True)
class Conv2D:
    """2-D convolution of input, weights (O,KH,KW,I) and an optional bias (O)."""

    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding2D = Padding2D()
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class DepthwiseConv2D:
    """Convolution of each channel alone; weights (1,KH,KW,I*multiplier), optional bias."""

    depth_multiplier: int = 1
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: Padding2D = Padding2D()
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class FullyConnected:
    """Product of the input, flattened to rows of the weights' depth, and weights; optional bias."""

    keep_num_dims: bool = False
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class AveragePool2D:
    """Mean over a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = Padding2D()
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class MaxPool2D:
    """Largest value in a window; cells in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = Padding2D()
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Add:
    """Elementwise sum with NumPy broadcasting."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Sub:
    """Elementwise difference with NumPy broadcasting."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Mul:
    """Elementwise product with NumPy broadcasting."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Reshape:
    """The same elements in the same order under another shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Pad:
    """Real zero added before and after each axis."""

    paddings: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Mean:
    """Arithmetic mean over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


@dataclass(frozen=True)
class Concatenation:
    """Inputs joined along ``axis`` (non-negative)."""

    axis: int
    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Softmax:
    """exp(beta*x) over its sum along the last axis."""

    beta: float = 1.0


@dataclass(frozen=True)
class Logistic:
    """1 / (1 + exp(-x)) elementwise."""


@dataclass(frozen=True)
class Tanh:
    """Hyperbolic tangent elementwise."""


@dataclass(frozen=True)
class Relu:
    """max(x, 0) elementwise."""


@dataclass(frozen=True)
class Relu6:
    """min(max(x, 0), 6) elementwise."""


@dataclass(frozen=True)
class Quantize:
    """Float to a quantized integer, or a quantized integer to another scale or type."""


@dataclass(frozen=True)
class Dequantize:
    """A quantized integer (or float16) to float32."""


Op = (
    Conv2D | DepthwiseConv2D | FullyConnected | AveragePool2D | MaxPool2D | Add | Sub | Mul
    | Reshape | Pad | Mean | Concatenation | Softmax | Logistic | Tanh | Relu | Relu6
    | Quantize | Dequantize
)
