"""The results of a graph, node by node, each in its plain kernel, interpreted, without any plan.

Of every tensor it is known how far others must agree. Integers do exactly. So do floats that are
exact in whatever order they are computed, which is found from the numbers themselves. Of others it
is tried how far results move when what rounds is moved a little; and where a rounding decides about
a whole number, nothing is known of what comes after it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Op
from crtexport.ir.types import DType
from crtexport.kir.interpreter import compile_kernel
from crtexport.lowering.operator_table import lower
from crtexport.lowering.registry import SCALAR_OF, Context, InputTensor, Lowered, OutputTensor
from crtexport.passes.drop_dead import drop_dead
from tests.fuzz.beyond import beyond_the_reference
from tests.lowered import bound, unwritten

Array = npt.NDArray[Any]
Values = dict[int, Array]
Kernels = dict[tuple[int, int], tuple[Lowered, Callable[..., None]]]
"""The plain kernels of nodes, by the identities of graph and node."""
_STEP = 2.0**-21
"""The distance by which what rounds is moved, as a part of itself."""
MOST_ROUNDS = 1000


class UndefinedError(Exception):
    """The results mean nothing: C leaves open which whole number becomes of NaN."""


_NUMPY = {scalar: dtype.numpy for dtype, scalar in SCALAR_OF.items() if dtype is not DType.BOOL}


class Trust(enum.IntEnum):
    """The agreement that others must reach with a tensor."""

    EXACT = 0
    NEAR = 1
    UNKNOWN = 2


class Known(NamedTuple):
    """The facts known of a tensor's value; ``beyond``: the reference runtime has another one."""

    trust: Trust
    beyond: bool = False


SURE = Known(Trust.EXACT)


_MOVING: tuple[type[Op], ...] = (
    ops.Reshape, ops.Pad, ops.PadV2, ops.MirrorPad, ops.Concatenation, ops.Pack, ops.Split,
    ops.Unpack, ops.Slice, ops.Transpose, ops.BroadcastTo, ops.Tile, ops.SpaceToDepth,
    ops.DepthToSpace, ops.SpaceToBatchNd, ops.BatchToSpaceNd, ops.Gather, ops.GatherNd,
    ops.DynamicUpdateSlice, ops.ResizeNearestNeighbor, ops.Maximum, ops.Minimum, ops.ReduceMax,
    ops.ReduceMin, ops.MaxPool2D, ops.Relu, ops.Relu6, ops.ReluN1To1, ops.Abs, ops.Neg,
    ops.Select, ops.ZerosLike, ops.ReadVariable, ops.AssignVariable, ops.Dequantize,
    ops.EmbeddingLookup, ops.Cast, ops.GatherElements, ops.TopK, ops.Bitcast,
)
"""Operators whose results round nothing."""

_JUMPING: tuple[type[Op], ...] = (
    ops.Ceil, ops.Floor, ops.Round, ops.FloorDiv, ops.FloorMod, ops.Pow,
    ops.TreeEnsemble, ops.PairwiseCoupling,
)
"""Operators of floats whose results jump."""

_SUMS: tuple[type[Op], ...] = (
    ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected, ops.TransposeConv2D, ops.BatchMatMul,
    ops.Add, ops.Sub, ops.Mul, ops.AddN, ops.Sum, ops.CumSum, ops.Square, ops.SquaredDifference,
    ops.Mean, ops.AveragePool2D,
)
"""Operators that multiply and add: exact while numbers are short."""


@dataclass
class Meaning:
    """One graph, run after run: what variables keep is kept.

    ``nudge``: moves what rounds, each time alike.
    """

    graph: Graph
    nudge: np.random.Generator | None = None
    kept: Values = field(default_factory=dict)
    trusts: dict[int, Known] = field(default_factory=dict)
    rounding: list[Known] = field(default_factory=list)
    """Of each node that ran: how far its results can be trusted, in the order of execution."""
    known: list[Known] | None = None
    """The same without a nudge."""
    kernels: Kernels = field(default_factory=dict)

    def run(self, inputs: Sequence[Array]) -> tuple[list[Array], list[Known]]:
        """The outputs, and how far they can be trusted."""
        values: Values = dict(self.kept)
        trusts = dict(self.trusts)
        for tensor in self.graph.variables:
            if tensor not in values:
                # Memory of zeros stands for the initial value.
                type_ = self.graph.type(tensor)
                values[tensor] = np.zeros(type_.shape, type_.dtype.numpy)
                trusts[tensor] = SURE
        values.update(zip(self.graph.inputs, inputs, strict=True))
        trusts.update(dict.fromkeys(self.graph.inputs, SURE))
        self._graph(self.graph, values, trusts)
        self.kept = {t: values[t] for t in self.graph.variables}
        self.trusts = {t: trusts[t] for t in self.graph.variables}
        return [values[t] for t in self.graph.outputs], [trusts[t] for t in self.graph.outputs]

    def _graph(self, graph: Graph, values: Values, trusts: dict[int, Known]) -> None:
        for tensor, info in enumerate(graph.tensors):
            if info.constant is not None:
                values[tensor] = info.constant.array(info.type)
                trusts[tensor] = SURE
        for node in graph.nodes:
            if isinstance(node.op, ops.If):
                self._if(graph, node, values, trusts)
            elif isinstance(node.op, ops.While):
                self._while(graph, node, values, trusts)
            else:
                self._node(graph, node, values, trusts)

    def _node(
        self, graph: Graph, node: Node, values: Values, trusts: dict[int, Known]
    ) -> None:
        compute(graph, node, values, self.kernels)
        if self.known is not None:
            number = len(self.rounding)
            known = self.known[number] if number < len(self.known) else Known(Trust.UNKNOWN)
        else:
            beyond = any(trusts[t].beyond for t in node.inputs if t is not None)
            beyond = beyond or beyond_the_reference(graph, node, values)
            beyond = beyond or self._lost_when_prepared(graph, node)
            known = Known(_trust(graph, node, values, trusts), beyond)
        self.rounding.append(known)
        written = (*node.outputs, *(graph.written(node)))
        for tensor in written:
            trusts[tensor] = known
            if self.nudge is not None and known.trust is Trust.NEAR and (
                graph.type(tensor).dtype is DType.FLOAT32
            ):
                factor = self.nudge.uniform(1 - _STEP, 1 + _STEP, values[tensor].shape)
                with np.errstate(over="ignore", invalid="ignore"):  # at both ends of the range
                    values[tensor] = (values[tensor] * factor).astype(np.float32)

    def _lost_when_prepared(self, graph: Graph, node: Node) -> bool:
        """Inside branches and loops the runtime computes what is made of constants once, before it
        runs, in memory that it then gives to others."""
        return graph is not self.graph and bool(node.inputs) and all(
            t is None or graph.constant(t) is not None for t in node.inputs
        )

    def _call(
        self, inner: Graph, given: Sequence[Array], known: Sequence[Known]
    ) -> tuple[list[Array], list[Known]]:
        values: Values = dict(zip(inner.inputs, given, strict=True))
        trusts = dict(zip(inner.inputs, known, strict=True))
        self._graph(inner, values, trusts)
        return [values[t] for t in inner.outputs], [trusts[t] for t in inner.outputs]

    def _if(self, graph: Graph, node: Node, values: Values, trusts: dict[int, Known]) -> None:
        condition, *given = (t for t in node.inputs if t is not None)
        chosen = node.graphs[0 if values[condition].item() else 1]
        results, known = self._call(
            chosen, [values[t] for t in given], [trusts[t] for t in given]
        )
        sure = trusts[condition]
        # The runtime may leave the second of two outputs that are one tensor as it was.
        twice = any(len({*inner.outputs}) < len(inner.outputs) for inner in node.graphs)
        for tensor, value, result in zip(node.outputs, results, known, strict=True):
            values[tensor] = value
            trust = result.trust if sure.trust is Trust.EXACT else Trust.UNKNOWN
            trusts[tensor] = Known(trust, result.beyond or sure.beyond or twice)

    def _while(self, graph: Graph, node: Node, values: Values, trusts: dict[int, Known]) -> None:
        given = [t for t in node.inputs if t is not None]
        state, known = [values[t] for t in given], [trusts[t] for t in given]
        condition, body = node.graphs
        for _ in range(MOST_ROUNDS):
            (again,), (sure,) = self._call(condition, state, known)
            if sure.trust is not Trust.EXACT:
                known = [Known(Trust.UNKNOWN, True)] * len(known)
            if sure.beyond:
                known = [Known(k.trust, True) for k in known]
            if not again.item():
                break
            results, trusted = self._call(body, state, known)
            state[: len(results)], known[: len(results)] = results, trusted
        else:
            raise RuntimeError("a drawn loop doesn't end")
        count = len(node.outputs)
        values.update(zip(node.outputs, state[:count], strict=True))
        trusts.update(zip(node.outputs, known[:count], strict=True))


def compute(
    graph: Graph, node: Node, values: Values, kernels: Kernels | None = None
) -> None:
    """Adds the outputs of a node to ``values``, which has its inputs, by its plain kernel, one of
    the ``kernels`` of the graph where it ran before."""
    kernels = {} if kernels is None else kernels
    place = id(graph), id(node)
    if place not in kernels:
        made = lower(Context(graph, node))
        kernels[place] = made, compile_kernel(made.kernel)
    lowered, interpret = kernels[place]
    for output in node.outputs:
        values[output] = unwritten(graph.type(output))
    for tensor in graph.written(node):
        values[tensor] = values[tensor].copy()

    def tensor(arg: InputTensor | OutputTensor) -> Array:
        output = isinstance(arg, OutputTensor)
        number = node.outputs[arg.position] if output else graph.required(node, arg.position)
        return np.ascontiguousarray(values[number])

    arrays = [array.reshape(-1) for array in bound(lowered, tensor)]
    if isinstance(node.op, ops.Quantize) and any(
        array.dtype.kind == "f" and np.isnan(array).any() for array in arrays
    ):
        raise UndefinedError("NaN is quantized")
    # Kernels see truth values as the bytes that they are, and what they only copy as words.
    interpret([
        array.view(_NUMPY[buffer.dtype])
        for array, buffer in zip(arrays, lowered.kernel.buffers, strict=True)
    ])


def _trust(graph: Graph, node: Node, values: Values, trusts: dict[int, Known]) -> Trust:
    """Returns how far others must agree with the results of a node that just ran."""
    given = [t for t in node.inputs if t is not None]
    worst = max((trusts[t].trust for t in given), default=Trust.EXACT)
    real = any(graph.type(t).dtype.is_float for t in (*given, *node.outputs))
    if worst is Trust.UNKNOWN or not real:
        return worst
    whole = any(not graph.type(t).dtype.is_float for t in node.outputs)
    jumps = whole or isinstance(node.op, _JUMPING)
    if worst is Trust.NEAR:
        steered = isinstance(node.op, ops.Select) and trusts[given[0]].trust is not Trust.EXACT
        return Trust.UNKNOWN if jumps or steered else Trust.NEAR
    if jumps or isinstance(node.op, _MOVING) or _exact(graph, node, values):
        return Trust.EXACT
    return Trust.NEAR


def _exact(graph: Graph, node: Node, values: Values) -> bool:
    """Returns whether sums and products of floats are exact in any order."""
    if not isinstance(node.op, _SUMS):
        return False
    arrays = [values[t].astype(np.float64) for t in node.inputs if t is not None]
    if any(graph.type(t).dtype is not DType.FLOAT32 for t in node.inputs if t is not None):
        return False
    if not all(np.isfinite(a).all() for a in arrays) or not arrays[0].size:
        return False
    count = max(a.size for a in arrays) if not isinstance(node.op, ops.Add | ops.Sub) else 2
    largest = [max(float(np.abs(a).max(initial=0.0)), 2.0**-20) for a in arrays]
    units = [_unit(a) for a in arrays]
    if isinstance(node.op, ops.Mean | ops.AveragePool2D):
        shrunk = arrays[0].size // max(values[node.outputs[0]].size, 1)
        folded = math.prod(node.op.window) if isinstance(node.op, ops.AveragePool2D) else shrunk
        padded = isinstance(node.op, ops.AveragePool2D) and node.op.padding.any
        if folded & (folded - 1) or padded:
            return False
        return largest[0] * count * folded < units[0] * 2.0**24
    if isinstance(node.op, ops.Add | ops.Sub | ops.AddN | ops.Sum | ops.CumSum):
        return sum(largest) * count < min(units) * 2.0**24
    if isinstance(node.op, ops.Square | ops.SquaredDifference):
        return (sum(largest) * 2) ** 2 < min(units) ** 2 * 2.0**24
    product, unit = largest[0] * largest[1], units[0] * units[1]
    bias = largest[2] if len(largest) > 2 else 0.0
    unit = min(unit, units[2]) if len(units) > 2 else unit
    return product * count + bias < unit * 2.0**24


def _unit(array: Array) -> float:
    """The largest power of two that all elements are multiples of."""
    found = 2.0**10
    for value in np.unique(np.abs(array)):
        while value and value % found:
            found /= 2
            if found < 2.0**-60:
                return found
    return found


@dataclass(frozen=True)
class Wanted:
    """An output: its value, and how far others may be from it; None: nothing is known of it.
    ``beyond``: the reference runtime has another value."""

    value: Array
    tolerance: float | None
    beyond: bool = False

    def agrees(self, found: Array) -> bool:
        """Returns whether ``found`` is as near as it must be."""
        if self.value.dtype != found.dtype or self.value.shape != found.shape:
            return False
        if self.tolerance is None:
            return True
        if self.tolerance == 0:
            return bool(np.array_equal(self.value, found, equal_nan=found.dtype.kind == "f"))
        finite = np.isfinite(self.value) & np.isfinite(found)
        ours, theirs = self.value.astype(np.float64), found.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            return not (finite & (np.abs(ours - theirs) > self.tolerance)).any()


def wanted(graph: Graph, runs: Sequence[Sequence[Array]]) -> list[list[Wanted]]:
    """Returns what ``graph`` computes in runs one after the other.

    Nodes that no output depends on are left out: exports drop them before any kernel is asked for,
    so they may break its rules.
    """
    graph = drop_dead(graph)
    plain = Meaning(graph)
    found = [plain.run(given) for given in runs]
    if all(known.trust is not Trust.NEAR for _, trusts in found for known in trusts):
        return [
            [
                Wanted(value, None if known.trust is Trust.UNKNOWN else 0.0, known.beyond)
                for value, known in zip(*one, strict=True)
            ]
            for one in found
        ]
    moved = []
    for seed in range(2):
        other = Meaning(
            graph, np.random.default_rng(seed), known=plain.rounding, kernels=plain.kernels
        )
        moved.append([other.run(given)[0] for given in runs])
    results = []
    for number, (values, trusts) in enumerate(found):
        row = []
        for position, (value, known) in enumerate(zip(values, trusts, strict=True)):
            tolerance = None if known.trust is Trust.UNKNOWN else 0.0
            if known.trust is Trust.NEAR:
                tolerance = _tolerance(value, [run[number][position] for run in moved])
            row.append(Wanted(value, tolerance, known.beyond))
        results.append(row)
    return results


def _tolerance(value: Array, moved: Sequence[Array]) -> float | None:
    """Returns how far others may be: much more than a little nudge moved; None where that is
    anything."""
    finite = np.isfinite(value)
    if not finite.any():
        return None
    for other in moved:
        if (np.isfinite(other) != finite).any():
            return None
    largest = float(np.abs(value[finite]).max(initial=0.0))
    reach = max(float(np.abs(other[finite].astype(np.float64) - value[finite]).max(initial=0.0))
                for other in moved)
    return max(64 * reach, 2e-5 * largest, 1e-6)


