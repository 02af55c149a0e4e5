"""RNN, GRU and LSTM: weights are reordered for the kernels once; states are inputs and outputs."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from msgspec import Struct

from crtexport.importers.onnx.domains import MICROSOFT
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.move import joined, section
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value, stored
from crtexport.ir.ops import (
    Add,
    Direction,
    GateFunction,
    Gru,
    Lstm,
    Mul,
    Recurrent,
    Rnn,
    Sub,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_log = logging.getLogger(__name__)

_FUNCTIONS: dict[str, tuple[GateFunction, float | None, float | None]] = {
    "sigmoid": (GateFunction.SIGMOID, None, None),
    "tanh": (GateFunction.TANH, None, None),
    "relu": (GateFunction.RELU, None, None),
    "affine": (GateFunction.AFFINE, 1.0, 0.0),
    "leakyrelu": (GateFunction.LEAKY_RELU, 0.01, None),
    "thresholdedrelu": (GateFunction.THRESHOLDED_RELU, 1.0, None),
    "scaledtanh": (GateFunction.SCALED_TANH, 1.0, 1.0),
    "hardsigmoid": (GateFunction.HARD_SIGMOID, 0.2, 0.5),
    "elu": (GateFunction.ELU, 1.0, None),
    "softsign": (GateFunction.SOFTSIGN, None, None),
    "softplus": (GateFunction.SOFTPLUS, None, None),
}
"""Functions by ONNX's names, which are case-insensitive, with the defaults of alpha and beta."""

_LENGTHS, _STATE, _CELLS, _PEEPHOLES = 4, 5, 6, 7


class _RecurrentSizes(Struct, frozen=True):
    steps: int
    batches: int
    depth: int
    directions: int
    units: int
    gates: int
    batch_first: bool
    """Batches are the first axis of ONNX's shapes (the attribute layout)."""


def _sizes(node: OnnxNode, gates: int, direction: Direction) -> _RecurrentSizes:
    x, w, r = node.input(0), node.input(1), node.input(2)
    if len(x.shape) != 3 or len(w.shape) != 3 or len(r.shape) != 3:
        raise CrtExportError("the input and its weights must have 3 dimensions")
    layout = node.integer("layout", 0)
    if layout not in (0, 1):
        raise CrtExportError(f"the layout {layout} is neither 0 nor 1")
    steps, batches, depth = x.shape if not layout else (x.shape[1], x.shape[0], x.shape[2])
    directions, units = 1 + (direction is Direction.BIDIRECTIONAL), r.shape[2]
    if node.integer("hidden_size", units) != units:
        raise CrtExportError(f"the hidden_size isn't that of the weights, {units}")
    for name, value, wanted in (
        ("W", w, (directions, gates * units, depth)), ("R", r, (directions, gates * units, units)),
    ):
        if value.shape != wanted:
            raise CrtExportError(f"{name} must have the shape {wanted}, found {value.shape}")
    return _RecurrentSizes(steps, batches, depth, directions, units, gates, bool(layout))


def _direction(node: OnnxNode) -> Direction:
    text = node.text("direction", "forward")
    if text not in {direction.value for direction in Direction}:
        raise CrtExportError(f"the direction {text!r} is unknown")
    return Direction(text)


def _functions(node: OnnxNode, op: type[Recurrent], directions: int) -> dict[str, Any]:
    """Returns the attributes with the activations of gates; parameters are listed for the functions
    that have some, in order."""
    names = node.texts("activations", ())
    parameter_lists = [
        list(node.reals(name, ())) for name in ("activation_alpha", "activation_beta")
    ]
    count = directions * len(op.usual)
    if not names:
        return {}
    if len(names) != count:
        raise CrtExportError(f"{len(names)} activations, not {count}")
    kinds = list[GateFunction]()
    parameters: tuple[list[float], list[float]] = ([], [])
    for name in names:
        found = _FUNCTIONS.get(name.lower())
        if found is None:
            raise CrtExportError(f"the activation {name!r} is unknown")
        kinds.append(found[0])
        for own, values, default in zip(parameters, parameter_lists, found[1:], strict=True):
            own.append(0.0 if default is None else values.pop(0) if values else default)
    if any(parameter_lists):
        raise CrtExportError(f"more parameters than the activations {', '.join(names)} have")
    alpha, beta = parameters
    return {
        "functions": () if tuple(kinds) == op.usual * directions else tuple(kinds),
        "alpha": tuple(alpha) if any(alpha) else (), "beta": tuple(beta) if any(beta) else (),
    }


def _by_unit(node: OnnxNode, value: Value, sizes: _RecurrentSizes) -> int:
    """Returns weights (directions, gates * units, depth) as (directions, units, depth, gates)."""
    parts = node.builder.reshaped(
        value, (sizes.directions, sizes.gates, sizes.units, value.shape[2])
    )
    return node.builder.arranged(parts, (0, 2, 3, 1))


def _bias(node: OnnxNode, sizes: _RecurrentSizes, *, apart: bool) -> int:
    """Returns the sums of both biases as (directions, units, gates); with ``apart``, the last
    gate's of the state isn't added, but a gate of its own."""
    shape = (sizes.directions, sizes.gates + apart, sizes.units)
    given = node.optional(3)
    if given is None:
        return node.constant(np.zeros((shape[0], shape[2], shape[1]))).tensor
    wanted = (sizes.directions, 2 * sizes.gates * sizes.units)
    if given.shape != wanted:
        raise CrtExportError(f"B must have the shape {wanted}, found {given.shape}")
    rows = node.builder.reshaped(given, (sizes.directions, 2 * sizes.gates, sizes.units))

    def part(begin: int, count: int) -> Value:
        return section(node, rows, 1, begin, count)

    both = sizes.gates - apart
    total = node.elementwise(Add(), part(0, both), part(sizes.gates, both))
    if apart:
        total = joined(node, [total, part(both, 1), part(sizes.gates + both, 1)], 1)
    return node.builder.arranged(total, (0, 2, 1))


def _peepholes(node: OnnxNode, sizes: _RecurrentSizes) -> int | None:
    given = node.optional(_PEEPHOLES)
    if given is None:
        return None
    wanted = (sizes.directions, 3 * sizes.units)
    if given.shape != wanted:
        raise CrtExportError(f"P must have the shape {wanted}, found {given.shape}")
    parts = node.builder.reshaped(given, (sizes.directions, 3, sizes.units))
    return node.builder.arranged(parts, (0, 2, 1))


def _state(node: OnnxNode, index: int, sizes: _RecurrentSizes) -> int | None:
    """Returns an initial state as (directions, batches, units)."""
    given = node.optional(index)
    if given is None:
        return None
    outer = (sizes.directions, sizes.batches)
    wanted = (*(outer[::-1] if sizes.batch_first else outer), sizes.units)
    if given.shape != wanted:
        raise CrtExportError(f"an initial state must have the shape {wanted}, not {given.shape}")
    return node.builder.arranged(given, (1, 0, 2) if sizes.batch_first else None)


def _lengths(node: OnnxNode, sizes: _RecurrentSizes) -> int | None:
    """Returns the number of valid steps of each batch; None if all are valid."""
    lengths = node.optional(_LENGTHS)
    if lengths is None:
        return None
    if lengths.shape != (sizes.batches,):
        raise CrtExportError(f"sequence_lens must have the shape ({sizes.batches},)")
    if node.builder.is_constant(lengths) and all(
        length >= sizes.steps for length in node.integers(_LENGTHS, "the lengths")
    ):
        return None
    return node.builder.arranged(node.cast(lengths, DType.INT32))


def _read(
    node: OnnxNode, kind: type[Rnn | Gru | Lstm], gates: int, **attributes: Any
) -> list[Value | None]:
    direction = _direction(node)
    sizes = _sizes(node, gates, direction)
    x = node.input(0)
    time, batch = (1, 0) if sizes.batch_first else (0, 1)
    batch_major = x.arranged((batch, time, 2)) and not x.arranged((time, batch, 2))
    rows = (batch, time) if batch_major else (time, batch)
    name = node.info.outputs[0] if node.info.outputs else ""
    each_step = bool(name) and node.walk.uses(name) > 0
    op = kind(
        direction=direction, clip=node.real("clip", 0.0), batch_major=batch_major,
        each_step=each_step, **_functions(node, kind, sizes.directions), **attributes,
    )
    inputs = [
        node.builder.arranged(x, (*rows, 2)), _by_unit(node, node.input(1), sizes),
        _by_unit(node, node.input(2), sizes),
        _bias(node, sizes, apart=isinstance(op, Gru) and op.linear_before_reset),
        _lengths(node, sizes), _state(node, _STATE, sizes),
    ]
    if kind is Lstm:
        inputs += [_state(node, _CELLS, sizes), _peepholes(node, sizes)]
    while inputs[-1] is None:
        inputs.pop()
    made = node.builder.emit(op, *inputs)
    if sizes.batch_first:
        order = (0, 1, 2, 3) if batch_major else (1, 0, 2, 3)
    else:
        order = (2, 0, 1, 3) if batch_major else (0, 2, 1, 3)
    ends = (1, 0, 2) if sizes.batch_first else (0, 1, 2)
    steps = [stored(made[0], node.type(made[0]).shape, order)] if each_step else [None]
    states = made[1:] if each_step else made
    return [*steps, *(stored(state, node.type(state).shape, ends) for state in states)]


@operator("RNN", inputs=(3, 6))
def rnn(node: OnnxNode) -> list[Value | None]:
    return _read(node, Rnn, 1)


@operator("GRU", inputs=(3, 6))
def gru(node: OnnxNode) -> list[Value | None]:
    return _read(
        node, Gru, 3, linear_before_reset=bool(node.integer("linear_before_reset", 0))
    )


@operator("LSTM", inputs=(3, 8))
def lstm(node: OnnxNode) -> list[Value | None]:
    return _read(node, Lstm, 4, coupled=bool(node.integer("input_forget", 0)))


@operator("DynamicQuantizeLSTM", inputs=(12, 12), domain=MICROSOFT)
def dynamic_quantize_lstm(node: OnnxNode) -> list[Value | None]:
    """Returns the outputs of an LSTM with integer weights, (directions, depth, gates * units)."""
    _log.warning(
        "input and state of %s stay floats, which ONNX Runtime rounds to 8 bits at each step",
        node.info.name or "DynamicQuantizeLSTM",
    )
    weights = [_whole_weights(node, index, index * 2 + 6) for index in (1, 2)]
    standard = node.as_standard("LSTM", [node.input(0), *weights, *node.inputs[3:8]])
    return _read(standard, Lstm, 4, coupled=bool(standard.integer("input_forget", 0)))


def _whole_weights(node: OnnxNode, index: int, scale: int) -> Value:
    """Returns weights as real numbers, (directions, gates * units, depth). The inputs ``scale`` and
    the next have one number for each direction, or one for each of its rows."""
    def parts(value: Value) -> Value:
        real = node.cast(value, DType.FLOAT32)
        return node.builder.reshaped(real, (real.shape[0], 1, *(real.shape[1:] or (1,))))

    steps = node.elementwise(
        Sub(), node.cast(node.input(index), DType.FLOAT32), parts(node.input(scale + 1))
    )
    return node.elementwise(Mul(), steps, parts(node.input(scale))).transposed((0, 2, 1))
