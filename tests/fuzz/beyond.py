"""Nodes for which the reference runtime computes otherwise, as docs/numerics.md says, or nothing"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Op
from crtexport.ir.types import DType
from tests.fuzz.growing import SCALED, Array

Values = Mapping[int, Array]
_FAR = 2.0**24
"""Scales that are further apart make multipliers with shifts that the runtime leaves undefined."""


def beyond_the_reference(graph: Graph, node: Node, values: Values) -> bool:
    """Returns whether the runtime's results of a node that ran are none to compare with."""
    given = [t for t in node.inputs if t is not None]
    for tensor in (*given, *node.outputs):
        array = values[tensor]
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return True
    scales = [
        scale for t in (*given, *node.outputs) if (quant := graph.type(t).quant) is not None
        for scale in (min(quant.scale), max(quant.scale))
    ]
    if scales and max(scales) > _FAR * min(scales) and not isinstance(node.op, _WEIGHTED):
        return True
    rule = _RULES.get(type(node.op))
    return rule is not None and rule(graph, node, values)


_WEIGHTED = (ops.Conv2D, ops.DepthwiseConv2D, ops.TransposeConv2D, ops.FullyConnected)


def _always(_graph: Graph, _node: Node, _values: Values) -> bool:
    return True


def _sum(graph: Graph, node: Node, _values: Values) -> bool:
    """int8 is read as uint8, int16 wraps."""
    type_ = graph.type(graph.required(node, 0))
    return type_.dtype in SCALED and type_.dtype is not DType.UINT8


def _product(graph: Graph, node: Node, _values: Values) -> bool:
    """Of a constant with a scale, the runtimes give its own numbers, or what lay there before."""
    source = graph.tensors[graph.required(node, 0)]
    return source.constant is not None and source.type.dtype in SCALED


def _power(graph: Graph, node: Node, values: Values) -> bool:
    """Of integers beyond int32, and of negative exponents."""
    base, exponent = (values[graph.required(node, i)] for i in (0, 1))
    if base.dtype.kind == "f":
        return False
    with np.errstate(all="ignore"):
        powers = np.abs(np.power(base.astype(np.float64), exponent))
    return bool((exponent < 0).any() or not (powers < 2.0**31).all())


def _svdf(graph: Graph, node: Node, _values: Values) -> bool:
    """An int8 state is read as if it were int16."""
    return graph.type(graph.required(node, 3)).dtype is DType.INT8


def _matmul(graph: Graph, node: Node, _values: Values) -> bool:
    """Matrices are mixed up where the first ones are transposed and broadcast with the second."""
    left, right = (graph.type(graph.required(node, i)).shape for i in (0, 1))
    if not isinstance(node.op, ops.BatchMatMul) or not node.op.adj_x:
        return False
    return left[:-2] != right[:-2]


def _exp(graph: Graph, node: Node, values: Values) -> bool:
    """Steps beyond int32 are undefined."""
    source, result = graph.type(graph.required(node, 0)), graph.type(node.outputs[0])
    if source.quant is None or result.quant is None:
        return False
    if source.dtype is DType.INT16:
        largest = 32768 * source.quant.scale[0]  # the ends of the table count, too
    else:
        largest = 256 * source.quant.scale[0]
    with np.errstate(over="ignore"):
        return bool(np.exp(np.float64(largest)) / result.quant.scale[0] > 2.0**30)


def _division(graph: Graph, node: Node, values: Values) -> bool:
    """Of integers: by 0, and of the smallest number by -1."""
    divisor = values[graph.required(node, 1)]
    quant = graph.type(graph.required(node, 1)).quant
    zero = quant.zero_point[0] if quant is not None and isinstance(node.op, ops.Div) else 0
    if divisor.dtype.kind == "f":
        return isinstance(node.op, ops.FloorDiv | ops.FloorMod) and bool((divisor == 0).any())
    return bool((divisor == zero).any() or (divisor == -1).any())


def _cast(graph: Graph, node: Node, values: Values) -> bool:
    """Of floats that are no number of the result's type."""
    source, result = values[graph.required(node, 0)], graph.type(node.outputs[0]).dtype
    if source.dtype.kind != "f" or not result.is_integer:
        return False
    low, high = result.limits
    return bool((source < low).any() or (source > high).any())


def _gelu(graph: Graph, node: Node, values: Values) -> bool:
    """Far below 0 most digits are lost."""
    source = values[graph.required(node, 0)]
    return source.dtype.kind == "f" and bool(source.max(initial=-1.0) < 0.5)


def _pad_value(graph: Graph, node: Node, _values: Values) -> bool:
    """A value that is quantized otherwise than the result may leave that unwritten."""
    value = graph.type(graph.required(node, 1))
    return value.dtype in SCALED and value.quant != graph.type(node.outputs[0]).quant


def _quantize(graph: Graph, node: Node, values: Values) -> bool:
    """Of numbers of steps beyond int32."""
    source, quant = values[graph.required(node, 0)], graph.type(node.outputs[0]).quant
    if source.dtype.kind != "f" or quant is None:
        return False
    with np.errstate(over="ignore"):
        steps = np.abs(source.astype(np.float64)) / quant.scale[0]
    return bool((steps > 2.0**31 - 2**8).any())  # they are float32


def _scalar(graph: Graph, node: Node, _values: Values) -> bool:
    """The runtimes crash, or read what isn't theirs."""
    return not graph.type(graph.required(node, 0)).shape


_RULES: dict[type[Op], Callable[[Graph, Node, Values], bool]] = {
    ops.Sum: _sum, ops.ReduceProd: _product, ops.BatchMatMul: _matmul, ops.Exp: _exp,
    ops.Div: _division, ops.FloorDiv: _division, ops.FloorMod: _division, ops.Cast: _cast,
    ops.Gelu: _gelu, ops.DetectionPostProcess: _always, ops.PadV2: _pad_value,
    ops.Transpose: _scalar, ops.Quantize: _quantize, ops.Svdf: _svdf, ops.Pow: _power,
}
