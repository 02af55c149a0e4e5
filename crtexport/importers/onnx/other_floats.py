"""float16 and double in ONNX files: stored in networks' inputs and outputs, computed as float32.

Operators read such a tensor as float32, and what they make of it is of its type again. Two of them
in a row pass the float32 on, so that a network is rounded at its ends, and where a Cast says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.importers.onnx.builder import Builder
from crtexport.importers.onnx.messages import Attribute
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import Cast
from crtexport.ir.types import ConstantRef, DType, Made, TensorType

_AS_THEY_ARE = frozenset((
    "BitCast", "Cast", "CastLike", "Constant", "ConstantOfShape", "EyeLike", "Identity", "If",
    "Loop", "Optional", "OptionalGetElement", "OptionalHasElement", "Scan", "Shape", "Size",
))
"""Operators that look at element types themselves, or have graphs inside, or compute nothing."""
_ONLY_FIRST = frozenset(("LayerNormalization", "SimplifiedLayerNormalization"))
"""Operators whose further outputs are float32, whatever the first one is."""


OTHER_FLOATS = frozenset((DType.FLOAT16, DType.FLOAT64))
"""Element types that are computed as float32."""


class _AsFloat32(Struct, frozen=True):
    """Numbers of another type as float32; those that are too large are infinite."""

    dtype: DType

    def __call__(self, _position: int, piece: bytes) -> bytes:
        with np.errstate(over="ignore"):
            return np.frombuffer(piece, self.dtype.numpy).astype("<f4").tobytes()


class OtherFloats:
    """The float32 that tensors of other floats are computed as, and those made of them."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._computed: dict[int, int] = {}
        self._stored: dict[tuple[int, DType], int] = {}

    def inputs(self, operator: str, values: Sequence[Value | None]) -> list[Value | None]:
        """Returns what an operator reads for its inputs."""
        if operator in _AS_THEY_ARE:
            return list(values)
        return [
            value if value is None or self._dtype(value) not in OTHER_FLOATS
            else replace(value, tensor=self._as_computed(value.tensor)) for value in values
        ]

    def outputs(
        self, operator: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute],
        outputs: Sequence[Value | None],
    ) -> Sequence[Value | None]:
        """Returns the outputs of an operator: of what was given, the first floats are their type.
        """
        floats = [v for v in inputs if v is not None and self._dtype(v).is_float]
        if operator in _AS_THEY_ARE and floats and outputs:
            self._note_cast(floats[0], outputs[0])
        if operator in _AS_THEY_ARE or not floats or self._dtype(floats[0]) not in OTHER_FLOATS:
            return outputs
        if operator == "DequantizeLinear" and attributes.get("output_dtype"):
            return outputs
        count, dtype = 1 if operator in _ONLY_FIRST else len(outputs), self._dtype(floats[0])
        return [
            value if value is None or number >= count or self._dtype(value) is not DType.FLOAT32
            else replace(value, tensor=self._as_stored(value.tensor, dtype))
            for number, value in enumerate(outputs)
        ]

    def _dtype(self, value: Value) -> DType:
        return self._builder.type(value.tensor).dtype

    def _note_cast(self, source: Value, result: Value | None) -> None:
        """Notes that a double that was made of a float32 is that."""
        if result is not None and self._dtype(result) is DType.FLOAT64 and (
            replace(result, tensor=source.tensor) == source and self._dtype(source) is DType.FLOAT32
        ):
            self._computed.setdefault(result.tensor, source.tensor)

    def _as_computed(self, tensor: int) -> int:
        builder = self._builder
        if tensor not in self._computed:
            known = builder.tensors[tensor]
            if known.constant is not None:
                constant = ConstantRef(nbytes=4 * known.type.elements, made=Made(
                    known.constant, _AsFloat32(known.type.dtype), (known.type.dtype.itemsize, 4)
                ))
                made = builder.tensor(TensorType(DType.FLOAT32, known.type.shape), constant)
            else:
                (made,) = builder.emit(Cast(), tensor, dtypes=(DType.FLOAT32,))
            self._pair(made, tensor)
        return self._computed[tensor]

    def _as_stored(self, tensor: int, dtype: DType) -> int:
        if (tensor, dtype) not in self._stored:
            (made,) = self._builder.emit(Cast(), tensor, dtypes=(dtype,))
            self._pair(tensor, made)
        return self._stored[tensor, dtype]

    def _pair(self, computed: int, stored: int) -> None:
        self._computed[stored] = computed
        self._stored[computed, self._builder.type(stored).dtype] = stored
