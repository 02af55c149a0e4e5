"""The ways of a tensor's elements, followed through operators that only move them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir.evaluate import move
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import TensorType

Array = npt.NDArray[Any]

LARGE = 1 << 20
"""Elements from which on nobody looks at what becomes of each."""


def places(type_: TensorType) -> Array:
    """Returns a tensor's elements as their numbers, in its shape."""
    return np.arange(type_.elements).reshape(type_.shape)


def followed(graph: Graph, node: Node, tensor: int, elements: Array) -> list[Array] | None:
    """Returns which elements each output of a node has, where ``tensor`` has ``elements``; None for
    a node that computes, or that reads something else but constants."""
    given = []
    for source in node.inputs:
        constant = None if source is None else graph.constant(source)
        if source == tensor:
            given.append(elements)
        elif source is not None and constant is not None:
            given.append(constant.array(graph.type(source)))
        else:
            return None
    moved = move(node.op, given)
    return None if moved is None else [*moved]
