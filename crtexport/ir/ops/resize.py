"""Images of another size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ResizeBilinear:
    """An image of ``size`` (rows, columns), between whose pixels values change linearly."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False


@dataclass(frozen=True)
class ResizeNearestNeighbor:
    """An image of ``size`` (rows, columns) of the nearest pixels' values."""

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False
