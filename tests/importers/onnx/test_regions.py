"""RoiAlign with samples on exact places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value


def region(folder: Path, ratio: int) -> Path:
    """A mean over one region of an image, as one cell with ratio x ratio samples."""
    constants = {"rois": np.array([[0, 0, 3, 3]], "f4"), "batch": np.array([0], np.int64)}
    path = folder / "m.onnx"
    path.write_bytes(model(graph(
        [node("RoiAlign", ["x", "rois", "batch"], ["y"], sampling_ratio=ratio,
              coordinate_transformation_mode="output_half_pixel")],
        [value("x", [1, 1, 4, 4])], ["y"], constants,
    ), version=16))
    return path


@pytest.mark.parametrize(("ratio", "places"), [(1, [1.5]), (3, [0.5, 1.5, 2.5])])
def test_a_cell_is_the_mean_of_its_samples(
    ratio: int, places: list[float], tmp_path: Path
) -> None:
    """The image is x² + 10 y, linear between its pixels."""
    axis = np.arange(4)
    image = (axis**2 + 10 * axis[:, None]).astype("f4").reshape(1, 1, 4, 4)
    (found,) = interpret(load(region(tmp_path, ratio)), [image])
    squares = np.interp(places, axis, axis**2)
    wanted = squares.mean() + 10 * np.mean(places)
    np.testing.assert_allclose(found, np.full((1, 1, 1, 1), wanted), rtol=1e-6)


def test_as_many_samples_as_pixels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="sampling_ratio 0"):
        load(region(tmp_path, 0))
