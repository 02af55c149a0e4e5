"""Operators of real numbers between quantized tensors, as operators of integers.

A network of ONNX's says Dequantize, operator, Quantize. ONNX Runtime computes many of these in
integers (its optimizer's ``qdq_transformer``), and so does this: convolutions, matrix products,
sums, products, averages and Concat between scaled integers; what only moves or selects elements,
on the stored numbers; and any function of one 8-bit tensor by a table of its 256 results. What is
left is computed in float32, as ONNX Runtime does, and said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import numpy as np
from msgspec.structs import replace

from crtexport.importers.onnx.byte_tables import table_of
from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType

_log = logging.getLogger(__name__)

MOVERS = (
    ops.Reshape, ops.Transpose, ops.Slice, ops.Gather, ops.BroadcastTo, ops.Tile, ops.Split,
    ops.DepthToSpace, ops.SpaceToDepth, ops.ResizeNearestNeighbor, ops.MaxPool2D, ops.Pad,
    ops.ReduceMax, ops.ReduceMin,
)
"""Operators that give elements of their first input, or 0."""

_CHANNEL_AXIS: Mapping[type[ops.Op], int] = {
    ops.Conv2D: 0, ops.DepthwiseConv2D: 3, ops.FullyConnected: 0,
}
_CLAMPS: Mapping[type[ops.Op], ops.Activation] = {
    ops.Relu: ops.Activation.RELU, ops.Relu6: ops.Activation.RELU6,
    ops.ReluN1To1: ops.Activation.RELU_N1_TO_1,
}
_SHOWN = 6


def with_integer_operators(graph: Graph, integers: Mapping[int, int]) -> Graph:
    """Returns the network with operators of integers where they give what real ones do.

    ``integers`` has the tensor of integers that each constant of real numbers is made of.
    """
    if not any(isinstance(node.op, ops.Dequantize | ops.Quantize) for node in graph.nodes):
        return graph
    return _Rewriting(graph, integers).result()


class _Rewriting:
    """``real``: the integers that a tensor of real numbers stands for."""

    def __init__(self, graph: Graph, integers: Mapping[int, int]) -> None:
        self._graph = graph
        self.tensors = list(graph.tensors)
        self.nodes: list[Node] = []
        self.real = dict(integers)
        self._same: dict[int, int] = {}
        self._left: list[str] = []
        self.producer = {tensor: node for node in graph.nodes for tensor in node.outputs}
        self._readers: dict[int, int] = {}
        for node in graph.nodes:
            for tensor in node.inputs:
                if tensor is not None:
                    self._readers[tensor] = self._readers.get(tensor, 0) + 1
        for tensor in graph.outputs:
            self._readers[tensor] = self._readers.get(tensor, 0) + 1

    def result(self) -> Graph:
        for node in self._graph.nodes:
            inputs = tuple(self._same.get(t, t) if t is not None else None for t in node.inputs)
            self._node(replace(node, inputs=inputs))
        if self._left:
            more = len(self._left) - _SHOWN
            _log.warning(
                "computed in float32 between integers, for want of an exact way in integers: %s%s",
                ", ".join(self._left[:_SHOWN]), f" and {more} more" if more > 0 else "",
            )
        return replace(self._graph, tensors=tuple(self.tensors), nodes=tuple(self.nodes))

    # -- tensors

    def type(self, tensor: int) -> TensorType:
        return self.tensors[tensor].type

    def quant(self, tensor: int) -> Quantization:
        """The scale of a tensor of integers."""
        quant = self.type(tensor).quant
        if quant is None:
            raise ValueError("integers without a scale")
        return quant

    def new(self, name: str, type_: TensorType, constant: ConstantRef | None = None) -> int:
        self.tensors.append(Tensor(name, type_, constant))
        return len(self.tensors) - 1

    def bytes_of(self, tensor: int | None) -> int | None:
        """Returns the int8 tensor with one scale that real numbers are, if they are one."""
        found = self.real.get(tensor) if tensor is not None else None
        if found is None or self.type(found).dtype is not DType.INT8:
            return None
        return found if self.quant(found).per_tensor else None

    # -- nodes

    def _node(self, node: Node) -> None:
        match node.op:
            case ops.Dequantize() if self.type(node.inputs[0] or 0).dtype.is_integer:
                self.real[node.outputs[0]] = node.inputs[0] or 0
            case ops.Quantize() if self.type(node.inputs[0] or 0).dtype is DType.FLOAT32:
                if self._quantize(node):
                    return
            case op if isinstance(op, MOVERS) and node.inputs[0] in self.real:
                self._moved(node)
                return
        self.nodes.append(node)

    def _moved(self, node: Node) -> None:
        """Moves integers; the real numbers are made of the result, for whoever wants them."""
        source = self.real[node.inputs[0] or 0]
        if not self.quant(source).per_tensor:
            self.nodes.append(node)
            return
        given = self.type(source)
        made = []
        for output in node.outputs:
            type_ = TensorType(given.dtype, self.type(output).shape, given.quant)
            made.append(self.new(self.tensors[output].name, type_))
            self.real[output] = made[-1]
        self.nodes.append(replace(node, inputs=(source, *node.inputs[1:]), outputs=tuple(made)))
        for integers, output in zip(made, node.outputs, strict=True):
            self.nodes.append(replace(node, op=ops.Dequantize(), inputs=(integers,),
                                      outputs=(output,)))

    def _quantize(self, node: Node) -> bool:
        """Replaces a Quantize, and the operator before it; returns whether that was possible."""
        source, target = node.inputs[0] or 0, node.outputs[0]
        given = self.real.get(source)
        if given is not None and self.quant(given).per_tensor:
            if self.type(given) == self.type(target) and target not in self._graph.outputs:
                self._same[target] = given
            else:
                self.nodes.append(replace(node, inputs=(given,)))
            return True
        if self.type(target).dtype is DType.INT8 and (
            self._as_layer(source, target) or self._as_table(source, target)
        ):
            return True
        if source in self.producer:
            self._left.append(str(self.producer[source]))
        return False

    def _as_table(self, source: int, target: int) -> bool:
        found = table_of(self, source, self.type(target))
        if found is None:
            return False
        integers, table = found
        type_ = TensorType(DType.INT8, (256,))
        constant = self.new(self.tensors[target].name, type_, ConstantRef.of(table))
        self.nodes.append(
            replace(self.producer[source], op=ops.Lookup(), inputs=(integers, constant),
                    outputs=(target,))
        )
        return True

    def _as_layer(self, source: int, target: int) -> bool:
        node = self.producer.get(source)
        activation = _CLAMPS.get(type(node.op)) if node is not None else None
        if node is not None and activation is not None and self._readers[source] == 1:
            source = node.inputs[0] or 0
            node = self.producer.get(source)
        if node is None or self._readers[source] != 1:
            return False
        make = _MAKERS.get(type(node.op))
        made = make(self, node, target) if make else None
        if made is None:
            return False
        if activation is not None:
            if not hasattr(made.op, "activation"):
                return False
            made = replace(made, op=replace(made.op, activation=activation))
        self.nodes.append(made)
        return True

    # -- operators

    def weighted(self, node: Node, target: int) -> Node | None:
        """Convolutions and fully connected layers with constant weights of int8."""
        x, w = self.bytes_of(node.inputs[0]), self.real.get(node.inputs[1] or 0)
        axis = _CHANNEL_AXIS[type(node.op)]
        if x is None or w is None or self.tensors[w].constant is None or (
            self.type(w).dtype is not DType.INT8
        ):
            return None
        quant = self.quant(w)
        if not quant.per_tensor and (quant.axis != axis or any(quant.zero_point)):
            return None
        inputs = [x, w]
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = self._bias(node.inputs[2], x, w)
            if bias is None:
                return None
            inputs.append(bias)
        return replace(node, inputs=tuple(inputs), outputs=(target,))

    def _bias(self, tensor: int, x: int, w: int) -> int | None:
        """Returns the bias as int32 on the scale of the products; one of floats is rounded."""
        scales = np.float32(self.quant(x).scale[0]) * np.array(self.quant(w).scale, np.float32)
        known = self.real.get(tensor)
        if known is not None:
            own = np.array(self.quant(known).scale, np.float32)
            fits = self.type(known).dtype is DType.INT32 and not any(self.quant(known).zero_point)
            return known if fits and np.allclose(own, scales, rtol=1e-5, atol=0) else None
        constant = self.tensors[tensor].constant
        if constant is None:
            return None
        with np.errstate(over="ignore"):
            steps = np.rint(constant.array(self.type(tensor)).astype(np.float64) / scales)
        if not (np.abs(steps) < 1 << 31).all():
            return None
        quant = Quantization(
            tuple(scales.tolist()), (0,) * len(scales), 0 if len(scales) > 1 else None
        )
        type_ = TensorType(DType.INT32, self.type(tensor).shape, quant)
        return self.new(self.tensors[tensor].name, type_, ConstantRef.of(steps.astype(np.int32)))

    def elementwise(self, node: Node, target: int) -> Node | None:
        """Sums, products and averages, between any scales."""
        inputs = [self.bytes_of(tensor) for tensor in node.inputs]
        if None in inputs:
            return None
        return replace(node, inputs=tuple(inputs), outputs=(target,))

    def joined(self, node: Node, target: int) -> Node | None:
        """Concat, of inputs that are brought to the scale of the result."""
        inputs = []
        for tensor in node.inputs:
            source = self.bytes_of(tensor)
            if source is None:
                return None
            if self.quant(source) != self.quant(target):
                type_ = replace(self.type(source), quant=self.quant(target))
                scaled = self.new(self.tensors[source].name, type_)
                self.nodes.append(
                    replace(node, op=ops.Quantize(), inputs=(source,), outputs=(scaled,))
                )
                source = scaled
            inputs.append(source)
        return replace(node, inputs=tuple(inputs), outputs=(target,))


_MAKERS: Mapping[type[ops.Op], Callable[[_Rewriting, Node, int], Node | None]] = {
    **dict.fromkeys(_CHANNEL_AXIS, _Rewriting.weighted),
    **dict.fromkeys((ops.Add, ops.Mul, ops.Mean, ops.AveragePool2D), _Rewriting.elementwise),
    ops.Concatenation: _Rewriting.joined,
}
