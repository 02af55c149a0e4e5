"""One lowering per operator: the registry, what a lowering is given and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir.channel_sums import Ints, channel_sums
from crtexport.ir.graph import Graph, Node
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Op, Stateful
from crtexport.ir.scaling import EXTREME, EXTREME_HINT
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.kir.builder import KernelBuilder
from crtexport.kir.language import Buffer, Kernel, Scalar
from crtexport.lowering.weight_packing import Matrix, Packing, packed
from crtexport.support.errors import CrtExportError

SCALAR_OF: dict[DType, Scalar] = {
    DType.BOOL: Scalar.U8, DType.INT8: Scalar.I8, DType.UINT8: Scalar.U8, DType.INT16: Scalar.I16,
    DType.UINT16: Scalar.U16, DType.INT32: Scalar.I32, DType.UINT32: Scalar.U32,
    DType.INT64: Scalar.I64, DType.FLOAT16: Scalar.F16, DType.FLOAT32: Scalar.F32,
    DType.FLOAT64: Scalar.F64,
}


class InputTensor(Struct, frozen=True):
    """The node's input at ``position``, wherever the plan put it."""

    position: int


class OutputTensor(Struct, frozen=True):
    """The node's output at ``position``."""

    position: int


class Derived(Struct, frozen=True, eq=False):
    """A read-only array that the lowering computed (folded bias, multipliers, a table), or packed
    weights. ``row``: elements that belong together; ``note``: what a row or an element is, for
    readers of C sources."""

    purpose: str
    dtype: Scalar
    data: ConstantRef
    row: int = 0
    note: str = ""


class Scratch(Struct, frozen=True):
    """Memory that the node uses only while it runs, from byte ``offset`` of what it is given."""

    offset: int


KernelArg = InputTensor | OutputTensor | Derived | Scratch


class Lowered(Struct, frozen=True):
    """A kernel and what its buffers are bound to, in order."""

    kernel: Kernel
    args: tuple[KernelArg, ...]

    @property
    def scratch(self) -> int:
        """Returns the bytes that the node needs besides its tensors while it runs."""
        return max((
            arg.offset + buffer.size * buffer.dtype.itemsize
            for buffer, arg in zip(self.kernel.buffers, self.args, strict=True)
            if isinstance(arg, Scratch)
        ), default=0)


_A = TypeVar("_A", bound=Op)
_B = TypeVar("_B", bound=Op)
_C = TypeVar("_C", bound=Op)


class Context(Struct, frozen=True):
    """A node and its graph, which is all that a lowering may know: not which tensors share
    bytes."""

    graph: Graph
    node: Node

    @property
    def numerics(self) -> Numerics:
        return self.graph.numerics

    @overload
    def op(self, first: type[_A], /) -> _A: ...
    @overload
    def op(self, first: type[_A], second: type[_B], /) -> _A | _B: ...
    @overload
    def op(self, first: type[_A], second: type[_B], third: type[_C], /) -> _A | _B | _C: ...
    def op(self, *kinds: type[Op]) -> Op:
        """Returns the operator. Raises TypeError unless it is one of these ``kinds``."""
        if not isinstance(self.node.op, kinds):
            raise TypeError(self.node.op)
        return self.node.op

    def has(self, position: int) -> bool:
        return self.graph.optional(self.node, position) is not None

    def input(self, position: int) -> TensorType:
        return self.graph.type(self.graph.required(self.node, position))

    def output(self, position: int = 0) -> TensorType:
        return self.graph.type(self.node.outputs[position])

    def quant(self, type_: TensorType) -> Quantization:
        """Returns the quantization of a tensor that must have one scale and zero point."""
        if type_.quant is None or not type_.quant.per_tensor:
            raise self.refuse(f"a {type_.dtype.value} tensor needs one scale and zero point")
        return type_.quant

    def values(self, position: int) -> npt.NDArray[np.generic]:
        """The values of a constant input, all in memory."""
        return self.constant(position).array(self.input(position))

    def sums(self, position: int, axis: int, zero: int = 0) -> tuple[Ints, Ints]:
        """Returns the sums of a constant input minus ``zero``, and of its magnitudes, over each
        slice of ``axis``. The input may be of any size."""
        return channel_sums(self.constant(position), self.input(position), axis, zero)

    @property
    def packed_bits(self) -> int | None:
        """Returns the bits of each weight, input 1, where kernels read them packed."""
        weights = self.graph.optional(self.node, 1)
        return None if weights is None else self.graph.tensors[weights].packed_bits

    def matrix(self, rows: int, position: int = 1) -> Matrix:
        """Returns constant weights of any size, usually input 1, as a matrix of ``rows``."""
        type_ = self.input(position)
        columns = type_.elements // rows if rows else 0
        return Matrix(self.constant(position), type_.dtype, rows, columns)

    def constant(self, position: int) -> ConstantRef:
        """Returns a constant input."""
        tensor = self.graph.required(self.node, position)
        constant = self.graph.constant(tensor)
        if constant is None:
            raise self.refuse(
                f"input {position} ({self.graph.tensors[tensor].name!r}) must be constant"
            )
        return constant

    def refuse(self, problem: str, hint: str | None = None) -> CrtExportError:
        """Returns an error that names the model and this node."""
        return CrtExportError(problem, location=(self.graph.source, str(self.node)), hint=hint)


def _elements(type_: TensorType, dtype: Scalar | None) -> tuple[Scalar, int]:
    """Returns the size of a buffer: a tensor's elements, or its bytes as those of another type."""
    if dtype is None:
        return SCALAR_OF[type_.dtype], type_.elements
    return dtype, type_.nbytes // dtype.itemsize


SCRATCH_ALIGN = 16


class Lowering:
    """A KernelBuilder that keeps buffers and their bindings together."""

    def __init__(self, name: str, context: Context) -> None:
        self.context = context
        self.b = KernelBuilder(name)
        self._args: list[KernelArg] = []
        self._scratch = 0

    def input(self, position: int, name: str, dtype: Scalar | None = None) -> Buffer:
        """Declares a pointer to the node's input, as elements of ``dtype`` (default: its own)."""
        type_ = self.context.input(position)
        self._args.append(InputTensor(position))
        element, count = _elements(type_, dtype)
        return self.b.buffer(name, element, count)

    def variable(self, position: int, name: str, dtype: Scalar | None = None) -> Buffer:
        """Declares a pointer to the variable that is the node's input, writable if the operator
        writes it."""
        op = self.context.node.op
        writable = isinstance(op, Stateful) and position in op.writes
        self._args.append(InputTensor(position))
        element, count = _elements(self.context.input(position), dtype)
        return self.b.buffer(name, element, count, writable=writable)

    def output(
        self, position: int = 0, name: str = "output", dtype: Scalar | None = None, *,
        noalias: bool = True,
    ) -> Buffer:
        """Declares a pointer to the node's output, as elements of ``dtype`` (default: its own).
        With ``noalias=False`` compilers aren't promised that it overlaps nothing."""
        type_ = self.context.output(position)
        self._args.append(OutputTensor(position))
        element, count = _elements(type_, dtype)
        return self.b.buffer(name, element, count, writable=True, noalias=noalias)

    def derived(
        self, name: str, dtype: Scalar, values: npt.ArrayLike, note: str = "", *, row: int = 0
    ) -> Buffer:
        """Declares a pointer to a constant array computed while exporting. ``note``: the comment on
        it in generated C; ``row``: the number of its elements that belong together (default: the
        last axis of several)."""
        array = np.asarray(values)
        row = row or (array.shape[-1] if array.ndim > 1 else 0)
        return self._stored(name, dtype, ConstantRef.of(array), row=row, note=note)

    def packed(
        self, name: str, dtype: Scalar, packing: Packing, rows: int, *, position: int = 1,
        row_multiple: int = 1, align: int | None = None, note: str = "",
    ) -> Buffer:
        """Returns a pointer to the node's weights, its constant input ``position`` as ``rows`` of a
        matrix, in the order of ``packing``, which becomes elements of ``dtype``. They may be of any
        size. ``row_multiple``: rows are repeated so that their number is a multiple of it, as
        :meth:`Matrix.whole` does; ``align``: bytes, of which compilers are told (default: those of
        an element); ``note``: what an element is, where it isn't a weight."""
        matrix = self.context.matrix(rows, position).whole(row_multiple)
        size = packing.nbytes(min(packing.block, matrix.rows), matrix.columns) // dtype.itemsize
        units = f"{packing.block} output channels" if packing.block > 1 else "an output channel"
        told = f"packed, a row for {units}"
        return self._stored(
            name, dtype, packed(matrix, packing), align, row=size,
            note=f"{told}; {note}" if note else told,
        )

    def _stored(
        self, name: str, dtype: Scalar, data: ConstantRef, align: int | None = None, *,
        row: int, note: str,
    ) -> Buffer:
        self._args.append(Derived(name, dtype, data, row, note))
        return self.b.buffer(name, dtype, data.nbytes // dtype.itemsize, align=align)

    def scratch(
        self, name: str, dtype: Scalar, count: int, *, noalias: bool = True,
        align: int | None = None,
    ) -> Buffer:
        """Returns a pointer to memory of the node's own, with whatever values; aligned for any
        type, of which compilers are told ``align`` bytes (default: those of an element)."""
        self._args.append(Scratch(self._scratch))
        self._scratch += -(-count * dtype.itemsize // SCRATCH_ALIGN) * SCRATCH_ALIGN
        return self.b.buffer(name, dtype, count, writable=True, noalias=noalias, align=align)

    def finish(self) -> Lowered:
        return Lowered(self.b.finish(), tuple(self._args))


Rule = Callable[[Context], str | None]
LowerFunction = Callable[[Context], Lowered]


class Registered(Struct, frozen=True):
    """A lowering with the rules that say which nodes it takes."""

    lower: LowerFunction
    rules: tuple[Rule, ...] = ()


LOWERINGS: dict[type[Op], Registered] = {}
"""Lowerings whose modules were imported; :func:`.operator_table.registered` imports all."""


def lowers(op: type[Op], *rules: Rule) -> Callable[[LowerFunction], LowerFunction]:
    """Registers the one lowering of an operator. A rule returns what breaks it, or None."""

    def register(function: LowerFunction) -> LowerFunction:
        if op in LOWERINGS:
            raise ValueError(f"{op.__name__} has two lowerings")
        LOWERINGS[op] = Registered(function, rules)
        return function

    return register


@contextmanager
def refusing_extremes(context: Context) -> Iterator[None]:
    """Turns arithmetic that scales are too extreme for into an error that names the node."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except ArithmeticError as error:
        raise context.refuse(EXTREME, hint=EXTREME_HINT) from error
