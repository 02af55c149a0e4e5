"""Nodes that go through a sequence step by step, their states inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crtexport.ir import ops
from crtexport.ir.ops import Op
from crtexport.ir.types import TensorType
from tests.fuzz.growing import F32, I32, MOST_PRODUCTS, Growing, MisfitError, full


def _weights(g: Growing, *shape: int) -> int:
    return g.constant(g.draw.values(TensorType(F32, shape)) * np.float32(0.25))


def _state(g: Growing, shape: tuple[int, ...], percent: int) -> int | None:
    return g.fresh(TensorType(F32, shape)) if g.draw.chance(percent) else None


def _recurrent(kind: type[ops.Rnn | ops.Gru | ops.Lstm], gates: int) -> Callable[[Growing], None]:
    def produce(g: Growing) -> None:
        x = g.pick((F32,), full, rank=3)
        batch_major = g.draw.chance(40)
        steps, batches, depth = g.type(x).shape
        if batch_major:
            steps, batches = batches, steps
        direction, units = g.draw.choice(tuple(ops.Direction)), g.draw.integer(1, 5)
        count = 1 + (direction is ops.Direction.BIDIRECTIONAL)
        if steps * batches * count * gates * units * (depth + units) > MOST_PRODUCTS // 4:
            raise MisfitError("too much work")
        options = {
            "direction": direction, "clip": g.draw.choice((0.0, 0.0, 0.75)),
            "batch_major": batch_major, "each_step": g.draw.chance(70),
        }
        if g.draw.chance(40):
            functions = tuple(ops.GateFunction)
            every = range(count * len(kind.usual))
            options["functions"] = tuple(g.draw.choice(functions) for _ in every)
            options["alpha"] = tuple(g.draw.integer(1, 4) / 4 for _ in every)
            options["beta"] = tuple(g.draw.integer(0, 4) / 4 for _ in every)
        biases = gates
        if kind is ops.Gru:
            options["linear_before_reset"] = g.draw.chance(50)
            biases += bool(options["linear_before_reset"])
        if kind is ops.Lstm:
            options["coupled"] = g.draw.chance(20)
        state = (count, batches, units)
        lengths = None
        if g.draw.chance(30):
            lengths = g.fresh(TensorType(I32, (batches,)), (0, steps))
        given = [
            x, _weights(g, count, units, depth, gates), _weights(g, count, units, units, gates),
            _weights(g, count, units, biases), lengths, _state(g, state, 50),
        ]
        if kind is ops.Lstm:
            given += [_state(g, state, 50), None]
            if g.draw.chance(40):
                given[-1] = _weights(g, count, units, 3)
        g.add(kind(**options), *given)

    return produce


PRODUCERS: dict[type[Op], Callable[[Growing], None]] = {
    ops.Rnn: _recurrent(ops.Rnn, 1), ops.Gru: _recurrent(ops.Gru, 3),
    ops.Lstm: _recurrent(ops.Lstm, 4),
}
