"""How often loops are copied, by the level of optimization."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.ir.ops import Conv2D
from crtexport.ir.types import DType, Quantization
from crtexport.kir.language import For
from crtexport.kir.walk import walk
from crtexport.lowering.registry import Context
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.variants import variants_of
from tests.helpers import target_of
from tests.plan.graphs import GraphBuilder


def _variants(board: str, optimize: str) -> list[Candidate]:
    """Returns the variants of a convolution of one by one."""
    b, rng = GraphBuilder(), np.random.default_rng(1)
    q = Quantization((0.05,), (0,))
    x = b.input(1, 6, 6, 128, dtype=DType.INT8, quant=q)
    weights = rng.integers(-90, 90, (16, 1, 1, 128)).astype(np.int8)
    y = b.node(Conv2D(), x, b.constant(weights, Quantization((0.01,), (0,))), quant=q)
    graph = b.finish(y)
    return variants_of(Context(graph, graph.nodes[0]), target_of(board), optimize)


def _copies(variant: Candidate) -> int:
    """Returns the most copies that the body of a loop has."""
    loops = (one for one in walk(variant.make().kernel.body) if isinstance(one, For))
    return max(loop.unroll or 1 for loop in loops)


@pytest.mark.parametrize("board", ["mps2_an386", "mps2_an385", "mps2_an521", "qemu_riscv32"])
@pytest.mark.parametrize(("optimize", "most"), [("compact", 2), ("balanced", 4), ("speed", 8)])
def test_levels_with_less_code_copy_loops_less(optimize: str, most: int, board: str) -> None:
    variants = _variants(board, optimize)
    assert max(_copies(variant) for variant in variants if not variant.rare) == most


@pytest.mark.parametrize("board", ["mps2_an386", "qemu_riscv32"])
def test_compact_also_offers_each_variant_without_copies(board: str) -> None:
    variants = {variant.name: variant for variant in _variants(board, "compact")}
    alone = {name for name in variants if name.endswith(", 1 copies")}
    assert {f"{name}, 1 copies" for name in variants.keys() - alone} == alone
    assert all(_copies(variants[name]) == 1 for name in alone)
