"""The geometry of windows, against every tap of every window."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from crtexport.ir.window import WindowAxis, WindowGeometry

SMALL = st.integers(1, 4)
PADDING = st.integers(0, 3)


@given(st.integers(1, 9), SMALL, SMALL, SMALL, SMALL, PADDING, PADDING)
def test_an_axis_knows_where_its_taps_lie(
    size: int, positions: int, window: int, stride: int, dilation: int, before: int, after: int
) -> None:
    axis = WindowAxis(size, positions, window, stride, dilation, before, after)
    taps = [
        position * stride - before + tap * dilation
        for position in range(positions) for tap in range(window)
    ]
    assert axis.end == max(taps) + 1
    assert axis.covered(positions) == max(taps) - min(taps) + 1
    assert axis.inside == (before == 0 and max(taps) < size)
    assert axis.padded == (before + after > 0)


@given(st.integers(1, 9), SMALL, SMALL, SMALL, PADDING, PADDING)
def test_windows_fit_as_often_as_their_last_tap_lies_in_the_padded_image(
    size: int, window: int, stride: int, dilation: int, before: int, after: int
) -> None:
    axis = WindowAxis(size, 0, window, stride, dilation, before, after)
    padded = size + before + after
    assume((window - 1) * dilation < padded)
    fitting = sum(p * stride + (window - 1) * dilation < padded for p in range(padded))
    assert axis.fitting == fitting


def test_only_windows_that_see_their_own_pixel_are_pointwise() -> None:
    plain = WindowGeometry((2, 4, 5, 3), (2, 4, 5, 8), (1, 1))
    assert plain.pointwise
    assert plain.inside
    assert plain.pixels == 40
    assert not WindowGeometry((1, 4, 4, 3), (1, 2, 2, 8), (1, 1), (2, 2)).pointwise
    assert not WindowGeometry((1, 4, 4, 3), (1, 4, 4, 8), (3, 3), pad_before=(1, 1)).inside
