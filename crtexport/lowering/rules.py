"""Rules for the nodes that a lowering takes: functions whose docstring is the user's sentence.

Each returns None, or the detail that breaks the rule; the documentation's table of supported
operators is made from the same docstrings.
"""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir.types import DType
from crtexport.lowering.registry import Context, Rule


class SameTypes:
    """A rule: all inputs and outputs share one element type out of ``allowed``."""

    def __init__(self, allowed: tuple[DType, ...]) -> None:
        self.allowed = allowed
        names = ", ".join(d.value for d in allowed)
        self.__doc__ = f"Inputs and outputs must have one element type of: {names}"

    def __call__(self, context: Context) -> str | None:
        found = {context.graph.type(t).dtype for t in _tensors(context)}
        if len(found) == 1 and found <= set(self.allowed):
            return None
        return "found " + ", ".join(sorted(d.value for d in found))


def same_types(*allowed: DType) -> SameTypes:
    """Returns a rule: all inputs and outputs share one element type out of ``allowed``."""
    return SameTypes(allowed)


def _tensors(context: Context) -> list[int]:
    return [t for t in context.node.inputs if t is not None] + list(context.node.outputs)


def quantized_weights(context: Context) -> str | None:
    """Int8 tensors must carry a scale and a zero point."""
    for tensor in _tensors(context):
        type_ = context.graph.type(tensor)
        if type_.dtype in (DType.INT8, DType.UINT8) and type_.quant is None:
            return f"{context.graph.tensors[tensor].name!r} has none"
    return None


def equal_quantization(context: Context) -> str | None:
    """Quantized inputs and outputs must have the same scale and zero point."""
    types = [context.graph.type(t) for t in _tensors(context)]
    quants = {t.quant for t in types if t.dtype in (DType.INT8, DType.UINT8)}
    return f"found {len(quants)} different ones" if len(quants) > 1 else None


def rank(*allowed: int) -> Rule:
    """Returns a rule: the first input has one of these numbers of dimensions."""

    def rule(context: Context) -> str | None:
        found = len(context.input(0).shape)
        return None if found in allowed else f"found {found}"

    rule.__doc__ = f"The input must have {' or '.join(map(str, allowed))} dimensions"
    return rule


def at_most_inputs(count: int) -> Callable[[Context], str | None]:
    """Returns a rule: no more than ``count`` inputs."""

    def rule(context: Context) -> str | None:
        found = len(context.node.inputs)
        return None if found <= count else f"found {found}"

    rule.__doc__ = f"There can be at most {count} inputs"
    return rule
