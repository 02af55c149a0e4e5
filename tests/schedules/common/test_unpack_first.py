"""Weights of 4 and 2 bits that are unpacked before a kernel for bytes runs: the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.lowering.registry import Context
from crtexport.passes.pack_weights import pack_weights
from crtexport.schedules.common.unpack_first import SMALL
from crtexport.schedules.variants import variants_of
from tests.helpers import target_of
from tests.lowered import run
from tests.schedules.layers import drawing, outputs_as_code, search
from tests.schedules.narrow_layers import RANGES, NarrowLayers
from tests.tflite_builder import ModelBuilder, run_reference

BOARDS = ("mps2_an385", "mps2_an386", "mps3_an547", "qemu_cortex_m0", "qemu_riscv32")


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("weights", RANGES)
@search(3)
@given(data=st.data(), kind=st.sampled_from(["conv", "pointwise", "dense", "depthwise"]))
def test_every_variant_gives_what_the_reference_does(
    weights: str, board: str, kind: str, tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    n = NarrowLayers(drawing(data), data.draw(st.integers(0, 99)), weights)
    shape, *_ = layer = n.add(kind)
    path = n.write(tmp_path_factory.mktemp("layer"), [layer])
    graph, value = pack_weights(load(path), lambda *_: True), n.values(shape)
    context = Context(graph, graph.nodes[0])
    level = data.draw(st.sampled_from(["balanced", "speed"]))
    found = variants_of(context, target_of(board), level)
    if context.packed_bits and context.input(1).nbytes <= SMALL:
        found = [variant for variant in found if variant.name.startswith("unpacked")]
    chosen = found[data.draw(st.integers(0, len(found) - 1))]
    np.testing.assert_array_equal(
        run(graph, chosen.make(), value), run_reference(path.read_bytes(), value)[0]
    )


@pytest.mark.parametrize(("where", "board"), [
    ("c here", "mps2_an385"),
    *(
        pytest.param(*each, marks=pytest.mark.qemu) for each in (
            ("c", "qemu_cortex_m0"), ("llvm", "mps3_an547"), ("llvm", "qemu_riscv32")
        )
    ),
])
def test_compiled_code_computes_the_same(where: str, board: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    n = NarrowLayers(lambda low, high: int(rng.integers(low, high + 1)), 7, "int4")
    layers = []
    for weights in RANGES:
        n.range = RANGES[weights]
        layers += [n.add(kind) for kind in ("conv", "pointwise", "dense", "depthwise")]
    path = n.write(tmp_path, layers)
    values = [np.stack([n.values(shape), n.values(shape)]) for shape, *_ in layers]
    content = path.read_bytes()
    found = outputs_as_code(path, values, board, where, weights="packed")
    for sample, row in enumerate(found):
        expected = run_reference(content, *(value[sample] for value in values))
        for ours, theirs in zip(row, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386"])
@pytest.mark.parametrize("side", [9, 40])
def test_large_weights_are_unpacked_where_other_nodes_want_the_memory_anyway(
    side: int, board: str, tmp_path: Path
) -> None:
    """Two layers between two copies of ``side`` x ``side`` x 12 values."""
    rng, m = np.random.default_rng(2), ModelBuilder()
    tensors = [
        m.tensor(name, (1, *shape), "int8", 0.05)
        for name, shape in zip("xabcy", [(side, side, 12)] * 2 + [(5, 5, 12)] * 3, strict=True)
    ]
    m.op("LOGISTIC", tensors[:1], tensors[1:2])
    m.op("MAX_POOL_2D", tensors[1:2], tensors[2:3], padding="VALID",
         filter_height=side - 4, filter_width=side - 4, stride=(1, 1))
    for number in (2, 3):
        weights = m.tensor(f"w{number}", (12, 3, 3, 12), "int8", 0.05, data=rng.integers(
            -8, 8, (12, 3, 3, 12)
        ))
        m.op("CONV_2D", [tensors[number], weights], [tensors[number + 1]], padding="SAME")
    path = tmp_path / "m.tflite"
    path.write_bytes(m.build(tensors[:1], tensors[4:]))
    graph = pack_weights(load(path), lambda *_: True)
    found = variants_of(Context(graph, graph.nodes[3]), target_of(board), "balanced")
    assert any(v.name.startswith("unpacked") for v in found) == (side == 40)
