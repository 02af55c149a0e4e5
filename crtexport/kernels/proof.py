"""Proofs about the kernels that will run, for the checker of plans."""

from __future__ import annotations

from crtexport.ir.graph import Graph
from crtexport.kernels.ir import Body
from crtexport.kernels.registry import InputTensor, Lowered, OutputTensor
from crtexport.kernels.replay import Replay
from crtexport.kernels.step import LowerStep, lower_step
from crtexport.plan.model import Move, Step


class ReplayProof:
    """Replays the accesses of kernels; ``lower`` makes them as they will run."""

    def __init__(self, lower: LowerStep = lower_step) -> None:
        self._lower = lower
        self._last: tuple[Body, Replay] | None = None

    def _replay(self, lowered: Lowered) -> Replay:
        """The accesses of a kernel to tensors, for all that is asked of it one after the other."""
        kernel = lowered.kernel
        if self._last is None or self._last[0] is not kernel.body:
            tensors = [
                buffer.name for buffer, arg in zip(kernel.buffers, lowered.args, strict=True)
                if isinstance(arg, InputTensor | OutputTensor)
            ]
            self._last = kernel.body, Replay(kernel, tensors)
        return self._last[1]

    def harmless(
        self, graph: Graph, step: Step, output: int, position: int, distance: int
    ) -> bool:
        """Whether an output may begin ``distance`` bytes after an input that it overlaps."""
        lowered = self._lower(graph, step)
        written = _buffers(lowered, OutputTensor(output))
        given = _buffers(lowered, InputTensor(position))
        promised = not {*written, *given} <= {*lowered.kernel.overlapping}
        source = graph.required(graph.nodes[step.node], position)
        return not promised and self._replay(lowered).harmless(
            written, given, graph.type(source).nbytes, distance
        )

    def scratch(self, graph: Graph, step: Step) -> int:
        """Bytes that the kernel of a step needs besides its tensors."""
        return self._lower(graph, step).scratch

    def moves(self, graph: Graph, number: int) -> tuple[Move, ...] | None:
        """All that node ``number`` does, as copies; None if it does anything else."""
        node = graph.nodes[number]
        lowered = self._lower(graph, Step(number))
        owners = {
            buffer.name: arg.position
            for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
            if isinstance(arg, InputTensor)
        }
        moves = []
        for output, tensor in enumerate(node.outputs):
            copied = self._replay(lowered).copied(
                _buffers(lowered, OutputTensor(output)), graph.type(tensor).nbytes
            )
            if copied is None or any(name not in owners for name, *_ in copied):
                return None
            moves += [Move(output, owners[name], *stretch) for name, *stretch in copied]
        return tuple(moves)


def _buffers(lowered: Lowered, arg: InputTensor | OutputTensor) -> tuple[str, ...]:
    """The names of the buffers that are bound to a tensor."""
    return tuple(
        buffer.name for buffer, bound in zip(lowered.kernel.buffers, lowered.args, strict=True)
        if bound == arg
    )
