"""Four channels in a word of weights: exact at the ends of values, whatever is left of channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.assemble import assembled
from crtexport.kir.language import For
from crtexport.kir.walk import walk
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.schedules.scalar import channel_quads_mul32
from crtexport.schedules.scalar.register_blocks import MOST_TAPS
from tests.helpers import target_of
from tests.lowered import run
from tests.schedules.scalar.test_pixel_pairs_mul32 import pointwise


@settings(max_examples=40, deadline=None)
@given(
    units=st.integers(4, 13), depth=st.one_of(st.integers(1, 40), st.sampled_from([257, 640])),
    seed=st.integers(0, 99), zero_point=st.sampled_from([-128, 5]),
)
def test_words_of_four_channels_give_what_the_plain_kernel_does(
    units: int, depth: int, seed: int, zero_point: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.choice(np.array([-128, -127, -1, 0, 1, 127]), (units, depth))
    scale = 0.005 * 127 * depth * 255 / 250
    graph = pointwise(
        tmp_path_factory.mktemp("quads"), weights, pixels=1, zero_point=zero_point, scale=scale
    )
    context = Context(graph, graph.nodes[0])
    value = rng.choice(np.array([-128, 127, 3]), (1, 1, 1, depth)).astype(np.int8)
    wanted = run(graph, operator_table.lower(context), value)
    variants = channel_quads_mul32.candidates(context)
    assert len(variants) == 3
    for variant in variants:
        np.testing.assert_array_equal(run(graph, variant.make(), value), wanted)


def test_layers_without_four_channels_of_one_pixel_get_other_variants(tmp_path: Path) -> None:
    """So do sums that may leave their words."""
    for units, depth, pixels, count in (
        (4, MOST_TAPS, 1, 3), (4, MOST_TAPS + 1, 1, 0), (3, 8, 1, 0), (4, 8, 2, 0),
    ):
        graph = pointwise(tmp_path, np.ones((units, depth), np.int64), pixels=pixels)
        assert len(channel_quads_mul32.candidates(Context(graph, graph.nodes[0]))) == count


@pytest.mark.parametrize("units", [8, 11])
def test_four_products_take_eleven_instructions_on_cortex_m3(units: int, tmp_path: Path) -> None:
    """A load of weights, a value and what makes it positive, two masks, six products and sums."""
    graph = pointwise(tmp_path, np.ones((units, 64), np.int64), pixels=1)
    kernel = channel_quads_mul32.candidates(Context(graph, graph.nodes[0]))[0].make().kernel
    (loop,) = (one for one in walk(kernel.body) if isinstance(one, For) and one.assembled)
    found = assembled(loop, kernel, target_of("mps2_an385"))
    assert found is not None
    turn = found.lines.index("3:"), found.lines.index("bne 3b")
    assert turn[1] - turn[0] <= 4 * 11 + 5  # two pointers, a mask, the end of the loop
