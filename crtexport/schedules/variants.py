"""Finds the variants of a node's kernel among the schedules for a target.

Schedules are imported for targets that have their instructions: there are many, and an export needs
those of one target.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.ops import DepthwiseConv2D, TreeEnsemble
from crtexport.lowering import operator_table
from crtexport.lowering.fusion import fused_node
from crtexport.lowering.fusion.store_hooks import VectorOps
from crtexport.lowering.numerics.computed_product import is_computed_product
from crtexport.lowering.registry import Context, Lowered, refusing_extremes
from crtexport.schedules.common import target_features, unroll
from crtexport.schedules.common.candidates import Candidate, changed
from crtexport.support.target import Target

PLAIN = "plain"
"""The variant without a schedule."""
FEW_WEIGHTS = 1024
"""Fewer are hardly more than the code that unpacks them."""


class InstructionSet(Struct, frozen=True):
    """Instructions that schedules are written for, and the targets that have them.

    The folder ``name`` beside this module has the schedules. In its module ``candidates``,
    ``candidates(context, target)`` returns the variants of a node, and ``vector_ops()`` returns the
    operations that fused operators need on vectors of results, None where results aren't vectors.
    ``slow_in_c``: C compilers, such as gcc 12, split its vectors into scalars. ``orders_fused``:
    ``fused(variants)`` puts the variants of a fused node in an order of its own.
    """

    name: str
    present: Callable[[Target], bool]
    slow_in_c: bool = False
    orders_fused: bool = False

    @property
    def schedules(self) -> ModuleType:
        """Returns the folder's module ``candidates``."""
        return importlib.import_module(f"crtexport.schedules.{self.name}.candidates")


INSTRUCTION_SETS = (
    InstructionSet("x86", target_features.is_x86_64),
    InstructionSet("mve", target_features.has_mve, orders_fused=True),
    InstructionSet("rvv", target_features.has_rvv, slow_in_c=True),
)
"""Of those that a target has, the first is used. The folder ``scalar`` is for all other targets."""


def variants_of(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns the variants of a node's kernel, at least one, the default first.

    The node must break none of its operator's rules (:func:`.operator_table.check`). ``optimize``
    is one of ``LEVELS``. Raises CrtExportError, naming the node, where its scales are too
    extreme.
    """
    plain = Candidate(PLAIN, functools.partial(operator_table.lower, context))
    if context.node.parts:
        return fused_variants(context, target, optimize) or [plain]
    if isinstance(context.node.op, TreeEnsemble):
        from crtexport.schedules.select import decision_trees

        if compared := decision_trees.candidates(context, target, optimize):
            return compared
    if optimize == "size":
        return [plain]
    if context.packed_bits:
        with refusing_extremes(context):
            fields = _fields(context, target, optimize)
            unpacked = _unpacked(context, target, optimize, plain, only_variants=not fields)
            return [*fields, *unpacked] or [plain]
    with refusing_extremes(context):
        return [
            *_scheduled(context, target, optimize, plain),
            *_as_convolution(context, target, optimize),
        ]


def _scheduled(
    context: Context, target: Target, optimize: str, plain: Candidate
) -> list[Candidate]:
    """Returns the variants of a node without parts whose weights have whole bytes."""
    own = _instruction_set(target)
    found = _vectors(context, target, own)
    if own and own.slow_in_c:
        return [
            *(replace(variant, objects=True) for variant in found or [plain]),
            *(
                replace(variant, name=f"scalar, {variant.name}", rare=True)
                for variant in _scalars(context, target, optimize, plain)
            ),
        ]
    if found:
        return found
    return [plain] if unroll.vectorizes(target) else _scalars(context, target, optimize, plain)


def _as_convolution(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns the variants of a depthwise convolution of one channel as the convolution that it
    is."""
    if not isinstance(context.node.op, DepthwiseConv2D):
        return []
    from crtexport.schedules.common import single_channel

    conv = single_channel.as_convolution(context)
    if conv is None:
        return []
    return [
        replace(variant, name=f"as a convolution, {variant.name}") for variant in changed(
            variants_of(conv, target, optimize),
            functools.partial(single_channel.with_own_weights, conv),
        )
    ]


def unpacks_free(context: Context, target: Target, optimize: str) -> bool:
    """Returns whether a node with packed weights has a kernel that unpacks them in about as many
    instructions as bytes take: a fully connected layer of one row, on Cortex-M with DSP
    instructions."""
    weights, values = context.input(1), context.input(0).elements
    if weights.elements < FEW_WEIGHTS or values != weights.elements // weights.shape[0]:
        return False
    if operator_table.check(context) or optimize == "size":
        return False
    with refusing_extremes(context):
        return bool(_fields(context, target, optimize))


def _fields(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns the variants that multiply packed weights without unpacking them."""
    if not target_features.has_dsp(target) or target_features.has_mve(target):
        return []
    from crtexport.schedules.scalar import candidates as scalar

    return scalar.packed(context, optimize)


def _unpacked(
    context: Context, target: Target, optimize: str, plain: Candidate, *, only_variants: bool
) -> list[Candidate]:
    """Returns the variants that unpack packed weights first."""
    if not target.little_endian:
        return []
    from crtexport.schedules.common import unpack_first

    found = variants_of(unpack_first.of_bytes(context), target, optimize)
    bytes_ = [variant for variant in found if not variant.larger]
    return unpack_first.candidates(context, bytes_, plain, only_variants=only_variants)


def _vectors(
    context: Context, target: Target, instruction_set: InstructionSet | None
) -> list[Candidate]:
    """Returns the variants for the target's own vector instructions, or for compilers that
    vectorize loops."""
    if not is_computed_product(context):
        if instruction_set is None:
            return []
        candidates: list[Candidate] = instruction_set.schedules.candidates(context, target)
        return candidates
    if not unroll.vectorizes(target):
        return []
    from crtexport.schedules.common import vector_products

    return vector_products.candidates(context)


def _scalars(
    context: Context, target: Target, optimize: str, plain: Candidate
) -> list[Candidate]:
    from crtexport.schedules.scalar import candidates as scalar

    return scalar.candidates(context, target, optimize, plain)


def fused_variants(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns the variants of a fused node: those of its first part that can be fused, if the
    epilogue of the default one can compute the other parts; else none."""
    own = _instruction_set(target)
    vectors: VectorOps | None = own.schedules.vector_ops() if own else None
    layer = fused_node.layer_of(context)
    found = [one for one in variants_of(layer, target, optimize) if one.fusable]
    usual = fused_node.fuse(context, found[0].make(), vectors) if found else None
    if usual is None:
        return []

    def change(lowered: Lowered) -> Lowered:
        return fused_node.fuse(context, lowered, vectors) or usual

    variants = changed(found, change)
    return own.schedules.fused(variants) if own and own.orders_fused else variants


def _instruction_set(target: Target) -> InstructionSet | None:
    return next((known for known in INSTRUCTION_SETS if known.present(target)), None)
