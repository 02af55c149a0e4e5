"""Loops and branches that stay in the Graph: inner graphs of a While or an If."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from crtexport.importers.onnx.messages import GraphInfo
from crtexport.importers.onnx.nested import Nested
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add, DynamicUpdateSlice, If, Less, LogicalAnd, Slice, Sub, While
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError


class UnrolledIteration(Struct, frozen=True):
    """The results of one iteration: the condition of the next one, None for true; the states; and
    its part of each output that has one part for each iteration."""

    again: Value | None
    states: list[Value]
    parts: list[Value]


Body = Callable[[OnnxNode, Nested, Value, "Value | None", list[Value]], UnrolledIteration]
"""Reads a body. It is given the number of the round (int32, of shape (1,)), the condition if that
is computed, and the states."""


class Rolled(Struct, frozen=True):
    """A loop of at most ``most`` iterations (None for no limit; a Value if computed at run time),
    while ``condition`` holds (None for always). ``backwards``: parts are written from the end of
    their outputs to the start."""

    most: int | Value | None
    condition: Value | None
    states: Sequence[Value]
    backwards: Sequence[int] = ()


def rolled(node: OnnxNode, loop: Rolled, body: Body) -> tuple[list[Value], list[Value]]:
    """Returns the states behind a loop, and its outputs with a part for each round along their
    first axis.

    Raises CrtExportError where a body can't be one graph for all iterations.
    """
    builder = node.builder
    first = [node.constant([0, 0], DType.INT32), *filter(None, [loop.condition]), *loop.states]
    tensors: list[int | None] = [builder.arranged(value) for value in first]
    types = [builder.type(tensor) for tensor in tensors if tensor is not None]
    with node.walk.nested() as nested:
        inner = node.within(nested.builder)
        inputs = [nested.input(type_) for type_ in types]
        place, *carried = inputs
        condition = carried.pop(0) if loop.condition is not None else None
        if isinstance(loop.most, Value):
            nested.seen(loop.most)  # what the condition needs, both graphs are given
        done = body(inner, nested, _number(inner, place), condition, carried)
        following = inner.elementwise(Add(), place, inner.constant([1, 0], DType.INT32))
        results = [following, *([] if condition is None else [_again(done)]), *done.states]
        made = [inner.builder.arranged(value) for value in results]
        _check_types(types, [inner.type(tensor) for tensor in made])
        wholes = [_whole(inner, loop, part) for part in done.parts]
        outputs = [nested.input(type_) for type_ in wholes]
        starts = [_start(inner, loop, place, back) for back in loop.backwards]
        for part, whole, start in zip(done.parts, outputs, starts, strict=True):
            row = inner.builder.reshape(inner.builder.arranged(part), (1, part.elements))
            made += inner.builder.emit(DynamicUpdateSlice(), whole.tensor, row, start.tensor)
    given = [*nested.given]
    graphs = (
        _condition(node, [*types, *wholes], loop, given),
        nested.graph("body", [*inputs, *outputs], made, given),
    )
    tensors += [None] * len(outputs)  # the loop writes all of them before anything reads them
    found = builder.emit(While(), *tensors, *given, graphs=graphs)
    ends = found[len(first) - len(loop.states) : len(first)]
    states = [
        stored(t, value.shape) for t, value in zip(ends, loop.states, strict=True)
    ]
    wide = [
        stored(builder.reshape(t, shape), shape) for t, part in zip(
            found[len(first) :], done.parts, strict=True
        ) for shape in [(_length(loop), *part.shape)]
    ]
    return states, wide


def _number(inner: OnnxNode, place: Value) -> Value:
    """Returns the number of the iteration, (1,), which is the first of two counters: the index of
    its parts."""
    number = inner.emit(Slice((0,), (1,), (1,), (1,)), place.tensor)
    inner.builder.counts.add(number.tensor)
    return number


def _again(done: UnrolledIteration) -> Value:
    if done.again is None:
        raise CrtExportError("a loop whose body says that it ends always or never")
    return done.again


def _whole(inner: OnnxNode, loop: Rolled, part: Value) -> TensorType:
    return TensorType(inner.dtype(part), (_length(loop), part.elements))


def _length(loop: Rolled) -> int:
    """Returns the number of iterations of a loop with outputs of one part for each."""
    if not isinstance(loop.most, int) or loop.condition is not None:
        raise CrtExportError(
            "the size of an output depends on how often a loop runs, which is known at run time"
        )
    return loop.most


def _start(inner: OnnxNode, loop: Rolled, place: Value, back: int) -> Value:
    if not back:
        return place
    last = inner.constant([_length(loop) - 1, 0], DType.INT32)
    return inner.elementwise(Sub(), last, place)


def _check_types(initial: Sequence[TensorType], results: Sequence[TensorType]) -> None:
    for old, new in zip(initial, results, strict=True):
        if (old.dtype, old.shape) != (new.dtype, new.shape):
            raise CrtExportError(f"a loop makes {new} of {old}")


def _condition(
    node: OnnxNode, types: Sequence[TensorType], loop: Rolled, states: Sequence[int]
) -> Graph:
    """Returns the graph that computes the condition of the next iteration."""
    with node.walk.nested() as nested:
        inner = node.within(nested.builder)
        inputs = [nested.input(type_) for type_ in types]
        found = []
        number = _number(inner, inputs[0])
        if isinstance(loop.most, int):
            limit = inner.constant([loop.most], DType.INT32)
            found.append(inner.elementwise(Less(), number, limit))
        elif loop.most is not None:
            wide = inner.cast(number, DType.INT64)
            limit = inner.builder.reshaped(nested.seen(loop.most), (1,))
            found.append(inner.elementwise(Less(), wide, limit))
        if loop.condition is not None:
            found.append(inner.builder.reshaped(inputs[1], (1,)))
        if not found:
            raise CrtExportError("a loop that never ends")
        truth = found[0] if len(found) == 1 else inner.elementwise(LogicalAnd(), *found)
        return nested.graph("condition", inputs, [inner.builder.arranged(truth)], states)


def branched(
    node: OnnxNode, condition: Value, branches: Sequence[GraphInfo]
) -> list[Value]:
    """Returns the results of an If; only the branch that the condition selects runs.

    Raises CrtExportError if a branch can't be an inner graph.
    """
    read: list[tuple[Nested, list[int]]] = []
    shapes = []
    for branch in branches:
        with node.walk.nested() as nested:
            results = node.walk.inline(branch, ())
            read.append((nested, [nested.builder.arranged(value) for value in results]))
            shapes.append([value.shape for value in results])
    given = [*dict.fromkeys(number for nested, _ in read for number in nested.given)]
    graphs = tuple(
        nested.graph(name, (), outputs, given)
        for name, (nested, outputs) in zip(("then", "else"), read, strict=True)
    )
    truth = node.builder.arranged(node.builder.reshaped(condition, (1,)))
    made = node.builder.emit(If(), truth, *given, graphs=graphs)
    return [stored(tensor, shape) for tensor, shape in zip(made, shapes[0], strict=True)]
