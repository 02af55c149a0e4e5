"""Runs whole graphs through the interpreter, with and without a memory plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph
from crtexport.kir.interpreter import run
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.lowering.registry import InputTensor, OutputTensor
from crtexport.plan import Placement, Plan, Space, Step
from tests.lowered import bound, plain, unwritten

Array = npt.NDArray[Any]


def execute(graph: Graph, inputs: list[Array]) -> list[Array]:
    """The graph's outputs; each tensor has memory of its own."""
    values: dict[int, Array] = {}
    for number, tensor in enumerate(graph.tensors):
        if tensor.constant is not None:
            values[number] = tensor.constant.array(tensor.type)
    for number, array in zip(graph.inputs, inputs, strict=True):
        values[number] = np.ascontiguousarray(array, graph.type(number).dtype.numpy)
    lowered = plain(graph)
    for number, node in enumerate(graph.nodes):
        for tensor in node.outputs:
            values[tensor] = unwritten(graph.type(tensor))
        run_step(lowered, Step(number), values)
    return [values[t].copy() for t in graph.outputs]


def execute_planned(graph: Graph, plan: Plan, inputs: list[Array]) -> list[Array]:
    """The graph's outputs, computed step by step in the memory that the plan gives."""
    memory: dict[tuple[Space, int], Array] = {
        (Space.WORKSPACE, 0): np.full(plan.workspace_size, 0xA5, np.uint8)
    }
    for index, (number, array) in enumerate(zip(graph.inputs, inputs, strict=True)):
        given = np.ascontiguousarray(array, graph.type(number).dtype.numpy)
        memory[Space.INPUT, index] = np.frombuffer(given.tobytes(), np.uint8)
    for index, number in enumerate(graph.outputs):
        memory[Space.OUTPUT, index] = np.full(graph.type(number).nbytes, 0xA5, np.uint8)
    for number, tensor in enumerate(graph.tensors):
        if tensor.constant is not None:
            memory[Space.CONSTANT, number] = np.frombuffer(tensor.constant.read(), np.uint8)

    def array_of(tensor: int) -> Array:
        home, type_ = plan.placements[tensor], graph.type(tensor)
        assert home is not None
        index = 0 if home.space is Space.WORKSPACE else home.index
        cells = memory[home.space, index][home.offset : home.offset + type_.nbytes]
        return cells.view(type_.dtype.numpy).reshape(type_.shape)

    placed = {t: array_of(t) for t, home in enumerate(plan.placements) if home is not None}
    for number, array in zip(graph.inputs, inputs, strict=True):
        if plan.placements[number] != Placement(Space.INPUT, graph.inputs.index(number)):
            placed[number][...] = array
    lowered = plain(graph)
    for step in plan.steps:
        run_step(lowered, step, placed)
    return [placed[t].copy() for t in graph.outputs]


def run_step(network: LoweredGraph, step: Step, values: dict[int, Array]) -> None:
    """Computes the outputs of a step's node, which are in ``values`` already, in place."""
    graph, node = network.graph, network.graph.nodes[step.node]
    lowered = network.nodes[step.node].running(backward=step.backward, in_place=step.in_place)

    def tensor(arg: InputTensor | OutputTensor) -> Array:
        output = isinstance(arg, OutputTensor)
        return values[
            node.outputs[arg.position] if output else graph.required(node, arg.position)
        ]

    run(lowered.kernel, bound(lowered, tensor))
