"""One operator of a .tflite file, as the decoders in ``tflite_ops`` read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from crtexport.importers.tflite import schema
from crtexport.importers.tflite.flatbuffer import Table
from crtexport.importers.tflite.schema import ActivationFunctionType, any_name
from crtexport.ir.graph import Tensor
from crtexport.ir.ops import Activation, Op, Padding2D
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

K = TypeVar("K", bound=Table)
Kind = type[K]

STEERING_BYTES = 4096
"""An upper bound of the bytes of lists of axes, sizes or paddings."""

ACTIVATIONS = {
    ActivationFunctionType.NONE: Activation.NONE,
    ActivationFunctionType.RELU: Activation.RELU,
    ActivationFunctionType.RELU_N1_TO_1: Activation.RELU_N1_TO_1,
    ActivationFunctionType.RELU6: Activation.RELU6,
}


class Tensors(Protocol):
    """The lookup of an operator's tensors."""

    def tensor(self, index: int) -> Tensor: ...
    def place(self, index: int) -> int | None: ...


class SourceOperator(Struct, frozen=True):
    """``inputs`` and ``outputs`` are tensor numbers of the file; None: an input left out."""

    table: schema.Operator
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    tensors: Tensors

    def given(self, index: int, role: str) -> Tensor:
        """Returns a required input. Raises CrtExportError where it was left out."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise CrtExportError(f"input {index} ({role}) is missing")
        return self.tensors.tensor(tensor)

    def type(self, index: int, role: str = "data") -> TensorType:
        return self.given(index, role).type

    def result(self) -> TensorType:
        """Returns the declared type of the first output."""
        if not self.outputs:
            raise CrtExportError("the operator has no output")
        return self.tensors.tensor(self.outputs[0]).type

    def integers(self, index: int, role: str) -> tuple[int, ...]:
        """Returns the flattened values of an input that steers the operator and so must be
        constant."""
        tensor = self.given(index, role)
        # The format can't say of no bytes whether they are constant.
        if tensor.constant is None and tensor.type.elements:
            raise CrtExportError(
                f"{role} (tensor {tensor.name!r}) are computed at run time",
                hint="convert the model with fixed shapes, so that they become constants",
            )
        if tensor.type.dtype not in (DType.INT32, DType.INT64):
            raise CrtExportError(f"{role} must be int32 or int64, found {tensor.type}")
        if tensor.constant is None:
            return ()
        if tensor.constant.nbytes != tensor.type.nbytes or tensor.type.nbytes > STEERING_BYTES:
            raise CrtExportError(
                f"{role}: {tensor.type} in {tensor.constant.nbytes} bytes is no such list"
            )
        values: list[int] = tensor.constant.array(tensor.type).reshape(-1).tolist()
        return tuple(values)

    def options(self, kind: Kind[K]) -> K:
        """Returns the operator's table of options, which must be of ``kind``."""
        found = self.optional_options(kind)
        if found is None:
            raise CrtExportError(f"the operator has no {kind.__name__}")
        return found

    def optional_options(self, kind: Kind[K]) -> K | None:
        """The same, or None where the file has no options for this operator."""
        found = self.table.builtin_options_type
        if not found:
            return None
        if found != kind.UNION:
            name = any_name("BuiltinOptions", found) or f"options of the unknown kind {found}"
            raise CrtExportError(f"the operator has {name} instead of {kind.__name__}")
        union = self.table.builtin_options
        return union.read(kind) if union is not None else None

    def activation(self, options: Any) -> Activation:
        """Returns the clamp fused into the operator; NONE where there are no options."""
        if options is None:
            return Activation.NONE
        code = options.fused_activation_function
        if code not in ACTIVATIONS:
            name = any_name("ActivationFunctionType", code) or code
            raise CrtExportError(f"the fused activation {name} is not supported")
        return ACTIVATIONS[code]

    def pair(self, what: str, height: int, width: int) -> tuple[int, int]:
        """Returns two sizes of the options, rows first; each at least 1."""
        if min(height, width) < 1:
            raise CrtExportError(f"the {what} {height} x {width} must be at least 1 x 1")
        return height, width

    def padding(
        self,
        options: Any,
        window: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int] = (1, 1),
        image: TensorType | None = None,
    ) -> Padding2D:
        """SAME or VALID as rows and columns around ``image`` (default: the first input), as
        TensorFlow Lite does."""
        code = options.padding
        if code == schema.Padding.VALID:
            return Padding2D()
        if code != schema.Padding.SAME:
            raise CrtExportError(f"the padding {code} is neither SAME nor VALID")
        image = image or self.type(0)
        if len(image.shape) != 4:
            raise CrtExportError(f"the input must have 4 dimensions, found {image}")
        top, bottom = same_padding(image.shape[1], window[0], stride[0], dilation[0])
        left, right = same_padding(image.shape[2], window[1], stride[1], dilation[1])
        return Padding2D(top, bottom, left, right)


def same_padding(size: int, window: int, stride: int, dilation: int) -> tuple[int, int]:
    """Returns the cells before and after one axis so that ceil(size / stride) windows fit; odd ones
    after."""
    extent = (window - 1) * dilation + 1
    count = -(-size // stride)
    total = max((count - 1) * stride + extent - size, 0)
    return total // 2, total - total // 2


Decoded = tuple[Op, tuple[int | None, ...]]
Decoder = Callable[[SourceOperator], Decoded]
"""Returns the operator of a node, and which of its inputs (tensor numbers of the file) remain
inputs."""


class Plain(Struct, frozen=True):
    """Decoder of an operator whose node in the file has no options, or none that say more. The
    simulation's writer reads the same rows in reverse."""

    op: Op

    def __call__(self, source: SourceOperator) -> Decoded:
        return self.op, source.inputs


def axis_of(axis: int, rank: int) -> int:
    """Returns an axis counted from the front."""
    if not -rank <= axis < rank:
        raise CrtExportError(f"axis {axis} of a tensor with {rank} dimensions")
    return axis % rank
