"""If, Loop and Scan.

A long loop stays a loop, whose body is emitted once; a short one is unrolled, and so is one whose
iterations differ in more than numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from crtexport.importers.onnx.messages import GraphInfo
from crtexport.importers.onnx.nested import Nested
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.iterations import counted_iterations
from crtexport.importers.onnx.operators.move import element, joined
from crtexport.importers.onnx.operators.rolled import Rolled, UnrolledIteration, branched, rolled
from crtexport.importers.onnx.other_floats import OTHER_FLOATS
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import Gather, LogicalAnd, Select, SquaredDistance, Sub
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

MOST_STEPS = 1024
"""The largest number of iterations that are unrolled."""
_FEW_STEPS = 8
"""The number of iterations up to which unrolled code is smaller than a loop."""
_FEW_NODES = 2
"""The number of nodes of a branch that takes less time than a jump around it."""
_INT32 = (1 << 31) - 1


def _known(node: OnnxNode, condition: Value) -> bool | None:
    """Returns a truth value; None if it is computed at run time."""
    if node.dtype(condition) is not DType.BOOL or condition.elements != 1:
        raise CrtExportError(f"a condition must be one truth value, found {condition.shape}")
    if not node.builder.is_constant(condition):
        return None
    return bool(node.array(condition, "the condition").item())


def _chosen(node: OnnxNode, condition: Value, then: Value, other: Value) -> Value:
    if then.shape != other.shape or node.dtype(then) is not node.dtype(other):
        raise CrtExportError(
            f"the shape of a value, {then.shape} or {other.shape}, depends on a condition that is "
            "computed at run time"
        )
    if then == other:
        return then
    dtype = node.dtype(then)
    if dtype in OTHER_FLOATS:
        then, other = node.cast(then, DType.FLOAT32), node.cast(other, DType.FLOAT32)
    made = node.elementwise(Select(), node.builder.reshaped(condition, ()), then, other)
    return node.cast(made, dtype)


@operator("If", inputs=(1, 1))
def if_(node: OnnxNode) -> list[Value]:
    condition = node.input(0)
    graphs = node.graph("then_branch"), node.graph("else_branch")
    known = _known(node, condition)
    if known is not None:
        return node.walk.inline(graphs[not known], ())
    if any(len(graph.nodes) > _FEW_NODES for graph in graphs):
        with suppress(CrtExportError):
            return branched(node, condition, graphs)
    branches = [node.walk.inline(graph, ()) for graph in graphs]
    return [_chosen(node, condition, *pair) for pair in zip(*branches, strict=True)]


@operator("Loop", inputs=(2, None))
def loop(node: OnnxNode) -> list[Value]:
    body, condition = node.graph("body"), node.optional(1)
    limit, states = node.optional(0), [node.input(i) for i in range(2, len(node.inputs))]
    if condition is None:
        condition = node.constant(True, DType.BOOL)
    if limit is not None and not node.builder.is_constant(limit):
        return _rolled_loop(node, body, limit, condition, states)
    most = None if limit is None else int(node.number(0, "the number of steps"))
    if most is None or most >= _FEW_STEPS or _known(node, condition) is None:
        with suppress(CrtExportError):
            return _rolled_loop(node, body, most, condition, states)
    gathered: list[list[Value]] = [[] for _ in body.outputs[1 + len(states) :]]
    step = 0
    while (most is None or step < most) and _known(node, condition) is not False:
        if step == MOST_STEPS:
            raise CrtExportError(
                f"a loop of more than {MOST_STEPS} steps, or of a number that isn't known",
                hint="its number of steps must be constant while exporting",
            )
        number = node.constant(step, DType.INT64)
        again, *results = node.walk.inline(body, [number, condition, *states])
        if _known(node, condition) is None:
            if gathered:
                raise CrtExportError(
                    "the size of an output depends on how often a loop runs, which is known at "
                    "run time"
                )
            results = [
                _chosen(node, condition, new, old)
                for new, old in zip(results, states, strict=True)
            ]
            again = node.elementwise(LogicalAnd(), condition, again)
        states, found = results[: len(states)], results[len(states) :]
        for values, value in zip(gathered, found, strict=True):
            values.append(value)
        condition, step = again, step + 1
    if gathered and not step:
        raise CrtExportError("a loop that never runs has outputs of unknown shapes")
    return [*states, *(_stacked(node, values, 0) for values in gathered)]


def _rolled_loop(
    node: OnnxNode, body: GraphInfo, most: int | Value | None, condition: Value,
    states: list[Value],
) -> list[Value]:
    """Raises CrtExportError if the loop can't stay a loop."""
    decided, iterations, counted = _known(node, condition), most, None
    if decided is False or (isinstance(most, int) and most < 1):
        raise CrtExportError("a loop that never runs")
    if decided and not isinstance(most, Value):
        counted = counted_iterations(node, body, most, states)
    if counted is not None:
        iterations = counted.count
        if iterations < _FEW_STEPS:
            raise CrtExportError("a loop of a few steps")
    if isinstance(iterations, int) and iterations > _INT32:
        iterations = None

    kept = _passed_on(body, len(states))
    moving = [i for i in range(len(states)) if i not in kept]

    def read(
        inner: OnnxNode, nested: Nested, number: Value, again: Value | None, carried: list[Value]
    ) -> UnrolledIteration:
        step = inner.builder.reshaped(inner.cast(number, DType.INT64), ())
        truth = inner.constant(True, DType.BOOL) if again is None else again
        own = dict(zip(moving, carried, strict=True))
        inner.builder.counts.update(
            value.tensor for i, value in own.items() if counted and i in counted.counters
        )
        following, *results = node.walk.inline(body, [
            step, truth, *(own[i] if i in own else nested.seen(s) for i, s in enumerate(states)),
        ])
        ends, parts = [results[i] for i in moving], results[len(states) :]
        if counted is not None:
            return UnrolledIteration(None, ends, parts)
        held = _known(inner, following)
        if again is None and held is not True:
            raise _EndsByItselfError("")
        if again is not None and inner.builder.is_constant(following):
            following = inner.elementwise(LogicalAnd(), again, following)
        return UnrolledIteration(following, ends, parts)

    outputs = [0] * (len(body.outputs) - 1 - len(states))
    carried_on = [states[i] for i in moving]
    try:
        if decided is None:
            raise _EndsByItselfError("")
        ends, parts = rolled(node, Rolled(iterations, None, carried_on, outputs), read)
    except _EndsByItselfError:
        ends, parts = rolled(node, Rolled(iterations, condition, carried_on, outputs), read)
    end_of = dict(zip(moving, ends, strict=True))
    return [*(end_of.get(i, state) for i, state in enumerate(states)), *parts]


def _passed_on(body: GraphInfo, count: int) -> set[int]:
    """Returns the numbers of the states that the body returns unchanged."""
    source = {n.outputs[0]: n.inputs[0] for n in body.nodes if n.operator == "Identity"}
    unchanged = set[int]()
    for i, (state, made) in enumerate(
        zip(body.inputs[2:], body.outputs[1 : 1 + count], strict=True)
    ):
        name = made.name
        while name in source:
            name = source[name]
        if name == state.name:
            unchanged.add(i)
    return unchanged


class _EndsByItselfError(CrtExportError):
    """The loop's body computes the condition of the next iteration."""


@operator("Scan", inputs=(1, None))
def scan(node: OnnxNode) -> list[Value]:
    body, count = node.graph("body"), node.integer("num_scan_inputs")
    if node.version < 9:
        return _batches(node, count)
    values = node.all()
    if (distances := _distances(node, body, values)) is not None:
        return [values[0], distances]
    first = len(values) - count
    outputs = len(body.outputs) - first
    if count < 1 or first < 0 or outputs < 0:
        raise CrtExportError(f"{count} inputs of {len(values)} are scanned")
    axes = [
        node.axis(axis, len(value.shape)) for axis, value in zip(
            node.numbers("scan_input_axes", (0,) * count), values[first:], strict=True
        )
    ]
    directions = node.numbers("scan_input_directions", (0,) * count)
    backwards = node.numbers("scan_output_directions", (0,) * outputs)
    places = node.numbers("scan_output_axes", (0,) * outputs)
    parts = [
        Scanned(*one) for one in zip(values[first:], axes, directions, strict=True)
    ]
    if _length(parts) >= _FEW_STEPS:
        with suppress(CrtExportError):
            states, wholes = _rolled_scan(node, values[:first], parts, backwards)
            axes = [node.axis(p, len(w.shape)) for p, w in zip(places, wholes, strict=True)]
            return [*states, *map(_with_first, wholes, axes)]
    states, gathered = _scanned(node, values[:first], parts, outputs)
    return [*states, *(
        _stacked(node, steps[::-1] if back else steps, node.axis(axis, len(steps[0].shape) + 1))
        for steps, back, axis in zip(gathered, backwards, places, strict=True)
    )]


class Scanned(Struct, frozen=True):
    """An input of which each iteration reads one element along ``axis``; ``back``: in reverse
    order."""

    value: Value
    axis: int
    back: int


def _length(parts: Sequence[Scanned]) -> int:
    """Returns the number of iterations."""
    lengths = {part.value.shape[part.axis] for part in parts}
    if len(lengths) != 1 or max(lengths) < 1:
        raise CrtExportError(f"sequences of {sorted(lengths)} steps are scanned together")
    return max(lengths)


def _rolled_scan(
    node: OnnxNode, states: list[Value], parts: Sequence[Scanned], backwards: Sequence[int]
) -> tuple[list[Value], list[Value]]:
    """Raises CrtExportError if the loop can't stay a loop."""
    length = _length(parts)

    def read(
        inner: OnnxNode, nested: Nested, number: Value, _again: Value | None, carried: list[Value]
    ) -> UnrolledIteration:
        last = inner.constant([length - 1], DType.INT32)
        places = number, inner.elementwise(Sub(), last, number)
        elements = []
        for part in parts:
            seen = nested.seen(part.value)
            index = inner.builder.reshape(places[bool(part.back)].tensor, ())
            elements.append(inner.emit(Gather(part.axis), inner.builder.arranged(seen), index))
        results = node.walk.inline(node.graph("body"), [*carried, *elements])
        return UnrolledIteration(None, results[: len(states)], results[len(states) :])

    return rolled(node, Rolled(length, None, states, backwards), read)


def _with_first(value: Value, place: int) -> Value:
    """Returns the value with its first axis moved."""
    rank = len(value.shape)
    order = [*range(1, rank)]
    order.insert(place, 0)
    return value.transposed(order)


def _distances(node: OnnxNode, body: GraphInfo, values: Sequence[Value]) -> Value | None:
    """Returns what skl2onnx computes of all samples of a nearest-neighbour model in a Scan without
    options: squared distances to the rows that are its state; None where the body is another."""
    if len(values) != 2 or len(body.inputs) != 2 or len(node.info.attributes) != 2:
        return None
    if {node.dtype(value) for value in values} != {DType.FLOAT32}:
        return None
    rows, samples = (value.shape for value in values)
    if len(rows) != 2 or len(samples) != 2 or rows[1] != samples[1]:
        return None
    constants = {data.name: data for data in body.initializers}
    meanings = {body.inputs[0].name: "rows", body.inputs[1].name: "sample"}
    for part in body.nodes:
        of = [meanings.get(name, "") for name in part.inputs]
        if part.operator == "Identity":
            result = of[0]
        elif part.operator == "Sub" and sorted(of) == ["rows", "sample"]:
            result = "difference"
        elif part.operator == "ReduceSumSquare" and of[0] == "difference":
            axes = [a.ints for a in part.attributes if a.name == "axes"] + [
                tuple(node.array(node.walk.data(constants[name]), "the axes").tolist())
                for name in part.inputs[1:] if name in constants
            ]
            kept = [a.i for a in part.attributes if a.name == "keepdims"]
            result = "distances" if axes == [(1,)] and kept == [0] else ""
        else:
            return None
        meanings[part.outputs[0]] = result
    if [meanings.get(output.name) for output in body.outputs] != ["rows", "distances"]:
        return None
    tensors = [node.builder.arranged(value) for value in values[::-1]]
    (made,) = node.builder.emit(SquaredDistance(), *tensors)
    return stored(made, (samples[0], rows[0]))


def _batches(node: OnnxNode, count: int) -> list[Value]:
    """Returns the results of each batch. In opset 8, the first axis of everything is the batch, the
    second the iteration."""
    if node.optional(0) is not None:
        raise CrtExportError("lengths of sequences are not supported")
    values = [node.input(i) for i in range(1, len(node.inputs))]
    first = len(values) - count
    outputs = len(node.graph("body").outputs) - first
    directions = node.numbers("directions", (0,) * count)
    results: list[list[Value]] = []
    for batch in range(values[0].shape[0]):
        own = [element(node, value, 0, batch) for value in values]
        parts = [
            Scanned(value, 0, back) for value, back in zip(own[first:], directions, strict=True)
        ]
        states, gathered = _scanned(node, own[:first], parts, outputs)
        results.append([*states, *(_stacked(node, steps, 0) for steps in gathered)])
    return [_stacked(node, list(same), 0) for same in zip(*results, strict=True)]


def _scanned(
    node: OnnxNode, states: Sequence[Value], parts: Sequence[Scanned], outputs: int
) -> tuple[list[Value], list[list[Value]]]:
    """Returns the final states, and the outputs of each iteration."""
    length = _length(parts)
    if length > MOST_STEPS:
        raise CrtExportError(f"a sequence of {length} steps; {MOST_STEPS} at most are read")
    body, current = node.graph("body"), list(states)
    gathered: list[list[Value]] = [[] for _ in range(outputs)]
    for step in range(length):
        given = [
            element(node, part.value, part.axis, length - 1 - step if part.back else step)
            for part in parts
        ]
        results = node.walk.inline(body, [*current, *given])
        current = results[: len(current)]
        for values, value in zip(gathered, results[len(current) :], strict=True):
            values.append(value)
    return current, gathered


def _stacked(node: OnnxNode, values: Sequence[Value], axis: int) -> Value:
    """Returns values stacked along a new axis."""
    if any(value.shape != values[0].shape for value in values):
        raise CrtExportError("what a loop gives has another shape in each step")
    shape = values[0].shape
    return joined(node, [
        node.builder.reshaped(value, (*shape[:axis], 1, *shape[axis:])) for value in values
    ], axis)
