"""MatMulNBits of ONNX Runtime: a matrix of few bits with a scale for each block of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.builder import Blocks
from crtexport.importers.onnx.domains import MICROSOFT
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.matmul import by_blocks
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import Add
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]


@operator("MatMulNBits", inputs=(3, 6), domain=MICROSOFT)
def matmul_n_bits(node: OnnxNode) -> Value:
    """Returns the product with (numbers - zero points) * scales; the attribute for ONNX Runtime's
    accuracy is ignored."""
    node.ignore("accuracy_level", "weight_prepacked")
    depth, units, bits, size = (
        node.integer(name, default)
        for name, default in (("K", None), ("N", None), ("bits", 4), ("block_size", None))
    )
    if bits not in (2, 4, 8) or size < 1 or node.optional(4) is not None:
        raise CrtExportError("bits must be 2, 4 or 8, and rows in their order (no g_idx)")
    count = -(-depth // size)
    packed = _bytes(node, 1, "the weights").reshape(units, count, -1)
    numbers = _unpacked(packed, bits)[:, :, :size]
    zeros = np.full((units, count), 1 << bits - 1, np.int64)
    if node.optional(3) is not None:
        zeros = _unpacked(_bytes(node, 3, "the zero points").reshape(units, -1), bits)[:, :count]
    steps = (numbers - zeros[:, :, None]).reshape(units, -1)[:, :depth].T
    scales = node.array(node.input(2), "the scales").astype(np.float32).reshape(units, count).T
    blocks = Blocks.of(steps, scales, size)
    if blocks is None:
        raise CrtExportError("the weights less their zero points don't fit int8")
    a = node.input(0)
    made = node.builder.reshaped(by_blocks(node, a, blocks), (*a.shape[:-1], units))
    bias = node.optional(5)
    return made if bias is None else node.elementwise(Add(), made, bias)


def _bytes(node: OnnxNode, index: int, role: str) -> Array:
    """Returns a constant of uint8."""
    value = node.input(index)
    tensor = node.builder.tensors[node.builder.arranged(value)]
    if tensor.constant is None or tensor.type.dtype is not DType.UINT8:
        raise CrtExportError(f"{role} must be a constant of uint8, found {tensor.type}")
    return tensor.constant.array(tensor.type)


def _unpacked(packed: Array, bits: int) -> Array:
    """Returns the numbers of the last axis, the lowest bits of a byte first."""
    shifts = np.arange(0, 8, bits)
    parts = packed[..., None].astype(np.int64) >> shifts & (1 << bits) - 1
    found: Array = parts.reshape(*packed.shape[:-1], -1)
    return found
