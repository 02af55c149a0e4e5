"""Boxes in Kernel IR: where they lie in buffers, and how much two of them overlap."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    const,
    div,
    f32,
    gt,
    i32,
    load,
    max_,
    min_,
    mul,
    sub,
)
from crtexport.kir.language import Buffer, Expr, Var


class Box(Struct, frozen=True):
    """The sides of a box, f32 each."""

    ymin: Expr
    xmin: Expr
    ymax: Expr
    xmax: Expr

    @property
    def sides(self) -> tuple[Expr, Expr, Expr, Expr]:
        return self.ymin, self.xmin, self.ymax, self.xmax

    @property
    def area(self) -> Expr:
        return mul(sub(self.ymax, self.ymin), sub(self.xmax, self.xmin))

    @staticmethod
    def load(b: KernelBuilder, buffer: Buffer, at: Expr) -> Box:
        """Returns box ``at`` of a buffer."""
        first = mul(at, const(4))
        names = ("ymin", "xmin", "ymax", "xmax")
        return Box(*(
            b.let(name, load(buffer, add(first, const(i)))) for i, name in enumerate(names)
        ))

    def store(self, b: KernelBuilder, buffer: Buffer, at: Expr) -> None:
        """Stores it as box ``at`` of a buffer."""
        for i, side in enumerate(self.sides):
            b.store(buffer, add(mul(at, const(4)), const(i)), side)


def suppressed(
    b: KernelBuilder, box_at: Callable[[Expr], Box], count: int, box: Box, threshold: float,
    counts: Callable[[Expr], Expr],
) -> Var:
    """Returns i32 1 or 0: whether ``box`` overlaps one of ``count`` boxes, ``box_at(k)``.

    The box number k counts where ``counts(k)`` holds. Overlap: intersection over union beyond
    ``threshold``; boxes without area overlap none.
    """
    result = b.local("suppressed", i32(0))
    area = b.let("area", box.area)
    with b.loop("k", count) as k, b.if_(counts(k)):
        other = box_at(k)
        other_area = b.let("other_area", other.area)
        with b.if_(and_(gt(area, f32(0.0)), gt(other_area, f32(0.0)))):
            height = sub(min_(box.ymax, other.ymax), max_(box.ymin, other.ymin))
            width = sub(min_(box.xmax, other.xmax), max_(box.xmin, other.xmin))
            common = b.let("common", mul(max_(height, f32(0.0)), max_(width, f32(0.0))))
            union = sub(add(area, other_area), common)
            with b.if_(gt(div(common, union), f32(threshold))):
                b.assign(result, i32(1))
    return result
