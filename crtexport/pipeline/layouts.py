"""Lays a network out: decides which of its layers are fused, or computed row by row, and plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from crtexport import plan
from crtexport.firmware.board import Board
from crtexport.ir.graph import Graph
from crtexport.ir.ops import EthosU, Foreign
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.pipeline import fuse_policy
from crtexport.pipeline.cascades import choice
from crtexport.pipeline.cascades.ways import Ways
from crtexport.pipeline.options import ExportOptions
from crtexport.schedules.select.lower import Lowerer
from crtexport.support.errors import CrtExportError


def laid_out(
    graph: Graph, board: Board, options: ExportOptions, lower: Lowerer, pools: Sequence[int | None],
) -> tuple[LoweredGraph, plan.Plan]:
    """Returns a graph lowered, with its plan: with layers fused, or computed row by row, where that
    makes the workspace smaller, or where the input is given row by row. ``pools``: the bytes of the
    memories that it may take. Raises CrtExportError where the options can't be met."""
    planner = partial(plan.plan, io_in_workspace=options.io == "workspace", pools=pools)
    outside = () if options.io == "workspace" else (*graph.inputs, *graph.outputs)
    by_rows = partial(
        Ways, graph, lower, lambda lowered, rows: planner(lowered, row_plans=rows), outside
    )
    if options.feed:
        ways = by_rows(_fed(graph))
        found = choice.smallest(ways) if options.ram is None else (
            choice.fitting(ways, None, options.ram)
        )
        if found is None and not ways.below():
            raise _refused(graph, "its first layers can't be computed row by row")
        return found or _too_small(graph, ways, options.ram or 0)
    level = options.level(board.optimize)
    whole = fuse_policy.smallest(graph, board.target, level, lower, planner)
    if options.optimize != "ram" and (options.ram is None or whole[1].total <= options.ram):
        return whole
    ways = by_rows(known={node.node: node for node in whole[0].nodes})
    if options.ram is None:
        return choice.smallest(ways, whole) or whole
    return choice.fitting(ways, whole, options.ram) or (
        _too_small(graph, ways, options.ram, whole)
    )


def _too_small(
    graph: Graph, ways: Ways, wanted: int, whole: tuple[LoweredGraph, plan.Plan] | None = None
) -> tuple[LoweredGraph, plan.Plan]:
    least = choice.least(ways, whole)
    otherwise = "" if whole is None else f", {whole[1].total} with one whole tensor after another"
    raise CrtExportError(
        f"the workspace takes {least} bytes at least{otherwise}, but {wanted} were asked for",
        location=graph.source, hint="allow more with --ram, or make the network smaller",
    )


def _fed(graph: Graph) -> int:
    """The input whose rows are given one after the other."""
    if any(isinstance(node.op, EthosU | Foreign) for node in graph.nodes):
        raise _refused(graph, "an accelerator or another module computes layers of it")
    if len(graph.inputs) != 1:
        raise _refused(graph, f"it has {len(graph.inputs)} inputs")
    return graph.inputs[0]


def _refused(graph: Graph, problem: str) -> CrtExportError:
    return CrtExportError(
        f"the network can't be given its input row by row: {problem}", location=graph.source,
        hint="leave --feed out: --optimize ram computes rows of an input that is there as a whole",
    )
