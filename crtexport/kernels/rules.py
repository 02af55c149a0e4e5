"""Which nodes a lowering takes: small functions whose docstring is the user's sentence.

Each returns None, or the detail that breaks the rule; the documentation's table of supported
operators is made from the same docstrings.
"""

from __future__ import annotations

from collections.abc import Callable

from crtexport.ir.types import DType
from crtexport.kernels.registry import Context, Rule

FLOAT_OR_INT8 = (DType.FLOAT32, DType.INT8)


def same_types(*allowed: DType) -> Rule:
    """A rule: all inputs and outputs share one element type out of ``allowed``."""
    names = ", ".join(d.value for d in allowed)

    def rule(context: Context) -> str | None:
        found = {context.graph.type(t).dtype for t in _tensors(context)}
        if len(found) == 1 and found <= set(allowed):
            return None
        return "found " + ", ".join(sorted(d.value for d in found))

    rule.__doc__ = f"Inputs and outputs must have one element type of: {names}"
    return rule


def _tensors(context: Context) -> list[int]:
    return [t for t in context.node.inputs if t is not None] + list(context.node.outputs)


def weighted_types(context: Context) -> str | None:
    """Input, weights and output must be float32, or int8 with an int32 bias, or float32 with int8
    weights (hybrid) and a float32 bias."""
    x, w, y = context.input(0).dtype, context.input(1).dtype, context.output().dtype
    bias = context.input(2).dtype if context.has(2) else None
    if (x, y) == (DType.FLOAT32, DType.FLOAT32) and w in FLOAT_OR_INT8:
        expected: DType = DType.FLOAT32
    elif (x, w, y) == (DType.INT8, DType.INT8, DType.INT8):
        expected = DType.INT32
    else:
        return f"found input {x.value}, weights {w.value}, output {y.value}"
    if bias not in (None, expected):
        return f"found a {bias.value} bias" if bias else None
    return None


def constant_weights(context: Context) -> str | None:
    """Weights and bias must be constants."""
    for position in (1, 2):
        tensor = context.graph.optional(context.node, position)
        if tensor is not None and context.graph.constant(tensor) is None:
            return f"input {position} is computed at run time"
    return None


def symmetric_weights(context: Context) -> str | None:
    """The zero point of int8 weights must be 0."""
    quant = context.input(1).quant
    if context.input(1).dtype is DType.INT8 and quant and any(quant.zero_point):
        return f"found {next(z for z in quant.zero_point if z)}"
    return None


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
    """A rule: the first input has one of these numbers of dimensions."""

    def rule(context: Context) -> str | None:
        found = len(context.input(0).shape)
        return None if found in allowed else f"found {found}"

    rule.__doc__ = f"The input must have {' or '.join(map(str, allowed))} dimensions"
    return rule


def at_most_inputs(count: int) -> Callable[[Context], str | None]:
    """A rule: no more than ``count`` inputs."""

    def rule(context: Context) -> str | None:
        found = len(context.node.inputs)
        return None if found <= count else f"found {found}"

    rule.__doc__ = f"There can be at most {count} inputs"
    return rule
