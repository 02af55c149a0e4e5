"""Lays a network out: decides which of its layers are fused, or computed row by row, and plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from crtexport import plan
from crtexport.firmware.board import Board
from crtexport.ir.graph import Graph
from crtexport.ir.ops import EthosU, Foreign
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.pipeline import fuse_policy
from crtexport.pipeline.cascades import choice
from crtexport.pipeline.cascades.search import CascadeSearch, Made
from crtexport.pipeline.cascades.streams import streamed
from crtexport.pipeline.options import ExportOptions
from crtexport.pipeline.scratch_policy import CHEAP, LITTLE, NO_LIMIT, MemoryWorth, leaner
from crtexport.plan.planner import RowPlans
from crtexport.schedules.common.target_features import has_mve
from crtexport.schedules.select.choose import WORTH
from crtexport.schedules.select.cost_model import machine_for
from crtexport.schedules.select.lower import Lowerer
from crtexport.support.errors import CrtExportError


class Surroundings(Struct, frozen=True):
    """The board and options that a network is laid out for. ``pools``: the bytes of the memories
    that its workspace may take, None for no limit; ``spare``: those of all together, None where
    that isn't known."""

    board: Board
    options: ExportOptions
    lower: Lowerer
    pools: Sequence[int | None]
    spare: int | None = None


class LaidOut(Struct, frozen=True):
    """A graph lowered, and its plan; ``whole``: the bytes of workspace with one whole tensor after
    another, where the plan isn't that."""

    lowered: LoweredGraph
    plan: plan.Plan
    whole: int | None = None


LayOut: TypeAlias = Callable[[Graph, Surroundings], LaidOut]


def laid_out(graph: Graph, around: Surroundings) -> LaidOut:
    """Returns a graph with layers fused, or computed row by row, where that makes the workspace
    smaller and is wanted; where the board's memory is too small otherwise; or where the input is
    given row by row. Raises CrtExportError where the options can't be met."""
    options = around.options
    if options.stream:
        return _streamed(graph, around)
    if options.feed:
        _check_feed(graph)
        search = _search(graph, around, fed=True)
        best = choice.smallest(search, None, bearable(around)) if options.ram is None else (
            choice.fitting(search, None, options.ram)
        )
        if best is None and not search.below():
            raise _refused(graph, "its first layers can't be computed row by row")
        return LaidOut(*(best or _too_small(graph, search, options.ram or 0)))
    whole = _whole(graph, around)
    if options.ram is not None and whole[1].total > options.ram:
        whole = _leaner(whole, around, NO_LIMIT)
    if options.ram is not None and whole[1].total <= options.ram:
        return LaidOut(*whole)
    if options.ram is None and options.optimize != "ram":
        return _within_spare(graph, around, whole)
    search = _search(graph, around, whole)
    best = choice.smallest(search, whole, bearable(around)) if options.ram is None else (
        choice.fitting(search, whole, options.ram)
    )
    return _laid(best or _too_small(graph, search, options.ram or 0, whole), whole)


def usual(graph: Graph, around: Surroundings) -> LaidOut:
    """Returns a graph as it is laid out without options where there is enough memory: with layers
    computed row by row where that costs little and code is weighed against time, else one whole
    tensor after another."""
    return _within_spare(graph, replace(around, spare=None), _whole(graph, around))


def _within_spare(graph: Graph, around: Surroundings, by_layer: Made) -> LaidOut:
    chosen, search = by_layer, None
    # On computers, whose time no machine of the cost model tells, memory hardly matters.
    known = machine_for(around.board.target) is not None
    if known and around.options.level(around.board.optimize) in WORTH:
        search = _search(graph, around, by_layer)
        chosen = choice.cheap(search, by_layer)
    if around.spare is not None and chosen[1].total > around.spare:
        chosen = by_layer = _leaner(by_layer, around, NO_LIMIT)
    if around.spare is not None and chosen[1].total > around.spare:
        search = search or _search(graph, around, by_layer)
        chosen = choice.fitting(search, by_layer, around.spare) or choice.least(search, by_layer)
    return _laid(chosen, by_layer)


def _laid(chosen: Made, by_layer: Made) -> LaidOut:
    return LaidOut(*chosen, None if chosen is by_layer else by_layer[1].total)


def _streamed(graph: Graph, around: Surroundings) -> LaidOut:
    """Returns a graph whose first layers go on from one result to the next."""
    if any(isinstance(node.op, EthosU | Foreign) for node in graph.nodes):
        raise _refused(graph, "an accelerator or another module computes layers of it")
    lowered = around.lower(streamed(graph))
    planned, wanted = _planned(around, lowered), around.options.ram
    if wanted is not None and planned.total > wanted:
        raise CrtExportError(
            f"the workspace takes {planned.total} bytes, but {wanted} were asked for",
            location=graph.source, hint="allow more with --ram",
        )
    return LaidOut(lowered, planned)


def searched(graph: Graph, around: Surroundings) -> tuple[Made, CascadeSearch]:
    """Returns a graph with one whole tensor after another, and the search for its cascades."""
    whole = _whole(graph, around)
    return whole, _search(graph, around, whole)


def bearable(around: Surroundings) -> float:
    """Returns the part of a network's instructions that rows may take more for their memory."""
    return choice.BEARABLE_VECTORS if has_mve(around.board.target) else choice.BEARABLE


def _planned(
    around: Surroundings, lowered: LoweredGraph, rows: RowPlans | None = None
) -> plan.Plan:
    inside = around.options.io == "workspace"
    return plan.plan(lowered, io_in_workspace=inside, pools=around.pools, row_plans=rows)


def _whole(graph: Graph, around: Surroundings) -> Made:
    """Returns a graph with one whole tensor after another. Where code is weighed against time,
    kernels with less memory are taken where that costs little."""
    level = around.options.level(around.board.optimize)
    whole = fuse_policy.smallest(
        graph, around.board.target, level, around.lower, lambda low: _planned(around, low)
    )
    if level not in WORTH or machine_for(around.board.target) is None:
        return whole
    return _leaner(whole, around, LITTLE if around.options.optimize == "ram" else CHEAP)


def _leaner(made: Made, around: Surroundings, worth: MemoryWorth) -> Made:
    return leaner(made, around.lower, lambda low: _planned(around, low), worth)


def _search(
    graph: Graph, around: Surroundings, by_layer: Made | None = None, *, fed: bool = False
) -> CascadeSearch:
    return CascadeSearch(
        graph, around.lower, lambda low, rows: _planned(around, low, rows),
        outside=around.options.io != "workspace", fed=fed,
        lowered={} if by_layer is None else {node.node: node for node in by_layer[0].nodes},
    )


def _too_small(
    graph: Graph, search: CascadeSearch, limit: int, by_layer: Made | None = None
) -> Made:
    least = choice.least(search, by_layer)[1].total
    otherwise = ""
    if by_layer is not None:
        otherwise = f", {by_layer[1].total} with one whole tensor after another"
    raise CrtExportError(
        f"the workspace takes {least} bytes at least{otherwise}, but {limit} were asked for",
        location=graph.source, hint="allow more with --ram, or make the network smaller",
    )


def _check_feed(graph: Graph) -> None:
    """Refuses networks whose input can't be given row by row."""
    if any(isinstance(node.op, EthosU | Foreign) for node in graph.nodes):
        raise _refused(graph, "an accelerator or another module computes layers of it")
    if len(graph.inputs) != 1:
        raise _refused(graph, f"it has {len(graph.inputs)} inputs")


def _refused(graph: Graph, problem: str) -> CrtExportError:
    return CrtExportError(
        f"the network can't be given its input row by row: {problem}", location=graph.source,
        hint="leave --feed out: --optimize ram computes rows of an input that is there as a whole",
    )
