"""Nodes of which one tensor, one attribute or one input is changed, so that they may break a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import fields, replace

from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.ops import Activation, Op
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from tests.fuzz.growing import Drawing


@dataclass(frozen=True)
class Changed:
    """A node that may break a rule."""

    graph: Graph
    node: Node


def changed_scales(
    type_: TensorType, factors: Sequence[float] = (1.0, 1.37, 97.0, 1e-7, 1e9)
) -> Iterator[Quantization | None]:
    """Other scales and zero points, or none; in float32, as in files."""
    yield None
    quant = type_.quant or Quantization((0.05,), (3,))
    for factor in factors:
        scale = tuple(float(np.float32(s * factor)) for s in quant.scale)
        yield Quantization(scale, quant.zero_point, quant.axis)
    yield Quantization(quant.scale, tuple(z + 1 for z in quant.zero_point), quant.axis)
    if type_.shape and type_.shape[-1] > 1:
        count = type_.shape[-1]
        yield Quantization((quant.scale[0],) * count, (quant.zero_point[0],) * count,
                           len(type_.shape) - 1)


def changed_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield ()
    yield (*shape, 1)
    yield (1, *shape)
    yield tuple(size + 1 for size in shape)
    for axis in range(len(shape)):
        yield (*shape[:axis], 70_000, *shape[axis + 1 :])


def changed_tensors(tensor: Tensor, draw: Drawing) -> Iterator[Tensor]:
    type_, constant = tensor.type, tensor.constant
    for quant in changed_scales(type_):
        yield replace(tensor, type=replace(type_, quant=quant))
    for dtype in draw.rng.sample(list(DType), 5):
        if constant is None:
            yield replace(tensor, type=replace(type_, dtype=dtype))
            continue
        with np.errstate(all="ignore"):
            values = constant.array(type_).astype(dtype.numpy)
        yield replace(tensor, type=replace(type_, dtype=dtype), constant=ConstantRef.of(values))
    if constant is not None:
        yield replace(tensor, constant=None)
        numbers = np.random.default_rng(0).integers(-3, 9, type_.shape)
        yield replace(tensor, constant=ConstantRef.of(numbers.astype(type_.dtype.numpy)))
        return
    if tensor.variable is not None:
        start = np.arange(type_.elements).reshape(type_.shape).astype(type_.dtype.numpy)
        yield replace(tensor, variable=Variable(ConstantRef.of(start)))
    for shape in changed_shapes(type_.shape):
        yield replace(tensor, type=replace(type_, shape=shape))


def changed_operators(op: Op) -> Iterator[Op]:
    for field in fields(op):
        value = getattr(op, field.name)
        if isinstance(value, bool):
            yield replace(op, **{field.name: not value})
        elif isinstance(value, Activation):
            for other in Activation:
                yield replace(op, **{field.name: other})
        elif isinstance(value, int):
            for number in (-1, value + 1, 40, 100_000):
                yield replace(op, **{field.name: number})


def changed(graph: Graph, node: Node, draw: Drawing) -> Iterator[Changed]:
    """Other tensors, inputs and attributes."""
    for number in dict.fromkeys(t for t in (*node.inputs, *node.outputs) if t is not None):
        for tensor in changed_tensors(graph.tensors[number], draw):
            tensors = (*graph.tensors[:number], tensor, *graph.tensors[number + 1 :])
            yield Changed(replace(graph, tensors=tensors), node)
    for op in changed_operators(node.op):
        yield Changed(graph, replace(node, op=op))
    yield Changed(graph, replace(node, inputs=(*node.inputs, node.inputs[0])))
