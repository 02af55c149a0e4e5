"""Operators that read images at computed places."""

from __future__ import annotations

import enum

from crtexport.ir.ops.base import Op


class Interpolation(enum.Enum):
    """Ways to make a number of the pixels around a place; the value is its name."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"


class Outside(enum.Enum):
    """Pixels beyond the edge of an image; the value is the name. Reflections repeat the outermost
    pixel (``REFLECTION``), or don't (``MIRROR``)."""

    ZEROS = "zeros"
    BORDER = "border"
    REFLECTION = "reflection"
    MIRROR = "mirror"


class Sample(Op, frozen=True):
    """Pixels of an image, (batch, sizes, channels), at places, (batch, points, dimensions): as
    (batch, points, channels). Places count in pixels, along the last axis first."""

    interpolation: Interpolation = Interpolation.LINEAR
    outside: Outside = Outside.ZEROS
