"""Opset 6 as its specification has it: an attribute aligns axes, slopes are those of channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value

SHAPE = (2, 3, 5, 7)


@pytest.mark.parametrize(("axis", "shape"), [
    (None, (5, 7)), (None, (7,)), (None, ()), (None, SHAPE), (0, (2,)), (1, (3,)), (1, (3, 5)),
    (2, (5,)), (2, (5, 7)), (3, (7,)),
])
@pytest.mark.parametrize("operator", ["Sub", "Pow", "Greater"])
def test_the_second_operand_begins_at_the_axis(
    operator: str, axis: int | None, shape: tuple[int, ...], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 2, sizes).astype(np.float32) for sizes in (SHAPE, shape))
    attributes = {} if axis is None else {"axis": axis}
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node(operator, ["a", "b"], ["y"], broadcast=1, **attributes)],
        [value("a", SHAPE), value("b", shape)], ["y"],
    ), version=6))
    behind = 0 if axis is None else len(SHAPE) - axis - len(shape)
    function = {"Sub": np.subtract, "Pow": np.power, "Greater": np.greater}[operator]
    (found,) = interpret(load(path), [a, b])
    np.testing.assert_allclose(found, function(a, b.reshape((*shape, *(1,) * behind))), rtol=1e-6)


def test_a_slope_is_that_of_its_channel(tmp_path: Path) -> None:
    x, slope = np.random.default_rng(0).normal(size=SHAPE).astype("f4"), np.array([1, 2, 3], "f4")
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("PRelu", ["x", "w"], ["y"])], [value("x", SHAPE)], ["y"], {"w": slope},
    ), version=6))
    (found,) = interpret(load(path), [x])
    np.testing.assert_array_equal(found, np.where(x < 0, x * slope[:, None, None], x))
