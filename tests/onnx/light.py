"""The light models of the package onnx, and what they are with weights that differ.

Their files have weights that are all the same, so that most of their outputs are, too.
"""

from __future__ import annotations

from math import log2, prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

DRAWN = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")
"""Those of at most 100 MB of weights."""
_NUMBERS = "drawn_weights.bin"
_EXPONENTS, _SECTION = range(-6, 0), 10 << 20
"""All weights are parts of one file, of a section for each power of two that they scale by."""


def inputs(model: Any, *, drawn: bool) -> list[np.ndarray]:
    """Returns what onnx's runner gives to a light model: numbers that rise, or ``drawn`` ones."""
    weights = {initializer.name for initializer in model.graph.initializer}
    return [
        Runner.generate_dummy_data(value, random=drawn)
        for value in model.graph.input if value.name not in weights
    ]


def write_numbers(folder: Path) -> None:
    """Writes the numbers that weights are made of: as many for each scale as the largest takes."""
    rng = np.random.default_rng(0)
    with (folder / _NUMBERS).open("wb") as file:
        for exponent in _EXPONENTS:
            file.write(rng.normal(0, 2.0**exponent, _SECTION // 4).astype("<f4").tobytes())


def with_drawn_weights(model: Any) -> Any:
    """Returns a light model whose weights are drawn, without the softmax at its end."""
    drawn, graph, rng = onnx.ModelProto(), model.graph, np.random.default_rng(0)
    drawn.CopyFrom(model)
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    del drawn.graph.node[:]
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = shapes[node.input[0]].tolist()
            drawn.graph.initializer.append(_weights(node.output[0], shape, rng))
        elif node.op_type == "Softmax":
            drawn.graph.output[0].name = node.input[0]
        else:
            drawn.graph.node.append(node)
    return drawn


def _weights(name: str, shape: list[int], rng: np.random.Generator) -> Any:
    """Returns statistics that are positive, or factors that keep a sum of products about as large
    as its inputs."""
    if len(shape) == 1:
        return numpy_helper.from_array(rng.uniform(0.5, 1, shape).astype("f4"), name)
    exponent = max(round(log2(1.4 / sqrt(prod(shape[1:])))), _EXPONENTS[0])
    section = _EXPONENTS.index(exponent)
    nbytes = 4 * prod(shape)
    place = section * _SECTION + 4 * int(rng.integers((_SECTION - nbytes) // 4))
    tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", _NUMBERS), ("offset", place), ("length", nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def outputs(path: Path, given: list[np.ndarray]) -> list[np.ndarray]:
    """Returns what ONNX Runtime gives for the one input of a light model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of each weight that is an input, too
    session = onnxruntime.InferenceSession(path, options)
    (value,), (array,) = session.get_inputs(), given
    return session.run(None, {value.name: array})
