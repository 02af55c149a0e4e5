"""Definitions that several operators share: fused clamps, padding, and marker classes."""

from __future__ import annotations

import enum
from typing import ClassVar

from msgspec import Struct


class Op(Struct, frozen=True):
    """Any operator: its attributes."""


class Activation(enum.Enum):
    """Fused clamp; the value is its name in model.json."""

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    RELU_N1_TO_1 = "relu_n1_to_1"


class Padding2D(Struct, frozen=True):
    """Rows and columns added around an image; they have the real value 0 and pooling ignores them.
    """

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        return bool(self.top or self.bottom or self.left or self.right)


NO_PADDING = Padding2D()


class Stateful(Op, frozen=True):
    """Marks operators whose inputs at ``reads`` and ``writes`` are variables: tensors that keep
    their values between runs. What is written may be read as well."""

    reads: ClassVar[tuple[int, ...]] = ()
    writes: ClassVar[tuple[int, ...]] = ()


class Elementwise(Op, frozen=True):
    """Marks operators whose output element i depends on element i of inputs of its shape only, so
    that an output may take the place of such an input."""


class Elementary(Elementwise, frozen=True):
    """Marks functions of the elements of one tensor, whose type the output has."""


class Pairwise(Elementwise, frozen=True):
    """Marks functions of two numbers of one type, which the output has, with NumPy broadcasting."""


class Comparison(Elementwise, frozen=True):
    """Marks comparisons of two real numbers, with NumPy broadcasting: 1 where they hold, else 0."""


class Reducer(Op, frozen=True):
    """Marks reductions over ``axes`` (non-negative, ascending)."""

    axes: tuple[int, ...]
    keep_dims: bool = False


class Extreme(Op, frozen=True):
    """Marks what finds a position along ``axis`` (non-negative), as int32 or int64."""

    axis: int


class Running(Op, frozen=True):
    """Marks running results along ``axis`` (non-negative); ``exclusive``: without the element."""

    axis: int
    exclusive: bool = False
    reverse: bool = False


class Pool2D(Op, frozen=True):
    """Marks what joins the cells of a window; those in the padding don't count."""

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding2D = NO_PADDING
    activation: Activation = Activation.NONE


class Resize(Op, frozen=True):
    """Marks what resizes an image to ``size``: rows and columns."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False


class Foreign(Op, frozen=True):
    """Marks operators that call a function of one of the graph's modules, whose name is the
    attribute ``function``. Only the network determines the types of their outputs."""

    function: str


class Control(Op, frozen=True):
    """Marks operators whose nodes hold ``graphs`` graphs and run some of them, once or often. The
    node's inputs from position ``first`` on are the inputs of each."""

    graphs: ClassVar[int]
    first: ClassVar[int]


class Direction(enum.Enum):
    """The order of the steps; the value is its name in model.json."""

    FORWARD = "forward"
    REVERSE = "reverse"
    BIDIRECTIONAL = "bidirectional"


class GateFunction(enum.Enum):
    """A function of a sum of products; the value is its name in model.json. ``alpha`` and
    ``beta`` are its parameters, as in ONNX's operators of these names."""

    SIGMOID = "sigmoid"
    TANH = "tanh"
    RELU = "relu"
    AFFINE = "affine"
    LEAKY_RELU = "leaky_relu"
    THRESHOLDED_RELU = "thresholded_relu"
    SCALED_TANH = "scaled_tanh"
    HARD_SIGMOID = "hard_sigmoid"
    ELU = "elu"
    SOFTSIGN = "softsign"
    SOFTPLUS = "softplus"


class Recurrent(Op, frozen=True):
    """Marks ONNX's recurrent operators.

    Inputs: x, weights of x and of the state, each (directions, units, its size, gates), biases
    (directions, units, gates), then optional: number of valid steps of each batch, initial state
    (directions, batches, units). x is (steps, batches, depth), with ``batch_major`` (batches,
    steps, depth). Outputs: with ``each_step`` the states of all steps, as x with (directions,
    units) in place of depth; the state at the end. ``functions`` are those of each direction's
    gates, one direction behind the other, with an ``alpha`` and a ``beta`` each, if any are given.
    ``clip``: limit of the sums before the functions; 0: none.
    """

    direction: Direction = Direction.FORWARD
    functions: tuple[GateFunction, ...] = ()
    alpha: tuple[float, ...] = ()
    beta: tuple[float, ...] = ()
    clip: float = 0.0
    batch_major: bool = False
    each_step: bool = True
    usual: ClassVar[tuple[GateFunction, ...]]
    """The functions of a direction where none are given."""
