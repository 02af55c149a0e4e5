"""Small graphs for tests: a builder that infers types, and a strategy for random networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    Add,
    AssignVariable,
    Concatenation,
    If,
    Logistic,
    MaxPool2D,
    Mul,
    Op,
    Pad,
    Quantize,
    Relu,
    Relu6,
    Reshape,
    Softmax,
    Sub,
    Tanh,
    While,
)
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.variables import lend
from crtexport.ir.verify import verify

Q = Quantization((0.05,), (3,))


class GraphBuilder:
    """Grows a graph; tensors are called by their number."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []

    def tensor(self, type_: TensorType, constant: ConstantRef | None = None, name: str = "") -> int:
        self.tensors.append(Tensor(name or f"t{len(self.tensors)}", type_, constant))
        return len(self.tensors) - 1

    def input(
        self, *shape: int, dtype: DType = DType.FLOAT32, quant: Quantization | None = None
    ) -> int:
        self.inputs.append(self.tensor(TensorType(dtype, shape, quant)))
        return self.inputs[-1]

    def constant(self, values: npt.ArrayLike, quant: Quantization | None = None) -> int:
        array = np.asarray(values)
        type_ = TensorType(DType(array.dtype.name), array.shape, quant)
        return self.tensor(type_, ConstantRef.of(array))

    def node(
        self, op: Op, *inputs: int | None, quant: Quantization | None = None,
        quantized: DType = DType.INT8,
    ) -> int:
        (output,) = self.node_of(op, *inputs, quant=quant, quantized=quantized)
        return output

    def node_of(
        self, op: Op, *inputs: int | None, quant: Quantization | None = None,
        quantized: DType = DType.INT8,
    ) -> list[int]:
        """A node of any number of outputs, all of the scale and zero point ``quant``."""
        types = tuple(None if t is None else self.tensors[t].type for t in inputs)
        outputs = [
            self.tensor(TensorType(type_.dtype, type_.shape, quant))
            for type_ in infer(op, types, declared=(quantized,))
        ]
        origin = f"operator {len(self.nodes)} ({type(op).__name__})"
        self.nodes.append(Node(op, inputs, tuple(outputs), origin=origin))
        return outputs

    def assign(self, variable: int, value: int) -> None:
        self.nodes.append(Node(AssignVariable(), (variable, value), ()))

    def control(
        self, op: If | While, *inputs: int | None, graphs: tuple[Graph, Graph],
    ) -> list[int]:
        """A node that runs ``graphs``, whose outputs have the scales of those of the second."""
        types = tuple(None if t is None else self.tensors[t].type for t in inputs)
        results = infer(op, types, graphs=graphs)
        outputs = [
            self.tensor(TensorType(r.dtype, r.shape, graphs[1].type(t).quant))
            for r, t in zip(results, graphs[1].outputs, strict=True)
        ]
        origin = f"operator {len(self.nodes)} ({type(op).__name__})"
        self.nodes.append(Node(op, inputs, tuple(outputs), origin=origin, graphs=graphs))
        return outputs

    def inner(self, *outputs: int) -> Graph:
        """The graph, for a node to run."""
        return Graph("inner", tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), outputs)

    def finish(self, *outputs: int) -> Graph:
        graph = lend(Graph(
            "test", tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), outputs
        ))
        verify(graph)
        return graph


ELEMENTWISE: tuple[Op, ...] = (Relu(), Relu6(), Logistic(), Tanh(), Softmax())
SHAPES = ((1, 4, 4, 2), (1, 2, 2, 2), (1, 8), (1, 1, 1, 3))


@st.composite
def networks(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Graph:
    """Random float networks in which tensors are read several times, viewed and broadcast.

    Outputs may be inputs, constants, twice the same tensor, or read by other nodes.
    """
    b = GraphBuilder()
    quantized: set[int] = set()
    for _ in range(draw(st.integers(1, 2))):
        b.input(*draw(st.sampled_from(SHAPES)))
    known = list(b.inputs)
    if draw(st.booleans()):
        known.append(b.constant(np.arange(8, dtype=np.float32).reshape(1, 8)))
    for _ in range(draw(st.integers(1, 9))):
        result = _random_node(draw, b, known, quantized)
        known.append(result)
    chosen = st.lists(st.sampled_from(known), min_size=1, max_size=3)
    return b.finish(*draw(chosen), known[-1])


def _random_node(
    draw: Callable[[st.SearchStrategy[Any]], Any], b: GraphBuilder, known: list[int],
    quantized: set[int],
) -> int:
    x = draw(st.sampled_from(known))
    type_ = b.tensors[x].type
    kind = draw(st.integers(0, 7))
    if x in quantized:
        quantized.add(len(b.tensors))
        if kind < 4:
            return b.node(Reshape((type_.elements,)), x, quant=type_.quant)
        other = DType.UINT8 if kind < 6 else DType.INT8
        return b.node(Quantize(), x, quant=Q, quantized=other)
    if kind == 0:
        return b.node(Reshape((type_.elements, 1)), x)
    if kind == 1:
        return b.node(Pad(((0, 1),) * len(type_.shape)), x)
    if kind == 2 and len(type_.shape) == 4:
        return b.node(MaxPool2D((1, 1), (2, 2)), x)
    if kind == 3:
        quantized.add(len(b.tensors))
        return b.node(Quantize(), x, quant=Q)
    if kind in (4, 5):
        others = [t for t in known if t not in quantized and _broadcasts(b, x, t)]
        y = draw(st.sampled_from(others))
        if kind == 5 and b.tensors[y].type.shape == type_.shape:
            return b.node(Concatenation(0), x, y)
        return b.node(draw(st.sampled_from((Add(), Sub(), Mul()))), x, y)
    return b.node(draw(st.sampled_from(ELEMENTWISE)), x)


def _broadcasts(b: GraphBuilder, x: int, y: int) -> bool:
    try:
        np.broadcast_shapes(b.tensors[x].type.shape, b.tensors[y].type.shape)
    except ValueError:
        return False
    return True
