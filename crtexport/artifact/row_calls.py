"""The calls of a cascade, row by row, in loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.model import (
    Arg,
    Feed,
    InputArg,
    Repeat,
    RowRepeat,
    StatementOf,
    WorkspaceArg,
    every_call,
)
from crtexport.artifact.repetition import Addressed, looped, row_repeats
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade
from crtexport.kir.language import Buffer
from crtexport.lowering.lowered_graph import LoweredNode, LoweredRows
from crtexport.lowering.registry import InputTensor, KernelArg, Lowered, OutputTensor
from crtexport.lowering.rows.schedule import Fetch, Ready, RowPlace, RowStep, fed_source
from crtexport.plan.model import RowPlan
from crtexport.plan.rows import row_bytes


class RowCall(Struct, frozen=True):
    """A call of the kernel of node ``band`` of a cascade's bands, which loops make ``runs`` times.
    """

    band: int
    lowered: Lowered
    args: tuple[Arg, ...]
    runs: int = 1


class Places(Struct, frozen=True):
    """The addresses that rows are computed from and to: ``whole`` returns that of a byte of a whole
    tensor, ``kept`` that of a byte of the cascade's scratch, ``bound`` what else a kernel of a node
    of the bands is given, at this byte of the scratch."""

    whole: Callable[[int, int], Arg]
    kept: Callable[[int], Arg]
    bound: Callable[[LoweredNode, Buffer, KernelArg, int], Arg]


_INPUT = 0
"""The input whose rows are given one after the other: there is no other."""


def row_statements(
    graph: Graph, node: Node, rows: LoweredRows, plan: RowPlan, places: Places,
    counter: WorkspaceArg, comment: str,
) -> StatementOf[RowCall]:
    """Returns what computes a cascade of ``graph``. ``counter``: where rows are counted that are
    given one after the other."""
    calls = list(_calls(graph, rows, plan, places))
    if isinstance(node.op, Cascade) and node.op.fed:
        return _feed(graph, node, rows, calls, counter, comment, node.op.hop)
    found = looped([_addressed(call) for call in calls], _with_args)
    return Repeat(1, found, comment)


def call_sites(graph: Graph, node: Node, rows: LoweredRows, plan: RowPlan) -> int:
    """Returns how many calls the statements have that compute a cascade, in loops or not; a few
    less where addresses of several tensors move alike."""
    places = Places(InputArg, WorkspaceArg, lambda *_: WorkspaceArg(0, pool=1))
    statement = row_statements(graph, node, rows, plan, places, WorkspaceArg(0, pool=1), "")
    return sum(1 for _ in every_call((statement,)))


def _addressed(call: RowCall) -> Addressed[RowCall]:
    return Addressed(call, call.band, call.args)


def _with_args(call: RowCall, args: tuple[Arg, ...], runs: int) -> RowCall:
    return replace(call, args=args, runs=runs)


def _feed(
    graph: Graph, node: Node, rows: LoweredRows, calls: Sequence[RowCall], counter: WorkspaceArg,
    comment: str, hop: int,
) -> Feed[RowCall]:
    """Each row is followed by what it makes possible, up to the next one that is missing. Of those
    for several results, the rows of the last but one come forever."""
    source, schedule = fed_source(graph, node), rows.bands.schedule
    count, size = graph.type(source).shape[1], row_bytes(graph, source)
    results = sum(isinstance(step.work, Ready) for step in schedule.steps)
    total = count + hop * results
    segments: list[list[Addressed[RowCall]]] = [[] for _ in range(total)]
    row, done, further = 0, count, iter(calls)
    for step in schedule.steps:
        if isinstance(step.work, Ready):
            # What follows waits until the result has been computed of these rows.
            row, done = done, done + hop
            continue
        if isinstance(step.work, Fetch):
            row = step.write.row
        call = next(further)
        args = tuple(
            replace(arg, offset=arg.offset - row * size) if isinstance(arg, InputArg) else arg
            for arg in call.args
        )
        segments[row].append(_addressed(replace(call, args=args)))
    repeats = row_repeats(segments[: total - 3 * hop], _with_args)
    if hop:
        again = segments[total - 3 * hop : total - 2 * hop]
        repeats = (*repeats, RowRepeat(tuple(looped(part, _with_args) for part in again), 0))
    return Feed(_INPUT, size, count, hop, repeats, counter, comment)


def _calls(
    graph: Graph, rows: LoweredRows, plan: RowPlan, places: Places
) -> Iterator[RowCall]:
    """Yields the calls that compute a cascade of ``graph``, in their order."""
    numbers = {work: number for number, work in enumerate(rows.bands.works)}
    running = [
        node.running(in_place=in_place)
        for node, in_place in zip(rows.lowered.nodes, plan.in_place, strict=True)
    ]
    others: dict[int, tuple[Arg | None, ...]] = {}

    def place(at: RowPlace) -> Arg:
        size = row_bytes(graph, at.tensor)
        if at.slot is None:
            return places.whole(at.tensor, at.row * size)
        return places.kept(plan.rings[at.tensor] + at.slot * size)

    for step in rows.bands.schedule.steps:
        if isinstance(step.work, Ready):
            continue
        band = numbers[step.work]
        lowered = running[band]
        if band not in others:
            node = rows.lowered.nodes[band]
            others[band] = tuple(
                None if _of_row(step, arg) else places.bound(node, buffer, arg, plan.scratch[band])
                for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
            )
        yield RowCall(band, lowered, tuple(
            place(_place_of(step, arg)) if known is None else known
            for known, arg in zip(others[band], lowered.args, strict=True)
        ))


def _of_row(step: RowStep, arg: KernelArg) -> bool:
    """Returns whether an argument is a row, not a constant or scratch."""
    match arg:
        case InputTensor(position):
            return position < len(step.reads) and step.reads[position] is not None
        case OutputTensor():
            return True
        case _:
            return False


def _place_of(step: RowStep, arg: KernelArg) -> RowPlace:
    read = step.reads[arg.position] if isinstance(arg, InputTensor) else None
    return step.write if read is None else read
