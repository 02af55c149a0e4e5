"""Operators on constants, computed while importing: what PyTorch writes as shape arithmetic, scales
of images and masks becomes numbers before anything needs them.

Floats are computed in double precision and rounded once, so that the same file gives the same bytes
on every computer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir import ops
from crtexport.ir.evaluate import move
from crtexport.ir.graph import Tensor
from crtexport.ir.strided_constant import moved
from crtexport.ir.types import ConstantRef, DType, TensorType

Array = npt.NDArray[Any]

SMALL = 1 << 20
"""Constants up to this number of bytes are computed in memory; larger ones are moved while they are
written."""

_WINDOW = 1 << 20


class Repeated(Struct, frozen=True):
    """A constant whose elements all equal ``element``."""

    element: bytes

    def chunks(self, nbytes: int) -> Iterator[bytes]:
        """Yields the first ``nbytes`` bytes, in pieces."""
        whole = self.element * (_WINDOW // len(self.element))
        for start in range(0, nbytes, len(whole)):
            yield whole[: nbytes - start]

    def part(self, start: int, nbytes: int) -> bytes:
        """Returns ``nbytes`` bytes from ``start`` on."""
        before = start % len(self.element)
        count = -(-(before + nbytes) // len(self.element))
        return (self.element * count)[before : before + nbytes]


def fold(
    op: ops.Op, inputs: Sequence[Tensor], outputs: Sequence[TensorType]
) -> list[ConstantRef] | None:
    """Returns the outputs of ``op``, whose inputs are constants, as constants; None where it is
    computed on the device."""
    if any(tensor.constant is None or tensor.type.quant is not None for tensor in inputs):
        return None
    large = max((t.nbytes for t in (*(i.type for i in inputs), *outputs)), default=0) > SMALL
    if large:
        if isinstance(op, ops.BroadcastTo) and inputs[0].type.elements == 1:
            element = inputs[0].constant.read() if inputs[0].constant else b""
            return [ConstantRef(nbytes=outputs[0].nbytes, made=Repeated(element))]
        return moved(op, inputs)
    if getattr(op, "activation", ops.Activation.NONE) is not ops.Activation.NONE:
        return None
    arrays = [t.constant.array(t.type) for t in inputs if t.constant is not None]
    with np.errstate(all="ignore"):
        results = computed(op, arrays, outputs[0].dtype) or move(op, arrays)
        if results is None:
            return None
        made = [
            np.asarray(result).astype(type_.dtype.numpy)
            for result, type_ in zip(results, outputs, strict=True)
        ]
    if any(a.shape != t.shape for a, t in zip(made, outputs, strict=True)):
        raise ValueError(f"{op} folds to {[a.shape for a in made]}, not {outputs}")
    return [ConstantRef.of(array) for array in made]


def computed(op: ops.Op, arrays: Sequence[Array], dtype: DType) -> Sequence[Array] | None:
    """Returns the results of an operator on arrays, computed in float64; None if it isn't evaluated
    on constants."""
    function = _FUNCTIONS.get(type(op))
    if function is None:
        return None
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    return function(op, wide, dtype)


Function = Callable[[Any, Sequence[Array], DType], Sequence[Array] | None]


def _plain(function: Callable[..., Any]) -> Function:
    return lambda _op, arrays, _dtype: [function(*arrays)]


def _reduced(function: Callable[..., Any]) -> Function:
    return lambda op, arrays, _dtype: [
        function(arrays[0], axis=tuple(op.axes), keepdims=op.keep_dims)
    ]


def _quotient(_op: ops.Div, arrays: Sequence[Array], dtype: DType) -> list[Array]:
    if dtype.is_float:
        return [arrays[0] / arrays[1]]
    divisor = np.where(arrays[1] == 0, 1, arrays[1])
    whole = np.sign(arrays[0]) * np.sign(divisor) * (np.abs(arrays[0]) // np.abs(divisor))
    return [np.where(arrays[1] == 0, 0, whole)]


def _power(_op: ops.Pow, arrays: Sequence[Array], dtype: DType) -> list[Array] | None:
    if dtype.is_integer and arrays[1].size and arrays[1].min() < 0:
        return None
    return [np.power(arrays[0], arrays[1])]


def _remainder(_op: ops.FloorMod, arrays: Sequence[Array], dtype: DType) -> list[Array]:
    divisor = arrays[1] if dtype.is_float else np.where(arrays[1] == 0, 1, arrays[1])
    return [np.mod(arrays[0], divisor)]


def _cast(_op: ops.Cast, arrays: Sequence[Array], dtype: DType) -> list[Array]:
    values = arrays[0]
    if dtype is DType.BOOL:
        return [values != 0]
    if dtype.is_integer and values.dtype.kind == "f":
        low, high = dtype.limits
        values = np.clip(np.nan_to_num(np.trunc(values)), low, high)
    return [values]


def _padded(op: ops.PadV2, arrays: Sequence[Array], _dtype: DType) -> list[Array]:
    return [np.pad(arrays[0], op.paddings, constant_values=arrays[1].reshape(()))]


def _position(function: Callable[..., Any]) -> Function:
    return lambda op, arrays, _dtype: [function(arrays[0], axis=op.axis)]


_FUNCTIONS: Mapping[type[ops.Op], Function] = {
    ops.Add: _plain(np.add), ops.Sub: _plain(np.subtract), ops.Mul: _plain(np.multiply),
    ops.Div: _quotient, ops.Maximum: _plain(np.maximum), ops.Minimum: _plain(np.minimum),
    ops.Neg: _plain(np.negative), ops.Abs: _plain(np.abs), ops.Square: _plain(np.square),
    ops.Sqrt: _plain(np.sqrt), ops.Rsqrt: _plain(lambda x: 1 / np.sqrt(x)),
    ops.Exp: _plain(np.exp), ops.Log: _plain(np.log), ops.Sin: _plain(np.sin),
    ops.Cos: _plain(np.cos), ops.Tanh: _plain(np.tanh), ops.Floor: _plain(np.floor),
    ops.Ceil: _plain(np.ceil), ops.Round: _plain(np.rint),
    ops.Relu: _plain(lambda x: np.maximum(x, 0)),
    ops.Equal: _plain(np.equal), ops.NotEqual: _plain(np.not_equal),
    ops.Greater: _plain(np.greater), ops.GreaterEqual: _plain(np.greater_equal),
    ops.Less: _plain(np.less), ops.LessEqual: _plain(np.less_equal),
    ops.LogicalAnd: _plain(np.logical_and), ops.LogicalOr: _plain(np.logical_or),
    ops.LogicalNot: _plain(np.logical_not), ops.Select: _plain(np.where),
    ops.Cast: _cast, ops.Pow: _power, ops.Atan: _plain(np.arctan),
    ops.FloorMod: _remainder, ops.BitwiseAnd: _plain(np.bitwise_and),
    ops.BitwiseOr: _plain(np.bitwise_or), ops.BitwiseXor: _plain(np.bitwise_xor),
    ops.Sum: _reduced(np.sum), ops.Mean: _reduced(np.mean), ops.ReduceProd: _reduced(np.prod),
    ops.ReduceMax: _reduced(np.max), ops.ReduceMin: _reduced(np.min),
    ops.ReduceAny: _reduced(np.any), ops.ReduceAll: _reduced(np.all),
    ops.ArgMax: _position(np.argmax), ops.ArgMin: _position(np.argmin),
    ops.PadV2: _padded,
}
