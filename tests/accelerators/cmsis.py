"""Networks for CMSIS-NN, and where it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from crtexport.importers import load
from crtexport.ir.graph import Graph, Node, Tensor
from tests.differential.cases import CASES, Case, SeededDraw
from tests.helpers import unavailable

OPERATORS = (
    "conv_2d", "depthwise_conv_2d", "fully_connected", "average_pool_2d", "max_pool_2d", "softmax",
)


def library() -> Path:
    """CMSIS-NN's folder; skips where nobody says where it is."""
    folder = os.environ.get("CMSIS_NN_PATH")
    if not folder:
        unavailable("CMSIS_NN_PATH", "CMSIS_NN_PATH does not say where CMSIS-NN is")
    return Path(folder)


def drawn(operator: str, seeds: Sequence[int]) -> list[Case]:
    """Single-operator networks of int8."""
    return [CASES[operator](SeededDraw(seed), "int8") for seed in seeds]


def joined(cases: Sequence[Case], folder: Path) -> Graph:
    """One network of all of them, side by side; inputs are called x0, x1, ..."""
    tensors: list[Tensor] = []
    nodes: list[Node] = []
    inputs: list[int] = []
    outputs: list[int] = []
    for number, case in enumerate(cases):
        path = folder / f"{number}.tflite"
        path.write_bytes(case.content)
        graph = load(path)
        first = len(tensors)
        for tensor in graph.inputs:
            inputs.append(first + tensor)
        outputs += [first + tensor for tensor in graph.outputs]
        tensors += [replace(t, name=f"{t.name}{number}") for t in graph.tensors]
        nodes += [
            replace(
                node, outputs=tuple(first + t for t in node.outputs),
                inputs=tuple(None if t is None else first + t for t in node.inputs),
                origin=f"{node.origin} of {number}",
            )
            for node in graph.nodes
        ]
    return Graph("joined", tuple(tensors), tuple(nodes), tuple(inputs), tuple(outputs))
