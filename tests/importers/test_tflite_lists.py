"""Loops that write lists: slices before and behind an item become a write of this item."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.ir.ops import DynamicUpdateSlice
from crtexport.support.errors import CrtExportError
from tests.differential.draw import SeededDraw
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder


class Writing:
    """An item put into a list of ``shape`` as TensorFlow's converter writes TensorListSetItem."""

    def __init__(
        self, shape: Sequence[int], dtype: str, *, step: int = 1, axis: int = 0,
        first: Sequence[int] = (0,), scalar: bool = False, one_left: bool = False,
    ) -> None:
        self.m = ModelBuilder()
        quant: dict[str, Any] = {"scale": 0.1, "zero_point": 4} if dtype == "int8" else {}
        rest = tuple(shape[1:])
        values = self.m.tensor("values", shape, dtype, **quant)
        item = self.m.tensor("item", (1, *rest), dtype, **quant)
        place = self.m.tensor("place", () if scalar else (1,), "int32")
        self.inputs = [values, item, place]
        one = self._given("one", np.full((), step) if scalar else [step])
        after = self.m.tensor("after", () if scalar else (1,), "int32")
        self.m.op("ADD", [one, place] if one_left else [place, one], [after])
        size = self._list("size", self._vector(place, scalar), [-1] * len(rest))
        begin = self._list("begin", self._vector(after, scalar), [0] * len(rest))
        nowhere = [*first, *[0] * (len(shape) - len(first))]
        parts = [
            self._slice("before", values, self._given("from", nowhere), size, (1, *rest), dtype),
            item,
            self._slice("behind", values, begin, self._given("all", [-1] * len(shape)),
                        (1, *rest), dtype),
        ]
        # The converter writes sizes that only a run knows as 1.
        y = self.m.tensor("y", (3, *rest), dtype, **quant)
        self.m.op("CONCATENATION", parts, [y], axis=axis)
        self.content = self.m.build(self.inputs, [y])

    def _given(self, name: str, values: Any) -> int:
        array = np.array(values, np.int32)
        return self.m.tensor(name, array.shape, "int32", data=array)

    def _vector(self, tensor: int, scalar: bool) -> int:
        if not scalar:
            return tensor
        found = self.m.tensor("vector", (1,), "int32")
        self.m.op("RESHAPE", [tensor, self._given("to", [1])], [found], options_kind=None)
        return found

    def _list(self, name: str, head: int, others: list[int]) -> int:
        found = self.m.tensor(name, (1 + len(others),), "int32")
        self.m.op("CONCATENATION", [head, self._given(f"{name} rest", others)], [found], axis=0)
        return found

    def _slice(
        self, name: str, values: int, begin: int, size: int, shape: Sequence[int], dtype: str
    ) -> int:
        quant: dict[str, Any] = {"scale": 0.1, "zero_point": 4} if dtype == "int8" else {}
        found = self.m.tensor(name, shape, dtype, **quant)
        self.m.op("SLICE", [values, begin, size], [found])
        return found


def loaded(content: bytes, folder: Path) -> Any:
    path = folder / "net.tflite"
    path.write_bytes(content)
    return load(path)


@pytest.mark.parametrize("seed", range(12))
def test_every_item_of_a_list_is_written_in_its_place(seed: int, tmp_path: Path) -> None:
    draw, rng = SeededDraw(seed), np.random.default_rng(seed)
    shape = [draw.integer(1, 5), *(draw.integer(1, 4) for _ in range(draw.integer(1, 3)))]
    dtype = ("float32", "int8", "int32")[seed % 3]
    written = Writing(
        shape, dtype, scalar=draw.choice([True, False]), one_left=draw.choice([True, False])
    )
    graph = loaded(written.content, tmp_path)
    ops = [type(node.op) for node in graph.nodes]
    assert ops.count(DynamicUpdateSlice) == 1
    assert graph.type(graph.outputs[0]).shape == tuple(shape)
    for place in range(shape[0]):
        values, item = (
            rng.integers(-100, 100, s).astype(dtype) for s in (shape, [1, *shape[1:]])
        )
        at = np.array(place if graph.type(graph.inputs[2]).shape == () else [place], np.int32)
        given = (values, item, at)
        (found,) = interpret(graph, given)
        expected = np.array(values)
        expected[place] = item[0]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("changed", [{"step": 2}, {"step": 0}, {"first": (1,)}, {"axis": 1}])
def test_what_writes_no_single_item_is_no_write_of_one(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    """The sizes of such slices depend on the input, which no static memory can hold."""
    with pytest.raises(CrtExportError):
        loaded(Writing((4, 3), "float32", **changed).content, tmp_path)
