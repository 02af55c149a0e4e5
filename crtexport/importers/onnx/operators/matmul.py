"""Gemm and MatMul: by a constant matrix they are fully connected layers, else products of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from string import ascii_letters

import numpy as np

from crtexport.importers.onnx.builder import Blocks
from crtexport.importers.onnx.integer_weights import integer_weights, is_real_constant
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.move import section
from crtexport.importers.onnx.operators.numbers import combined, times
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, is_sorted, stored
from crtexport.ir.ops import Add, BatchMatMul, FullyConnected, Mul, Slice, Sub, Sum
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.support.errors import CrtExportError


@operator("MatMul", inputs=(2, 2))
def matmul(node: OnnxNode) -> Value:
    a, b = node.input(0), _as_gemm(node)
    if not a.shape or not b.shape:
        raise CrtExportError(f"a scalar has no rows: {a.shape} and {b.shape}")
    rows, columns = len(a.shape) == 1, len(b.shape) == 1
    if rows:
        a = node.builder.reshaped(a, (1, *a.shape))
    if columns:
        b = node.builder.reshaped(b, (*b.shape, 1))
    if a.shape[-1] != b.shape[-2]:
        raise CrtExportError(f"matrices {a.shape} and {b.shape} can't be multiplied")
    if node.builder.is_constant(b) and prod(b.shape[:-2]) == 1 and not node.builder.is_constant(a):
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        blocks = node.builder.blocks.get(b.tensor) if len(b.shape) == 2 and b.plain else None
        made = fully_connected(node, a, node.builder.reshaped(b, b.shape[-2:]), None) if (
            blocks is None
        ) else by_blocks(node, a, blocks)
        made = node.builder.reshaped(made, shape)
    else:
        made = product(node, a, b)
    shape = made.shape
    if rows:
        shape = (*shape[:-2], shape[-1])
    if columns:
        shape = shape[:-1]
    return node.builder.reshaped(made, shape)


def _as_gemm(node: OnnxNode) -> Value:
    """Returns the second factor: of integers, where ONNX Runtime's optimizer makes a Gemm of the
    product and the Add of a bias, and this has such weights."""
    a, b = node.all()
    bias = node.walk.added(node.info.outputs[0])
    if bias is None or len(b.shape) != 2 or bias[0].shape != b.shape[1:] or (
        not is_real_constant(node, bias[0])
    ):
        return b
    # A Gemm is of matrices: between others it has a Reshape behind it.
    matrix = len(a.shape) == 2
    return integer_weights(node, b, None, result=bias[1], clamped=matrix)[0]


def fully_connected(node: OnnxNode, a: Value, b: Value, bias: int | None) -> Value:
    """Returns the product of ``a``'s last axis and a constant matrix (depth, units), plus ``bias``.

    The elements of a row keep their order in memory, and the matrix is reordered to match; rows may
    have any order.
    """
    depth = a.axes[-1]
    row_order = sorted(atom for axis in a.axes[:-1] for atom in axis)
    inner = sorted(depth)
    if not is_sorted([*row_order, *inner], a.atoms):
        a = node.builder.plain(a)
        row_order = list(range(len(a.axes) - 1))
        depth = (len(a.axes) - 1,)
        inner = list(depth)
    sizes = [a.atoms[atom] for atom in depth]
    weights = node.builder.reshaped(b, (*sizes, b.shape[1]))
    order = [len(sizes), *(depth.index(atom) for atom in inner)]
    matrix = node.builder.reshape(
        node.builder.arranged(weights, order), (b.shape[1], b.shape[0])
    )
    tensor = node.builder.reshape(a.tensor, (*(a.atoms[atom] for atom in row_order), b.shape[0]))
    inputs = (tensor, matrix) if bias is None else (tensor, matrix, bias)
    (made,) = node.builder.emit(FullyConnected(keep_num_dims=True), *inputs)
    atoms = node.type(made).shape
    places = {atom: position for position, atom in enumerate(row_order)}
    axes = [tuple(places[atom] for atom in axis) for axis in a.axes[:-1]]
    return Value(made, atoms, (*axes, (len(atoms) - 1,)))


def by_blocks(node: OnnxNode, a: Value, blocks: Blocks) -> Value:
    """Returns the product of ``a``'s last axis and a matrix that has scales by blocks: a sum of
    fully connected layers, with weights of int8 that have a scale for each column."""
    builder, columns = node.builder, blocks.scales.shape[1]

    def part(number: int) -> Value:
        first = number * blocks.size
        steps = blocks.steps[first : first + blocks.size]
        quant = Quantization(tuple(blocks.scales[number].tolist()), (0,) * columns, 1)
        made = builder.tensor(TensorType(DType.INT8, steps.shape, quant), ConstantRef.of(steps))
        real = stored(builder.real_constant(made), steps.shape)
        rows = section(node, a, len(a.shape) - 1, first, len(steps))
        return fully_connected(node, rows, real, None)

    return combined(node, Add(), map(part, range(-(-len(blocks.steps) // blocks.size))))


def _matrices(node: OnnxNode, value: Value) -> tuple[int, bool]:
    """Returns a stack of matrices, and whether each is stored by columns: as it lies in memory, if
    that saves moving it."""
    rank = len(value.axes)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    by_columns = not value.plain and value.arranged(swapped)
    return node.builder.arranged(value, swapped if by_columns else None), by_columns


def product(node: OnnxNode, a: Value, b: Value) -> Value:
    """Returns the products of two stacks of matrices, both computed."""
    first, adj_x = _matrices(node, a)
    second, adj_y = _matrices(node, b)
    return node.emit(BatchMatMul(adj_x, adj_y), first, second)


@operator("Gemm", inputs=(2, 3))
def gemm(node: OnnxNode) -> Value:
    """Returns alpha * A * B + beta * C; constant factors go into constants."""
    node.ignore("broadcast")  # of opset 6
    a = node.input(0)
    b, c = integer_weights(node, node.input(1), node.optional(2))
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise CrtExportError(f"matrices must have 2 dimensions, found {a.shape} and {b.shape}")
    a = a.transposed((1, 0)) if node.integer("transA", 0) else a
    b = b.transposed((1, 0)) if node.integer("transB", 0) else b
    if a.shape[1] != b.shape[0]:
        raise CrtExportError(f"matrices {a.shape} and {b.shape} can't be multiplied")
    units = b.shape[1]
    if c is not None and beta != 1:
        c = times(node, c, beta)
    if not node.builder.is_constant(b) or node.builder.is_constant(a):
        made = times(node, product(node, a, b), alpha)
        return made if c is None else node.elementwise(Add(), made, c)
    b = times(node, b, alpha)
    if c is not None and node.builder.is_constant(c) and c.elements in (1, units) and (
        _leading_ones(c.shape)
    ):
        if c.tensor in node.builder.integers and c.elements == units:
            return fully_connected(node, a, b, node.builder.reshape(c.tensor, (units,)))
        vector = np.broadcast_to(node.array(c, "the bias").reshape(-1), (units,))
        return fully_connected(node, a, b, node.constant(vector, node.dtype(b)).tensor)
    made = fully_connected(node, a, b, None)
    return made if c is None else node.elementwise(Add(), made, c)


def _leading_ones(shape: Sequence[int]) -> bool:
    return prod(shape[:-1]) == 1


@operator("Einsum", inputs=(1, None))
def einsum(node: OnnxNode) -> Value:
    """Diagonals of letters that an operand has twice, sums over letters that the result hasn't, and
    products of matrices, from the left to the right."""
    text = node.text("equation").replace(" ", "")
    given, arrow, result = text.partition("->")
    values = node.all()
    names = given.split(",")
    if not arrow:
        letters = given.replace(",", "").replace("...", "")
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        result = f"...{result}" if "..." in given else result
    if len(names) == len(values):
        values, names, result = _spelled_out(node, values, names, result)
        for i, name in enumerate(names):
            values[i], names[i] = _diagonal(node, values[i], name)
    if len(names) != len(values) or not all(
        len(set(name)) == len(name) == len(v.shape) and (name.isalpha() or not name)
        for name, v in zip(names, values, strict=False)
    ) or not set(result) <= set("".join(names)):
        raise CrtExportError(f"the equation {text!r} for {[v.shape for v in values]}")
    for i, name in enumerate(names):
        others = "".join(names[:i] + names[i + 1 :])
        gone = [k for k, c in enumerate(name) if c not in result and c not in others]
        if gone:
            values[i] = node.reduce(Sum, values[i], gone, keep=False)
            names[i] = "".join(c for k, c in enumerate(name) if k not in gone)
    while len(values) > 1:
        wanted = "".join(names[2:]) + result
        kept = "".join(c for c in dict.fromkeys(names[0] + names[1]) if c in wanted)
        values[:2] = [_contracted(node, values[:2], names[:2], kept)]
        names[:2] = [kept]
    return values[0].transposed([names[0].index(c) for c in result])


def _diagonal(node: OnnxNode, value: Value, name: str) -> tuple[Value, str]:
    """Returns an operand with each letter once: where axes have the same one, only the elements
    with equal positions along them."""
    repeated = next((c for c in name if name.count(c) > 1), None)
    if repeated is None or len(name) != len(value.shape):
        return value, name
    pair = [k for k, c in enumerate(name) if c == repeated][:2]
    size = value.shape[pair[0]]
    if value.shape[pair[1]] != size:
        raise CrtExportError(f"{name!r} has axes of one letter, {list(value.shape)} other sizes")
    others = [k for k in range(len(name)) if k not in pair]
    shape = [value.shape[k] for k in others]
    flat = node.builder.reshaped(value.transposed([*others, *pair]), [*shape, size * size])
    taken = Slice(
        (0,) * len(name[1:]), (*shape, size), (*(1 for _ in others), size + 1), (*shape, size)
    )
    cut = node.emit(taken, node.builder.arranged(flat))
    return _diagonal(node, cut, "".join(name[k] for k in others) + repeated)


def _spelled_out(
    node: OnnxNode, values: list[Value], names: list[str], result: str
) -> tuple[list[Value], list[str], str]:
    """Returns the operands and the equation with letters for "...", the last axis the same one
    everywhere; an operand that has only one element along such an axis loses it."""
    used = "".join(names) + result
    free = [c for c in ascii_letters if c not in used]
    ranks = [
        len(value.shape) - len(name) + 3 if "..." in name else 0
        for name, value in zip(names, values, strict=True)
    ]
    letters = "".join(free[: max(ranks)])
    names = [
        name.replace("...", letters[len(letters) - max(rank, 0) :])
        for name, rank in zip(names, ranks, strict=True)
    ]
    longer = {
        c for name, value in zip(names, values, strict=True)
        for c, size in zip(name, value.shape, strict=False) if size > 1
    }
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        gone = [
            k for k, (c, size) in enumerate(zip(name, value.shape, strict=False))
            if c in letters and c in longer and size == 1
        ]
        if gone:
            shape = [size for k, size in enumerate(value.shape) if k not in gone]
            values[i] = node.builder.reshaped(value, shape)
            names[i] = "".join(c for k, c in enumerate(name) if k not in gone)
    return values, names, result.replace("...", letters)


def _contracted(
    node: OnnxNode, values: Sequence[Value], names: Sequence[str], result: str
) -> Value:
    first, second = names
    batch = [c for c in first if c in second and c in result]
    inner = [c for c in first if c in second and c not in result]
    rows, columns = ([c for c in name if c not in batch + inner] for name in names)
    sizes = {
        c: n for name, v in zip(names, values, strict=True)
        for c, n in zip(name, v.shape, strict=True)
    }

    def count(letters: Sequence[str]) -> int:
        return prod(sizes[c] for c in letters)

    left = values[0].transposed([first.index(c) for c in (*batch, *rows, *inner)])
    right = values[1].transposed([second.index(c) for c in (*batch, *inner, *columns)])
    made = product(
        node, node.builder.reshaped(left, (count(batch), count(rows), count(inner))),
        node.builder.reshaped(right, (count(batch), count(inner), count(columns))),
    )
    order = [*batch, *rows, *columns]
    whole = node.builder.reshaped(made, [sizes[c] for c in order])
    return whole.transposed([order.index(c) for c in result])


@operator("Det")
def determinant(node: OnnxNode) -> Value:
    """Returns the determinants of small matrices, expanded by their first rows."""
    x = node.input(0)
    size = x.shape[-1]
    if len(x.shape) < 2 or x.shape[-2] != size or size > _LARGEST_DETERMINANT:
        raise CrtExportError(
            f"{x.shape} are no square matrices of up to {_LARGEST_DETERMINANT} rows"
        )
    tensor = node.builder.arranged(x)
    cells = {
        (i, j): _cell(node, tensor, i, j) for i in range(size) for j in range(size)
    }
    whole = _minor(node, cells, 0, tuple(range(size)))
    return node.builder.reshaped(whole, x.shape[:-2])


_LARGEST_DETERMINANT = 4


def _cell(node: OnnxNode, tensor: int, row: int, column: int) -> Value:
    shape = node.type(tensor).shape
    begin = (*(0,) * (len(shape) - 2), row, column)
    size = (*shape[:-2], 1, 1)
    return node.emit(Slice(begin, size, (1,) * len(shape), size), tensor)


def _minor(
    node: OnnxNode, cells: Mapping[tuple[int, int], Value], row: int, columns: tuple[int, ...]
) -> Value:
    if len(columns) == 1:
        return cells[row, columns[0]]
    total: Value | None = None
    for number, column in enumerate(columns):
        rest = tuple(c for c in columns if c != column)
        term = node.elementwise(
            Mul(), cells[row, column], _minor(node, cells, row + 1, rest)
        )
        if total is None:
            total = term
        else:
            total = node.elementwise(Sub() if number % 2 else Add(), total, term)
    if total is None:
        raise ValueError("a matrix without columns")
    return total
