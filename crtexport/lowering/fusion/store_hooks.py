"""Store hooks: the second operator of a fused node replaces the stores of the first.

A :class:`StoreHook`, one for each kind of operator, emits the statements in place of a store.
"""

from __future__ import annotations

import abc
from typing import Protocol

from msgspec.structs import replace

from crtexport.ir.graph import Node
from crtexport.ir.ops import Add, Mul, Sub
from crtexport.kir import language as kir
from crtexport.kir.analysis.affine_index import IndexFacts
from crtexport.kir.analysis.kernel_merging import names_in
from crtexport.kir.builder import load, load_vector
from crtexport.kir.language import Body, Buffer, Expr, Scalar, Stmt
from crtexport.kir.walk import map_bodies
from crtexport.lowering.ops.elementwise import Compute, arithmetic
from crtexport.lowering.registry import (
    SCRATCH_ALIGN,
    Context,
    InputTensor,
    KernelArg,
    Lowered,
    Lowering,
    Scratch,
)


class VectorOps(Protocol):
    """Arithmetic on vectors that a target offers to fused operators. Methods return None for what
    it doesn't offer."""

    def elements(
        self, lowering: Lowering, op: Add | Sub | Mul, type_: Scalar
    ) -> Compute | None:
        """Returns the sum, difference or product of vectors of a type."""

    def largest(self, type_: Scalar) -> Compute | None:
        """Returns the elementwise maximum of vectors of a type."""

    def total(self, type_: Scalar) -> Compute | None:
        """Returns the sum of vectors of a type, which doesn't overflow."""


class FusionNotPossibleError(Exception):
    """A result can't be passed on: nothing computes with its type, or its index isn't known."""


class StoreHook(abc.ABC):
    """Replaces the stores of a layer's results."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, vectors: VectorOps | None
    ) -> None:
        self.context, self.layer, self.output, self.vectors = context, layer, output, vectors
        self.lowering = Lowering("", Context(context.graph, self.second))
        self.b = self.lowering.b
        self.b.reserve(names_in(layer.kernel))
        self.target = output
        self.known = IndexFacts()
        self._own = -(-layer.scratch // SCRATCH_ALIGN) * SCRATCH_ALIGN

    @property
    def second(self) -> Node:
        """The node of the second operator."""
        return self.context.node.parts[1]

    @abc.abstractmethod
    def begin(self) -> None:
        """Emits the statements before the layer."""

    @abc.abstractmethod
    def store(self, stmt: kir.Store | kir.StoreVector) -> None:
        """Emits the statements in place of a store of results."""

    @abc.abstractmethod
    def end(self) -> None:
        """Emits the statements behind the layer."""

    def lowered(self) -> Lowered:
        kernel, b = self.layer.kernel, self.b
        with b.apart() as before:
            self.begin()
        body = self._body(kernel.body)
        with b.apart() as after:
            self.end()
        added = self.lowering.finish()
        buffers = [self.target if b == self.output else b for b in kernel.buffers]
        name = f"{kernel.name}_{type(self.second.op).__name__.lower()}"
        return Lowered(
            replace(
                kernel, name=name, buffers=(*buffers, *added.kernel.buffers),
                body=(*before, *body, *after),
                overlapping=(*kernel.overlapping, *added.kernel.overlapping),
            ),
            (*self.layer.args, *map(self._moved, added.args)),
        )

    def _moved(self, arg: KernelArg) -> KernelArg:
        """Returns an argument of the second part as an argument of the fused node."""
        match arg:
            case InputTensor():
                return InputTensor(len(self.context.node.parts[0].inputs))
            case Scratch(offset=offset):
                return Scratch(self._own + offset)
            case _:
                return arg

    def _body(self, body: Body) -> Body:
        found: list[Stmt] = []
        for stmt in body:
            self.known.after(stmt)
            found += self._stmt(stmt)
        return tuple(found)

    def _stmt(self, stmt: Stmt) -> Body:
        match stmt:
            case kir.For(extent=kir.Const(value=0)):
                return ()
            case kir.If():
                with self.known.where(stmt.condition):
                    then = self._body(stmt.then)
                return (replace(stmt, then=then, other=self._body(stmt.other)),)
            case kir.Store() | kir.StoreVector() if stmt.buffer == self.output:
                with self.b.apart() as found:
                    self.store(stmt)
                return tuple(found)
            case _:
                return (map_bodies(stmt, self._body),)


class ElementwiseHook(StoreHook):
    """An elementwise operator of a result and the element of another tensor at the same index."""

    def __init__(
        self, context: Context, layer: Lowered, output: Buffer, vectors: VectorOps | None,
        op: Add | Sub | Mul,
    ) -> None:
        super().__init__(context, layer, output, vectors)
        first, second = context.node.parts
        self.op, self.position = op, second.inputs.index(first.outputs[0])
        self.operand = self.lowering.input(1 - self.position, "operand")
        self.compute = arithmetic(self.lowering, op)

    def begin(self) -> None:
        """Emits nothing."""

    def end(self) -> None:
        """Emits nothing."""

    def store(self, stmt: kir.Store | kir.StoreVector) -> None:
        b, type_ = self.b, stmt.value.type
        index = b.let("place", stmt.index)
        if isinstance(stmt, kir.Store):
            result, other = b.let("result", stmt.value), b.let("other", load(self.operand, index))
            b.store(self.target, index, self.compute(*self._ordered(result, other)))
            return
        compute = self.vectors.elements(self.lowering, self.op, type_) if self.vectors else None
        if compute is None:
            raise FusionNotPossibleError
        other = b.let("other", load_vector(self.operand, index, type_, stmt.count))
        value = compute(*self._ordered(b.let("result", stmt.value), other))
        b.store_vector(self.target, index, value, stmt.count)

    def _ordered(self, result: Expr, other: Expr) -> tuple[Expr, Expr]:
        return (other, result) if self.position else (result, other)
