"""Networks with IF and WHILE, each with inputs that take it every way there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.ir.graph import Graph, Tensor, Variable
from crtexport.ir.ops import (
    Add,
    Concatenation,
    Conv2D,
    DynamicUpdateSlice,
    Equal,
    FloorDiv,
    FloorMod,
    FullyConnected,
    Gather,
    Greater,
    If,
    Less,
    Logistic,
    Mul,
    NotEqual,
    ReadVariable,
    Relu,
    Softmax,
    Sub,
    Sum,
    While,
)
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from tests.plan.graphs import GraphBuilder

Array = npt.NDArray[Any]
I32, I8, F32, BOOL = DType.INT32, DType.INT8, DType.FLOAT32, DType.BOOL
Q = Quantization((0.05,), (3,))


@dataclass(frozen=True)
class Network:
    """A graph and inputs for several runs, one after the other."""

    graph: Graph
    runs: tuple[tuple[Array, ...], ...]


def whole(*values: int) -> tuple[Array, ...]:
    return tuple(np.array([v], np.int32) for v in values)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bytes_of(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


def plus(b: GraphBuilder, value: int, amount: int) -> int:
    return b.node(Add(), value, b.constant(np.array([amount], np.int32)))


def branch() -> Network:
    """Float: one branch computes, the other gives an input, a constant and one result twice."""
    first, second = GraphBuilder(), GraphBuilder()
    for b in (first, second):
        b.input(2, 3)
        b.input(2, 3)
    x, y = first.inputs
    total = first.node(Add(), x, y)
    then = first.inner(first.node(Relu(), total), total, first.node(Mul(), total, x))
    x, y = second.inputs
    squared = second.node(Mul(), x, x)
    other = second.inner(y, second.constant(numbers(2, 3, seed=9)), squared)
    b = GraphBuilder()
    x, y, limit = b.input(2, 3), b.input(2, 3), b.input(1)
    sum_ = b.node(Sum((0, 1)), x)
    wide = b.node(Greater(), b.node(Add(), sum_, b.constant(np.zeros(1, np.float32))), limit)
    results = b.control(If(), wide, x, y, graphs=(then, other))
    joined = b.node(Concatenation(axis=0), *results)
    given = (numbers(2, 3), numbers(2, 3, seed=1))
    return Network(b.finish(*results, joined), tuple(
        (*given, np.array([limit], np.float32)) for limit in (-100, 100)
    ))


def collatz() -> Network:
    """An IF in a WHILE: counts how often to halve or triple a number until it is 1."""
    even, odd = GraphBuilder(), GraphBuilder()
    halved = even.node(
        FloorDiv(), even.input(1, dtype=I32), even.constant(np.array([2], np.int32))
    )
    tripled = odd.node(Mul(), odd.input(1, dtype=I32), odd.constant(np.array([3], np.int32)))
    body = GraphBuilder()
    n, steps = body.input(1, dtype=I32), body.input(1, dtype=I32)
    two, zero = (body.constant(np.array([v], np.int32)) for v in (2, 0))
    is_even = body.node(Equal(), body.node(FloorMod(), n, two), zero)
    (following,) = body.control(
        If(), is_even, n, graphs=(even.inner(halved), odd.inner(plus(odd, tripled, 1)))
    )
    condition = GraphBuilder()
    n = condition.input(1, dtype=I32)
    condition.input(1, dtype=I32)
    one = condition.constant(np.array([1], np.int32))
    b = GraphBuilder()
    start, zero = b.input(1, dtype=I32), b.constant(np.zeros(1, np.int32))
    results = b.control(While(), start, zero, graphs=(
        condition.inner(condition.node(NotEqual(), n, one)),
        body.inner(following, plus(body, steps, 1)),
    ))
    return Network(b.finish(*results), tuple(whole(n) for n in (1, 2, 7, 27, 871)))


def swapped() -> Network:
    """A body that exchanges two values and leaves a third and its limit alone."""
    body = GraphBuilder()
    i, a, c, fixed = (body.input(1, dtype=I32), *(body.input(2, 2) for _ in range(3)))
    limit = body.input(1, dtype=I32)
    condition = GraphBuilder()
    counter = condition.input(1, dtype=I32)
    for _ in range(3):
        condition.input(2, 2)
    bound = condition.input(1, dtype=I32)
    b = GraphBuilder()
    zero = b.constant(np.zeros(1, np.int32))
    given = [b.input(2, 2), b.input(2, 2), b.input(2, 2), b.input(1, dtype=I32)]
    results = b.control(While(), zero, *given, graphs=(
        condition.inner(condition.node(Less(), counter, bound)),
        body.inner(plus(body, i, 1), c, a, fixed, limit),
    ))
    values = tuple(numbers(2, 2, seed=s) for s in range(3))
    return Network(b.finish(*results), tuple((*values, *whole(n)) for n in (0, 1, 2, 5)))


def fibonacci() -> Network:
    """(i, a, b) → (i + 1, b, a + b): each output needs what another one overwrites."""
    body = GraphBuilder()
    i, first, second = (body.input(1, dtype=I32) for _ in range(3))
    loop = body.inner(plus(body, i, -1), second, body.node(Add(), first, second))
    condition = GraphBuilder()
    i = condition.input(1, dtype=I32)
    for _ in range(2):
        condition.input(1, dtype=I32)
    zero = condition.constant(np.zeros(1, np.int32))
    b = GraphBuilder()
    start = b.input(1, dtype=I32)
    ones = [b.constant(np.ones(1, np.int32)) for _ in range(2)]
    results = b.control(While(), start, *ones, graphs=(
        condition.inner(condition.node(Greater(), i, zero)), loop,
    ))
    return Network(b.finish(*results), tuple(whole(n) for n in (0, 1, 2, 20, 60)))


def layers() -> Network:
    """Int8 fully connected layers applied as often as an input says, then a softmax."""
    rng = np.random.default_rng(3)
    body = GraphBuilder()
    i, x = body.input(1, dtype=I32), body.input(1, 8, dtype=I8, quant=Q)
    weights = body.constant(rng.integers(-127, 128, (8, 8), np.int8), Quantization((0.01,), (0,)))
    bias = body.constant(rng.integers(-500, 500, 8, np.int32), Quantization((0.0005,), (0,)))
    made = body.node(FullyConnected(), x, weights, bias, quant=Q)
    relu = body.node(Relu(), body.node(FullyConnected(), made, weights, bias, quant=Q), quant=Q)
    condition = GraphBuilder()
    counter = condition.input(1, dtype=I32)
    condition.input(1, 8, dtype=I8, quant=Q)
    zero = condition.constant(np.zeros(1, np.int32))
    b = GraphBuilder()
    count, x = b.input(1, dtype=I32), b.input(1, 8, dtype=I8, quant=Q)
    _, result = b.control(While(), count, x, graphs=(
        condition.inner(condition.node(Greater(), counter, zero)),
        body.inner(plus(body, i, -1), relu),
    ))
    out = b.node(Softmax(), result, quant=Quantization((1 / 256,), (-128,)))
    return Network(b.finish(out, result), tuple(
        (*whole(n), bytes_of(1, 8, seed=n)) for n in (0, 1, 2, 3, 7)
    ))


def rounds() -> Network:
    """Three rounds whatever the input: a loop that could be unrolled."""
    def counter(b: GraphBuilder) -> tuple[int, int]:
        return b.input(1, dtype=I32), b.input(2, 3)

    body, condition = GraphBuilder(), GraphBuilder()
    i, x = counter(body)
    doubled = body.node(Add(), x, body.constant(numbers(2, 3, seed=5)))
    limit = condition.constant(np.array([3], np.int32))
    again = condition.inner(condition.node(Less(), counter(condition)[0], limit))
    b = GraphBuilder()
    x = b.input(2, 3)
    _, result = b.control(
        While(), b.constant(np.zeros(1, np.int32)), b.node(Relu(), x),
        graphs=(again, body.inner(plus(body, i, 1), doubled)),
    )
    return Network(b.finish(b.node(Logistic(), result)), ((numbers(2, 3),),))


def images() -> Network:
    """Int8: one branch convolves twice, the other adds; a convolution before and one after."""
    rng = np.random.default_rng(4)
    shape = (1, 6, 5, 4)

    def conv(b: GraphBuilder, x: int) -> int:
        weights = b.constant(
            rng.integers(-127, 128, (4, 1, 1, 4), np.int8), Quantization((0.01,), (0,))
        )
        bias = b.constant(rng.integers(-99, 99, 4, np.int32), Quantization((0.0005,), (0,)))
        return b.node(Conv2D(), x, weights, bias, quant=Q)

    first, second = GraphBuilder(), GraphBuilder()
    x = first.input(*shape, dtype=I8, quant=Q)
    y = second.input(*shape, dtype=I8, quant=Q)
    b = GraphBuilder()
    chosen = b.input(1, dtype=BOOL)
    image = conv(b, b.input(*shape, dtype=I8, quant=Q))
    (result,) = b.control(If(), chosen, image, graphs=(
        first.inner(conv(first, conv(first, x))), second.inner(second.node(Add(), y, y, quant=Q)),
    ))
    return Network(b.finish(conv(b, result)), tuple(
        (np.array([truth]), bytes_of(*shape)) for truth in (True, False)
    ))


def collected(*, whole_start: bool = True) -> Network:
    """A loop over the rows of its input that gathers what it computes, row by row."""
    body, condition = GraphBuilder(), GraphBuilder()
    for b in (body, condition):
        b.input(1, dtype=I32)
        b.input(4, 3)
        b.input(4, 3)
    i, made, given = body.inputs
    row = body.node(Logistic(), body.node(Gather(), given, i))
    zero = body.constant(np.zeros(1, np.int32))
    start = body.node(Concatenation(0), i, zero)
    following = body.node(DynamicUpdateSlice(), made, row, start)
    limit = condition.constant(np.array([4], np.int32))
    b = GraphBuilder()
    first, x = b.input(1, dtype=I32), b.input(4, 3)
    start = b.constant(np.zeros((4, 3), np.float32)) if whole_start else None
    _, result, _ = b.control(While(), first, start, x, graphs=(
        condition.inner(condition.node(Less(), condition.inputs[0], limit)),
        body.inner(plus(body, i, 1), following, given),
    ))
    return Network(b.finish(result), tuple(
        (*whole(n), numbers(4, 3, seed=n)) for n in (0, 1, 3, 4)
    ))


def sums() -> Network:
    """A loop in a loop: rows of a triangle are added up as often as their number says."""
    inner = GraphBuilder()
    j, total, step = inner.input(1, dtype=I32), inner.input(3), inner.input(3)
    added = inner.inner(plus(inner, j, -1), inner.node(Add(), total, step), step)
    positive = GraphBuilder()
    counter = positive.input(1, dtype=I32)
    positive.input(3)
    positive.input(3)
    again = positive.inner(
        positive.node(Greater(), counter, positive.constant(np.zeros(1, np.int32)))
    )
    body = GraphBuilder()
    i, total, step = body.input(1, dtype=I32), body.input(3), body.input(3)
    _, more, _ = body.control(While(), i, total, step, graphs=(again, added))
    b = GraphBuilder()
    count, x = b.input(1, dtype=I32), b.input(3)
    results = b.control(
        While(), count, b.constant(np.zeros(3, np.float32)), x,
        graphs=(again, body.inner(plus(body, i, -1), more, step)),
    )
    total = b.node(Logistic(), results[1])
    return Network(b.finish(*results, total), tuple(
        (*whole(n), numbers(3, seed=n)) for n in (0, 1, 4)
    ))


def remembering() -> Network:
    """A variable that one branch sets and the other adds to; read in between and outside."""
    type_ = TensorType(F32, (3,))
    start = Variable(ConstantRef.of(np.array([1.5, -2, 0], np.float32)))

    def lent(b: GraphBuilder) -> int:
        b.tensors.append(Tensor("kept", type_, variable=Variable()))
        b.inputs.append(len(b.tensors) - 1)
        return b.inputs[-1]

    setting, adding = GraphBuilder(), GraphBuilder()
    x, kept = setting.input(3), lent(setting)
    setting.assign(kept, x)
    squared = setting.node(Mul(), x, x)
    y, held = adding.input(3), lent(adding)
    before = adding.node(ReadVariable(), held)
    adding.assign(held, adding.node(Add(), before, y))
    b = GraphBuilder()
    truth, x = b.input(1, dtype=BOOL), b.input(3)
    b.tensors.append(Tensor("kept", type_, variable=start))
    kept = len(b.tensors) - 1
    first = b.node(ReadVariable(), kept)
    (given,) = b.control(
        If(), truth, x, kept, graphs=(setting.inner(squared), adding.inner(before)),
    )
    after = b.node(ReadVariable(), kept)
    return Network(b.finish(first, given, after), tuple(
        (np.array([truth]), numbers(3, seed=seed))
        for seed, truth in enumerate((False, False, True, False, True, True, False))
    ))


def counting() -> Network:
    """A WHILE that changes nothing but a variable, which its condition reads."""
    def lent(b: GraphBuilder) -> int:
        b.tensors.append(Tensor("kept", TensorType(I32, (1,)), variable=Variable()))
        b.inputs.append(len(b.tensors) - 1)
        return b.inputs[-1]

    condition, body = GraphBuilder(), GraphBuilder()
    limits = [g.input(1, dtype=I32) for g in (condition, body)]
    again = condition.inner(
        condition.node(Less(), condition.node(ReadVariable(), lent(condition)), limits[0])
    )
    kept = lent(body)
    body.assign(kept, plus(body, body.node(ReadVariable(), kept), 2))
    b = GraphBuilder()
    limit = b.input(1, dtype=I32)
    b.tensors.append(Tensor("kept", TensorType(I32, (1,)), variable=Variable()))
    kept = len(b.tensors) - 1
    b.control(While(), limit, kept, graphs=(again, body.inner(limits[1])))
    return Network(
        b.finish(b.node(ReadVariable(), kept), b.node(Sub(), limit, limit)),
        tuple(whole(n) for n in (5, 3, 9, 10)),
    )


NETWORKS: dict[str, Callable[[], Network]] = {
    f.__name__: f for f in (
        branch, collatz, swapped, fibonacci, layers, rounds, images, collected, sums,
        remembering, counting,
    )
}


def same(got: Sequence[Array], expected: Sequence[Array]) -> None:
    """Integers are equal, floats close."""
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if theirs.dtype == np.float32:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(ours, theirs)
