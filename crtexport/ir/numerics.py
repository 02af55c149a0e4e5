"""The runtime whose integers exported code computes: a choice of the export, not of the network."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from crtexport.support.errors import CrtExportError

if TYPE_CHECKING:
    import numpy as np

    from crtexport.support.fixedpoint import Rounding


class Numerics(enum.Enum):
    """The runtime whose reference kernels integer results equal, bit for bit.

    TFLITE: tflite-runtime 2.14. LITERT: ai-edge-litert 2.x, whose fully connected layers round
    once. TFLM: TensorFlow Lite Micro, which multiplies scales in double precision. ORT: ONNX
    Runtime with its optimizations, which scales sums in float32. Operators in which they differ ask
    for it; all others compute the same for each of them. Floats don't depend on it.
    """

    TFLITE = "tflite"
    LITERT = "litert"
    TFLM = "tflm"
    ORT = "ort"

    @staticmethod
    def of(word: str | None) -> Numerics | None:
        """Returns the member of that name, also by the roundings that it was called after before;
        None, which leaves it to the format of the model, for None.

        Raises CrtExportError for any other word.
        """
        if word is None:
            return None
        try:
            return Numerics(FORMER_WORDS.get(word, word))
        except ValueError:
            known = ", ".join(numerics.value for numerics in Numerics)
            raise CrtExportError(
                f"{word!r} names no numerics", location="--numerics", hint=f"known are {known}"
            ) from None

    def rounding(self, *, fully_connected: bool) -> Rounding:
        """Returns the rounding of the sums of layers with weights."""
        # The command line knows the words before anything needs NumPy.
        from crtexport.support.fixedpoint import Rounding  # noqa: PLC0415

        if self is Numerics.ORT:
            return Rounding.FLOAT
        return Rounding.SINGLE if fully_connected and self is Numerics.LITERT else Rounding.DOUBLE

    @property
    def precision(self) -> type[np.floating[Any]]:
        """Returns the type of the floats in which kernels multiply and divide scales."""
        import numpy as np  # noqa: PLC0415

        return np.float64 if self is Numerics.TFLM else np.float32


FORMER_WORDS = {"double": Numerics.TFLITE.value, "single": Numerics.LITERT.value}
"""The words of ``--rounding``, as ``--numerics`` was called before, and what they meant."""
