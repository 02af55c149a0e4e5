"""How tests run a kernel that was made for a node: an array for each of its buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph
from crtexport.kernels import interp
from crtexport.kernels.intrinsics import find_intrinsic
from crtexport.kernels.registry import (
    Context,
    Derived,
    InputTensor,
    Lowered,
    OutputTensor,
    Scratch,
)
from crtexport.kernels.verify import verify
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.choice import Kernels
from crtexport.target import Target

Array = npt.NDArray[Any]
Forms = Callable[[Context], list[Candidate]]
"""The forms that a schedule has of a node's kernel."""
_RUBBISH = 0x5A


def lower(context: Context, target: Target, optimize: str) -> Lowered:
    """The kernel that an export makes of a node."""
    return Kernels(target, optimize)(context)


def meaning(name: str) -> Callable[..., Any]:
    """What the intrinsic of that name computes."""
    found = find_intrinsic(name)
    assert found is not None
    return found.evaluate


def usual(forms: list[Candidate]) -> Lowered | None:
    """A node's kernel in the form that it usually has; None if there is no form."""
    return forms[0].make() if forms else None


def values_of(arg: Derived) -> Array:
    """The elements of an array that a lowering made."""
    kind = "f" if arg.dtype.is_float else "i" if arg.dtype.is_signed else "u"
    return np.frombuffer(arg.data.read(), f"<{kind}{arg.dtype.itemsize}")


def bound(
    lowered: Lowered, tensor: Callable[[InputTensor | OutputTensor], Array]
) -> list[Array]:
    """What ``lowered``'s buffers are bound to, in order: ``tensor`` has the node's own arrays;
    scratch is full of rubbish."""
    arrays: list[Array] = []
    for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True):
        match arg:
            case InputTensor() | OutputTensor():
                arrays.append(tensor(arg))
            case Derived():
                arrays.append(values_of(arg))
            case Scratch():
                rubbish = np.full(buffer.size * buffer.dtype.itemsize, _RUBBISH, np.uint8)
                kind = "f" if buffer.dtype.is_float else "i"
                arrays.append(rubbish.view(f"{kind}{buffer.dtype.itemsize}"))
    return arrays


def run(graph: Graph, lowered: Lowered, *values: Array) -> Array:
    """The output of ``graph``'s only node, interpreted; ``values`` for its inputs by position,
    the last one for all others that aren't constant."""
    (node,) = graph.nodes
    verify(lowered.kernel)
    output = graph.type(node.outputs[0])
    result = np.zeros(output.shape, output.dtype.numpy)

    def tensor(arg: InputTensor | OutputTensor) -> Array:
        if isinstance(arg, OutputTensor):
            return result
        number = graph.required(node, arg.position)
        constant = graph.constant(number)
        if constant is not None:
            return constant.array(graph.type(number))
        return values[min(arg.position, len(values) - 1)]

    interp.run(lowered.kernel, [b.reshape(-1) for b in bound(lowered, tensor)])
    return result
