"""Networks of every operator, drawn: the same seed is the same network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace as changed

from crtexport.ir import ops
from crtexport.ir.graph import Graph, Variable
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Op
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.variables import lend
from tests.fuzz import (
    grow_elements,
    grow_learning,
    grow_moving,
    grow_recurrent,
    grow_signal,
    grow_weighted,
)
from tests.fuzz.growing import (
    BOOL,
    F32,
    I8,
    I16,
    I32,
    SCALED,
    Array,
    Drawing,
    Growing,
    Grown,
    MisfitError,
    full,
    scaled,
)

Producer = Callable[[Growing], None]
MOST_NODES = 12


# ---- state


def _variable(g: Growing, type_: TensorType, *, start: Array | None = None) -> int:
    initial = None if start is None else ConstantRef.of(start)
    return g.tensor(type_, variable=Variable(initial))


def _kept(g: Growing) -> int:
    """A variable that is there, or a new one."""
    if g.depth:
        raise MisfitError("variables are the outermost graph's")
    found = [
        t for t, tensor in enumerate(g.tensors) if tensor.variable is not None
        and not any(t in n.inputs and not isinstance(n.op, ops.ReadVariable | ops.AssignVariable)
                    for n in g.nodes)
    ]
    if found and g.draw.chance(60):
        return g.draw.choice(found)
    some = g.find(lambda t: t.dtype in (F32, I8, I16, I32) and full(t))
    dtype = g.draw.choice((F32, I8, I16, I32))
    type_ = TensorType(dtype, g.draw.shape(), g.draw.quant(dtype))
    if some is not None and g.draw.chance(70):
        type_ = g.type(some)
    start = g.draw.values(type_) if g.draw.chance(60) else None
    return _variable(g, type_, start=start)


def read_variable(g: Growing) -> None:
    kept = _kept(g)
    g.add(ops.ReadVariable(), kept, quant="like")


def assign_variable(g: Growing) -> None:
    kept = _kept(g)
    type_ = g.type(kept)
    value = g.find(lambda t: t == type_)
    if value is None:
        value = g.fresh(type_)
    g.add(ops.AssignVariable(), kept, value)


def _filter_weights(
    g: Growing, dtype: DType, shape: tuple[int, ...], scale: float = 0.0
) -> int:
    type_ = TensorType(dtype, shape)
    if dtype is F32:
        return g.constant(g.draw.values(type_) * np.float32(0.5))
    quant = Quantization((float(np.float32(scale)),), (0,)) if scale else None
    if dtype is I32:
        return g.constant(g.draw.values(type_, (-16000, 16000)), quant)
    return g.constant(np.maximum(g.draw.values(type_), -dtype.limits[1]), quant)


def svdf(g: Growing) -> None:
    if g.depth:
        raise MisfitError("variables are the outermost graph's")
    x = g.pick((F32, I8), lambda t: scaled(t) and full(t), rank=2)
    type_ = g.type(x)
    (batches, depth), integer = type_.shape, type_.dtype is I8
    units, rank, memory = g.draw.integer(1, 4), g.draw.integer(1, 3), g.draw.integer(1, 4)
    filters, dtype = units * rank, type_.dtype
    w_scale = g.draw.scale()
    s_scale = (type_.quant.scale[0] if type_.quant else 0.0) * w_scale * depth
    s_scale /= g.draw.choice((1, 50))
    narrow = integer and g.draw.chance(40)  # which TFLite Micro alone has
    stored, bits = (I8, 7) if narrow else (I16, 15)
    if not integer:
        stored = F32
    if narrow:
        s_scale *= 128
    feature = _filter_weights(g, dtype, (filters, depth), w_scale * integer)
    time = _filter_weights(g, stored, (filters, memory), 2.0**-bits * integer)
    zero = g.draw.choice((0, 0, g.draw.zero(I8))) if narrow else 0
    quant = Quantization((float(np.float32(s_scale)),), (zero,)) if integer else None
    if integer and not 1e-30 < s_scale < 1e30:
        raise MisfitError("no such scale")
    shape = (batches, memory * filters)
    start = np.full(shape, zero, np.int8) if zero else None
    state = _variable(g, TensorType(stored, shape, quant), start=start)
    bias = _filter_weights(g, I32 if integer else F32, (units,)) if g.draw.chance(50) else None
    out = float(np.float32(s_scale * 0.6 * g.draw.integer(1, 9)))
    clamp = ops.Activation.RELU if integer else g.draw.choice(
        (ops.Activation.NONE, ops.Activation.RELU6)
    )
    g.add(
        ops.Svdf(rank, clamp), x, feature, time, state, bias,
        quant=Quantization((out,), (g.draw.zero(I8),)) if integer else None,
    )


def lstm(g: Growing) -> None:
    if g.depth:
        raise MisfitError("variables are the outermost graph's")
    x = g.pick((F32, I8), lambda t: scaled(t) and full(t), rank=3)
    type_, time_major = g.type(x), g.draw.chance(40)
    integer, depth, units = type_.dtype is I8, type_.shape[2], g.draw.integer(1, 5)
    batches, dtype = type_.shape[1 if time_major else 0], type_.dtype
    if type_.elements > 60:
        raise MisfitError("too much work")
    hidden, zero = g.draw.choice((2.0**-7, 0.009)), g.draw.integer(-9, 9) * integer
    given: list[int] = []
    for size in (depth, units):
        given += [
            _filter_weights(g, dtype, (units, size), 0.004 * (gate + 1) * integer)
            for gate in range(4)
        ]
    given += [_filter_weights(g, I32 if integer else F32, (units,)) for _ in range(4)]
    own = Quantization((float(np.float32(hidden)),), (zero,)) if integer else None
    start = np.full((batches, units), zero, np.int8) if zero else None
    cells = g.draw.choice((2.0**-11, 2.0**-12, 2.0**-9, 2.0**-15))
    kept = Quantization((cells,), (0,)) if integer else None
    states = (
        _variable(g, TensorType(dtype, (batches, units), own), start=start),
        _variable(g, TensorType(I16 if integer else F32, (batches, units), kept)),
    )
    scale = float(np.float32(hidden * g.draw.choice((1.0, 1.25)))) if integer else 0.0
    op = ops.UnidirectionalSequenceLstm(
        time_major, g.draw.choice((0.0, 0.5)), scale, zero + g.draw.integer(0, 1) * integer
    )
    g.add(op, x, *given, *states, quant=own)


# ---- graphs in graphs


def _inner(g: Growing, given: list[TensorType], nodes: int) -> Growing:
    inner = Growing(g.draw, given, g.depth + 1)
    _grow(inner, nodes)
    return inner


def _of_type(inner: Growing, type_: TensorType) -> int:
    """A tensor of a graph of such a type; late ones rather than inputs."""
    found = [t for t in inner.alive if inner.type(t) == type_]
    if found and inner.draw.chance(90):
        return found[-1] if inner.draw.chance(70) else inner.draw.choice(found)
    return inner.fresh(type_)


def _carried(g: Growing, most: int) -> list[int]:
    usable = [t for t in dict.fromkeys(g.alive) if g.type(t).quant is None or scaled(g.type(t))]
    if not usable:
        raise MisfitError("nothing to hand in")
    return [g.draw.choice(usable) for _ in range(g.draw.integer(1, most))]


def if_(g: Growing) -> None:
    if g.depth > 1:
        raise MisfitError("deep enough")
    given = _carried(g, 3)
    condition = g.find(lambda t: t.dtype is BOOL and t.elements == 1)
    if condition is None or g.draw.chance(50):
        condition = g.fresh(TensorType(BOOL, g.draw.choice(((), (1,), (1, 1)))))
    types = [g.type(t) for t in given]
    first, second = (_inner(g, types, g.draw.integer(0, 3)) for _ in range(2))
    ends = [first.alive[-1], *(g.draw.choice(first.alive) for _ in range(g.draw.integer(0, 2)))]
    wanted = [first.type(t) for t in ends]
    graphs = (
        first.graph("then", ends), second.graph("else", [_of_type(second, t) for t in wanted])
    )
    g.add(
        ops.If(), condition, *given, graphs=graphs, quants=[t.quant for t in wanted],
        dtypes=tuple(t.dtype for t in wanted),
    )


def while_(g: Growing) -> None:
    """As often as a number says that counts up to a limit; more may go round, or just in."""
    if g.depth > 1:
        raise MisfitError("deep enough")
    given, limit = _carried(g, 3), g.draw.integer(0, 3)
    counter = TensorType(I32, g.draw.choice(((), (1,))))
    types = [counter, *(g.type(t) for t in given)]
    carried = g.draw.integer(0, len(given))
    condition = Growing(g.draw, types, g.depth + 1)
    bound = condition.constant(np.full(counter.shape, limit, np.int32))
    again = condition.one(ops.Less(), 0, bound)
    body = Growing(g.draw, types, g.depth + 1)
    _grow(body, g.draw.integer(1, 3))
    more = body.constant(np.full(counter.shape, 1, np.int32))
    ends = [body.one(ops.Add(), 0, more), *(_of_type(body, t) for t in types[1 : 1 + carried])]
    start = g.fresh(counter, (0, 4))
    g.add(
        ops.While(), start, *given,
        graphs=(condition.graph("condition", [again]), body.graph("body", ends)),
        quants=[t.quant for t in types[: 1 + carried]],
        dtypes=tuple(t.dtype for t in types[: 1 + carried]),
    )


PRODUCERS: dict[type[Op], Producer] = {
    **grow_weighted.PRODUCERS, **grow_learning.PRODUCERS, **grow_elements.PRODUCERS,
    **grow_moving.PRODUCERS, **grow_recurrent.PRODUCERS, **grow_signal.PRODUCERS,
    ops.ReadVariable: read_variable, ops.AssignVariable: assign_variable, ops.Svdf: svdf,
    ops.UnidirectionalSequenceLstm: lstm, ops.If: if_, ops.While: while_,
}
"""The functions that add a node of each operator to a graph."""

NOT_DRAWN: dict[type[Op], str] = {
    ops.External: "calls code of somebody else; tests/devices and tests/accelerators have it",
    ops.EthosU: "runs commands of a compiler; tests/devices/test_ethosu.py has it",
    **dict.fromkeys(ops.INTERNAL, "made by crtexport of the others"),
}
"""Operators that can't be drawn, and why."""

OPERATORS = ops.OPERATORS

_COMMON = (
    ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected, ops.Add, ops.Mul, ops.Relu,
    ops.MaxPool2D, ops.AveragePool2D, ops.Concatenation, ops.Reshape, ops.Pad,
    ops.ResizeBilinear, ops.Slice, ops.Split,
)
"""The operators that networks are made of, and that plans are about: drawn more often."""


_WITHOUT_REFERENCE = (
    *grow_signal.PRODUCERS,
    ops.Atan, ops.Bitcast, ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor, ops.CumProd, ops.Erf,
    ops.GatherElements, ops.Gru, ops.Lookup, ops.Lstm, ops.NonMaxSuppression, ops.PairwiseCoupling,
    ops.Pow, ops.Resample, ops.Rnn, ops.Sample, ops.ScatterElements, ops.ScatterNd, ops.ShiftLeft,
    ops.ShiftRight, ops.SquaredDistance, ops.TopK, ops.TreeEnsemble,
)
"""Those that the reference runtime hasn't: in half of the networks there are none."""


def _grow(g: Growing, nodes: int) -> None:
    left_out = _WITHOUT_REFERENCE if g.draw.chance(50) else ()
    kinds = (*(kind for kind in PRODUCERS if kind not in left_out), *_COMMON, *_COMMON)
    for _ in range(20 * nodes):
        if nodes <= 0:
            return
        before = len(g.nodes)
        g.attempt(PRODUCERS[g.draw.choice(kinds)])
        nodes -= len(g.nodes) - before


def drawn(seed: int | str, wanted: type[Op] | None = None) -> Grown:
    """The network of a seed, with a node of the operator ``wanted`` if there is one."""
    draw = Drawing(f"{seed}")
    g = Growing(draw)
    dtype = draw.choice((F32, F32, I8, I8, DType.UINT8, I16, I32, draw.choice(tuple(DType))))
    shape = draw.shape(4) if draw.chance(65) else draw.shape()
    g._input(TensorType(dtype, shape, draw.quant(dtype)))
    if wanted is None:
        _grow(g, draw.integer(1, MOST_NODES))
    else:
        # Between others, where it may work in place.
        g.memory = 1
        _grow(g, draw.integer(1, 3))
        for attempt in range(60):
            if attempt == 30:
                g.memory = 100
            if g.attempt(PRODUCERS[wanted]):
                break
        g.memory = draw.choice((1, 2, 5))
        _grow(g, draw.integer(1, 4))
    if draw.chance(6):
        _break_a_rule(g)
    graph = lend(g.graph(f"drawn_{seed}", _outputs(g)))
    runs = tuple(_inputs(g, graph) for _ in range(2))
    return Grown(graph.from_file(graph.source, graph.sha256, _numerics(seed)), runs)


def _numerics(seed: int | str) -> Numerics:
    """Mostly those of TensorFlow Lite, which are compared with its results."""
    draw = Drawing(f"numerics {seed}")
    return Numerics.TFLITE if draw.chance(70) else draw.choice(list(Numerics))


def _break_a_rule(g: Growing) -> None:
    """Gives one tensor another scale or zero point, or none, which some operators refuse."""
    found = [t for t, tensor in enumerate(g.tensors) if tensor.type.quant is not None]
    if not found:
        return
    number = g.draw.choice(found)
    type_ = g.type(number)
    if type_.quant is None or type_.dtype not in SCALED:
        return
    count = len(type_.quant.scale)
    quant = g.draw.choice((
        None, Quantization(tuple(g.draw.scale() for _ in range(count)), type_.quant.zero_point,
                           type_.quant.axis),
        Quantization(type_.quant.scale, (g.draw.integer(0, 100),) * count, type_.quant.axis),
    ))
    type_ = TensorType(type_.dtype, type_.shape, quant)
    g.tensors[number] = changed(g.tensors[number], type=type_)


def _outputs(g: Growing) -> list[int]:
    """Returns tensors that nobody reads, and now and then one that is read, or is an input."""
    read = {t for node in g.nodes for t in node.inputs}
    made = [t for node in g.nodes for t in node.outputs]
    ends = [t for t in made if t not in read]
    if len(ends) > 1 and g.draw.chance(20):
        ends = ends[1:]
    if made and g.draw.chance(25):
        ends.append(g.draw.choice(made))
    if g.draw.chance(5):
        ends.append(g.draw.choice(g.inputs))
    if not ends:
        ends = [made[-1] if made else g.inputs[0]]
    if not g.draw.chance(1):  # which is refused: both would have one name in C
        ends = list(dict.fromkeys(ends))
    g.draw.rng.shuffle(ends)
    return ends[:6]


def _inputs(g: Growing, graph: Graph) -> tuple[Array, ...]:
    return tuple(g.draw.values(graph.type(t), g.limits.get(t)) for t in graph.inputs)


