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


def reversed_kernel(lowered: Lowered) -> Kernel | None:
    """The kernel with its outer loops from their ends to their beginnings, if that can be."""
    scratch = [
        buffer.name for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
        if isinstance(arg, Scratch)
    ]
    return backwards(lowered.kernel, scratch)


class RememberedSteps:
    """A LowerStep that makes each kernel, and the one that runs backwards, once; ``lower_node``
    makes those of nodes."""

    def __init__(self, lower_node: LowerNode) -> None:
        self._lower = lower_node
        self._made: dict[tuple[int, int, bool], tuple[Graph, Lowered]] = {}

    def __call__(self, graph: Graph, step: Step) -> Lowered:
        alone = self._alone(graph, step.node, step.backward)
        return _in_place(alone, step) if step.in_place else alone

    def _alone(self, graph: Graph, number: int, backward: bool) -> Lowered:
        """The kernel of a node with memory of its own for all tensors."""
        key = id(graph), number, backward
        if key not in self._made:
            context = Context(graph, graph.nodes[number])
            lowered = (
                _backward(context, self._alone(graph, number, False)) if backward
                else self._lower(context)
            )
            # Kept with its graph, so that nothing else gets the same id.
            self._made[key] = graph, lowered
        return self._made[key][1]


def lower_step(graph: Graph, step: Step, lower_node: LowerNode = lower) -> Lowered:
    """What runs for ``step``. Raises CrtExportError naming the node when no kernel takes it."""
    return RememberedSteps(lower_node)(graph, step)


def _backward(context: Context, lowered: Lowered) -> Lowered:
    reverse = reversed_kernel(lowered)
    if reverse is None:
        raise context.refuse("its kernel can't run backwards, as the plan wants")
    return replace(lowered, kernel=reverse)


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
