"""Changes of a float network that let it lose less in 8 bits: cross-layer equalization, which
leaves what it computes as it is, and bias correction, which takes off the mean error of rounded
weights.

Imported by the worker, in the Python that has onnx and onnxruntime.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper, numpy_helper

from crtexport.quantization.onnx_network import consumers, producers

Array = npt.NDArray[Any]
Observe = Callable[[list[str]], Any]
"""Yields the tensors of these names for one sample after the other."""

# Between two layers, a channel may have another factor: f(s x) = s f(x) for s > 0.
_HOMOGENEOUS = {"Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Dropout"}
_LAYERS = {"Conv", "Gemm"}
_LEAST = 1e-3
"""Of the largest range of a tensor: channels with less are treated as if they had so much."""


class Weights:
    """The constants of a convolution or fully connected layer: ``matrix`` has an axis of outputs
    and one of inputs in front; depthwise ones have one input for each output."""

    def __init__(self, model: Any, node: Any) -> None:
        self.node = node
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.tensor = constants.get(node.input[1])
        self.bias = constants.get(node.input[2]) if len(node.input) > 2 else None
        facts = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.group = facts.get("group", 1)
        plain = facts.get("alpha", 1.0) == facts.get("beta", 1.0) == 1 and not facts.get("transA")
        self.known = self.tensor is not None and plain and (
            len(node.input) < 3 or self.bias is not None
        )
        self._turned = node.op_type == "Gemm" and not facts.get("transB", 0)

    @property
    def matrix(self) -> Array:
        found: Array = numpy_helper.to_array(self.tensor).astype(np.float64)
        return found.T if self._turned else found

    @matrix.setter
    def matrix(self, values: Array) -> None:
        _store(self.tensor, values.T if self._turned else values)

    @property
    def depthwise(self) -> bool:
        return self.group > 1 and self.tensor is not None and self.tensor.dims[1] == 1 and (
            self.tensor.dims[0] == self.group
        )

    def input_ranges(self) -> Array:
        """Returns the largest weight of each input channel."""
        values = np.abs(self.matrix)
        others = tuple(i for i in range(values.ndim) if i != (0 if self.depthwise else 1))
        found: Array = values.max(axis=others)
        return found

    def scale_inputs(self, factors: Array) -> None:
        values = self.matrix
        shape = (-1, *(1,) * (values.ndim - 1)) if self.depthwise else (
            (1, -1, *(1,) * (values.ndim - 2))
        )
        self.matrix = values * factors.reshape(shape)

    def scale_outputs(self, factors: Array) -> None:
        values = self.matrix
        self.matrix = values * factors.reshape((-1, *(1,) * (values.ndim - 1)))
        if self.bias is not None:
            _store(self.bias, numpy_helper.to_array(self.bias) * factors)


def _store(tensor: Any, values: Array) -> None:
    made = numpy_helper.from_array(np.ascontiguousarray(values, np.float32), tensor.name)
    tensor.CopyFrom(made)


def equalized(model: Any, observe: Observe) -> Any | None:
    """Returns the network with its channels scaled so that, between two layers, those of the tensor
    and of the weights that read it have ranges as alike as can be; None where no two layers allow
    it.

    Channel i is divided by s and the weights that read it are multiplied by it, with
    s = sqrt(range of the channel / range of these weights).
    """
    model = copy.deepcopy(model)
    pairs = _pairs(model)
    if not pairs:
        return None
    ranges: dict[str, Array] = {}
    names = sorted({name for _, name, _ in pairs})
    for row in observe(names):
        for name, values in zip(names, row):
            axes = tuple(i for i in range(values.ndim) if i != 1)
            found = np.abs(values).max(axis=axes).astype(np.float64)
            ranges[name] = np.maximum(ranges.get(name, 0.0), found)
    for first, name, second in pairs:
        given, read = ranges[name], second.input_ranges()
        if not (given.max() > 0 and read.max() > 0) or len(given) != len(read):
            continue
        given = np.maximum(given, _LEAST * given.max())
        read = np.maximum(read, _LEAST * read.max())
        # Depthwise weights have a scale for each input channel: only the tensor has to gain.
        factors = given if second.depthwise else np.sqrt(given / read)
        # As a whole the tensor keeps its size.
        factors /= np.exp(np.log(factors).mean())
        first.scale_outputs(1 / factors)
        second.scale_inputs(factors)
    return model


def _pairs(model: Any) -> list[tuple[Weights, str, Weights]]:
    """Returns layers that follow each other, with the tensor that the second one reads: nothing
    else reads what lies between, and that doesn't mind a factor for each channel."""
    users, makers = consumers(model), producers(model)
    outputs = {value.name for value in model.graph.output}
    shared = {
        name for name, readers in users.items() if len(readers) > 1 and name not in makers
    }
    pairs = []
    for node in model.graph.node:
        if node.op_type not in _LAYERS:
            continue
        name = node.output[0]
        while True:
            readers = users.get(name, [])
            if len(readers) != 1 or name in outputs:
                break
            reader = readers[0]
            if reader.op_type in _LAYERS and reader.input[0] == name:
                first, second = Weights(model, node), Weights(model, reader)
                if first.known and second.known and _fit(first, second, shared):
                    pairs.append((first, name, second))
                break
            if reader.op_type not in _HOMOGENEOUS:
                break
            name = reader.output[0]
    return pairs


def _fit(first: Weights, second: Weights, shared: set[str]) -> bool:
    parts = {*first.node.input[1:], *second.node.input[1:]}
    single = second.group == 1 or second.depthwise
    channels = second.matrix.shape[0 if second.depthwise else 1]
    return single and not parts & shared and first.matrix.shape[0] == channels


def bias_corrected(model: Any, observe: Observe) -> Any | None:
    """Returns the network with biases from which the mean error is taken that rounding a layer's
    weights to int8 makes for the mean of its inputs; None where no layer has a bias."""
    model = copy.deepcopy(model)
    layers = [
        layer for layer in (Weights(model, n) for n in model.graph.node if n.op_type in _LAYERS)
        if layer.known and layer.bias is not None
    ]
    if not layers:
        return None
    names = sorted({layer.node.input[0] for layer in layers})
    sums, count = dict.fromkeys(names, np.zeros(1)), 0
    for row in observe(names):
        count += 1
        for name, values in zip(names, row):
            axes = tuple(i for i in range(values.ndim) if i != 1)
            sums[name] = sums[name] + values.astype(np.float64).mean(axis=axes)
    for layer in layers:
        weights = layer.matrix
        error = _rounded(weights) - weights
        error = error.reshape(*error.shape[:2], -1).sum(axis=-1)
        means = sums[layer.node.input[0]] / max(count, 1)
        per = len(means) // layer.group
        units = len(error) // layer.group
        wrong = np.concatenate([
            error[g * units : (g + 1) * units] @ means[g * per : (g + 1) * per]
            for g in range(layer.group)
        ])
        _store(layer.bias, numpy_helper.to_array(layer.bias) - wrong)
    return model


def _rounded(weights: Array) -> Array:
    """Symmetric int8 with a scale for each output, as real numbers."""
    largest = np.abs(weights).reshape(len(weights), -1).max(axis=1)
    scale = np.where(largest > 0, largest / 127, 1.0).reshape((-1, *(1,) * (weights.ndim - 1)))
    found: Array = np.rint(weights / scale) * scale
    return found
