"""Functions of one 8-bit tensor, as tables of their 256 results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.folding import computed
from crtexport.ir import ops
from crtexport.ir.graph import Node, Tensor
from crtexport.ir.types import DType, TensorType
from crtexport.support.fixedpoint import nearest_even

Array = npt.NDArray[Any]
_MOST_NODES = 64
"""The most nodes of a function that becomes a table."""


class NetworkIntegers(Protocol):
    """Facts about the network: its tensors, their producers, and the integers behind real values.
    """

    tensors: list[Tensor]
    producer: dict[int, Node]
    real: dict[int, int]

    def bytes_of(self, tensor: int | None) -> int | None: ...


def table_of(
    network: NetworkIntegers, source: int, target: TensorType
) -> tuple[int, npt.NDArray[np.int8]] | None:
    """Returns (tensor, table) if each element of ``source`` is a function of one element of an int8
    tensor; else None. The table has the results for all 256 values, from the lowest on, as int8 at
    the scale of ``target``."""
    function = _ByteFunction(network)
    values = function.values(source)
    quant = target.quant
    if function.argument is None or values is None or values.shape != (256,) or quant is None:
        return None
    if network.tensors[function.argument].type.shape != target.shape:
        return None
    with np.errstate(all="ignore"):
        steps = nearest_even(np.nan_to_num(values / np.float32(quant.scale[0])))
    results = np.clip(steps + quant.zero_point[0], *target.dtype.limits)
    return function.argument, results.astype(np.int8)


class _ByteFunction:
    """Evaluates a function of one 8-bit tensor, ``argument``, which is found on the way."""

    def __init__(self, network: NetworkIntegers) -> None:
        self._network = network
        self._nodes = 0
        self.argument: int | None = None

    def values(self, tensor: int) -> Array | None:
        """Returns the values of ``tensor``: one for each of the argument's 256 values, or a single
        number; None if it is neither a function of the argument nor constant."""
        network = self._network
        described = network.tensors[tensor]
        if described.constant is not None and described.type.elements == 1:
            return described.constant.array(described.type).reshape(())
        argument = network.bytes_of(tensor)
        if argument is not None and network.tensors[argument].constant is None:
            if self.argument not in (None, argument):
                return None
            self.argument = argument
            return _reals(network.tensors[argument].type)
        node = network.producer.get(tensor)
        self._nodes += 1
        if node is None or self._nodes > _MOST_NODES or not isinstance(
            node.op, ops.Elementwise
        ) or described.type.dtype not in (DType.FLOAT32, DType.BOOL):
            return None
        inputs = [None if t is None else self.values(t) for t in node.inputs]
        arrays = [array for array in inputs if array is not None]
        if len(arrays) != len(inputs):
            return None
        return _applied(node.op, arrays, described.type.dtype)


def _reals(type_: TensorType) -> Array:
    if type_.quant is None:
        raise ValueError("integers without a scale")
    low, high = type_.dtype.limits
    steps = np.arange(low, high + 1) - type_.quant.zero_point[0]
    return steps.astype(np.float32) * np.float32(type_.quant.scale[0])


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_ERF = np.vectorize(math.erf, otypes=[np.float64])
_MORE: Mapping[type[ops.Op], Callable[[Any, Array], Array]] = {
    ops.Logistic: lambda _, x: _logistic(x),
    ops.LeakyRelu: lambda op, x: np.where(x >= 0, x, x * op.alpha),
    ops.Elu: lambda _, x: np.where(x >= 0, x, np.expm1(x)),
    ops.HardSwish: lambda _, x: x * np.clip(x / 6 + 0.5, 0, 1),
    ops.Relu6: lambda _, x: np.clip(x, 0, 6),
    ops.ReluN1To1: lambda _, x: np.clip(x, -1, 1),
    ops.Erf: lambda _, x: _ERF(x),
    ops.Gelu: lambda op, x: x / 2 * (1 + (
        np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)) if op.approximate
        else _ERF(x / np.sqrt(2))
    )),
}
"""Operators that aren't evaluated on constants, in float64; results are rounded at the end."""


def _applied(op: ops.Op, arrays: list[Array], dtype: DType) -> Array | None:
    found: Array
    with np.errstate(all="ignore"):
        if isinstance(op, ops.Prelu):
            found = np.where(arrays[0] >= 0, arrays[0], arrays[0] * arrays[1])
        elif type(op) in _MORE:
            found = _MORE[type(op)](op, arrays[0].astype(np.float64))
        else:
            results = computed(op, arrays, dtype)
            if results is None:
                return None
            found = results[0]
        return np.asarray(found).astype(dtype.numpy)
