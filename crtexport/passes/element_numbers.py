"""Follows the elements of a tensor through operators that only move them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir.evaluate import move
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import TensorType

Array = npt.NDArray[Any]

LARGE = 1 << 20
"""The number of elements from which on tensors aren't followed."""


def element_numbers(type_: TensorType) -> Array:
    """Returns the indices of a tensor's elements, in its shape."""
    return np.arange(type_.elements).reshape(type_.shape)


def follow(graph: Graph, node: Node, tensor: int, elements: Array) -> list[Array] | None:
    """Returns the elements in each output of a node, if ``tensor`` holds ``elements``; None if the
    node computes anything or has other inputs that aren't constant."""
    numbers = []
    for source in node.inputs:
        constant = None if source is None else graph.constant(source)
        if source == tensor:
            numbers.append(elements)
        elif source is not None and constant is not None:
            numbers.append(constant.array(graph.type(source)))
        else:
            return None
    moved = move(node.op, numbers)
    return None if moved is None else [*moved]
