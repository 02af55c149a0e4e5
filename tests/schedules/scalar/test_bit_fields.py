"""Fields of packed weights in a word: the sums of whole bytes, exact up to their limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.lowering.registry import Context
from crtexport.passes.pack_weights import pack_weights
from crtexport.schedules.variants import variants_of
from tests.helpers import target_of
from tests.lowered import run
from tests.schedules.layers import AS_CODE, drawing, outputs_as_code, search
from tests.schedules.narrow_layers import RANGES, NarrowLayers
from tests.tflite_builder import ModelBuilder, run_reference


def packed(path: Path) -> Context:
    graph = pack_weights(load(path), lambda *_: True)
    return Context(graph, graph.nodes[0])


@pytest.mark.parametrize("kind", ["conv", "pointwise", "dense"])
@pytest.mark.parametrize("weights", RANGES)
@search(6)
@given(data=st.data())
def test_every_variant_gives_what_the_reference_does(
    weights: str, kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    n = NarrowLayers(drawing(data), data.draw(st.integers(0, 99)), weights)
    shape, *_ = layer = n.add(kind)
    path = n.write(tmp_path_factory.mktemp("layer"), [layer])
    context, value = packed(path), n.values(shape)
    found = variants_of(context, target_of("mps2_an386"), "balanced")
    chosen = found[data.draw(st.integers(0, len(found) - 1))]
    np.testing.assert_array_equal(
        run(context.graph, chosen.make(), value), run_reference(path.read_bytes(), value)[0]
    )


@pytest.mark.parametrize(
    ("weights", "depth", "channels"),
    [
        ("int4", 7681, 4), ("int4", 7682, 2), ("int2", 1536, 8), ("int2", 1537, 2),
        ("ternary", 3072, 8), ("ternary", 3073, 2),
    ],
)
@pytest.mark.parametrize("value", [-128, 127])
def test_largest_sums_are_exact(
    weights: str, depth: int, channels: int, value: int, tmp_path: Path
) -> None:
    """Up to the depth from which on fewer channels share a word, and beyond."""
    bits, low, _ = RANGES[weights]
    m, units = ModelBuilder(), 16 // bits
    x = m.tensor("x", (1, depth), "int8", 0.05)
    w = m.tensor("w", (units, depth), "int8", 0.05, data=np.full((units, depth), low))
    y = m.tensor("y", (1, units), "int8", 0.05 * depth)
    m.op("FULLY_CONNECTED", [x, w], [y])
    path = tmp_path / "m.tflite"
    path.write_bytes(m.build([x], [y]))
    context, values = packed(path), np.full((1, depth), value, np.int8)
    expected = run_reference(path.read_bytes(), values)[0]
    found = variants_of(context, target_of("mps2_an386"), "balanced")
    assert found[0].name.startswith(f"fields 1x{channels},")
    np.testing.assert_array_equal(run(context.graph, found[0].make(), values), expected)


@AS_CODE
def test_compiled_code_computes_the_same(where: str, tmp_path: Path) -> None:
    """A network of layers of all kinds, in code for a Cortex-M4, here and there."""
    rng = np.random.default_rng(5)
    n = NarrowLayers(lambda low, high: int(rng.integers(low, high + 1)), 5, "int4")
    layers = []
    for weights in RANGES:
        n.range = RANGES[weights]
        layers += [n.add(kind) for kind in ("conv", "pointwise", "dense", "dense")]
    path = n.write(tmp_path, layers)
    values = [np.stack([n.values(shape), n.values(shape)]) for shape, *_ in layers]
    content = path.read_bytes()
    found = outputs_as_code(path, values, "mps2_an386", where, weights="packed")
    for sample, row in enumerate(found):
        expected = run_reference(content, *(value[sample] for value in values))
        for ours, theirs in zip(row, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
