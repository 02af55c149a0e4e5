"""The layers of an export: calls of kernels, with the costs of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from crtexport.artifact.model import Constant, ConstantArg, FunctionCall, ScalarArg
from crtexport.firmware.board import Board
from crtexport.ir.macs import macs
from crtexport.ir.ops import Foreign
from crtexport.kir.language import Kernel
from crtexport.pipeline.result import Exported, Prepared
from crtexport.plan.order import whole_order
from crtexport.reports.figures import Layer
from crtexport.reports.trace import (
    CallSite,
    Executed,
    call_sites,
    executed,
    merged_rows,
    static_runs,
)
from crtexport.schedules.common.target_features import computes_floats, is_x86_64
from crtexport.schedules.select.choose import Costs
from crtexport.support.target import Target

if TYPE_CHECKING:
    from crtexport.firmware.run import RunResult


def holds_weights(constant: Constant) -> bool:
    """Returns whether a constant holds numbers of the network (weights, biases), packed or not. All
    others are tables that kernels need, whose notes describe them."""
    return not constant.note or constant.note.startswith("packed")


def layers_of(
    exported: Exported | Prepared, board: Board, code: Mapping[str, int] | None,
    result: RunResult | None = None,
) -> tuple[Layer, ...]:
    """Returns the layers of an export, in the order of execution.

    Instructions are those counted in ``result``, or estimates without it. They are None for layers
    with floats on processors without instructions for floats, whose library functions have no
    estimates. ``code`` has the bytes of functions by symbol, None if they aren't compiled.
    """
    artifact = exported.artifact
    sites = call_sites(exported.lowered, exported.plan, artifact.calls)
    counts = executed(artifact.calls, None if result is None else result.calls)
    at = _steps_by_node(exported)
    kernels = {function.symbol: function.kernel for function in artifact.functions}
    constants = {constant.symbol: constant for constant in artifact.constants}
    imported = _imported_macs(exported)
    costs, soft = Costs(board.target), not _has_float_instructions(board.target)
    runs = list(static_runs(artifact.calls))
    decided = None in runs
    takers = {decision.function: decision.accelerator for decision in exported.decisions}
    seen: set[str] = set()
    made = []
    for site, count, times in merged_rows(sites, counts, runs):
        symbol, read = site.call.symbol, _read(site.call)
        fresh = [constants[name] for name in read if name in constants and name not in seen]
        weights = sum(one.data.nbytes for one in fresh if holds_weights(one))
        kernel = kernels.get(symbol)
        made.append(Layer(
            step=at[id(site.lowered)], name=site.name, operator=site.node.operator,
            dtype=_dtype(site), shape=_shape(site), macs=_macs(site, count, times, imported),
            instructions=None if result is None and soft and _has_floats(site)
            else _instructions(result, count, kernel, site.call, costs, times or 1),
            runs=(None if decided else times) if result is None
            else None if count is None else count.runs,
            code=_code(code, symbol, seen), weights=weights,
            tables=sum(one.data.nbytes for one in fresh) - weights, kernel=symbol,
            variant=site.lowered.chosen, candidates=len(site.lowered.candidates),
            by=takers.get(symbol, "crtexport" if kernel is not None else "external function"),
            fused=tuple(str(part) for part in site.node.parts),
            cycles=None if count is None else count.spent.cycles,
        ))
        seen |= {symbol, *read}
    return tuple(made)


def _instructions(
    result: RunResult | None, count: Executed | None, kernel: Kernel | None, call: FunctionCall,
    costs: Costs, times: int,
) -> int | None:
    if result is not None:
        return None if count is None else count.instructions
    if kernel is None:
        return None
    given = [arg.value for arg in call.args if isinstance(arg, ScalarArg)]
    values = {
        param.name: int(value) for param, value in zip(kernel.params, given, strict=True)
    }
    return costs.of(kernel, values).instructions * times


def total_macs(layers: Iterable[Layer]) -> int | None:
    """Returns the sum of the layers' multiply-accumulates; None if one of them is unknown."""
    counts = [layer.macs for layer in layers]
    return None if None in counts else sum(count or 0 for count in counts)


def total_instructions(layers: Iterable[Layer]) -> int | None:
    """Returns the sum of the layers' instructions; None if those of one are unknown, or how often
    it runs."""
    counts = [None if layer.runs is None else layer.instructions for layer in layers]
    return None if None in counts else sum(count or 0 for count in counts)


def _has_floats(site: CallSite) -> bool:
    tensors = (*site.node.inputs, *site.node.outputs)
    return any(site.graph.type(t).dtype.is_float for t in tensors if t is not None)


def _has_float_instructions(target: Target) -> bool:
    if target.triple.startswith(("thumb", "riscv")):
        return computes_floats(target)
    return is_x86_64(target)


def _read(call: FunctionCall) -> dict[str, None]:
    """Returns the symbols of the constants that a call reads, each once, in the order of its
    arguments (an ordered set)."""
    return {arg.symbol: None for arg in call.args if isinstance(arg, ConstantArg)}


def _code(code: Mapping[str, int] | None, symbol: str, seen: set[str]) -> int | None:
    if code is None:
        return None
    return 0 if symbol in seen else code.get(symbol, 0)


def _imported_macs(exported: Exported | Prepared) -> dict[str, int]:
    """Returns the multiply-accumulates of the model file's operators by name, without removed
    channels. Layers that an accelerator computes need them: the exported graph only has a call of
    its function."""
    if not isinstance(exported, Exported):
        return {}
    known = {str(node): macs(graph, node) for graph in exported.read for node in graph.nodes}
    return known | {layer.layer: layer.macs[1] for layer in exported.channels}


def _macs(
    site: CallSite, count: Executed | None, times: int | None, imported: Mapping[str, int]
) -> int | None:
    if site.copies:
        return 0
    if isinstance(site.node.op, Foreign):
        return imported.get(str(site.node))
    runs = (times or 1) if count is None else count.runs
    return macs(site.graph, site.node) * runs


def _shape(site: CallSite) -> tuple[int, ...]:
    outputs = () if site.copies else site.node.outputs[:1]
    return tuple(size for tensor in outputs for size in site.graph.type(tensor).shape)


def _dtype(site: CallSite) -> str:
    outputs = () if site.copies else site.node.outputs[:1]
    return "".join(site.graph.type(tensor).dtype.value for tensor in outputs)


def _steps_by_node(exported: Exported | Prepared) -> dict[int, int]:
    """Returns the positions of lowered nodes in the order of execution, by ``id()``. Nodes of
    graphs inside a node (branches, loops, cascades) have the position of that node."""
    order = whole_order(exported.graph, (step.node for step in exported.plan.steps))
    found = {}
    for position, number in enumerate(order):
        node = exported.lowered.nodes[number]
        found[id(node)] = position
        for inner in node.graphs:
            for nested in inner.nested():
                found |= {id(one): position for one in nested.nodes}
        if node.rows is not None:
            found |= {id(one): position for one in node.rows.lowered.nodes}
    return found
