"""Attention over heads, with masks and caches, and rotary embeddings: made of matrix products.

A mask is a sum that is added to the scores, 0 or -infinity where it is a truth value: what is known
while importing (causal masks, windows) is one constant.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec import Struct

from crtexport.importers.onnx.domains import PREVIEW
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.operators.convolution import answer, image
from crtexport.importers.onnx.operators.gather import wrapped
from crtexport.importers.onnx.operators.matmul import product
from crtexport.importers.onnx.operators.move import joined, section
from crtexport.importers.onnx.operators.numbers import times
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import (
    Add,
    DepthwiseConv2D,
    Gather,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    Logistic,
    Mul,
    ReduceAny,
    Select,
    Softmax,
    Sub,
    Tanh,
)
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_FLOAT = DType.FLOAT32


class _Heads(Struct, frozen=True):
    """Queries, keys and values as (batches, heads, steps, size); ``flat``: the inputs had no axis
    for heads."""

    queries: Value
    keys: Value
    values: Value
    flat: bool


def _heads(node: OnnxNode) -> _Heads:
    queries, keys, values = (node.input(i) for i in range(3))
    rank = len(queries.shape)
    several, shared = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
    if rank == 4:
        return _Heads(queries, keys, values, flat=False)
    if rank != 3 or not several or not shared:
        raise CrtExportError(f"queries with {rank} dimensions, heads {several} and {shared}")
    return _Heads(
        split_heads(node, queries, several), split_heads(node, keys, shared),
        split_heads(node, values, shared), flat=True,
    )


def split_heads(node: OnnxNode, value: Value, count: int) -> Value:
    """Returns (batches, steps, heads * size) as (batches, heads, steps, size)."""
    batches, steps, width = value.shape
    if count < 1 or width % count:
        raise CrtExportError(f"{width} elements can't be split into {count} heads")
    return node.builder.reshaped(value, (batches, steps, count, width // count)).transposed(
        (0, 2, 1, 3)
    )


def joined_heads(node: OnnxNode, value: Value) -> Value:
    """Returns (batches, heads, steps, size) as (batches, steps, heads * size)."""
    batches, heads, steps, size = value.shape
    return node.builder.reshaped(value.transposed((0, 2, 1, 3)), (batches, steps, heads * size))


def grouped_product(node: OnnxNode, queries: Value, right: Value) -> Value:
    """Returns queries (batches, heads, steps, depth) times matrices (batches, fewer heads, depth,
    units); neighbouring heads of queries share a matrix."""
    batches, heads, steps, depth = queries.shape
    shared = right.shape[1]
    if heads % shared:
        raise CrtExportError(f"{heads} heads of queries for {shared} of keys")
    if heads == shared:
        return product(node, queries, right)
    rows = node.builder.reshaped(queries, (batches, shared, heads // shared * steps, depth))
    made = product(node, rows, right)
    return node.builder.reshaped(made, (batches, heads, steps, right.shape[3]))


@operator("Attention", inputs=(3, 7), oldest=23)
def attention(node: OnnxNode) -> list[Value | None]:
    heads = _heads(node)
    node.ignore("softmax_precision")  # the result's precision or higher
    depth = heads.queries.shape[3]
    scale = node.real("scale", 0.0) or depth**-0.5
    cap, mode = node.real("softcap", 0.0), node.integer("qk_matmul_output_mode", 0)
    keys, values = (
        present if past is None else joined(node, [past, present], 2)
        for past, present in (
            (node.optional(4), heads.keys), (node.optional(5), heads.values),
        )
    )
    raw = grouped_product(node, times(node, heads.queries, scale), keys.transposed((0, 1, 3, 2)))
    capped = raw
    if cap > 0:
        bent = node.unary(Tanh(), times(node, raw, float(np.float32(1 / cap))))
        capped = times(node, bent, cap)
    steps, count = raw.shape[2:]
    past = 0 if node.optional(4) is None else keys.shape[2] - heads.keys.shape[2]
    bias = _bias(node, steps, count, past)
    biased = capped if bias is None else node.elementwise(Add(), capped, bias)
    chances = node.emit(Softmax(), node.builder.arranged(biased))
    if bias is not None:
        chances = _without_empty_rows(node, chances, bias)
    result = grouped_product(node, chances, values)
    answer = joined_heads(node, result) if heads.flat else result
    return [answer, keys, values, (raw, capped, biased, chances)[mode]]


def _bias(node: OnnxNode, steps: int, count: int, past: int) -> Value | None:
    """Returns the addend of scores (batches, heads, steps, count); None if it is zero."""
    mask = _mask(node, count)
    lengths = node.optional(6)
    rows, columns = np.arange(steps).reshape(-1, 1), np.arange(count)
    right = 0 if node.integer("is_causal", 0) else None
    after, before = node.integer("right_window_size", -1), node.integer("left_window_size", -1)
    if after >= 0:
        right = after if right is None else min(right, after)
    if lengths is None:
        allowed = np.ones((steps, count), np.bool_)
        if right is not None:
            allowed &= columns - rows - past <= right
        if before >= 0:
            allowed &= rows + past - columns <= before
        if allowed.all():
            return mask
        fixed = node.constant(np.where(allowed, 0, -np.inf))
        return fixed if mask is None else node.elementwise(Add(), mask, fixed)
    # The number of valid keys of each sample is computed at run time; queries are at the end of
    # these.
    lengths = node.builder.reshaped(lengths, (lengths.elements, 1, 1, 1))
    dtype = node.dtype(lengths)
    allow = node.elementwise(Less(), node.constant(columns, dtype, (1, 1, 1, count)), lengths)
    distance = node.elementwise(
        Sub(), node.constant((columns - rows + steps)[None, None], dtype), lengths
    )
    if right is not None:
        near = node.elementwise(LessEqual(), distance, node.like(right, distance))
        allow = node.elementwise(LogicalAnd(), allow, near)
    if before >= 0:
        near = node.elementwise(GreaterEqual(), distance, node.like(-before, distance))
        allow = node.elementwise(LogicalAnd(), allow, near)
    known = _as_sum(node, allow)
    return known if mask is None else node.elementwise(Add(), mask, known)


def _as_sum(node: OnnxNode, allowed: Value) -> Value:
    """Returns 0 for true elements, else -infinity."""
    return node.elementwise(Select(), allowed, node.constant(0.0), node.constant(-np.inf))


def _mask(node: OnnxNode, count: int) -> Value | None:
    """Returns the given mask as an addend; keys beyond its end are masked."""
    mask = node.optional(3)
    if mask is None:
        return None
    if node.dtype(mask) is DType.BOOL:
        mask = _as_sum(node, mask)
    missing = count - mask.shape[-1]
    if missing > 0 and mask.shape:
        more = node.constant(np.full((*mask.shape[:-1], missing), -np.inf))
        mask = joined(node, [mask, more], len(mask.shape) - 1)
    return mask


def _without_empty_rows(node: OnnxNode, chances: Value, bias: Value) -> Value:
    """Returns probabilities, which are 0 in rows whose keys are all masked."""
    last = len(bias.shape) - 1
    there = node.elementwise(Greater(), bias, node.constant(-np.inf))
    some = node.reduce(ReduceAny, there, (last,))
    if node.builder.is_constant(some) and node.array(some, "the mask").all():
        return chances
    return node.elementwise(Select(), some, chances, node.constant(0.0))


@operator("RotaryEmbedding", inputs=(3, 4), oldest=23)
def rotary_embedding(node: OnnxNode) -> Value:
    x = node.input(0)
    flat = len(x.shape) == 3
    heads = split_heads(node, x, node.integer("num_heads", 0)) if flat else x
    node.ignore("num_heads")
    batches, _, steps, size = heads.shape
    turned = node.integer("rotary_embedding_dim", 0) or size
    half = turned // 2
    pair = bool(node.integer("interleaved", 0))
    cos, sin = (_angles(node, node.input(i), (batches, steps, half)) for i in (1, 2))
    part = partial(section, node, heads, 3)
    first, second = (part(0, half, 2), part(1, half, 2)) if pair else (
        part(0, half), part(half, half)
    )

    def mul(a: Value, b: Value) -> Value:
        return node.elementwise(Mul(), a, b)

    real = node.elementwise(Sub(), mul(first, cos), mul(second, sin))
    imaginary = node.elementwise(Add(), mul(first, sin), mul(second, cos))
    parts = [real, imaginary]
    if pair:
        apart = [node.builder.reshaped(v, (*v.shape, 1)) for v in parts]
        parts = [node.builder.reshaped(joined(node, apart, 4), (*heads.shape[:3], turned))]
    if turned < size:
        parts.append(part(turned, size - turned))
    result = joined(node, parts, 3)
    return joined_heads(node, result) if flat else result


def _angles(node: OnnxNode, cache: Value, shape: tuple[int, int, int]) -> Value:
    """Returns sines or cosines as (batches, 1, steps, half), those of the positions given."""
    positions = node.optional(3)
    if positions is not None:
        places = wrapped(node, positions, cache.shape[0])
        cache = node.emit(Gather(0), node.builder.arranged(cache), node.builder.arranged(places))
    if cache.shape != shape:
        raise CrtExportError(f"sines and cosines must have the shape {shape}, not {cache.shape}")
    return node.builder.reshaped(cache, (shape[0], 1, *shape[1:]))


@operator("FlexAttention", domain=PREVIEW, inputs=(3, 3))
def flex_attention(node: OnnxNode) -> Value:
    """Returns attention with inner graphs that may change scores and probabilities."""
    queries, keys, values = node.all()
    node.ignore("softmax_precision")  # the result's precision or higher
    scale = node.real("scale", 0.0) or queries.shape[-1] ** -0.5
    scores = grouped_product(node, times(node, queries, scale), keys.transposed((0, 1, 3, 2)))
    scores = _changed(node, "score_mod", scores)
    chances = node.emit(Softmax(), node.builder.arranged(scores))
    return grouped_product(node, _changed(node, "prob_mod", chances), values)


def _changed(node: OnnxNode, name: str, value: Value) -> Value:
    if not node.has(name):
        return value
    (made,) = node.walk.inline(node.graph(name), [value])
    if made.shape != value.shape:
        raise CrtExportError(f"{name} makes {made.shape} of {value.shape}")
    return made


@operator("CausalConvWithState", inputs=(2, 4), oldest=27)
def causal_conv_with_state(node: OnnxNode) -> list[Value | None]:
    """Returns a depthwise convolution over steps with a cache of previous steps, and the next
    cache."""
    x, weights, bias, past = node.input(0), node.input(1), node.optional(2), node.optional(3)
    if len(x.shape) != 3 or weights.shape[:2] != (x.shape[1], 1):
        raise CrtExportError(f"weights {weights.shape} for {x.shape}")
    batches, channels, _ = x.shape
    cached = weights.shape[2] - 1
    if past is None:
        past = node.constant(np.zeros((batches, channels, cached)))
    steps = joined(node, [past, x], 2) if cached else x
    shown = image(node, steps)
    kernel = node.builder.reshape(
        node.builder.arranged(weights, (1, 2, 0)), (1, 1, cached + 1, channels)
    )
    inputs = [shown.tensor, kernel] + ([] if bias is None else [node.builder.arranged(bias)])
    made = answer(node, node.emit(DepthwiseConv2D(), *inputs).tensor, flat=True)
    activation = node.text("activation", "none")
    if activation in ("silu", "swish"):
        made = node.elementwise(Mul(), made, node.unary(Logistic(), made))
    elif activation != "none":
        raise CrtExportError(f"the activation {activation!r} is unknown")
    return [made, section(node, steps, 2, steps.shape[2] - cached, cached)]
