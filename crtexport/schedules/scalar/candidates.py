"""Kernels for processors without vectors, and for those whose compilers of C take vectors apart.

The schedules of an instruction set are imported by the function for it: an export needs one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import DepthwiseConv2D, Recurrent
from crtexport.lowering.numerics.computed_product import is_computed_product
from crtexport.lowering.registry import Context, Lowered
from crtexport.schedules.common import target_features, unroll
from crtexport.schedules.common.candidates import Candidate, changed, single
from crtexport.support.target import Target

_ARM = ("thumbv7m", "thumbv7em", "thumbv8m.main")
"""Instruction sets with MLA, SMULL and LDRD."""
_SLOW_SUMS = "thumbv7m"
"""The instruction set of Cortex-M3, where MLA takes two cycles and MUL one."""
_COPIES = (4, 8, 1)
"""The numbers of copies of innermost loops that scalar machines may have."""
_USUAL_COPIES = {"compact": 2, "balanced": 4, "speed": 8}


def candidates(
    context: Context, target: Target, optimize: str, plain: Candidate
) -> list[Candidate]:
    """Returns the variants of a node, at least one; ``optimize`` is any level but size, and
    ``plain`` the variant without a schedule."""
    copies = _USUAL_COPIES[optimize]
    found = _registers(context, target, optimize)
    fewer = _unrolled(_winograd(context, target, optimize), copies)
    if found:
        return _unrolled(found, copies) + _in_copies(found, _fewer(optimize, target)) + fewer
    blocked = _blocks(context, target) or [plain]
    others = [other for other in _COPIES if other != copies]
    return _unrolled(blocked, copies) + _in_copies(blocked, others) + fewer


def _fewer(optimize: str, target: Target) -> tuple[int, ...]:
    """Returns the numbers of copies that variants of registers also have."""
    if optimize == "compact":
        return (1,)
    if optimize == "speed" and target_features.flash_of(target) is not None:
        # Longer code may be read from flash again and again.
        return (_USUAL_COPIES["balanced"],)
    return ()


def _in_copies(variants: Sequence[Candidate], counts: Iterable[int]) -> list[Candidate]:
    """Returns the variants with each of these numbers of copies, which their names say."""
    return [
        replace(variant, name=f"{variant.name}, {count} copies")
        for count in counts for variant in _unrolled(variants, count)
    ]


def packed(context: Context, optimize: str) -> list[Candidate]:
    """Returns the variants of a node with packed weights, for DSP instructions."""
    from crtexport.schedules.scalar import smlad_bit_fields

    return _unrolled(smlad_bit_fields.candidates(context), _USUAL_COPIES[optimize])


def _registers(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns the variants that keep sums in registers: for RISC-V and for Cortex-M from M0 on, and
    products of computed matrices."""
    if is_computed_product(context):
        from crtexport.schedules.scalar import computed_products

        return computed_products.candidates(context, target)
    if target.triple.startswith("riscv32"):
        return _riscv(context, optimize)
    if target_features.has_few_registers(target):
        return _few_registers(context, optimize)
    if target.is_i386:
        return _i386(context, target, optimize)
    if not target.triple.startswith(_ARM):
        return []
    if target_features.has_fpu(target) and (found := _fpu(context, target)) is not None:
        return found
    if not target_features.has_dsp(target):
        return _arm(context, optimize, short=target.triple.startswith(_SLOW_SUMS))
    return _dsp(context, optimize, floats=_in_floats(context, target))


def _in_floats(context: Context, target: Target) -> bool:
    """Returns whether sums are scaled in floats."""
    return context.numerics is Numerics.ORT and target_features.has_fpu(target)


def _unrolled(candidates: Iterable[Candidate], copies: int) -> list[Candidate]:
    def change(lowered: Lowered) -> Lowered:
        return replace(lowered, kernel=unroll.unroll_inner_loops(lowered.kernel, copies))

    return changed(candidates, change)


def _riscv(context: Context, optimize: str) -> list[Candidate]:
    from crtexport.schedules.scalar import depthwise_planes, plane_geometry, register_blocks

    return (
        register_blocks.candidates(context, optimize, register_blocks.RISCV)
        or depthwise_planes.candidates(context, plane_geometry.BYTES)
    )


def _few_registers(context: Context, optimize: str) -> list[Candidate]:
    from crtexport.schedules.scalar import (
        depthwise_planes,
        pixel_pairs_mul32,
        plane_geometry,
        register_blocks,
    )

    return (
        pixel_pairs_mul32.candidates(context)
        + pixel_pairs_mul32.candidates(context, pixel_pairs_mul32.ARMV6M_SOURCES)
        + register_blocks.candidates(context, optimize, register_blocks.ARMV6M)
        or [
            replace(one, objects=True)
            for one in depthwise_planes.candidates(context, plane_geometry.LONE_WORDS)
        ]
        + [
            replace(one, sources=True)
            for one in depthwise_planes.candidates(context, plane_geometry.HELD_WORDS)
        ]
    )


def _i386(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns the variants for eight registers where instructions have operands in memory, so that
    weights in variables that have no register cost nothing."""
    from crtexport.schedules.scalar import (
        depthwise_planes,
        pixel_pairs_mul32,
        plane_geometry,
        register_blocks,
    )

    sources = [
        *pixel_pairs_mul32.candidates(context, pixel_pairs_mul32.I386_SOURCES),
        *register_blocks.candidates(context, optimize, register_blocks.I386),
    ]
    if not sources:
        return depthwise_planes.candidates(context, plane_geometry.I386_WORDS)
    pairs = pixel_pairs_mul32.candidates(context, pixel_pairs_mul32.I386)
    return [
        *(replace(one, objects=True) for one in pairs or _blocks(context, target)),
        *(replace(one, sources=True) for one in sources),
    ]


def _arm(context: Context, optimize: str, *, short: bool) -> list[Candidate]:
    """``short``: two short products at once take fewer cycles than one after the other."""
    from crtexport.schedules.scalar import (
        channel_quads_mul32,
        depthwise_planes,
        paired_planes,
        pixel_pairs_mul32,
        plane_geometry,
        register_blocks,
    )

    pairs = [
        *channel_quads_mul32.candidates(context),
        *pixel_pairs_mul32.candidates(context, pixel_pairs_mul32.ARMV7M),
    ] if short else []
    return (
        pairs + register_blocks.candidates(context, optimize)
        or paired_planes.candidates(context, plane_geometry.PAIRED_WORDS)
        + depthwise_planes.candidates(context, plane_geometry.WORDS)
    )


def _dsp(context: Context, optimize: str, *, floats: bool) -> list[Candidate]:
    """``floats``: sums are scaled in them."""
    from crtexport.schedules.scalar import (
        depthwise_planes,
        plane_geometry,
        smlad_channel_pairs,
        smlad_int16,
    )

    return (
        smlad_channel_pairs.candidates(context, floats=floats)
        or smlad_int16.candidates(context, optimize)
        or depthwise_planes.candidates(
            context, plane_geometry.FLOAT_PAIRS if floats else plane_geometry.PAIRS
        )
    )


def _winograd(context: Context, target: Target, optimize: str) -> list[Candidate]:
    """Returns variants with fewer products, whose weights take three to four times the flash: for
    speed alone."""
    arm = target.triple.startswith(_ARM) and target_features.has_dsp(target)
    if optimize != "speed" or not arm or is_computed_product(context):
        return []
    from crtexport.schedules.scalar import smlad_winograd

    return smlad_winograd.candidates(context, floats=_in_floats(context, target))


def _fpu(context: Context, target: Target) -> list[Candidate] | None:
    """Returns the variants of layers and recurrent networks of floats; None for other nodes."""
    fused = target_features.fuses_fast(target)
    from crtexport.schedules.common.float_layers import layer_of

    layer = layer_of(context)
    if layer is None and isinstance(context.node.op, Recurrent):
        from crtexport.schedules.scalar import fpu_recurrent

        return fpu_recurrent.candidates(context, fused=fused) or None
    if layer is None:
        return None
    if isinstance(layer, DepthwiseConv2D):
        from crtexport.schedules.scalar import fpu_depthwise

        return single("planes", fpu_depthwise.lower(context, layer, fused=fused))
    from crtexport.schedules.scalar import fpu_dense

    return fpu_dense.candidates(context, layer, fused=fused)


def _blocks(context: Context, target: Target) -> list[Candidate]:
    """Returns the variants of layers for machines with few registers, or none that are known. Their
    weights must be constants: the bias has what the input's zero point makes of them."""
    if is_computed_product(context):
        return []
    from crtexport.schedules.scalar import conv_windows, gemm_blocks
    from crtexport.schedules.scalar.dot_product_step import step_for

    step = step_for(target)
    return (
        single("blocks", gemm_blocks.lower(context, step))
        or single("windows", conv_windows.lower(context, step))
    )
