"""float16 in ONNX files: stored in networks' inputs and outputs, computed as float32.

Operators read such a tensor as float32, and what they make of it is float16 again. Two of them in a
row pass the float32 on, so that a network is rounded at its ends, and where a Cast says so.
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


class _Widened(Struct, frozen=True):
    """float16 as float32."""

    def __call__(self, _position: int, piece: bytes) -> bytes:
        return np.frombuffer(piece, "<f2").astype("<f4").tobytes()


class Halves:
    """The float32 that float16 tensors are computed as, and the float16 that are made of them."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._wide: dict[int, int] = {}
        self._narrow: dict[int, int] = {}

    def inputs(self, operator: str, given: Sequence[Value | None]) -> list[Value | None]:
        """Returns what an operator reads for its inputs."""
        if operator in _AS_THEY_ARE:
            return list(given)
        return [
            value if value is None or not self._is(value, DType.FLOAT16)
            else replace(value, tensor=self._widened(value.tensor)) for value in given
        ]

    def outputs(
        self, operator: str, given: Sequence[Value | None], attributes: Mapping[str, Attribute],
        made: Sequence[Value | None],
    ) -> Sequence[Value | None]:
        """Returns the outputs of an operator: of what was given, the first floats are their type.
        """
        floats = [v for v in given if v is not None and self._builder.type(v.tensor).dtype.is_float]
        if operator in _AS_THEY_ARE or not floats or not self._is(floats[0], DType.FLOAT16):
            return made
        if operator == "DequantizeLinear" and attributes.get("output_dtype"):
            return made
        count = 1 if operator in _ONLY_FIRST else len(made)
        return [
            value if value is None or number >= count or not self._is(value, DType.FLOAT32)
            else replace(value, tensor=self._narrowed(value.tensor))
            for number, value in enumerate(made)
        ]

    def _is(self, value: Value, dtype: DType) -> bool:
        return self._builder.type(value.tensor).dtype is dtype

    def _widened(self, half: int) -> int:
        builder = self._builder
        if half not in self._wide:
            known = builder.tensors[half]
            if known.constant is not None:
                constant = ConstantRef(
                    nbytes=4 * known.type.elements, made=Made(known.constant, _Widened(), (2, 4))
                )
                wide = builder.tensor(TensorType(DType.FLOAT32, known.type.shape), constant)
            else:
                (wide,) = builder.emit(Cast(), half, dtypes=(DType.FLOAT32,))
            self._wide[half], self._narrow[wide] = wide, half
        return self._wide[half]

    def _narrowed(self, wide: int) -> int:
        if wide not in self._narrow:
            (half,) = self._builder.emit(Cast(), wide, dtypes=(DType.FLOAT16,))
            self._wide[half], self._narrow[wide] = wide, half
        return self._narrow[wide]
