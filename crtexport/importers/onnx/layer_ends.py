"""The nodes between a layer of real numbers and its QuantizeLinear: clamps, an Add of a bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.ir import ops
from crtexport.ir.graph import Node, Tensor
from crtexport.ir.types import TensorType
from crtexport.support.fixedpoint import nearest_even

_RANGES: Mapping[type[ops.Op], tuple[float, float]] = {
    ops.Relu: (0.0, np.inf), ops.Relu6: (0.0, 6.0), ops.ReluN1To1: (-1.0, 1.0),
}
_ACTIVATIONS: Mapping[tuple[float, float], ops.Activation] = {
    (0.0, np.inf): ops.Activation.RELU, (0.0, 6.0): ops.Activation.RELU6,
    (-1.0, 1.0): ops.Activation.RELU_N1_TO_1,
}
_EVERYTHING = -np.inf, np.inf


class NetworkReaders(Protocol):
    """Facts about the network: its tensors, who computes them, and how often they are read."""

    tensors: list[Tensor]
    producer: dict[int, Node]

    @property
    def readers(self) -> Mapping[int, int]: ...


class LayerEnd(Struct, frozen=True):
    """A layer and the nodes after it: the constant tensor ``bias`` (None: none) is added, and the
    sum is clamped to the range from ``low`` to ``high``."""

    layer: Node
    bias: int | None
    low: float
    high: float

    @property
    def activation(self) -> ops.Activation | None:
        """Returns the activation that clamps to the same range; None if there is none."""
        if (self.low, self.high) == _EVERYTHING:
            return None
        return _ACTIVATIONS.get((self.low, self.high))

    def table(self, type_: TensorType) -> npt.NDArray[np.int8] | None:
        """Returns the table of the clamp on int8 numbers of ``type_``; None if it changes none."""
        quant = type_.quant
        if quant is None:
            raise ValueError("integers without a scale")
        least, most = type_.dtype.limits
        with np.errstate(over="ignore"):
            steps = np.array([self.low, self.high], np.float32) / np.float32(quant.scale[0])
        # Rounding is monotonic: the clamp of rounded numbers has the rounded limits.
        ends = np.clip(nearest_even(np.clip(steps, -1e6, 1e6)) + quant.zero_point[0], least, most)
        if (ends == (least, most)).all():
            return None
        return np.clip(np.arange(least, most + 1), *ends).astype(np.int8)


def end_of(network: NetworkReaders, source: int) -> LayerEnd | None:
    """Returns the layer and the nodes that end in tensor ``source``; None if another node reads a
    result between them."""
    low, high = _EVERYTHING
    bias: int | None = None
    while True:
        node = network.producer.get(source)
        if node is None or network.readers[source] != 1:
            return None
        limits = _limits(network, node)
        if limits is not None and bias is None:
            # A clamp before another one: both limits hold.
            low, high = (min(max(limit, low), high) for limit in limits)
            source = node.inputs[0] or 0
            continue
        added = _added(network, node)
        if added is None or bias is not None:
            return LayerEnd(node, bias, low, high)
        source, bias = added


def _limits(network: NetworkReaders, node: Node) -> tuple[float, float] | None:
    """Returns the limits of a clamp of its first input."""
    if type(node.op) in _RANGES:
        return _RANGES[type(node.op)]
    if not isinstance(node.op, ops.Maximum | ops.Minimum):
        return None
    bound = network.tensors[node.inputs[1] or 0]
    if bound.constant is None or bound.type.elements != 1:
        return None
    limit = float(bound.constant.array(bound.type).reshape(-1)[0])
    if np.isnan(limit):
        return None
    return (limit, np.inf) if isinstance(node.op, ops.Maximum) else (-np.inf, limit)


def _added(network: NetworkReaders, node: Node) -> tuple[int, int] | None:
    """Returns the computed and the constant input of a sum, where another layer computes the first.
    """
    if node.op != ops.Add() or len(node.inputs) != 2:
        return None
    constants = [network.tensors[tensor or 0].constant is not None for tensor in node.inputs]
    if sum(constants) != 1:
        return None
    layer, bias = node.inputs[constants.index(False)] or 0, node.inputs[constants.index(True)] or 0
    maker = network.producer.get(layer)
    if maker is None or not isinstance(
        maker.op, ops.Conv2D | ops.DepthwiseConv2D | ops.FullyConnected
    ):
        return None
    return layer, bias
