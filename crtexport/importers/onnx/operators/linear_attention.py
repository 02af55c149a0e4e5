"""Attention by a state for each head, a matrix to which each step adds keys times values."""

from __future__ import annotations

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.attention import (
    grouped_product,
    joined_heads,
    split_heads,
)
from crtexport.importers.onnx.operators.move import joined, section
from crtexport.importers.onnx.operators.numbers import times
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import Add, Exp, Mul, Sub
from crtexport.support.errors import CrtExportError

_MOST_STEPS = 1024

_RULES = {
    "linear": (False, False), "gated": (True, False), "delta": (False, True),
    "gated_delta": (True, True),
}
"""By name: the state decays; what it holds of a key is taken from the value."""


@operator("LinearAttention", inputs=(3, 6), oldest=27)
def linear_attention(node: OnnxNode) -> list[Value | None]:
    """Returns the output and the state of LinearAttention: each step of the sequence becomes its
    own nodes."""
    node.ignore("chunk_size")  # a hint
    several, shared = node.integer("q_num_heads"), node.integer("kv_num_heads")
    queries = split_heads(node, node.input(0), several)
    keys, values = (split_heads(node, node.input(i), shared) for i in (1, 2))
    rule = _RULES.get(node.text("update_rule", "gated_delta"))
    if rule is None:
        raise CrtExportError("the update_rule is unknown")
    decay, beta = (
        _factors(node, node.input(3 + i), shared) if there else None
        for i, there in enumerate(rule, 1)
    )
    batches, _, steps, depth = keys.shape
    if steps > _MOST_STEPS:
        raise CrtExportError(f"{steps} steps; {_MOST_STEPS} at most are read")
    state = node.optional(3) or node.constant(
        np.zeros((batches, shared, depth, values.shape[3]))
    )
    queries = times(node, queries, node.real("scale", 0.0) or depth**-0.5)
    results = []
    for step in range(steps):
        key, value = _at(node, keys, step), _at(node, values, step)
        if decay is not None:
            gone = node.unary(Exp(), _at(node, decay, step).transposed((0, 1, 3, 2)))
            state = node.elementwise(Mul(), state, gone)
        if beta is not None:
            held = grouped_product(node, key, state)
            rest = node.elementwise(Sub(), value, held)
            value = node.elementwise(Mul(), rest, _at(node, beta, step))
        added = node.elementwise(Mul(), key.transposed((0, 1, 3, 2)), value)
        state = node.elementwise(Add(), state, added)
        results.append(grouped_product(node, _at(node, queries, step), state))
    return [joined_heads(node, joined(node, results, 2)), state]


def _factors(node: OnnxNode, value: Value, heads: int) -> Value:
    """Returns factors for each head, or for elements of each, as (batches, heads, steps, 1 or
    elements); one for all heads as one head."""
    return split_heads(node, value, 1 if value.shape[-1] == 1 else heads)


def _at(node: OnnxNode, value: Value, step: int) -> Value:
    """Returns one step, whose axis has one element."""
    return section(node, value, 2, step, 1)
