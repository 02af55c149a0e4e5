"""Recurrent operators: TensorFlow Lite's, which keep state between runs in variables, and ONNX's,
whose states are inputs and outputs."""

from __future__ import annotations

from typing import ClassVar

from crtexport.ir.ops.base import Activation, GateFunction, Recurrent, Stateful


class Svdf(Stateful, frozen=True):
    """Low-rank filter over time: x, feature weights, time weights, state (variable), bias?."""

    rank: int = 1
    activation: Activation = Activation.NONE
    writes: ClassVar[tuple[int, ...]] = (3,)


class UnidirectionalSequenceLstm(Stateful, frozen=True):
    """LSTM over a sequence: x, 4 input weights, 4 recurrent weights, 4 biases, 2 states."""

    time_major: bool = False
    cell_clip: float = 0.0
    hidden_scale: float = 0.0
    hidden_zero_point: int = 0
    writes: ClassVar[tuple[int, ...]] = (13, 14)


class Rnn(Recurrent, frozen=True):
    """Elman network over a sequence: f(W x + R h + b)."""

    usual: ClassVar[tuple[GateFunction, ...]] = (GateFunction.TANH,)


class Gru(Recurrent, frozen=True):
    """GRU over a sequence, gates z, r, h; with ``linear_before_reset``, r multiplies R h + b, where
    b is a fourth bias, else h."""

    linear_before_reset: bool = False
    usual: ClassVar[tuple[GateFunction, ...]] = (GateFunction.SIGMOID, GateFunction.TANH)


class Lstm(Recurrent, frozen=True):
    """LSTM over a sequence, gates i, o, f, c; further inputs: initial cells, peepholes (directions,
    units, 3) of i, o, f; further output: the cells at the end. ``coupled``: f is 1 - i."""

    coupled: bool = False
    usual: ClassVar[tuple[GateFunction, ...]] = (
        GateFunction.SIGMOID, GateFunction.TANH, GateFunction.TANH,
    )
