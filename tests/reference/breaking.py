"""A convolution that is exported wrong, for tests that a comparison finds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from crtexport.ir.graph import Node
from crtexport.ir.ops import Activation, Conv2D
from crtexport.lowering.registry import Context
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select import lower
from crtexport.support.target import Target


def clamp_convolution(monkeypatch: pytest.MonkeyPatch, chosen: Callable[[Node], bool]) -> None:
    """Has the results of ``chosen`` convolutions clamped to -1 to 1."""
    right = lower.variants_of

    def broken(context: Context, target: Target, optimize: str) -> list[Candidate]:
        if isinstance(context.node.op, Conv2D) and chosen(context.node):
            op = replace(context.node.op, activation=Activation.RELU_N1_TO_1)
            context = replace(context, node=replace(context.node, op=op))
        return right(context, target, optimize)

    monkeypatch.setattr(lower, "variants_of", broken)
