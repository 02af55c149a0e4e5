"""How many windows there are along an axis."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.importers.onnx.writer import graph, model, node, value

FEW = st.integers(1, 4)


@given(st.data())
def test_windows_begin_in_the_image_or_before_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """ONNX's formula: with ceil_mode, windows that would start in the right padding are ignored."""
    size = data.draw(st.integers(1, 12))
    taps, stride, dilation = (data.draw(FEW) for _ in range(3))
    before, after = (data.draw(st.integers(0, taps - 1)) for _ in range(2))
    ceil, spread = data.draw(st.booleans()), data.draw(st.integers(1, 3))
    path = tmp_path_factory.mktemp("windows") / "m.onnx"
    path.write_bytes(model(graph(
        [node("MaxPool", ["x"], ["y"], kernel_shape=[taps, 2], strides=[stride, 1],
              ceil_mode=int(ceil), dilations=[dilation, spread], pads=[before, 0, after, 0])],
        [value("x", [1, 1, size, 5])], ["y"], {},
    ), version=12))
    room = size + before + after - dilation * (taps - 1) - 1
    if room < 0:
        with pytest.raises(CrtExportError, match="doesn't fit"):
            load(path)
        return
    count = (math.ceil if ceil else math.floor)(room / stride + 1)
    if (count - 1) * stride >= size + before:
        count -= 1
    read = load(path)
    assert read.type(read.outputs[0]).shape == (1, 1, count, 5 - spread)
