"""Runs a Graph node by node through the Kernel IR interpreter: what backends must meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph
from crtexport.kernels import interp
from crtexport.kernels.families import lower
from crtexport.kernels.registry import Context, Derived, InputTensor, OutputTensor
from crtexport.kernels.verify import verify

Array = npt.NDArray[np.generic]


def interpret(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The graph's outputs for ``inputs``, in graph order."""
    values: dict[int, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for tensor, info in enumerate(graph.tensors):
        if info.constant is not None:
            values[tensor] = info.constant.array(info.type)
    for node in graph.nodes:
        lowered = lower(Context(graph, node))
        verify(lowered.kernel)
        for output in node.outputs:
            type_ = graph.type(output)
            values[output] = np.zeros(type_.shape, type_.dtype.numpy)
        buffers = []
        for arg in lowered.args:
            match arg:
                case InputTensor(position):
                    buffers.append(values[graph.required(node, position)])
                case OutputTensor(position):
                    buffers.append(values[node.outputs[position]])
                case Derived():
                    buffers.append(arg.values)
        interp.run(lowered.kernel, [b.reshape(-1) for b in buffers])
    return [values[t] for t in graph.outputs]
