"""Tables of indices and weights of resized axes, and images that are sampled at given places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.importers.onnx.interpolation import (
    ROUNDINGS,
    ResizedAxis,
    Resizing,
    coordinates,
    table,
)
from tests.differential.network import interpret
from tests.importers.onnx.writer import graph, model, node, value

ATTRIBUTES = st.builds(
    Resizing,
    mode=st.sampled_from(("nearest", "linear", "cubic")),
    coordinates=st.sampled_from(
        ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    ),
    rounding=st.sampled_from(ROUNDINGS), cubic=st.sampled_from((-0.75, -0.5)),
    exclude_outside=st.booleans(), antialias=st.booleans(),
)


@st.composite
def lines(draw: st.DrawFn) -> ResizedAxis:
    size, wanted = draw(st.integers(1, 20)), draw(st.integers(1, 40))
    return ResizedAxis(size, wanted, wanted / size)


@given(ATTRIBUTES, lines())
def test_an_even_line_stays_even(resizing: Resizing, line: ResizedAxis) -> None:
    made = table(resizing, line).dense(line.size)
    np.testing.assert_allclose(made.sum(1), 1, atol=1e-6)


@given(ATTRIBUTES, lines())
def test_nearest_elements_are_within_a_step_of_the_coordinate(
    resizing: Resizing, line: ResizedAxis
) -> None:
    if resizing.mode == "nearest":
        place = np.clip(coordinates(resizing, line), 0, line.size - 1)
        assert (np.abs(table(resizing, line).indices[:, 0] - place) <= 1).all()


@given(lines())
def test_linear_interpolation_keeps_a_slope(line: ResizedAxis) -> None:
    resizing = Resizing("linear", "align_corners", "floor", -0.75, False, False)
    made = table(resizing, line).dense(line.size) @ np.arange(line.size)
    wanted = np.linspace(0, line.size - 1, line.wanted) if line.wanted > 1 else [0]
    np.testing.assert_allclose(made, wanted, atol=1e-5)


@given(st.integers(1, 20), st.integers(1, 40), st.floats(-0.3, 0.7), st.floats(0.1, 1.3))
def test_a_region_has_values_where_it_lies_inside_of_the_image(
    size: int, wanted: int, start: float, extent: float
) -> None:
    resizing = Resizing("linear", "tf_crop_and_resize", "floor", -0.75, False, False)
    line = ResizedAxis(size, wanted, wanted / size, (start, start + extent))
    place = coordinates(resizing, line)
    first, end = table(resizing, line).inside
    there = (place >= 0) & (place <= size - 1)
    assert there[first:end].all()
    assert there.sum() == end - first


def test_a_grid_of_all_pixels_gives_each_image_of_a_batch(tmp_path: Path) -> None:
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    y, x = np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 5), indexing="ij")
    grid = np.broadcast_to(np.stack([x, y], 2), (2, 4, 5, 2)).astype(np.float32)
    mirrored = np.concatenate([grid[:1], -grid[1:]])
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph(
        [node("GridSample", ["x", "grid"], ["y"], align_corners=1)],
        [value("x", images.shape), value("grid", grid.shape)], ["y"],
    ), version=20))
    (found,) = interpret(load(path), [images, mirrored])
    wanted = np.concatenate([images[:1], images[1:, :, ::-1, ::-1]])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
