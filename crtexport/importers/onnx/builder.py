"""Builds the Graph of an import.

Nodes are added one by one, and their output types inferred; nodes on constants are evaluated at
once, and elements are moved only if an operator needs another order of axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from crtexport.importers.onnx.folding import fold
from crtexport.importers.onnx.integer_operators import MOVERS
from crtexport.importers.onnx.quantized_constants import moved_axis, real_numbers
from crtexport.importers.onnx.values import Shape, Value, runs, stored
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.ops import Cast, Op, Quantize, Reshape, Transpose
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.verify import check_type

_WIDE = (DType.INT32, DType.INT64)


class Blocks(Struct, frozen=True):
    """A matrix as integers (depth, columns), with a scale for each column of each block of ``size``
    rows; the last block may be incomplete."""

    steps: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    size: int

    @staticmethod
    def of(
        steps: npt.NDArray[np.int64], scales: npt.NDArray[np.float32], size: int
    ) -> Blocks | None:
        """Returns the matrix with positive scales; None if its integers don't fit int8."""
        signs = np.repeat(np.sign(scales), size, axis=0)[: len(steps)].astype(np.int64)
        signed = steps * signs
        if signed.size == 0 or not -128 <= signed.min() <= signed.max() <= 127 or (
            not np.isfinite(scales).all()
        ):
            return None
        positive = np.where(scales == 0, np.float32(1), np.abs(scales))
        return Blocks(signed.astype(np.int8), positive, size)


class Builder:
    """Builds a Graph: ``tensors`` and ``nodes`` are those that were added. ``name`` and ``origin``
    are given to the next node."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.name = self.origin = ""
        self._reshaped: dict[tuple[int, Shape], int] = {}
        self._moved: dict[tuple[int, Shape, tuple[int, ...]], int] = {}
        self._source: dict[int, int] = {}
        """The input of each Reshape, by its output."""
        self.integers: dict[int, int] = {}
        """The tensor of integers from which a constant of real numbers was dequantized."""
        self.signed: dict[int, int] = {}
        """The int8 tensor behind a uint8 tensor, whose zero point is 128 more."""
        self.floats: dict[int, int] = {}
        """The float32 tensor that was cast to a tensor of integers."""
        self.blocks: dict[int, Blocks] = {}
        """Matrices of real numbers that have scales by blocks."""
        self.bits: dict[int, int] = {}
        """The bits of integers that have fewer than their byte, as int4 has."""
        self.counts: set[int] = set()
        """Integers that are never negative, since they count the iterations of a loop."""
        self._quantized: dict[tuple[int, DType, Quantization], int] = {}

    # -- tensors

    def tensor(self, type_: TensorType, constant: ConstantRef | None = None) -> int:
        """Adds a tensor that no node computes; returns its number."""
        check_type(type_)
        self.tensors.append(Tensor(self.name, type_, constant))
        return len(self.tensors) - 1

    def constant(
        self, values: npt.ArrayLike, dtype: DType, shape: Shape | None = None
    ) -> Value:
        """Returns a constant tensor with these values."""
        array = np.asarray(values, dtype.numpy)
        array = array if shape is None else array.reshape(shape)
        type_ = TensorType(dtype, array.shape)
        return stored(self.tensor(type_, ConstantRef.of(array)), array.shape)

    def type(self, tensor: int) -> TensorType:
        return self.tensors[tensor].type

    def is_constant(self, value: Value) -> bool:
        return self.tensors[value.tensor].constant is not None

    # -- nodes

    def emit(
        self, op: Op, *inputs: int | None, dtypes: tuple[DType, ...] = (),
        graphs: tuple[Graph, ...] = (),
    ) -> tuple[int, ...]:
        """Adds a node, or evaluates it if its inputs are constants; returns its outputs. ``dtypes``
        are the element types of outputs that the operator leaves open."""
        if isinstance(op, Reshape | Transpose) and inputs[0] in self.integers:
            moved = moved_axis(op, self.tensors[self.integers[inputs[0]]])
            if moved is not None:
                return (self.real_constant(self.tensor(*moved)),)
        signed = self.signed.get(inputs[0] or 0) if isinstance(op, MOVERS) else None
        if signed is not None:
            made = self.emit(op, signed, *inputs[1:])
            quant = self.type(inputs[0] or 0).quant or Quantization((1.0,), (0,))
            results_ = tuple(self.quantize(tensor, DType.UINT8, quant) for tensor in made)
            self.signed.update(zip(results_, made, strict=True))
            return results_
        types = tuple(None if i is None else self.type(i) for i in inputs)
        first = next((type_.dtype for type_ in types if type_ is not None), DType.FLOAT32)
        results = infer(op, types, declared=dtypes or (first,), graphs=graphs)
        for type_ in results:
            check_type(type_)
        given = [self.tensors[i] for i in inputs if i is not None]
        folded = None
        if len(given) == len(inputs) and all(tensor.constant for tensor in given):
            folded = fold(op, given, results)
        constants = folded if folded is not None else [None] * len(results)
        outputs = tuple(
            self.tensor(type_, constant)
            for type_, constant in zip(results, constants, strict=True)
        )
        if isinstance(op, MOVERS) and types[0] is not None and types[0].quant is not None:
            for output in outputs:
                self.scaled(output, types[0].quant)
        if isinstance(op, MOVERS) and inputs[0] in self.bits:
            self.bits.update(dict.fromkeys(outputs, self.bits[inputs[0]]))
        if (
            isinstance(op, (*MOVERS, Cast)) and inputs[0] in self.counts
            and results[0].dtype in _WIDE
        ):
            self.counts.update(outputs)
        if folded is None:
            self.nodes.append(
                Node(op, tuple(inputs), outputs, self.name, self.origin, graphs)
            )
        return outputs

    def narrow(self, tensor: int, bits: int | None) -> None:
        """Records the number of bits of a tensor's integers; None for all."""
        if bits is None:
            self.bits.pop(tensor, None)
        else:
            self.bits[tensor] = bits

    # -- quantized tensors

    def scaled(self, tensor: int, quant: Quantization) -> bool:
        """Gives a tensor of integers its scale. Returns False if it already has another one."""
        known = self.tensors[tensor]
        if known.type.quant is None:
            type_ = replace(known.type, quant=quant)
            check_type(type_)
            self.tensors[tensor] = replace(known, type=type_)
        return known.type.quant in (None, quant)

    def quantize(self, tensor: int, dtype: DType, quant: Quantization) -> int:
        """Returns the tensor quantized to this scale; repeated calls return the same tensor."""
        key = tensor, dtype, quant
        if key not in self._quantized:
            (made,) = self.emit(Quantize(), tensor, dtypes=(dtype,))
            self.scaled(made, quant)
            self._quantized[key] = made
        return self._quantized[key]

    def real_constant(self, tensor: int) -> int:
        """Returns the real values of a constant of quantized integers."""
        known = self.tensors[tensor]
        if known.constant is None:
            raise ValueError("only constants are known")
        made = self.tensor(
            TensorType(DType.FLOAT32, known.type.shape), real_numbers(known.type, known.constant)
        )
        self.integers[made] = tensor
        return made

    def reshape(self, tensor: int, shape: Sequence[int]) -> int:
        """Returns a tensor of this shape with the same elements in the same order."""
        shape = tuple(shape)
        tensor = self._source.get(tensor, tensor)
        if self.type(tensor).shape == shape:
            return tensor
        key = tensor, shape
        if key not in self._reshaped:
            (made,) = self.emit(Reshape(shape), tensor)
            self._reshaped[key] = made
            self._source[made] = tensor
        return self._reshaped[key]

    # -- the order of elements

    def arranged(self, value: Value, order: Sequence[int] | None = None) -> int:
        """Returns a tensor with the elements of ``value``, whose axis i is axis ``order[i]`` of
        ``value`` (default: ONNX's order). Adds a Transpose if the elements have another order in
        memory."""
        order = tuple(range(len(value.axes))) if order is None else tuple(order)
        shape = [value.shape[axis] for axis in order]
        sequence = value.sequence(order)
        if value.arranged(order):
            return self.reshape(value.tensor, shape)
        # Scales per slice need their axis to stay one axis.
        scaled = value.tensor in self.integers
        groups = [[atom] for atom in sequence] if scaled else runs(sequence, value.atoms)
        key = value.tensor, value.atoms, tuple(sequence)
        if key not in self._moved:
            there = sorted(groups)
            sizes = [prod(value.atoms[atom] for atom in group) for group in there]
            source = self.reshape(value.tensor, sizes)
            permutation = tuple(there.index(group) for group in groups)
            (self._moved[key],) = self.emit(Transpose(permutation), source)
        return self.reshape(self._moved[key], shape)

    def plain(self, value: Value) -> Value:
        """Returns the value with its elements in ONNX's order in memory."""
        return stored(self.arranged(value), value.shape)

    def ordered(self, value: Value) -> tuple[int, tuple[int, ...]]:
        """Returns a tensor with one axis for each of the value's, and the order of these axes: for
        operators that accept any order."""
        order = value.order
        if order is None:
            order = tuple(range(len(value.axes)))
        return self.arranged(value, order), order

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Returns the elements, in ONNX's order, with another shape."""
        found = value.reshaped(shape)
        if found is not None:
            return found
        plain = self.plain(value)
        return plain.reshaped(shape) or stored(self.reshape(plain.tensor, shape), shape)

    # -- elementwise operators and reductions, which work on any order of elements

    def unary(self, op: Op, value: Value, *, dtypes: tuple[DType, ...] = ()) -> Value:
        """Adds an operator that computes each element from the one at the same index."""
        (made,) = self.emit(op, value.tensor, dtypes=dtypes)
        return replace(value, tensor=made)

    def elementwise(self, op: Op, *values: Value) -> Value:
        """Adds an operator on several inputs that broadcast.

        The result has the layout of an input with its shape; the other inputs are brought into that
        layout.
        """
        shape = tuple(np.broadcast_shapes(*(value.shape for value in values)))
        values = tuple(_leading(value, len(shape)) for value in values)
        frame = self._frame(values, shape)
        if frame is None:
            return self._aligned(op, values, shape)
        patterns = [self._like(value, frame) for value in values]
        whole = self.type(frame.tensor).shape
        pieces = _pieces(whole, frame.atoms)
        fitting = [_joined(sizes, frame.atoms, pieces) for _, sizes in patterns]
        target = tuple(frame.atoms)
        shapes: Sequence[Sequence[int] | None] = fitting
        if pieces is None or any(sizes is None for sizes in fitting):
            kept = [i for i, size in enumerate(target) if size != 1] or list(range(len(target)))
            shapes = [[sizes[i] for i in kept] for _, sizes in patterns]
        inputs = [
            self.reshape(tensor, sizes or ())
            for (tensor, _), sizes in zip(patterns, shapes, strict=True)
        ]
        (made,) = self.emit(op, *inputs)
        return replace(frame, tensor=made)

    def _frame(self, values: Sequence[Value], shape: Shape) -> Value | None:
        """Returns the input whose layout the others get: preferably computed rather than constant,
        and in the kernels' order rather than ONNX's."""
        whole = [value for value in values if value.shape == shape]
        return min(
            whole, key=lambda value: (self.is_constant(value), value.plain), default=None
        )

    def _aligned(self, op: Op, values: Sequence[Value], shape: Shape) -> Value:
        """Returns the operator's result if no input has its shape."""
        largest = max(values, key=lambda value: (not self.is_constant(value), value.elements))
        order = largest.order or tuple(range(len(shape)))
        (made,) = self.emit(op, *(self.arranged(value, order) for value in values))
        return stored(made, [shape[axis] for axis in order], order)

    def _like(self, value: Value, frame: Value) -> tuple[int, list[int]]:
        """Returns a tensor with the elements of ``value`` in the order of ``frame``, and its size
        along each atom of ``frame``: the atom's, or 1."""
        if value is frame:
            return value.tensor, list(frame.atoms)
        axes = [(axis, size != 1) for axis, size in zip(frame.axes, value.shape, strict=True)]
        sizes = {atom: frame.atoms[atom] if there else 1 for axis, there in axes for atom in axis}
        atoms = [atom for axis, _ in axes for atom in axis]
        finer = self.reshaped(value, [sizes[atom] for atom in atoms])
        order = [atoms.index(atom) for atom in sorted(atoms)]
        tensor = self.arranged(finer, order)
        return tensor, [sizes.get(atom, 1) for atom in range(len(frame.atoms))]

    def reduce(
        self, kind: Callable[..., Op], value: Value, axes: Sequence[int], *, keep: bool
    ) -> Value:
        """Adds a reduction (Sum, Mean, ...) over ``axes``; ``keep`` keeps these with size 1."""
        gone = {atom for axis in axes for atom in value.axes[axis]}
        sizes = self.type(value.tensor).shape
        pieces = _pieces(sizes, value.atoms)
        tensor, places = value.tensor, list[int]()
        if pieces is None or any(
            len({atom in gone for atom in piece if value.atoms[atom] != 1}) > 1 for piece in pieces
        ):
            tensor = self.reshape(value.tensor, value.atoms)
            places = sorted(gone)
        else:
            places = [
                number for number, piece in enumerate(pieces)
                if any(atom in gone and value.atoms[atom] != 1 for atom in piece)
            ]
        if places:
            (tensor,) = self.emit(kind(tuple(places), keep_dims=True), tensor)
        atoms = tuple(1 if atom in gone else size for atom, size in enumerate(value.atoms))
        kept = replace(value, tensor=tensor, atoms=atoms)
        return kept if keep else kept.without(axes)


def _leading(value: Value, rank: int) -> Value:
    """Returns the value with leading axes of size 1 added."""
    more = rank - len(value.axes)
    if not more:
        return value
    axes = tuple(tuple(atom + more for atom in axis) for axis in value.axes)
    return Value(
        value.tensor, (1,) * more + value.atoms, (*((i,) for i in range(more)), *axes)
    )


def _pieces(shape: Sequence[int], atoms: Sequence[int]) -> list[list[int]] | None:
    """Returns the atoms of each axis of a tensor; None if an atom spans several axes or the tensor
    is empty."""
    if 0 in shape or 0 in atoms:
        return None
    pieces: list[list[int]] = []
    at = 0
    for size in shape:
        piece, left = list[int](), size
        while at < len(atoms) and (left > 1 or (atoms[at] == 1 and not piece)):
            if left % atoms[at]:
                return None
            left //= atoms[at]
            piece.append(at)
            at += 1
        if left != 1:
            return None
        pieces.append(piece)
    if pieces:
        pieces[-1] += range(at, len(atoms))
    return pieces


def _joined(
    sizes: Sequence[int], atoms: Sequence[int], pieces: list[list[int]] | None
) -> list[int] | None:
    """Returns the sizes of a tensor along the axes of another one: for each axis its size, or 1;
    None if the tensor has only some of an axis' atoms."""
    result = []
    for piece in pieces or ():
        own = prod(sizes[atom] for atom in piece)
        if own not in (1, prod(atoms[atom] for atom in piece)):
            return None
        result.append(own)
    return result
