"""Registers that fused layers need: what the next operator computes takes some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.kir.assembly.assemble import assembles
from crtexport.kir.assembly.mve.machine_loop import becomes_machine_code
from crtexport.lowering.registry import Context
from crtexport.pipeline import fuse_policy
from crtexport.schedules.select.lower import Lowerer
from crtexport.schedules.variants import fused_variants
from tests.helpers import target_of
from tests.pipeline.test_fuse_policy import Layers, window


def test_an_epilogue_that_takes_too_many_registers_gets_a_compiled_loop(tmp_path: Path) -> None:
    """On Cortex-M55: products of a whole window are written out for machine code only."""
    n = Layers(lambda low, high: low, 3)
    x = n.tensor((1, 4, 6, 16))
    weights = n.weights((16, 3, 3, 16), 0)
    between, y = n.tensor((1, 4, 6, 16)), n.tensor((1, 4, 6, 16))
    n.m.op("CONV_2D", [x, *weights], [between], padding="SAME")
    n.m.op("ADD", [between, x], [y])
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph, target = load(tmp_path / "m.tflite"), target_of("mps3_an547")
    (pair,) = fuse_policy.pairs(graph, target, "balanced")
    fused = fuse_policy.fuse(graph, [pair])
    first, *others = fused_variants(Context(fused, fused.nodes[0]), target, "balanced")
    assert becomes_machine_code(first.make().kernel)
    assert not first.rare
    assert all(other.rare for other in others)
    assert not all(becomes_machine_code(other.make().kernel) for other in others)


@pytest.mark.parametrize("optimize", ["compact", "balanced"])
@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386"])
def test_fused_layers_get_loops_that_registers_suffice_for(
    board: str, optimize: str, tmp_path: Path
) -> None:
    n = Layers(lambda low, high: low, 3)
    x = n.tensor((1, 12, 12, 16))
    y, shape = window(n, x, (12, 12, 16), 16)
    z = n.tensor((1, *shape))
    n.m.op("ADD", [y, x], [z])
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [z]))
    graph, target = load(tmp_path / "m.tflite"), target_of(board)
    (pair,) = fuse_policy.pairs(graph, target, optimize)
    fused = fuse_policy.fuse(graph, [pair])
    found = fused_variants(Context(fused, fused.nodes[0]), target, optimize)
    assert {assembles(one.make().kernel, target) for one in found} == {False, True}
    (node,) = Lowerer(target, optimize)(fused).nodes
    assert assembles(node.lowered.kernel, target)
