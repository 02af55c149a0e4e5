"""The exported network as data: its nodes in the order of execution, and its tensors over time."""

from __future__ import annotations

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Cascade
from crtexport.ir.types import DType, TensorType
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.pipeline.summary.records import (
    Quantized,
    ReportedScratch,
    ReportedStep,
    ReportedTensor,
)
from crtexport.plan.liveness import lifetimes
from crtexport.plan.model import Placement, Plan, Space, Step
from crtexport.plan.order import whole_order


def steps_of(lowered: LoweredGraph, plan: Plan) -> tuple[ReportedStep, ...]:
    """Returns all nodes in the order of execution; views follow the node that computes their
    input."""
    graph = lowered.graph
    planned = {step.node: step for step in plan.steps}
    return tuple(
        _step(graph, number, planned.get(number)) for number in whole_order(graph, planned)
    )


def _step(graph: Graph, number: int, planned: Step | None) -> ReportedStep:
    node = graph.nodes[number]
    read = [t for t in node.inputs if t is not None and graph.constant(t) is None]
    scratch = None if planned is None else planned.scratch
    return ReportedStep(
        name=str(node), operator=node.operator, inputs=tuple(read), outputs=node.outputs,
        view=planned is None,
        scratch=None if scratch is None
        else ReportedScratch(scratch.pool, scratch.offset, scratch.nbytes),
        in_place=() if planned is None else tuple(
            (node.outputs[output], graph.required(node, given))
            for output, given in planned.in_place
        ),
        row_by_row=isinstance(node.op, Cascade),
    )


def tensors_of(graph: Graph, plan: Plan) -> tuple[ReportedTensor, ...]:
    """Returns the tensors that a step reads or writes, without constants."""
    order = whole_order(graph, (step.node for step in plan.steps))
    return tuple(
        _tensor(graph, tensor, plan.placements[tensor], life.first, life.last)
        for tensor, life in lifetimes(graph, order).items() if graph.constant(tensor) is None
    )


def _tensor(
    graph: Graph, tensor: int, home: Placement | None, first: int, last: int
) -> ReportedTensor:
    type_ = graph.type(tensor)
    in_workspace = home is not None and home.space is Space.WORKSPACE
    return ReportedTensor(
        id=tensor, name=graph.tensors[tensor].name, dtype=type_.dtype.value, shape=type_.shape,
        bytes=type_.nbytes, space="none" if home is None else home.space.value,
        pool=home.index if home is not None and in_workspace else 0,
        offset=0 if home is None else home.offset, first=first, last=last,
        quantization=quantized(type_),
    )


def quantized(type_: TensorType) -> Quantized | None:
    """Returns the quantization of a type and the range of its real values; None for types that
    aren't quantized."""
    quant = type_.quant
    if quant is None:
        return None
    return quantized_range(type_.dtype.value, quant.scale, quant.zero_point)


def quantized_range(
    dtype: str, scales: tuple[float, ...], zero_points: tuple[int, ...]
) -> Quantized | None:
    """Returns the quantization of integers of type ``dtype`` and the range of their real values;
    None if ``dtype`` isn't an integer type."""
    if not DType(dtype).is_integer or not scales:
        return None
    smallest, largest = DType(dtype).limits
    pairs = list(zip(scales, zero_points, strict=True))
    return Quantized(
        scale=scales, zero_point=zero_points,
        low=min(scale * (smallest - zero) for scale, zero in pairs),
        high=max(scale * (largest - zero) for scale, zero in pairs), channels=len(pairs),
    )
