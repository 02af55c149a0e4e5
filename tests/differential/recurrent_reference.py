"""RNN, GRU and LSTM of ONNX in NumPy, gate by gate as the standard writes them, for one sequence at
a time; weights as ONNX has them but with the gates last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Cell = Callable[..., tuple[Array, Array]]
"""From x W and h R with the bias, the state, the cells and the direction: the new state and cells.
"""


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def sequence(
    cell: Cell, x: Array, w: Array, r: Array, *states: Array | None,
    lengths: Array | None = None, backwards: tuple[bool, ...] = (False,),
) -> tuple[Array, Array, Array]:
    """Returns all states (steps, batches, directions, units), the last ones and the last cells.
    ``x`` is (steps, batches, depth)."""
    steps, batches, _ = x.shape
    directions, units = r.shape[:2]
    every = np.zeros((steps, batches, directions, units))
    start = [np.zeros((directions, batches, units)) if s is None else s.copy() for s in states]
    h, c = (*start, np.zeros((directions, batches, units)))[:2]
    for d in range(directions):
        for n in range(batches):
            count = steps if lengths is None else min(max(int(lengths[n]), 0), steps)
            order = range(count)[::-1] if backwards[d] else range(count)
            for t in order:
                of_x = np.einsum("uig,i->ug", w[d], x[t, n])
                h[d, n], c[d, n] = cell(of_x, r[d], h[d, n], c[d, n], d)
                every[t, n, d] = h[d, n]
    return every, h, c


def rnn(x: Array, w: Array, r: Array, bias: Array) -> tuple[Array, Array]:
    """Two directions, whose functions are Tanh and Relu."""

    def cell(of_x: Array, r: Array, h: Array, c: Array, d: int) -> tuple[Array, Array]:
        total = (of_x + np.einsum("ukg,k->ug", r, h) + bias[d])[:, 0]
        return (np.tanh(total) if d == 0 else np.maximum(total, 0)), c

    return sequence(cell, x, w, r, None, backwards=(False, True))[:2]


def gru(x: Array, w: Array, r: Array, bias: Array, lengths: Array, h: Array) -> tuple[Array, Array]:
    """Backwards, reset before the product."""

    def cell(of_x: Array, r: Array, h: Array, c: Array, d: int) -> tuple[Array, Array]:
        z, reset = (
            sigmoid(of_x[:, g] + r[:, :, g] @ h + bias[d, :, g]) for g in range(2)
        )
        made = np.tanh(of_x[:, 2] + r[:, :, 2] @ (reset * h) + bias[d, :, 2])
        return (1 - z) * made + z * h, c

    return sequence(cell, x, w, r, h, lengths=lengths, backwards=(True,))[:2]


def gru_reset_last(x: Array, w: Array, r: Array, bias: Array) -> Array:
    """The last state alone, of both directions; batches come first."""

    def cell(of_x: Array, r: Array, h: Array, c: Array, d: int) -> tuple[Array, Array]:
        z, reset = (
            sigmoid(of_x[:, g] + r[:, :, g] @ h + bias[d, :, g]) for g in range(2)
        )
        made = np.tanh(of_x[:, 2] + bias[d, :, 2] + reset * (r[:, :, 2] @ h + bias[d, :, 3]))
        return (1 - z) * made + z * h, c

    return sequence(cell, x.swapaxes(0, 1), w, r, None, backwards=(False, True))[1]


def lstm(
    x: Array, w: Array, r: Array, bias: Array, lengths: Array, h: Array, c: Array, peep: Array
) -> tuple[Array, Array, Array]:
    """Both directions, sums clipped at 0.5."""

    def cell(of_x: Array, r: Array, h: Array, c: Array, d: int) -> tuple[Array, Array]:
        total = of_x + np.einsum("ukg,k->ug", r, h) + bias[d]
        i = sigmoid(np.clip(total[:, 0] + peep[d, :, 0] * c, -0.5, 0.5))
        f = sigmoid(np.clip(total[:, 2] + peep[d, :, 2] * c, -0.5, 0.5))
        new = f * c + i * np.tanh(np.clip(total[:, 3], -0.5, 0.5))
        o = sigmoid(np.clip(total[:, 1] + peep[d, :, 1] * new, -0.5, 0.5))
        return o * np.tanh(new), new

    return sequence(cell, x, w, r, h, c, lengths=lengths, backwards=(False, True))
