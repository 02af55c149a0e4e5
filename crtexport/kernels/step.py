"""The kernel of one step of a plan: in its direction, with what it shares."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from crtexport.ir.graph import Graph
from crtexport.kernels.families import lower
from crtexport.kernels.ir import Kernel
from crtexport.kernels.registry import (
    Context,
    InputTensor,
    KernelArg,
    Lowered,
    OutputTensor,
    Scratch,
)
from crtexport.kernels.reverse import backwards
from crtexport.plan.model import Step

LowerNode = Callable[[Context], Lowered]
"""Makes the kernel of a node, as it should run on a target."""
LowerStep = Callable[[Graph, Step], Lowered]
"""Makes the kernel of a step of a plan, as it will run."""

_Key = tuple[int, int, tuple[tuple[int, int], ...], bool]


def reversed_kernel(lowered: Lowered) -> Kernel | None:
    """The kernel with its outer loops from their ends to their beginnings, if that can be."""
    scratch = [
        buffer.name for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
        if isinstance(arg, Scratch)
    ]
    return backwards(lowered.kernel, scratch)


class Remembered:
    """A LowerNode that makes the kernel of each node once."""

    def __init__(self, lower_node: LowerNode) -> None:
        self._lower = lower_node
        self._made: dict[tuple[int, int], tuple[Context, Lowered]] = {}

    def __call__(self, context: Context) -> Lowered:
        key = id(context.graph), id(context.node)
        if key not in self._made:
            # Kept with its context, so that nothing else gets the same id.
            self._made[key] = context, self._lower(context)
        return self._made[key][1]


def lower_step(graph: Graph, step: Step, lower_node: LowerNode = lower) -> Lowered:
    """What runs for ``step``. Raises CrtExportError naming the node when no kernel takes it."""
    context = Context(graph, graph.nodes[step.node])
    lowered = lower_node(context)
    if step.backward:
        reverse = reversed_kernel(lowered)
        if reverse is None:
            raise context.refuse("its kernel can't run backwards, as the plan wants")
        lowered = replace(lowered, kernel=reverse)
    return _in_place(lowered, step) if step.in_place else lowered


class RememberedSteps:
    """A LowerStep that makes the kernel of each step once; ``lower_node`` makes those of nodes."""

    def __init__(self, lower_node: LowerNode) -> None:
        self._lower = lower_node
        self._made: dict[_Key, tuple[Graph, Lowered]] = {}

    def __call__(self, graph: Graph, step: Step) -> Lowered:
        key = id(graph), step.node, step.in_place, step.backward
        if key not in self._made:
            # Kept with its graph, so that nothing else gets the same id.
            self._made[key] = graph, lower_step(graph, step, self._lower)
        return self._made[key][1]


def _in_place(lowered: Lowered, step: Step) -> Lowered:
    """The kernel without promises about tensors that share bytes."""
    shared: set[KernelArg] = {OutputTensor(output) for output, _ in step.in_place}
    shared |= {InputTensor(position) for _, position in step.in_place}
    kernel = lowered.kernel
    overlapping = tuple(
        buffer.name for buffer, arg in zip(kernel.buffers, lowered.args, strict=True)
        if buffer.name in kernel.overlapping or arg in shared
    )
    return replace(lowered, kernel=replace(kernel, overlapping=overlapping))
