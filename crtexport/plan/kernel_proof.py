"""Proofs about the kernels that will run, for the checker of plans."""

from __future__ import annotations

from crtexport.kir.analysis.access_trace import Replay
from crtexport.kir.language import Body
from crtexport.lowering.facts import ByteMove
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredRows
from crtexport.lowering.registry import InputTensor, Lowered, OutputTensor
from crtexport.lowering.rows.bands import Bands
from crtexport.plan.check_rows import RowProof
from crtexport.plan.model import Step


class ReplayProof:
    """Replays the accesses of the kernels of a lowered graph."""

    def __init__(self, lowered: LoweredGraph) -> None:
        self._graph, self._nodes = lowered.graph, lowered.nodes
        self._last: tuple[Body, Replay] | None = None

    def inner(self, node: int, graph: int) -> ReplayProof:
        """Returns the proof for one of the inner graphs of a node."""
        return ReplayProof(self._nodes[node].graphs[graph])

    def rows(self, node: int) -> tuple[Bands, RowProof] | None:
        """Returns the bands of a cascade with the proof about their kernels; None if the node isn't
        a cascade."""
        rows = self._nodes[node].rows
        return None if rows is None else (rows.bands, RowReplayProof(rows))

    def _replay(self, lowered: Lowered) -> Replay:
        """Returns the cached replay of a kernel's accesses to tensors."""
        kernel = lowered.kernel
        if self._last is None or self._last[0] is not kernel.body:
            tensors = [
                buffer.name for buffer, arg in zip(kernel.buffers, lowered.args, strict=True)
                if isinstance(arg, InputTensor | OutputTensor)
            ]
            self._last = kernel.body, Replay(kernel, tensors)
        return self._last[1]

    def harmless(self, step: Step, output: int, position: int, distance: int) -> bool:
        """Returns whether an output may begin ``distance`` bytes after an input that it overlaps.
        """
        node = self._nodes[step.node]
        lowered = node.running(backward=step.backward, in_place=step.in_place)
        written = _buffers(lowered, OutputTensor(output))
        given = _buffers(lowered, InputTensor(position))
        promised = not {*written, *given} <= {*lowered.kernel.overlapping}
        source = self._graph.required(node.node, position)
        return not promised and self._replay(lowered).harmless(
            written, given, self._graph.type(source).nbytes, distance
        )

    def scratch(self, step: Step) -> int:
        """Returns the bytes of scratch that the kernel of a step needs."""
        return self._nodes[step.node].running(backward=step.backward).scratch

    def moves(self, number: int) -> tuple[ByteMove, ...] | None:
        """Returns what node ``number`` does as copies; None if it does anything else."""
        node, lowered = self._graph.nodes[number], self._nodes[number].lowered
        owners = {
            buffer.name: arg.position
            for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
            if isinstance(arg, InputTensor)
        }
        moves = []
        for output, tensor in enumerate(node.outputs):
            copied = self._replay(lowered).copied(
                _buffers(lowered, OutputTensor(output)), self._graph.type(tensor).nbytes
            )
            if copied is None or any(name not in owners for name, *_ in copied):
                return None
            moves += [ByteMove(output, owners[name], *stretch) for name, *stretch in copied]
        return tuple(moves)


class RowReplayProof:
    """Replays the accesses of the kernels of a cascade's rows."""

    def __init__(self, rows: LoweredRows) -> None:
        self._nodes, self._inner = rows.lowered.nodes, ReplayProof(rows.lowered)
        self._known: dict[tuple[int, int, int], bool] = {}

    def scratch_of(self, band: int) -> int:
        """Returns the bytes of scratch that the kernel of a band needs."""
        return self._nodes[band].lowered.scratch

    def harmless(self, band: int, position: int, distance: int) -> bool:
        """Returns whether the output of a band may begin ``distance`` bytes after its input
        ``position``, though they overlap."""
        key = band, position, distance
        if key not in self._known:
            step = Step(band, in_place=((0, position),))
            self._known[key] = self._inner.harmless(step, 0, position, distance)
        return self._known[key]


def _buffers(lowered: Lowered, arg: InputTensor | OutputTensor) -> tuple[str, ...]:
    """Returns the names of the buffers that are bound to a tensor."""
    return tuple(
        buffer.name for buffer, bound in zip(lowered.kernel.buffers, lowered.args, strict=True)
        if bound == arg
    )
