"""Spectra of rows of samples, and what is taken of their complex numbers.

There are no complex numbers here: RFFT2D of single rows with the COMPLEX_ABS, REAL or IMAG behind
it (and what only changes the shape between both) becomes the transform of TensorFlow Lite Micro's
signal library, whose rows have the real and the imaginary part of each number side by side.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from crtexport.importers.tflite.float_nodes import Define, FloatNodes
from crtexport.importers.tflite.schema import BuiltinOperator
from crtexport.importers.tflite.tensors import TensorTable
from crtexport.importers.tflite.variables import Subgraph
from crtexport.ir.graph import Node
from crtexport.ir.ops import Add, Reshape, Rfft, Slice, Sqrt, Square
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

_PARTS: Mapping[int, tuple[int, ...]] = {
    BuiltinOperator.COMPLEX_ABS: (0, 1), BuiltinOperator.REAL: (0,), BuiltinOperator.IMAG: (1,),
}
"""The parts of complex numbers that operators read: real and imaginary."""
_MOVES = (BuiltinOperator.RESHAPE, BuiltinOperator.EXPAND_DIMS, BuiltinOperator.SQUEEZE)


class Spectrum(Struct, frozen=True):
    """Numbers ``result`` that are made of ``parts`` of the spectrum of ``samples``; ``sizes`` has
    the rows and columns of the transform. ``slices``: the operators between both, which leave no
    nodes of their own."""

    samples: int
    sizes: int
    result: int
    parts: tuple[int, ...]
    slices: tuple[int, ...]

    def nodes(self, tensors: TensorTable, define: Define) -> list[Node]:
        """Returns the nodes that compute it; ``define`` makes tensors. Raises CrtExportError for
        other samples than rows of float32, and for lengths that are no constant."""
        samples, result = tensors.tensor(self.samples), tensors.tensor(self.result)
        length = self._length(tensors, samples.type)
        made = FloatNodes(result.name, define)

        whole = samples.type.shape[-1]
        rows, used = samples.type.elements // whole, min(whole, length)
        x = made.add(Reshape((rows, whole)), (rows, whole), self.samples)
        if used < whole:
            x = made.add(Slice((0, 0), (rows, used), (1, 1), (rows, used)), (rows, used), x)
        spectrum = made.add(Rfft(length), (rows, length + 2), x)
        shape = rows, length // 2 + 1
        parts = [
            made.add(Slice((0, part), shape, (1, 2), shape), shape, spectrum) for part in self.parts
        ]
        total = parts[0]
        if len(parts) > 1:
            squares = [made.add(Square(), shape, part) for part in parts]
            total = made.add(Sqrt(), shape, made.add(Add(), shape, *squares))
        return made.finish(Reshape(result.type.shape), (self.result,), total)

    def _length(self, tensors: TensorTable, samples: TensorType) -> int:
        """Returns the number of samples of a transform."""
        if samples.dtype is not DType.FLOAT32 or len(samples.shape) < 2 or samples.elements == 0:
            raise CrtExportError(f"rows of float32 are transformed, not {samples}")
        sizes = tensors.tensor(self.sizes)
        if sizes.constant is None or sizes.type != TensorType(DType.INT32, (2,)):
            raise CrtExportError(f"the lengths (tensor {sizes.name!r}) must be 2 constant int32")
        rows, length = (int(n) for n in sizes.constant.array(sizes.type))
        if (rows, samples.shape[-2]) != (1, 1):
            raise CrtExportError(
                f"transforms of {rows} of the {samples.shape[-2]} rows of {samples} are not"
                " supported, but of one"
            )
        return length


def spectra(subgraph: Subgraph) -> dict[int, Spectrum]:
    """Returns what a subgraph takes of spectra, by the operators that do."""
    makers = {
        tensor: index
        for index, operator in enumerate(subgraph.operators) for tensor in operator.outputs
    }
    found: dict[int, Spectrum] = {}
    for index, (code, _) in enumerate(subgraph.codes):
        operator = subgraph.operators[index]
        if code not in _PARTS or len(operator.inputs) != 1 or len(operator.outputs) != 1:
            continue
        between, before = [], makers.get(operator.inputs[0])
        while before is not None and subgraph.codes[before][0] in _MOVES:
            between.append(before)
            before = makers.get(subgraph.operators[before].inputs[0])
        if before is None or subgraph.codes[before][0] != BuiltinOperator.RFFT2D:
            continue
        given = subgraph.operators[before].inputs
        if len(given) == 2 and min(given) >= 0:
            found[index] = Spectrum(
                *given, operator.outputs[0], _PARTS[code], (*between, before)
            )
    return found
