"""Fingerprints of kernels, bit by bit."""

from __future__ import annotations

import numpy as np
from msgspec.msgpack import Encoder

from crtexport.kir.language import Kernel


def fingerprint(kernel: Kernel) -> bytes:
    """Returns bytes that are equal for two kernels if these differ in nothing but comments. As
    values 0.0 and -0.0 are equal; here they differ."""
    return _ENCODER.encode(
        (kernel.name, kernel.buffers, kernel.overlapping, kernel.params, kernel.body)
    )


def _plain(value: object) -> int | float:
    """Returns a NumPy number as a Python number."""
    if isinstance(value, np.number):
        number: int | float = value.item()
        return number
    raise TypeError(value)


_ENCODER = Encoder(enc_hook=_plain)
