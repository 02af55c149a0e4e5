"""Operators of real numbers between quantized tensors, as operators of integers.

ONNX writes a quantized operator as DequantizeLinear, operator, QuantizeLinear. ONNX Runtime's
optimizer (``qdq_transformer``) computes many of these in integers, and so does this module:
convolutions, matrix products, sums, products, averages, softmax and Concat between scaled integers;
operators that only move or select elements, on the stored numbers; and any function of one 8-bit
tensor by a table of its 256 results. Others are computed in float32, as in ONNX Runtime, which is
reported; their int8 weights stay int8 in flash.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from crtexport.importers.onnx.byte_tables import table_of
from crtexport.importers.onnx.layer_ends import end_of
from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.numerics import Numerics
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType

_log = logging.getLogger(__name__)

MOVERS = (
    ops.Reshape, ops.Transpose, ops.Slice, ops.Gather, ops.BroadcastTo, ops.Tile, ops.Split,
    ops.DepthToSpace, ops.SpaceToDepth, ops.ResizeNearestNeighbor, ops.MaxPool2D, ops.Pad,
    ops.ReduceMax, ops.ReduceMin,
)
"""Operators that give elements of their first input, or 0."""

_CHANNEL_AXIS: Mapping[type[ops.Op], int] = {
    ops.Conv2D: 0, ops.DepthwiseConv2D: 3, ops.FullyConnected: 0, ops.TransposeConv2D: 0,
}
_SHOWN = 6


def with_integer_operators(
    graph: Graph, integers: Mapping[int, int], unsigned: Collection[int], numerics: Numerics
) -> Graph:
    """Returns the network with operators of integers in place of those of real numbers between
    DequantizeLinear and QuantizeLinear, where the results are the same.

    ``integers`` maps a constant of real numbers to the tensor of integers from which it is
    dequantized; ``unsigned`` are the tensors that were uint8 in the file. ``numerics`` is the
    runtime whose integers are computed.
    """
    if not integers and not any(
        isinstance(node.op, ops.Dequantize | ops.Quantize) or _scales_in_floats(node)
        for node in graph.nodes
    ):
        return graph
    return _Rewriting(graph, integers, unsigned, numerics).result()


def _scales_in_floats(node: Node) -> bool:
    """Returns whether a node is the division of a QuantizeLinear to integers that have no operators
    here, as uint16."""
    return isinstance(node.op, ops.Div) and node.is_from("QuantizeLinear")


class _Rewriting:
    """``real`` maps a tensor of real numbers to the tensor of integers that it dequantizes."""

    def __init__(
        self, graph: Graph, integers: Mapping[int, int], unsigned: Collection[int],
        numerics: Numerics,
    ) -> None:
        self._graph, self.unsigned, self.numerics = graph, set(unsigned), numerics
        self.tensors = list(graph.tensors)
        self.nodes: list[Node] = []
        self.real = dict(integers)
        self._same: dict[int, int] = {}
        self._left: list[str] = []
        self.producer = {tensor: node for node in graph.nodes for tensor in node.outputs}
        self.readers = Counter(
            tensor for node in graph.nodes for tensor in node.inputs if tensor is not None
        )
        self.readers.update(graph.outputs)

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
        """Returns the scale of a tensor of integers."""
        quant = self.type(tensor).quant
        if quant is None:
            raise ValueError("integers without a scale")
        return quant

    def new(self, name: str, type_: TensorType, constant: ConstantRef | None = None) -> int:
        self.tensors.append(Tensor(name, type_, constant))
        return len(self.tensors) - 1

    def bytes_of(self, tensor: int | None) -> int | None:
        """Returns the int8 tensor, with one scale, whose real values a tensor holds; None if there
        is none."""
        found = self.real.get(tensor) if tensor is not None else None
        if found is None or self.type(found).dtype is not DType.INT8:
            return None
        return found if self.quant(found).per_tensor else None

    # -- nodes

    def _node(self, node: Node) -> None:
        if _scales_in_floats(node) and node.inputs[0] in self.producer:
            self._left.append(str(self.producer[node.inputs[0]]))
        match node.op:
            case ops.Dequantize() if self.type(node.inputs[0] or 0).dtype.is_integer:
                self.real[node.outputs[0]] = node.inputs[0] or 0
            case ops.Quantize() if self.type(node.inputs[0] or 0).dtype is DType.FLOAT32:
                if self._quantize(node):
                    return
            case ops.PadV2(paddings) if self._pads_zeros(node):
                self._moved(replace(node, op=ops.Pad(paddings), inputs=node.inputs[:1]))
                return
            case op if isinstance(op, MOVERS) and node.inputs[0] in self.real:
                self._moved(node)
                return
        self.nodes.append(self._with_stored_weights(node))

    def _pads_zeros(self, node: Node) -> bool:
        x, padding = node.inputs[0], self.tensors[node.inputs[1] or 0]
        if x not in self.real or padding.constant is None:
            return False
        return not padding.constant.array(padding.type).any()

    def _with_stored_weights(self, node: Node) -> Node:
        """Keeps int8 weights of a float layer in flash as they are: the layer scales its
        accumulators."""
        axis = _CHANNEL_AXIS.get(type(node.op))
        w = self.real.get(node.inputs[1] or 0) if axis is not None else None
        if w is None or self.tensors[w].constant is None or (
            self.type(w).dtype is not DType.INT8 or any(self.quant(w).zero_point)
        ) or self.quant(w).axis not in (None, axis):
            return node
        return replace(node, inputs=(node.inputs[0], w, *node.inputs[2:]))

    def _moved(self, node: Node) -> None:
        """Moves integers, and dequantizes the result for readers of real values."""
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
        """Replaces a Quantize and the operator before it; returns whether that was possible."""
        source, target = node.inputs[0] or 0, node.outputs[0]
        integers = self.real.get(source)
        if integers is not None and self.type(integers) == self.type(target):
            if target not in self._graph.outputs:
                self._same[target] = integers
            else:
                same = ops.Reshape(self.type(integers).shape)
                self.nodes.append(replace(node, op=same, inputs=(integers,)))
            return True
        if integers is not None and (
            self.quant(integers).per_tensor and self._scales(integers, target)
        ):
            self.nodes.append(replace(node, inputs=(integers,)))
            return True
        if self.type(target).dtype is DType.INT8 and (
            self._as_layer(source, target) or self._as_table(source, target)
        ):
            return True
        if source in self.producer:
            self._left.append(str(self.producer[source]))
        return False

    def _scales(self, source: int, target: int) -> bool:
        """Returns whether tensor ``source`` can be requantized to the scale of ``target``."""
        types = self.type(source), self.type(target)
        return types[0] == types[1] or any(t.dtype is not DType.INT16 for t in types) or not any(
            self.quant(t).zero_point[0] for t in (source, target)
        )

    def _as_table(self, source: int, target: int) -> bool:
        found = table_of(self, source, self.type(target))
        if found is None:
            return False
        integers, table = found
        node = replace(self.producer[source], inputs=(integers,), outputs=(target,))
        self._look_up(node, table)
        return True

    def _look_up(self, node: Node, table: npt.NDArray[np.int8]) -> None:
        """Adds a Lookup in place of ``node``, whose only input has the indices into the table."""
        name, type_ = self.tensors[node.outputs[0]].name, TensorType(DType.INT8, (256,))
        constant = self.new(name, type_, ConstantRef.of(table))
        self.nodes.append(replace(node, op=ops.Lookup(), inputs=(*node.inputs, constant)))

    def _as_layer(self, source: int, target: int) -> bool:
        end = end_of(self, source)
        make = _MAKERS.get(type(end.layer.op)) if end is not None else None
        if end is None or make is None:
            return False
        activation = end.activation if hasattr(end.layer.op, "activation") else None
        clamp = None if activation is not None else end.table(self.type(target))
        result = target if clamp is None else self.new(
            self.tensors[target].name, self.type(target)
        )
        if target in self.unsigned:
            self.unsigned.add(result)
        node = end.layer if end.bias is None else self._with_bias(end.layer, end.bias)
        made = make(self, node, result) if node is not None else None
        if made is None:
            return False
        if activation is not None:
            made = replace(made, op=replace(made.op, activation=activation))
        self.nodes.append(made)
        if clamp is not None:
            self._look_up(replace(end.layer, inputs=(result,), outputs=(target,)), clamp)
        return True

    def _with_bias(self, node: Node, bias: int) -> Node | None:
        """Returns a layer with an added bias, one number or one for each channel."""
        axis = _CHANNEL_AXIS.get(type(node.op))
        if axis is None or (len(node.inputs) > 2 and node.inputs[2] is not None):
            return None
        channels = self.type(node.inputs[1] or 0).shape[axis]
        type_, constant = self.type(bias), self.tensors[bias].constant
        if constant is None or type_.elements not in (1, channels) or (
            type_.elements != 1 and type_.shape[-1] != channels
        ):
            return None
        values = np.broadcast_to(constant.array(type_).reshape(-1), (channels,))
        made = self.new(
            self.tensors[bias].name, TensorType(DType.FLOAT32, (channels,)), ConstantRef.of(values)
        )
        return replace(node, inputs=(*node.inputs[:2], made))

    # -- operators

    def weighted(self, node: Node, target: int) -> Node | None:
        """Returns convolutions and fully connected layers with constant int8 weights."""
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
        """Returns the bias as int32 at the scale of the products; a float bias is rounded."""
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
            # In float32, as ONNX Runtime's optimizer rounds such a bias.
            steps = np.rint(constant.array(self.type(tensor)).astype(np.float32) / scales)
        if not (np.abs(steps) < 1 << 31).all():
            return None
        quant = Quantization(
            tuple(scales.tolist()), (0,) * len(scales), 0 if len(scales) > 1 else None
        )
        type_ = TensorType(DType.INT32, self.type(tensor).shape, quant)
        return self.new(self.tensors[tensor].name, type_, ConstantRef.of(steps.astype(np.int32)))

    def elementwise(self, node: Node, target: int) -> Node | None:
        """Returns sums, products, means and matrix products, between any scales."""
        inputs = [self.bytes_of(tensor) for tensor in node.inputs]
        if None in inputs:
            return None
        op = node.op
        if isinstance(op, ops.Add | ops.Mul):
            op = replace(op, from_uint8=target in self.unsigned)
        return replace(node, op=op, inputs=tuple(inputs), outputs=(target,))

    def average(self, node: Node, target: int) -> Node | None:
        """Returns averages of windows, between any scales. ONNX Runtime adds integers if one window
        covers the image."""
        made = self.elementwise(node, target)
        if made is None or not isinstance(made.op, ops.AveragePool2D):
            return None
        maker = self.producer.get(node.inputs[0] or 0)
        padded = maker is not None and isinstance(maker.op, ops.PadV2)
        image = self.type(node.inputs[0] or 0).shape
        if made.op.window == image[1:3] and not (made.op.padding.any or padded):
            return replace(made, op=ops.Mean((1, 2), keep_dims=True))
        return replace(made, op=replace(made.op, from_uint8=target in self.unsigned))

    def softmax(self, node: Node, target: int) -> Node | None:
        """Returns a softmax to any scale, which only ONNX Runtime's numerics allow."""
        return self.elementwise(node, target) if self.numerics is Numerics.ORT else None

    def joined(self, node: Node, target: int) -> Node | None:
        """Returns a Concat of inputs requantized to the scale of the result."""
        inputs = self._on_one_scale(node, node.inputs, target)
        return None if inputs is None else replace(node, inputs=inputs, outputs=(target,))

    def chosen(self, node: Node, target: int) -> Node | None:
        """Returns a Where of inputs requantized to the scale of the result."""
        inputs = self._on_one_scale(node, node.inputs[1:], target)
        if inputs is None:
            return None
        return replace(node, inputs=(node.inputs[0], *inputs), outputs=(target,))

    def _on_one_scale(
        self, node: Node, tensors: Sequence[int | None], target: int
    ) -> tuple[int, ...] | None:
        """Returns the int8 that real numbers are, on the scale of ``target``."""
        sources = [self.bytes_of(tensor) for tensor in tensors]
        found = [source for source in sources if source is not None]
        if len(found) < len(sources):
            return None
        for place, source in enumerate(found):
            if self.quant(source) != self.quant(target):
                type_ = replace(self.type(source), quant=self.quant(target))
                found[place] = self.new(self.tensors[source].name, type_)
                self.nodes.append(
                    replace(node, op=ops.Quantize(), inputs=(source,), outputs=(found[place],))
                )
        return tuple(found)


_MAKERS: Mapping[type[ops.Op], Callable[[_Rewriting, Node, int], Node | None]] = {
    **dict.fromkeys(_CHANNEL_AXIS, _Rewriting.weighted),
    **dict.fromkeys((ops.Add, ops.Mul, ops.Mean, ops.BatchMatMul), _Rewriting.elementwise),
    ops.AveragePool2D: _Rewriting.average,
    ops.Softmax: _Rewriting.softmax,
    ops.Concatenation: _Rewriting.joined,
    ops.Select: _Rewriting.chosen,
}
