"""The nodes of an ONNX graph that compute and read a name, and those around a layer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from crtexport.importers.onnx.messages import NodeInfo

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_MOVES = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators between integers and a layer whose elements ONNX Runtime takes as integers."""
_NOTHING = frozenset({"Dropout", "Identity"})
_CLAMPS = frozenset({"Clip", "Relu"})


class Dataflow:
    """The nodes of a graph and its outputs. ``reads`` says how often each name is read by nodes,
    graphs inside of them included, or is an output."""

    def __init__(self, nodes: Sequence[NodeInfo] = (), outputs: Iterable[str] = ()) -> None:
        self._nodes, self._outputs = nodes, frozenset(outputs)
        self.reads: Mapping[str, int] = _reads(nodes, self._outputs)

    @cached_property
    def _makers(self) -> Mapping[str, NodeInfo]:
        return {name: node for node in self._nodes for name in node.outputs}

    @cached_property
    def _readers(self) -> Mapping[str, Sequence[NodeInfo]]:
        readers = defaultdict[str, list[NodeInfo]](list)
        for node in self._nodes:
            for name in _reads([node], ()):
                readers[name].append(node)
        return readers

    def scale_before(self, name: str, result: str, *, clamped: bool = True) -> str | None:
        """Returns the name of the scale by which the input of the layer that computes ``name`` is
        dequantized, where ``result``, its name with the bias added, is quantized again and nothing
        else reads it; else None, and where the weights are dequantized, too.

        What only moves elements may be between them, and behind the layer a clamp if it may be
        ``clamped``. This is where ONNX Runtime's optimizer (``WeightBiasQuantization``) gives
        layers weights of integers.
        """
        layer = self._makers.get(name)
        if layer is None or self._made_by(layer.inputs[1], _DEQUANTIZE):
            return None
        source = layer.inputs[0]
        while not self._made_by(source, _DEQUANTIZE):
            if not self._made_by(source, *_MOVES, *_NOTHING):
                return None
            source = self._makers[source].inputs[0]
        if not self._is_quantized(result, clamped=clamped):
            return None
        return self._makers[source].inputs[1]

    def _made_by(self, name: str, *operators: str) -> bool:
        node = self._makers.get(name)
        return node is not None and node.operator in operators and node.outputs[0] == name

    def _is_quantized(self, name: str, *, clamped: bool) -> bool:
        moved = False
        while True:
            reader = self._only_reader(name)
            if reader is None or reader.inputs[0] != name:
                return False
            moved |= reader.operator in _MOVES
            if moved and (name in self._outputs or reader.operator in _CLAMPS):
                return False
            if reader.operator == _QUANTIZE:
                return True
            if reader.operator not in _MOVES | _NOTHING and not (
                clamped and reader.operator in _CLAMPS
            ):
                return False
            name = reader.outputs[0]

    def _only_reader(self, name: str) -> NodeInfo | None:
        readers = self._readers.get(name, ())
        return readers[0] if len(readers) == 1 else None

    def added(self, name: str, *, first: bool = False) -> tuple[str, str] | None:
        """Returns what is added to a result, and the name of the sum, if nothing else reads the
        result; else None. ``first``: only where the result is the first input of the Add."""
        reader = self._only_reader(name)
        if reader is None or reader.operator != "Add" or (first and reader.inputs[0] != name):
            return None
        others = [other for other in reader.inputs if other != name]
        return (others[0], reader.outputs[0]) if len(others) == 1 else None


def _reads(nodes: Sequence[NodeInfo], outputs: Iterable[str]) -> Counter[str]:
    counts = Counter(outputs)
    for node in nodes:
        counts.update(node.inputs)
        for attribute in node.attributes:
            if attribute.g is not None:
                names = [output.name for output in attribute.g.outputs]
                counts += _reads(attribute.g.nodes, names)
    return counts
