"""Checks every imported network for traces of failed training, and for facts that users should
know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from crtexport.ir import ops
from crtexport.ir.bias_scales import oddities as biases
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError

_WEIGHTED = (
    ops.BatchMatMul, ops.Conv2D, ops.DepthwiseConv2D, ops.EmbeddingLookup, ops.FullyConnected,
    ops.TransposeConv2D, ops.Prelu, ops.Recurrent, ops.Svdf, ops.UnidirectionalSequenceLstm,
)


def refuse_nan(graph: Graph) -> None:
    """Raises CrtExportError, naming the element, for weights or a bias that aren't numbers."""
    for inner in graph.nested():
        # Where weights are float16, operators have what a Dequantize makes of them.
        stored = {
            node.outputs[0]: node.inputs[0]
            for node in inner.nodes if isinstance(node.op, ops.Dequantize)
        }
        for node in inner.nodes:
            if isinstance(node.op, _WEIGHTED):
                _check(inner, node, stored)


def _check(graph: Graph, node: Node, stored: Mapping[int, int | None]) -> None:
    for given in node.inputs:
        tensor = given if given is None else stored.get(given, given)
        constant = graph.constant(tensor) if tensor is not None else None
        if tensor is None or constant is None or not graph.type(tensor).dtype.is_float:
            continue
        type_, done = graph.type(tensor), 0
        for piece in constant.chunks():
            values = np.frombuffer(piece, type_.dtype.numpy)
            wrong = np.flatnonzero(np.isnan(values))
            if wrong.size:
                raise CrtExportError(
                    f"element {_position(type_, done + int(wrong[0]))} of"
                    f" {graph.tensors[tensor].name!r} ({type_}) is NaN, which is no number",
                    location=(graph.source, str(node)),
                    hint="the training diverged, or the file is damaged",
                )
            done += values.size


def _position(type_: TensorType, index: int) -> list[int]:
    return [int(i) for i in np.unravel_index(index, type_.shape)]


def oddities(graph: Graph) -> Iterator[str]:
    """Yields sentences about facts that aren't errors: inputs that nothing reads, and biases whose
    scales aren't those of the accumulators."""
    used = {t for node in graph.nodes for t in node.inputs} | set(graph.outputs)
    for tensor in graph.inputs:
        if tensor not in used and graph.tensors[tensor].variable is None:
            yield f"nothing uses the input {graph.tensors[tensor].name!r}"
    for sentence in biases(graph):
        yield f"{sentence}; its integers count, as in TensorFlow Lite"
