"""Operators that remember their past inputs in variables of their own."""

from __future__ import annotations

from typing import ClassVar

from crtexport.ir.ops.base import Activation, Stateful


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
