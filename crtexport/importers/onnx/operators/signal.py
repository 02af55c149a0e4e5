"""Signal processing: windows and filter banks are constants, a DFT is a product with one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crtexport.importers.onnx.constants import element_type
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.convolution import convolved
from crtexport.importers.onnx.operators.matmul import fully_connected
from crtexport.importers.onnx.operators.move import section
from crtexport.importers.onnx.operators.windows import PaddedAxis
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_MOST = 1 << 20
"""The largest number of elements of a window or a filter bank."""

_COSINES = {
    "HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""The coefficients of 1, -cos and the cosine of the double angle."""


def _result(node: OnnxNode) -> DType:
    return element_type(node.integer("output_datatype", 1))


@operator(*_COSINES, oldest=17)
def window(node: OnnxNode) -> Value:
    size = int(node.number(0, "the size"))
    if not 0 < size <= _MOST:
        raise CrtExportError(f"a window of {size} elements")
    turns = size if node.integer("periodic", 1) else max(size - 1, 1)
    angle = 2 * np.pi * np.arange(size) / turns
    level, once, twice = _COSINES[node.info.operator]
    return node.constant(level - once * np.cos(angle) + twice * np.cos(2 * angle), _result(node))


@operator("MelWeightMatrix", inputs=(5, 5), oldest=17)
def mel_weight_matrix(node: OnnxNode) -> Value:
    """Triangles that overlap by halves, their corners as far apart on the mel scale."""
    bands, length, rate = (
        int(node.number(i, what)) for i, what in enumerate(("bands", "the DFT", "the sample rate"))
    )
    low, high = node.number(3, "the lower edge"), node.number(4, "the upper edge")
    bins = length // 2 + 1
    if bands < 1 or length < 1 or rate < 1 or bands * bins > _MOST:
        raise CrtExportError(f"{bands} bands of a DFT of {length} at {rate} Hz")
    edges = np.arange(bands + 2, dtype=np.float64)
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = edges * ((last - first) / (bands + 2)) + first
    corners = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    matrix = np.zeros((bins, bands))
    for band in range(bands):
        lower, middle, upper = corners[band : band + 3]
        for place in range(max(lower, 0), min(middle, bins - 1) + 1):
            matrix[place, band] = (place - lower) / (middle - lower) if middle > lower else 1
        for place in range(max(middle, 0), min(upper, bins)):
            matrix[place, band] = (upper - place) / (upper - middle)
    return node.constant(matrix, _result(node))


@operator("DFT", inputs=(1, 3), oldest=17)
def dft(node: OnnxNode) -> Value:
    """Returns the product with a constant matrix, of real numbers or of pairs."""
    x = node.input(0)
    rank = len(x.shape)
    axis = int(node.number(2, "the axis", -2)) if node.version >= 20 else node.integer("axis", 1)
    axis = node.axis(axis, rank)
    if axis == rank - 1 or x.shape[-1] not in (1, 2):
        raise CrtExportError(f"axis {axis} of {x.shape}: the last one has real, or real and "
                             "imaginary parts")
    backwards, half = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    size, parts = x.shape[axis], x.shape[-1]
    whole = backwards and half  # of which the other half is the conjugate
    length = int(node.number(1, "the length", 2 * (size - 1) if whole else size))
    samples = min(size, length // 2 + 1 if whole else length)
    if length < 1 or 4 * samples * length > _MOST:
        raise CrtExportError(f"a DFT of {length} elements, as a matrix of {samples} rows")
    matrix = _fourier(samples, length, backwards=backwards, half=half)[:, :parts]
    order = (*(a for a in range(rank) if a not in (axis, rank - 1)), axis, rank - 1)
    rows = section(node, x, axis, 0, samples).transposed(order)
    front = rows.shape[:-2]
    flat = node.builder.reshaped(rows, (*front, samples * parts))
    columns = matrix.shape[2:]
    table = node.constant(matrix.reshape(samples * parts, -1), node.dtype(x))
    made = node.builder.reshaped(fully_connected(node, flat, table, None), (*front, *columns))
    return made.transposed([order.index(a) for a in range(rank)])


@operator("STFT", inputs=(2, 4), oldest=17)
def stft(node: OnnxNode) -> Value:
    """Returns a convolution along the samples, whose filters are the rows of a DFT times the
    window."""
    x, step = node.input(0), int(node.number(1, "the frame step"))
    x = node.builder.reshaped(x, (*x.shape, 1)) if len(x.shape) == 2 else x
    if len(x.shape) != 3 or x.shape[2] not in (1, 2):
        raise CrtExportError(f"a signal {x.shape}: (batch, samples, real and imaginary part)")
    window = None if node.optional(2) is None else node.array(node.input(2), "the window")
    length = int(node.number(3, "the frame length", -1 if window is None else window.size))
    if length < 1 or step < 1 or length > x.shape[1] or (
        window is not None and window.shape != (length,)
    ):
        raise CrtExportError(f"frames of {length} samples, {step} apart, of {x.shape[1]}")
    half = bool(node.integer("onesided", 1))
    if 4 * length * length > _MOST or (half and x.shape[2] == 2):
        raise CrtExportError(f"one side of a DFT of {length} elements of {x.shape}")
    matrix = _fourier(length, length, backwards=False, half=half)[:, : x.shape[2]]
    shares = np.ones(length) if window is None else window.astype(np.float64)
    filters = (matrix * shares[:, None, None, None]).transpose(2, 3, 1, 0)
    bins = filters.shape[0]
    table = node.constant(
        filters.reshape(2 * bins, x.shape[2], length), node.dtype(x)
    )
    frames = (x.shape[1] - length) // step + 1
    axis = PaddedAxis(length, step, 1, 0, 0, frames)
    made = convolved(node, x.transposed((0, 2, 1)), table, None, [axis])
    return node.builder.reshaped(made.transposed((0, 2, 1)), (x.shape[0], frames, bins, 2))


def _fourier(
    elements: int, length: int, *, backwards: bool, half: bool
) -> npt.NDArray[np.float64]:
    """Returns the factors from (elements, parts) to (elements, parts); with ``half``, forwards only
    the first half of the results, backwards of the first half of a spectrum to real numbers."""
    count = length // 2 + 1 if half and not backwards else length
    turns = np.outer(np.arange(elements), np.arange(count)) % length
    angle = 2 * np.pi * turns / length
    cos, sin = np.cos(angle), np.sin(angle) * (-1 if backwards else 1)
    matrix = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    if backwards:
        matrix /= length
        if half:
            places = np.arange(elements)
            twice = np.where((places == 0) | (2 * places == length), 1, 2)
            matrix = matrix[..., :1] * twice[:, None, None, None]
    return matrix
