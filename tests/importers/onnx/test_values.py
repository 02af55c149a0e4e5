"""Whatever axes are renamed, split and joined: elements are where ONNX says, in any layout.

Shapes are drawn so that their sizes differ, since a wrong axis is silent on square ones.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.importers.onnx.builder import Builder
from crtexport.importers.onnx.values import Value, channels_last, stored
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Add, ReduceMax, Sub
from crtexport.ir.types import DType, TensorType
from crtexport.ir.verify import MAX_RANK
from tests.differential.network import interpret

Array = npt.NDArray[Any]
SIZES = (2, 3, 5, 7, 4, 1, 1, 6)


class World:
    """Values of a Graph, beside the arrays that they should be."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.inputs: list[tuple[int, Array]] = []

    def made(self, array: Array, order: tuple[int, ...]) -> Value:
        """A value with these elements, stored with its axes in ``order``."""
        lying = array.transpose(order)
        tensor = self.builder.tensor(TensorType(DType.INT32, lying.shape))
        self.inputs.append((tensor, lying))
        return stored(tensor, lying.shape, order)

    def check(self, value: Value, expected: Array) -> None:
        assert value.shape == expected.shape
        output = self.builder.arranged(value)
        graph = Graph(
            "test", tuple(self.builder.tensors), tuple(self.builder.nodes),
            tuple(t for t, _ in self.inputs), (output,),
        )
        (found,) = interpret(graph, [array for _, array in self.inputs])
        np.testing.assert_array_equal(found, expected)


def arrays(draw: st.DrawFn, most: int = 4) -> Array:
    shape = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=most))
    return np.arange(prod(shape), dtype=np.int32).reshape(shape)


def refactored(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape with as many elements: neighbours joined, axes split."""
    sizes: list[int] = []
    for size in shape:
        if sizes and draw(st.booleans()):
            sizes[-1] *= size
        else:
            sizes.append(size)
    result: list[int] = []
    for size in sizes:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        part = draw(st.sampled_from(divisors))
        result += draw(st.sampled_from(([size], [part, size // part], [1, size])))
    return tuple(result) if len(result) <= MAX_RANK else shape


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_way_of_renaming_axes_keeps_each_element_in_its_place(data: st.DataObject) -> None:
    draw: Any = data.draw
    world, array = World(), arrays(draw)
    value = world.made(array, tuple(draw(st.permutations(range(array.ndim)))))
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            order = tuple(draw(st.permutations(range(array.ndim))))
            value, array = value.transposed(order), array.transpose(order)
        else:
            shape = refactored(draw, array.shape)
            value, array = world.builder.reshaped(value, shape), array.reshape(shape)
    world.check(value, array)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_operators_of_two_inputs_broadcast_in_any_layout(data: st.DataObject) -> None:
    draw: Any = data.draw
    world, first = World(), arrays(draw)
    kept = [draw(st.booleans()) for _ in first.shape]
    shape = [size if keep else 1 for size, keep in zip(first.shape, kept, strict=True)]
    shape = shape[draw(st.integers(0, len(shape))) :]
    # Multiplied before it may become a scalar, which NumPy 1 would make 64 bits wide.
    second = (np.arange(prod(shape), dtype=np.int32) * 100).reshape(shape)
    values = [
        world.made(array, tuple(draw(st.permutations(range(array.ndim)))))
        for array in (first, second)
    ]
    split = draw(st.booleans())
    if split:  # an axis that lies in two places
        order = tuple(draw(st.permutations(range(first.ndim))))
        joined = (prod(first.shape),)
        values[0] = world.builder.reshaped(values[0].transposed(order), joined)
        first = first.transpose(order).reshape(joined)
        if second.size != 1:
            values[1] = world.builder.reshaped(values[1], (second.size,))
            second = second.reshape(-1)
            if second.shape != first.shape:
                return
    made = world.builder.elementwise(Sub(), *values)
    world.check(made, first - second)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_reductions_find_their_axes_in_any_layout(data: st.DataObject) -> None:
    draw: Any = data.draw
    world, array = World(), arrays(draw)
    value = world.made(array, tuple(draw(st.permutations(range(array.ndim)))))
    if draw(st.booleans()):
        shape = refactored(draw, array.shape)
        value, array = world.builder.reshaped(value, shape), array.reshape(shape)
    axes = draw(st.lists(st.integers(0, array.ndim - 1), min_size=1, unique=True))
    made = world.builder.reduce(ReduceMax, value, axes, keep=False)
    world.check(made, array.max(tuple(axes)))


def test_an_image_and_a_vector_of_its_channels_are_added_without_moving_either() -> None:
    world = World()
    image = np.arange(2 * 3 * 5 * 7, dtype=np.int32).reshape(2, 3, 5, 7)
    vector = np.arange(3, dtype=np.int32).reshape(3, 1, 1) * 1000
    value = world.made(image, channels_last(4))
    made = world.builder.elementwise(Add(), value, world.made(vector, (0, 1, 2)))
    assert {type(node.op).__name__ for node in world.builder.nodes} <= {"Add", "Reshape"}
    assert made.order == channels_last(4)
    world.check(made, image + vector)


def test_the_channels_of_a_flattened_image_stay_where_they_are() -> None:
    value = stored(0, (1, 4, 6, 8), channels_last(4))
    flat = value.reshaped((1, 192))
    assert flat is not None
    assert flat.axes == ((0,), (3, 1, 2))
    assert flat.order is None
    assert flat.reshaped((1, 8, 4, 6)) == value
