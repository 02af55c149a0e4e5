"""Operators with NumPy as their reference: those that no runtime has, and some for a second
opinion."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.ir.types import DType, TensorType
from tests.differential import recurrent_reference as recurrent
from tests.differential import signal_reference as signal

Array = npt.NDArray[Any]


class NumpyCase(Struct, frozen=True):
    """An operator on inputs of these types, and ``compute``, which has float64 for float32.

    ``tolerance`` is that of float results, as a part of the largest one.
    """

    op: Op
    inputs: tuple[TensorType, ...]
    compute: Callable[..., Array | tuple[Array, ...]]
    tolerance: float = 1e-6
    result: DType = DType.INT8
    """The element type of the output, where the operator leaves it open."""
    spread: float = 10.0
    """Standard deviation of the floats that are drawn."""
    constants: Mapping[int, Array] = {}
    """Inputs that must be constant, and their values."""


def _floats(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


_CHILDREN = np.array([(1, 2), (~0, 3), (~1, ~0), (~2, ~3)], np.int16)
_FOREST: Mapping[int, Array] = {
    1: np.array([0, 2, ~1, 0], np.int16), 2: np.array([0.5, -3, 2, -8], np.float32),
    3: _CHILDREN, 4: np.array([0, 1, ~3], np.int16),
    5: np.array([(1, 2), (0.25, 4), (-1, 8), (3, -5)], np.float32),
}


def _wins(rows: int, classes: int) -> Array:
    """How probably each class wins against each other."""
    first = 1 / (1 + np.exp(np.random.default_rng(0).normal(0, 2, (rows, classes, classes))))
    upper = np.triu(np.ones((classes, classes)), 1)
    result: Array = (first * upper + (1 - first.swapaxes(1, 2)) * upper.T).astype(np.float32)
    return result


def _coupled(wins: Array) -> Array:
    """As in libsvm, with the matrix of the quadratic form written out."""
    result = np.zeros(wins.shape[:2])
    for row, r in enumerate(wins):
        count = len(r)
        form = -r.T * r + np.diag((r**2).sum(0))
        p = np.full(count, 1 / count)
        for _ in range(100):
            product = form @ p
            whole = p @ product
            if np.abs(product - whole).max() < 0.005 / count:
                break
            for t in range(count):
                step = (whole - product[t]) / form[t, t]
                p[t] += step
                p = p / (1 + step)
                whole = (whole + step * (step * form[t, t] + 2 * product[t])) / (1 + step) ** 2
                product = (product + step * form[t]) / (1 + step)
        result[row] = p
    return result


def _bilinear(x: Array, places: Array) -> Array:
    """Between the four pixels around a place, those outside of the image are 0."""
    result = np.zeros((*places.shape[:2], x.shape[3]))
    for n, point in np.ndindex(*places.shape[:2]):
        column, row = places[n, point]
        for y, z in np.ndindex(*x.shape[1:3]):
            result[n, point] += x[n, y, z] * max(1 - abs(row - y), 0) * max(1 - abs(column - z), 0)
    return result


def walked(x: Array, *tables: Array) -> Array:
    """From root to leaf, tree by tree and row by row."""
    features, thresholds, children, roots, leaves = tables
    result = np.zeros((len(x), leaves.shape[1]))
    for row, total in zip(x, result, strict=True):
        for root in roots:
            node = int(root)
            while node >= 0:
                feature = int(features[node])
                value = row[feature if feature >= 0 else ~feature]
                left = value <= thresholds[node] or (np.isnan(value) and feature < 0)
                node = int(children[node][0 if left else 1])
            np.add(total, leaves[~node], out=total)
    return result


def _table(*shape: int) -> TensorType:
    return TensorType(DType.INT16, shape)


def _copied(axis: int) -> Callable[[Array, Array], Array]:
    return lambda x, indices: np.take(x, indices, axis, mode="clip")


def _resampled(*axes: int) -> Callable[..., Array]:
    """Sums of weighted elements along one axis after another."""

    def compute(x: Array, *tables: Array) -> Array:
        pairs = zip(tables[: len(axes)], tables[len(axes) :], strict=True)
        for axis, (indices, weights) in zip(axes, pairs, strict=True):
            shape = (*weights.shape, *(1,) * (x.ndim - axis - 1))
            picked = np.take(x, indices, axis, mode="clip")
            x = (picked * weights.reshape(shape)).sum(axis + 1)
        return x

    return compute


def _ints(*shape: int, dtype: DType = DType.INT32) -> TensorType:
    return TensorType(dtype, shape)


def _shifted(x: Array, by: Array) -> Array:
    wide = x.astype(object) << np.clip(by, 0, 64).astype(object)
    return np.array([n & 0xFF for n in wide.flat], np.uint8).reshape(wide.shape)


def _down(x: Array, by: Array) -> Array:
    wide = x.astype(object) >> np.clip(by, 0, 64).astype(object)
    return wide.astype(np.int16)


def _taken(x: Array, indices: Array) -> Array:
    return np.take_along_axis(x, np.clip(indices, 0, x.shape[1] - 1).astype(np.int64), 1)


def _scattered(x: Array, indices: Array, updates: Array) -> Array:
    result = x.copy()
    for place in np.ndindex(indices.shape):
        row = int(np.clip(indices[place], 0, x.shape[0] - 1))
        result[row, place[1]] = updates[place]
    return result


def _summed(x: Array, indices: Array, updates: Array) -> Array:
    result = x.astype(np.int32)
    for number, place in enumerate(indices):
        row, column = np.clip(place, 0, np.array(x.shape[:2]) - 1)
        result[row, column] += updates[number]
    return result


def _largest(x: Array) -> tuple[Array, ...]:
    order = np.argsort(-x, 1, kind="stable")[:, :3]
    return np.take_along_axis(x, order, 1), order.astype(np.int64)


def _largest_of_bytes(x: Array) -> tuple[Array, ...]:
    return _largest(x.astype(np.int64))


def _whole_powers(x: Array, y: Array) -> Array:
    """Modulo 2**64; of negative exponents 0, but for those of 1 and -1."""
    x, y = np.broadcast_arrays(x, y)
    found = [
        pow(a, b) if b >= 0 else a ** (b & 1) if abs(a) == 1 else 0
        for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    ]
    wrapped = [(n + (1 << 63)) % (1 << 64) - (1 << 63) for n in found]
    return np.array(wrapped, np.int64).reshape(x.shape)


def _separate(boxes: Array, scores: Array) -> Array:
    """For each class the best 3 boxes, sorted, without those that overlap a better one by more than
    0.2, in single precision as boxes and scores come."""
    rows: list[tuple[int, ...]] = []
    for batch, class_ in np.ndindex(scores.shape[:2]):
        line, kept = scores[batch, class_].astype(np.float32), list[int]()
        for box in np.argsort(-line, kind="stable"):
            if line[box] > -1 and len(kept) < 3 and not any(
                _overlap(boxes[batch, box], boxes[batch, other]) > 0.2 for other in kept
            ):
                kept.append(int(box))
                rows.append((batch, class_, int(box)))
    most = scores.shape[0] * scores.shape[1] * 3
    return np.array(rows + [(-1, -1, -1)] * (most - len(rows)), np.int32)


def _overlap(a: Array, b: Array) -> float:
    """Of two boxes, each given by two opposite corners."""
    low, high = np.minimum(a[:2], a[2:]), np.maximum(a[:2], a[2:])
    other_low, other_high = np.minimum(b[:2], b[2:]), np.maximum(b[:2], b[2:])
    common = np.clip(np.minimum(high, other_high) - np.maximum(low, other_low), 0, None).prod()
    return float(common / ((high - low).prod() + (other_high - other_low).prod() - common))


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


NUMPY_CASES: Mapping[str, NumpyCase] = {
    "square": NumpyCase(ops.Square(), (_floats(3, 5),), lambda x: x * x),
    "neg": NumpyCase(ops.Neg(), (TensorType(DType.INT32, (7,)),), np.negative),
    "maximum": NumpyCase(ops.Maximum(), (_floats(2, 3), _floats(2, 3)), np.maximum),
    "sample": NumpyCase(
        ops.Sample(), (_floats(2, 3, 5, 4), _floats(2, 9, 2)), _bilinear, spread=2.0
    ),
    "trees": NumpyCase(
        ops.TreeEnsemble(),
        (_floats(40, 3), *(TensorType(DType(a.dtype.name), a.shape) for a in _FOREST.values())),
        walked, constants=_FOREST,
    ),
    "squared_distance": NumpyCase(
        ops.SquaredDistance(), (_floats(3, 5), _floats(4, 5)),
        lambda x, y: ((x[:, None] - y[None]) ** 2).sum(2),
    ),
    "pairwise_coupling": NumpyCase(
        ops.PairwiseCoupling(), (_floats(30, 5, 5),), _coupled, constants={0: _wins(30, 5)}
    ),
    "resample_copies": NumpyCase(
        ops.Resample((1,)), (TensorType(DType.UINT8, (2, 4, 3)), _table(6)), _copied(1)
    ),
    "resample_images": NumpyCase(
        ops.Resample((1, 2)),
        (_floats(2, 4, 3, 5), _table(6, 2), _table(2, 3), _floats(6, 2), _floats(2, 3)),
        _resampled(1, 2),
    ),
    "resample_many_taps": NumpyCase(
        ops.Resample((0, 2)),
        (_floats(4, 3, 5), _table(3, 5), _table(2, 4), _floats(3, 5), _floats(2, 4)),
        _resampled(0, 2),
    ),
    "non max suppression": NumpyCase(
        ops.NonMaxSuppression(3, 0.2, -1.0), (_floats(2, 7, 4), _floats(2, 3, 7)), _separate,
        spread=1.0,
    ),
    "lookup": NumpyCase(
        ops.Lookup(), (TensorType(DType.UINT8, (3, 5)), TensorType(DType.INT8, (256,))),
        lambda x, table: table[x],
    ),
    "erf": NumpyCase(ops.Erf(), (_floats(40),), _erf, spread=1.5),
    "atan": NumpyCase(ops.Atan(), (_floats(40),), np.arctan, spread=2.0),
    "pow": NumpyCase(
        ops.Pow(), (_floats(3, 5), _floats(5)), np.power, spread=1.0
    ),
    "pow of whole numbers": NumpyCase(
        ops.Pow(), (_ints(3, 5, dtype=DType.INT64), _ints(5, dtype=DType.INT64)), _whole_powers
    ),
    "bitwise and": NumpyCase(ops.BitwiseAnd(), (_ints(3, 4), _ints(4)), np.bitwise_and),
    "bitwise or": NumpyCase(
        ops.BitwiseOr(), (_ints(3, 4, dtype=DType.UINT16), _ints(4, dtype=DType.UINT16)),
        np.bitwise_or,
    ),
    "bitwise xor": NumpyCase(
        ops.BitwiseXor(), (_ints(3, 4, dtype=DType.INT8), _ints(3, 1, dtype=DType.INT8)),
        np.bitwise_xor,
    ),
    "shift left": NumpyCase(
        ops.ShiftLeft(), (_ints(30, dtype=DType.UINT8), _ints(30, dtype=DType.UINT8)), _shifted
    ),
    "shift right": NumpyCase(
        ops.ShiftRight(), (_ints(30, dtype=DType.INT16), _ints(30, dtype=DType.INT16)), _down
    ),
    "bitcast": NumpyCase(
        ops.Bitcast(), (_floats(9),), lambda x: x.astype(np.float32).view(np.int32),
        result=DType.INT32,
    ),
    "gather elements": NumpyCase(ops.GatherElements(1), (_floats(3, 5), _ints(3, 4)), _taken),
    "scatter elements": NumpyCase(
        ops.ScatterElements(0), (_floats(6, 4), _ints(2, 3), _floats(2, 3)), _scattered
    ),
    "scatter nd": NumpyCase(
        ops.ScatterNd(ops.Reduction.ADD), (_ints(5, 4, 2), _ints(3, 2), _ints(3, 2)), _summed
    ),
    "top k": NumpyCase(ops.TopK(1, 3), (_ints(4, 7, dtype=DType.INT8),), _largest_of_bytes),
    "cumprod": NumpyCase(
        ops.CumProd(1), (_floats(3, 5),), lambda x: np.cumprod(x, 1), spread=1.0
    ),
    "window": NumpyCase(ops.Window(3), (_table(3, 7), _table(7)), signal.window(3)),
    "fft auto scale": NumpyCase(ops.FftAutoScale(), (_table(7),), signal.fft_auto_scale),
    "energy": NumpyCase(ops.Energy(2, 5), (_table(14),), signal.energy(2, 5)),
    "filter bank": NumpyCase(
        ops.FilterBank(),
        (_ints(5, dtype=DType.UINT32), *(_table(*a.shape) for a in signal.CHANNELS.values())),
        signal.filter_bank, constants=signal.CHANNELS,
    ),
    "filter bank square root": NumpyCase(
        ops.FilterBankSquareRoot(), (_ints(9, dtype=DType.INT64), _ints()), signal.square_root
    ),
    "filter bank log": NumpyCase(
        ops.FilterBankLog(64, 3), (_ints(30, dtype=DType.UINT32),), signal.log(64, 3), 1e-3
    ),
    "filter bank log in lines": NumpyCase(
        ops.FilterBankLog(1470, 0), (_ints(600, dtype=DType.UINT32),), signal.log_in_lines(1470)
    ),
    "rfft": NumpyCase(ops.Rfft(60), (_floats(2, 51),), signal.rfft(60)),
    "irfft": NumpyCase(ops.Irfft(36), (_floats(2, 38),), signal.irfft(36)),
    "spectral subtraction": NumpyCase(
        ops.FilterBankSpectralSubtraction(409, 15975, 983, 15401, 819, 10, 14),
        (_ints(9, dtype=DType.UINT32), _ints(9, dtype=DType.UINT32)),
        signal.spectral_subtraction((409, 15975, 983, 15401), 819, 10, 14, clamping=False),
    ),
    "spectral subtraction, clamping": NumpyCase(
        ops.FilterBankSpectralSubtraction(500, 3596, 900, 3196, 7, 3, 12, clamping=True),
        (_ints(9, dtype=DType.UINT32), _ints(9, dtype=DType.UINT32)),
        signal.spectral_subtraction((500, 3596, 900, 3196), 7, 3, 12, clamping=True),
    ),
    "pcan": NumpyCase(
        ops.Pcan(6), (_ints(30, dtype=DType.UINT32), _ints(30, dtype=DType.UINT32), _table(125)),
        signal.pcan(6), constants=signal.GAINS,
    ),
    "overlap add": NumpyCase(
        ops.OverlapAdd(3), (_floats(2, 4, 7), _floats(2, 4)), signal.overlap_add(3)
    ),
    "overlap add of int16": NumpyCase(
        ops.OverlapAdd(4), (_table(3, 5), _table(1)), signal.overlap_add(4)
    ),
    "rnn": NumpyCase(
        ops.Rnn(ops.Direction.BIDIRECTIONAL, (ops.GateFunction.TANH, ops.GateFunction.RELU)),
        (_floats(3, 2, 4), _floats(2, 5, 4, 1), _floats(2, 5, 5, 1), _floats(2, 5, 1)),
        recurrent.rnn, 1e-5, spread=0.5,
    ),
    "gru": NumpyCase(
        ops.Gru(ops.Direction.REVERSE),
        (_floats(4, 2, 3), _floats(1, 5, 3, 3), _floats(1, 5, 5, 3), _floats(1, 5, 3),
         TensorType(DType.INT32, (2,)), _floats(1, 2, 5)),
        recurrent.gru, 1e-5, spread=0.5,
    ),
    "gru_reset_last": NumpyCase(
        ops.Gru(
            ops.Direction.BIDIRECTIONAL, batch_major=True, each_step=False,
            linear_before_reset=True,
        ),
        (_floats(2, 4, 3), _floats(2, 5, 3, 3), _floats(2, 5, 5, 3), _floats(2, 5, 4)),
        recurrent.gru_reset_last, 1e-5, spread=0.5,
    ),
    "lstm": NumpyCase(
        ops.Lstm(ops.Direction.BIDIRECTIONAL, clip=0.5),
        (_floats(4, 3, 2), _floats(2, 5, 2, 4), _floats(2, 5, 5, 4), _floats(2, 5, 4),
         TensorType(DType.INT32, (3,)), _floats(2, 3, 5), _floats(2, 3, 5), _floats(2, 5, 3)),
        recurrent.lstm, 1e-5, spread=0.5,
    ),
}
