"""Networks of recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.ops import Activation, Svdf, UnidirectionalSequenceLstm
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.simulation.tflite_writer import to_tflite
from tests.differential.draw import Array, Case, Draw, scale, values, zero


class RecurrentNetwork:
    """Collects the tensors of one operator, all with one scale."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.tensors: list[Tensor] = []

    def add(
        self, name: str, dtype: str, shape: Sequence[int], scale: float = 0.0, zero: int = 0,
        data: Array | None = None,
    ) -> int:
        quant = Quantization((float(np.float32(scale)),), (zero,)) if scale else None
        type_ = TensorType(DType(dtype), tuple(shape), quant)
        constant = None if data is None else ConstantRef.of(data.astype(dtype))
        self.tensors.append(Tensor(name, type_, constant))
        return len(self.tensors) - 1

    def weights(self, name: str, dtype: str, shape: Sequence[int], scale: float = 0.0) -> int:
        data = values(self._draw, shape, dtype)
        if dtype == "float32":
            data *= 0.5
        elif dtype in ("int8", "int16"):
            data = np.maximum(data, -np.iinfo(dtype).max)
        else:
            kept = 15 if dtype == "int32" else self._draw.choice([15, 33])
            data //= 1 << (np.iinfo(dtype).bits - kept)
        return self.add(name, dtype, shape, scale, data=data)

    def variable(
        self, name: str, dtype: str, shape: Sequence[int], scale: float = 0.0, zero: int = 0
    ) -> int:
        index = self.add(name, dtype, shape, scale, zero)
        # As runtimes fill it: bytes 0; int8 with the zero point.
        start = Variable(ConstantRef.of(np.full(shape, zero, np.int8)) if zero else None)
        self.tensors[index] = Tensor(name, self.tensors[index].type, variable=start)
        return index

    def case(
        self, op: Svdf | UnidirectionalSequenceLstm, inputs: tuple[int | None, ...], output: int
    ) -> Case:
        node = Node(op, inputs, (output,), "y")
        graph = Graph("case", tuple(self.tensors), (node,), (0,), (output,))
        type_ = self.tensors[0].type
        given = values(self._draw, type_.shape, type_.dtype.value)
        return Case(to_tflite(graph), (given,))


def svdf(draw: Draw, dtype: str, kept: str = "int16") -> Case:
    """``kept``: the element type of an int8 network's state and time weights; with int8, which
    TFLite Micro alone has, there is always a bias."""
    batches, depth, units = (draw.integer(1, n) for n in (2, 9, 4))
    rank, memory = draw.integer(1, 3), draw.integer(1, 5)
    filters = units * rank
    integer = dtype == "int8"
    narrow = integer and kept == "int8"
    net = RecurrentNetwork(draw)
    x_scale, w_scale = scale(draw), scale(draw)
    s_scale = x_scale * w_scale * depth / draw.choice([1, 50]) if integer else 0.0
    if narrow:
        s_scale *= 128
    t_scale = 2.0 ** (-7 if narrow else -15)
    y_scale = s_scale * t_scale * (100 if narrow else 20000) * draw.integer(1, 9)
    x = net.add("x", dtype, (batches, depth), x_scale * integer, zero(draw) * integer)
    feature = net.weights("feature", dtype, (filters, depth), w_scale * integer)
    time = net.weights("time", kept if integer else dtype, (filters, memory), t_scale * integer)
    state = net.variable(
        "state", kept if integer else dtype, (batches, memory * filters), s_scale,
        draw.choice([0, 11, -128]) if narrow else 0,
    )
    bias: int | None = None
    if narrow or draw.choice([True, False]):
        bias = net.weights(
            "bias", "int32" if integer else dtype, (units,), s_scale * t_scale * narrow
        )
    y = net.add("y", dtype, (batches, units), y_scale * integer, zero(draw) * integer)
    clamp = Activation.RELU if integer else draw.choice([Activation.NONE, Activation.RELU6])
    return net.case(Svdf(rank, clamp), (x, feature, time, state, bias), y)


def unidirectional_sequence_lstm(draw: Draw, dtype: str) -> Case:
    batches, steps, depth, units = (draw.integer(1, n) for n in (2, 4, 6, 5))
    time_major = bool(draw.choice([False, True]))
    integer, symmetric = dtype != "float32", dtype != "int8"
    weight_type = "int8" if integer else dtype
    bias_type = {"int8": "int32", "int16": "int64"}.get(dtype, dtype)
    net = RecurrentNetwork(draw)
    shape = (steps, batches) if time_major else (batches, steps)
    h_scale, h_zero = float(draw.choice([2.0**-7, 0.009])), draw.integer(-9, 9) * (not symmetric)
    x = net.add("x", dtype, (*shape, depth), 0.02 * integer, zero(draw) * (not symmetric))
    inputs: list[int | None] = [x]
    for kind, size in (("x", depth), ("h", units)):
        inputs += [
            net.weights(f"w{kind}{gate}", weight_type, (units, size), 0.004 * (gate + 1) * integer)
            for gate in range(4)
        ]
    inputs += [
        net.weights(f"b{gate}", bias_type, (units,)) for gate in range(4)
    ]
    inputs.append(net.variable("h", dtype, (batches, units), h_scale * integer, h_zero))
    cells = float(draw.choice([2.0**-11, 2.0**-12, 2.0**-9, 2.0**-15]))
    cell_type = "int16" if integer else dtype
    inputs.append(net.variable("c", cell_type, (batches, units), cells * integer))
    y = net.add("y", dtype, (*shape, units), h_scale * integer, h_zero)
    clip = float(draw.choice([0.0, 0.5]))
    hidden = float(np.float32(h_scale * draw.choice([1.0, 1.25])))
    op = UnidirectionalSequenceLstm(
        time_major, clip, hidden if integer else 0.0, h_zero + draw.integer(0, 1) * (not symmetric)
    )
    return net.case(op, tuple(inputs), y)


CASES: dict[str, Callable[[Draw, str], Case]] = {
    f.__name__: f for f in (svdf, unidirectional_sequence_lstm)
}
