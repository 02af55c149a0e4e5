"""Nodes that do what a layer and the operator behind it did, as one kernel.

The kernel is that of the layer, in whatever form a schedule gave it, but each result that it would
store is handed to the other operator. So either operator keeps the one meaning that it has, and no
schedule knows of the other one.

A sum, difference or product of two tensors is computed with the result, and stored instead of it. A
maximum over windows that don't overlap is the largest of the results so far, and begins with the
lowest number: a result that a schedule stores twice does no harm.
"""

from __future__ import annotations

import abc
from dataclasses import replace
from typing import Protocol

from crtexport.ir.ops import Activation, Add, Fused, MaxPool2D, Mul, Sub
from crtexport.kernels.accesses import accesses
from crtexport.kernels.build import (
    add,
    and_,
    cast,
    const,
    load,
    load_vector,
    lt,
    max_,
    mul,
)
from crtexport.kernels.elementwise import Compute, arithmetic, work_type
from crtexport.kernels.ir import (
    Body,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Scalar,
    Stmt,
    Store,
    StoreVector,
)
from crtexport.kernels.pool import lowest, store_result
from crtexport.kernels.positions import Known, divided
from crtexport.kernels.registry import (
    SCALAR_OF,
    Context,
    InputTensor,
    KernelArg,
    Lowered,
    Lowering,
    OutputTensor,
    check,
    lower,
    lowers,
)
from crtexport.kernels.share import names_in


class Vectors(Protocol):
    """What a machine computes with vectors as operators do with elements; None where it doesn't."""

    def elements(
        self, lowering: Lowering, op: Add | Sub | Mul, type_: Scalar
    ) -> Compute | None:
        """Sums, differences and products of lanes of a type."""

    def largest(self, type_: Scalar) -> Compute | None:
        """The larger ones of lanes of a type."""


def layer_of(context: Context) -> Context:
    """What a lowering may know of the first part of a fused node."""
    layer = context.node.parts[0]
    in_place = tuple((o, i) for o, i in context.in_place if i < len(layer.inputs))
    return Context(context.graph, layer, in_place)


def parts_that_fit(context: Context) -> str | None:
    """Each part must keep the rules of its operator."""
    broken = [
        problem for part in context.node.parts for problem in check(Context(context.graph, part))
    ]
    return "; ".join(broken) or None


@lowers(Fused, parts_that_fit)
def fused(context: Context) -> Lowered:
    """The first part's results, each handed to the second part."""
    found = joined(context, lower(layer_of(context)))
    if found is None:
        raise context.refuse("its first part's results can't be handed to its second part")
    return found


def joined(context: Context, layer: Lowered, vectors: Vectors | None = None) -> Lowered | None:
    """The kernel of a fused node whose first part has the kernel ``layer``; None where its results
    can't be handed on. ``vectors``: what a machine computes with them."""
    first, second = context.node.parts
    outputs = [
        buffer for buffer, arg in zip(layer.kernel.buffers, layer.args, strict=True)
        if arg == OutputTensor(0)
    ]
    dtype = SCALAR_OF[context.graph.type(first.outputs[0]).dtype]
    if len(outputs) != 1 or outputs[0].dtype is not dtype:
        return None
    if any(a.buffer == outputs[0] and not a.stores for a in accesses(layer.kernel)):
        return None
    try:
        match second.op:
            case Add() | Sub() | Mul():
                return _Elements(context, layer, outputs[0], second.op, vectors).lowered()
            case MaxPool2D():
                return _Maxima(context, layer, outputs[0], second.op, vectors).lowered()
            case _:
                return None
    except _CantHandError:
        return None


class _CantHandError(Exception):
    """A result can't be handed on: nothing computes with its type, or its place isn't known."""


class _Joint(abc.ABC):
    """Replaces the stores of a layer's results."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, vectors: Vectors | None
    ) -> None:
        self.context, self.layer, self.output, self.vectors = context, layer, output, vectors
        first, second = context.node.parts
        others = [i for i, tensor in enumerate(second.inputs) if tensor != first.outputs[0]]
        own = len(first.inputs)
        in_place = tuple((o, others[i - own]) for o, i in context.in_place if i >= own)
        self.lowering = Lowering("", Context(context.graph, second, in_place))
        self.b = self.lowering.b
        self.b.reserve(names_in(layer.kernel))
        self.target = replace(output, noalias=output.noalias and not in_place)
        self.known = Known()

    @abc.abstractmethod
    def begin(self) -> None:
        """Emits what comes before the layer."""

    @abc.abstractmethod
    def store(self, stmt: Store | StoreVector) -> None:
        """Emits what is done instead of a store of results."""

    def lowered(self) -> Lowered:
        kernel = self.layer.kernel
        with self.b.apart() as before:
            self.begin()
        body = (*before, *self._body(kernel.body))
        added = self.lowering.finish()
        buffers = [self.target if b == self.output else b for b in kernel.buffers]
        other = InputTensor(len(self.context.node.parts[0].inputs))
        args: list[KernelArg] = [
            other if isinstance(arg, InputTensor) else arg
            for arg in added.args
        ]
        name = f"{kernel.name}_{type(self.context.node.parts[1].op).__name__.lower()}"
        return Lowered(
            replace(kernel, name=name, buffers=(*buffers, *added.kernel.buffers), body=body),
            (*self.layer.args, *args),
        )

    def _body(self, body: Body) -> Body:
        found: list[Stmt] = []
        for stmt in body:
            self.known.after(stmt)
            found += self._stmt(stmt)
        return tuple(found)

    def _stmt(self, stmt: Stmt) -> Body:
        match stmt:
            case For(extent=Const(value=0)):
                return ()
            case For():
                return (replace(stmt, body=self._body(stmt.body)),)
            case If():
                with self.known.where(stmt.condition):
                    then = self._body(stmt.then)
                return (replace(stmt, then=then, other=self._body(stmt.other)),)
            case Store() | StoreVector() if stmt.buffer == self.output:
                with self.b.apart() as found:
                    self.store(stmt)
                return tuple(found)
            case _:
                return (stmt,)


class _Elements(_Joint):
    """What is done with a result and the element in its place of another tensor."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, op: Add | Sub | Mul,
        vectors: Vectors | None,
    ) -> None:
        super().__init__(context, layer, output, vectors)
        first, second = context.node.parts
        self.op, self.handed = op, second.inputs.index(first.outputs[0])
        self.operand = self.lowering.input(1 - self.handed, "operand")
        self.compute = arithmetic(self.lowering, op)

    def begin(self) -> None:
        """Nothing."""

    def store(self, stmt: Store | StoreVector) -> None:
        b, type_ = self.b, stmt.value.type
        index = b.let("place", stmt.index)
        if isinstance(stmt, Store):
            handed, other = b.let("handed", stmt.value), b.let("other", load(self.operand, index))
            b.store(self.target, index, self.compute(*self._ordered(handed, other)))
            return
        compute = self.vectors.elements(self.lowering, self.op, type_) if self.vectors else None
        if compute is None:
            raise _CantHandError
        other = b.let("other", load_vector(self.operand, index, type_, stmt.count))
        value = compute(*self._ordered(b.let("handed", stmt.value), other))
        b.store_vector(self.target, index, value, stmt.count)

    def _ordered(self, handed: Expr, other: Expr) -> tuple[Expr, Expr]:
        return (other, handed) if self.handed else (handed, other)


class _Maxima(_Joint):
    """The largest result of each window."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, op: MaxPool2D,
        vectors: Vectors | None,
    ) -> None:
        super().__init__(context, layer, output, vectors)
        self.op = op
        self.x = context.graph.type(context.node.parts[0].outputs[0]).shape
        self.y = context.output()
        if op.window != op.stride or op.padding.any or self.x[0] != 1:
            raise _CantHandError
        self.target = replace(output, size=self.y.elements)

    def begin(self) -> None:
        """All maxima begin with the lowest number."""
        with self.b.loop("cell", self.y.elements) as cell:
            self.b.store(self.target, cell, cast(lowest(self.y.dtype), self.target.dtype))

    def store(self, stmt: Store | StoreVector) -> None:
        b, type_ = self.b, stmt.value.type
        (row, column), channel = self._cell(stmt)
        limits = [
            lt(cell, const(count)) for cell, count, size, window in zip(
                (row, column), self.y.shape[1:3], self.x[1:3], self.op.window, strict=True
            ) if size > count * window
        ]
        handed = b.let("handed", stmt.value)
        with b.if_(and_(*limits) if limits else None):
            cell = add(mul(row, const(self.y.shape[2])), column)
            place = b.let("place", add(mul(cell, const(self.x[3])), channel))
            if isinstance(stmt, Store):
                work = work_type(self.y.dtype)
                before, after = cast(load(self.target, place), work), cast(handed, work)
                value = max_(b.let("largest", before), b.let("result", after))
                store_result(self.lowering, self.op.activation, self.target, place, value)
                return
            compute = self.vectors.largest(type_) if self.vectors else None
            if compute is None or self.op.activation is not Activation.NONE:
                raise _CantHandError
            largest = b.let("largest", load_vector(self.target, place, type_, stmt.count))
            b.store_vector(self.target, place, compute(largest, handed), stmt.count)

    def _cell(self, stmt: Store | StoreVector) -> tuple[tuple[Expr, Expr], Expr]:
        """The row and the column of the maximum that a result belongs to, which may be behind the
        last ones, and its channel."""
        b, (_, height, width, channels) = self.b, self.x
        neighbours = stmt.count - 1 if isinstance(stmt, StoreVector) else 0
        found = self.known.divided(stmt.index, channels)
        if found is None or not self.known.inside(found[1], channels - neighbours):
            raise _CantHandError
        pixel, channel = found
        lines = self.known.divided(pixel, width)
        if lines is None:
            if not self.known.inside(pixel, height * width):
                raise _CantHandError
            row, column = divided(b.let("pixel", pixel), width)
            lines = b.let("pixel_row", row), b.let("pixel_column", column)
        elif not self.known.inside(lines[0], height):
            raise _CantHandError
        first, second = (
            b.let(name, divided(at, window)[0])
            for name, at, window in zip(
                ("cell_row", "cell_column"), lines, self.op.window, strict=True
            )
        )
        return (first, second), channel
