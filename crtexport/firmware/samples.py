"""Samples as firmware has them: inputs as bytes, outputs as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.firmware.parts import FirmwareParts, TensorPart
from crtexport.firmware.project import sample_layout
from crtexport.support.errors import CrtExportError

Array = npt.NDArray[Any]
Sample = Mapping[str, Array] | Sequence[Array]
"""The inputs of all models, in their order, or by name if there is one model."""


def pack_samples(parts: FirmwareParts, inputs: Sequence[Sample]) -> list[bytes]:
    """Returns the bytes of each sample. Raises CrtExportError unless names, types and shapes are
    right."""
    offsets, size = sample_layout(parts.all_inputs)
    packed = []
    for index, sample in enumerate(inputs):
        block = bytearray(size)
        for part, offset, array in zip(
            parts.all_inputs, offsets, _ordered(parts, sample, index), strict=True
        ):
            value = np.asarray(array)
            if value.dtype != part.dtype.numpy or value.shape != part.shape:
                raise CrtExportError(
                    f"the model wants {part.dtype.name.lower()} of shape {list(part.shape)}, this "
                    f"is {value.dtype} of shape {list(value.shape)}",
                    location=(f"sample {index}", part.name),
                )
            block[offset : offset + part.nbytes] = np.ascontiguousarray(value).tobytes()
        packed.append(bytes(block))
    return packed


def _ordered(parts: FirmwareParts, sample: Sample, index: int) -> list[Array]:
    names = [part.name for part in parts.all_inputs]
    if isinstance(sample, Mapping):
        if sorted(sample) != sorted(names):
            raise CrtExportError(
                f"the model's inputs are {', '.join(names)}, these are {', '.join(sample)}",
                location=f"sample {index}",
            )
        return [sample[name] for name in names]
    if len(sample) != len(names):
        raise CrtExportError(
            f"the model has {len(names)} inputs ({', '.join(names)}), these are {len(sample)}",
            location=f"sample {index}",
        )
    return list(sample)


def decode_outputs(parts: Sequence[TensorPart], row: tuple[bytes, ...]) -> tuple[Array, ...]:
    """Returns the outputs of one sample as arrays; ``row`` has their bytes."""
    return tuple(
        np.frombuffer(data, dtype=part.dtype.numpy).reshape(part.shape).copy()
        for part, data in zip(parts, row, strict=True)
    )
