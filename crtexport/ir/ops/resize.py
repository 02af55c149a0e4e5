"""Images of another size."""

from __future__ import annotations

from msgspec import Struct


class ResizeBilinear(Struct, frozen=True):
    """An image of ``size`` (rows, columns), between whose pixels values change linearly."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False


class ResizeNearestNeighbor(Struct, frozen=True):
    """An image of ``size`` (rows, columns) of the nearest pixels' values."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False
