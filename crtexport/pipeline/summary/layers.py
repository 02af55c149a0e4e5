"""The layers of an export: calls of kernels, with the costs of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from crtexport.artifact.model import Constant, ConstantArg, FunctionCall, ScalarArg
from crtexport.firmware.board_schema import Board
from crtexport.ir.graph import Graph
from crtexport.ir.macs import macs
from crtexport.ir.ops import Foreign
from crtexport.kir.language import Kernel
from crtexport.pipeline.result import Prepared
from crtexport.pipeline.summary.records import Layer
from crtexport.pipeline.summary.sites import (
    CallSite,
    Executed,
    call_sites,
    merged_rows,
    static_runs,
)
from crtexport.plan.order import whole_order
from crtexport.schedules.common.target_features import computes_floats, is_x86_64
from crtexport.schedules.select.choose import Costs
from crtexport.support.target import Target


def holds_weights(constant: Constant) -> bool:
    """Returns whether a constant holds numbers of the network (weights, biases), packed or not. All
    others are tables that kernels need, whose notes describe them."""
    return not constant.note or constant.note.startswith("packed")


def layers_of(
    prepared: Prepared, board: Board, read: Graph | None = None,
    counts: Sequence[Executed | None] | None = None,
) -> tuple[Layer, ...]:
    """Returns the layers of a model, in the order of execution, without the bytes of their code.

    Instructions are those of ``counts``, one for each call in the order of
    :func:`crtexport.artifact.model.every_call`, or estimates without them. They are None for layers
    with floats on processors without instructions for floats, whose library functions have no
    estimates. ``read`` is the network as imported, which says what accelerators compute. Raises
    CrtExportError if calls can't be matched with layers.
    """
    artifact = prepared.artifact
    sites = call_sites(prepared.lowered, prepared.plan, artifact.calls)
    at = _steps_by_node(prepared)
    kernels = {function.symbol: function.kernel for function in artifact.functions}
    constants = {constant.symbol: constant for constant in artifact.constants}
    imported = _imported_macs(prepared, read)
    costs, soft = Costs(board.target), not _has_float_instructions(board.target)
    runs = list(static_runs(artifact.calls))
    decided = None in runs
    takers = {decision.function: decision.accelerator for decision in prepared.decisions}
    seen: set[str] = set()
    made = []
    for site, count, times in merged_rows(sites, counts or [None] * len(sites), runs):
        symbol, used = site.call.symbol, _read(site.call)
        fresh = [constants[name] for name in used if name in constants and name not in seen]
        weights = sum(one.data.nbytes for one in fresh if holds_weights(one))
        kernel = kernels.get(symbol)
        made.append(Layer(
            step=at[id(site.lowered)], name=site.name, operator=site.node.operator,
            dtype=_dtype(site), shape=_shape(site), macs=_macs(site, count, times, imported),
            instructions=_counted(count) if counts is not None
            else None if soft and _has_floats(site)
            else _estimated(kernel, site.call, costs, times or 1),
            runs=(None if decided else times) if counts is None
            else None if count is None else count.runs,
            code=None, weights=weights,
            tables=sum(one.data.nbytes for one in fresh) - weights, kernel=symbol,
            variant=site.lowered.chosen, candidates=len(site.lowered.candidates),
            by=takers.get(symbol, "crtexport" if kernel is not None else "external function"),
            fused=tuple(str(part) for part in site.node.parts),
            cycles=None if count is None else count.spent.cycles,
        ))
        seen |= {symbol, *used}
    return tuple(made)


def with_code(layers: Iterable[Layer], code: Mapping[str, int]) -> tuple[Layer, ...]:
    """Returns the layers with the bytes of their functions, ``code`` by symbol; of layers that
    share a function, the first has them."""
    seen: set[str] = set()
    found = []
    for layer in layers:
        own = 0 if layer.kernel in seen else code.get(layer.kernel, 0)
        found.append(replace(layer, code=own))
        seen.add(layer.kernel)
    return tuple(found)


def _counted(count: Executed | None) -> int | None:
    return None if count is None else count.instructions


def _estimated(
    kernel: Kernel | None, call: FunctionCall, costs: Costs, times: int
) -> int | None:
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


def _imported_macs(prepared: Prepared, read: Graph | None) -> dict[str, int]:
    """Returns the multiply-accumulates of the model file's operators by name, without removed
    channels. Layers that an accelerator computes need them: the exported graph only has a call of
    its function."""
    if read is None:
        return {}
    known = {str(node): macs(read, node) for node in read.nodes}
    return known | {layer.layer: layer.macs[1] for layer in prepared.channels}


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


def _steps_by_node(prepared: Prepared) -> dict[int, int]:
    """Returns the positions of lowered nodes in the order of execution, by ``id()``. Nodes of
    graphs inside a node (branches, loops, cascades) have the position of that node."""
    order = whole_order(prepared.graph, (step.node for step in prepared.plan.steps))
    found = {}
    for position, number in enumerate(order):
        node = prepared.lowered.nodes[number]
        found[id(node)] = position
        for inner in node.graphs:
            for nested in inner.nested():
                found |= {id(one): position for one in nested.nodes}
        if node.rows is not None:
            found |= {id(one): position for one in node.rows.lowered.nodes}
    return found
