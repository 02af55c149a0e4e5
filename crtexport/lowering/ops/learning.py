"""SquaredDistance and PairwiseCoupling."""

from __future__ import annotations

from crtexport.ir.ops import PairwiseCoupling, SquaredDistance
from crtexport.ir.types import DType
from crtexport.kir.builder import (
    add,
    div,
    eq,
    f32,
    flat_index,
    ge,
    i32,
    load,
    max_,
    mul,
    sub,
)
from crtexport.kir.language import Expr, Scalar, Var
from crtexport.lowering.registry import Context, Lowered, Lowering, lowers
from crtexport.lowering.rules import same_types

_ROUNDS, _TOLERANCE = 100, 0.005


@lowers(SquaredDistance, same_types(DType.FLOAT32))
def squared_distance(context: Context) -> Lowered:
    """Sums of squared differences."""
    lowering = Lowering("squared_distance", context)
    b = lowering.b
    (rows, width), (centers, _) = context.input(0).shape, context.input(1).shape
    source, others = lowering.input(0, "input"), lowering.input(1, "centers")
    output = lowering.output()
    with b.loop("row", rows) as row, b.loop("j", centers) as j:
        total = b.local("total", f32(0.0))
        with b.loop("i", width) as i:
            a = load(source, flat_index([row, i], (rows, width)))
            z = load(others, flat_index([j, i], (centers, width)))
            difference = b.let("difference", sub(a, z))
            b.assign(total, add(total, mul(difference, difference)))
        b.store(output, flat_index([row, j], (rows, centers)), total)
    return lowering.finish()


@lowers(PairwiseCoupling, same_types(DType.FLOAT32))
def pairwise_coupling(context: Context) -> Lowered:
    """One class after the other is moved towards the minimum of a quadratic form."""
    return _Coupling(context).lowered()


class _Coupling:
    """One lowering of the operator.

    The form is p'Qp with the sum over j of r(j, t)² at (t, t) and -r(j, t) r(t, j) elsewhere, which
    is computed when it is needed. ``diagonal`` has the former, ``product`` is Qp.
    """

    def __init__(self, context: Context) -> None:
        self.lowering = Lowering("pairwise_coupling", context)
        self.b = self.lowering.b
        self.rows, self.classes, _ = context.input(0).shape
        self.wins = self.lowering.input(0, "wins")
        self.p = self.lowering.output(0, "probabilities")
        self.diagonal = self.lowering.scratch("diagonal", Scalar.F32, self.classes)
        self.product = self.lowering.scratch("product", Scalar.F32, self.classes)

    def lowered(self) -> Lowered:
        b, k = self.b, self.classes
        with b.loop("row", self.rows) as row:
            with b.loop("t", k) as t:
                b.store(self.p, self._at(row, t), f32(1 / k))
                total = b.local("total", f32(0.0))
                with b.loop("j", k) as j:
                    wins = b.let("wins_j", self._wins(row, j, t))
                    b.assign(total, add(total, mul(wins, wins)))
                b.store(self.diagonal, t, total)
            going = b.local("going", i32(1))
            with b.loop("round", _ROUNDS), b.if_(eq(going, i32(1))):
                whole = self._products(row)
                error = b.local("error", f32(0.0))
                with b.loop("t", k) as t:
                    apart = b.let("apart", sub(load(self.product, t), whole))
                    b.assign(error, max_(error, max_(apart, sub(f32(0.0), apart))))
                with b.if_(ge(error, f32(_TOLERANCE / k))):
                    self._moved(row, whole)
                with b.else_():
                    b.assign(going, i32(0))
        return self.lowering.finish()

    def _at(self, row: Expr, t: Expr) -> Expr:
        return flat_index([row, t], (self.rows, self.classes))

    def _wins(self, row: Expr, i: Expr, j: Expr) -> Expr:
        at = flat_index([row, i, j], (self.rows, self.classes, self.classes))
        return load(self.wins, at)

    def _apart(self, row: Expr, t: Expr, j: Expr) -> Expr:
        """Returns a cell of Q off its diagonal, without the sign; 0 on the diagonal."""
        return mul(self._wins(row, t, j), self._wins(row, j, t))

    def _products(self, row: Expr) -> Var:
        """Computes Qp; returns p'Qp."""
        b, k = self.b, self.classes
        whole = b.local("whole", f32(0.0))
        with b.loop("t", k) as t:
            own = load(self.p, self._at(row, t))
            total = b.local("total", mul(load(self.diagonal, t), own))
            with b.loop("j", k) as j:
                part = mul(self._apart(row, t, j), load(self.p, self._at(row, j)))
                b.assign(total, sub(total, part))
            b.store(self.product, t, total)
            b.assign(whole, add(whole, mul(own, total)))
        return whole

    def _moved(self, row: Expr, total: Var) -> None:
        """Moves the probability of each class, and those of the others so that their sum stays 1.
        """
        b, k = self.b, self.classes
        with b.loop("t", k) as t:
            own = b.let("own", load(self.diagonal, t))
            product = b.let("product_t", load(self.product, t))
            step = b.let("step", div(sub(total, product), own))
            scale = b.let("scale", add(f32(1.0), step))
            at = self._at(row, t)
            b.store(self.p, at, add(load(self.p, at), step))
            more = mul(step, add(mul(step, own), add(product, product)))
            b.assign(total, div(div(add(total, more), scale), scale))
            moved = b.local("moved", add(product, mul(step, own)))
            b.assign(moved, div(moved, scale))
            with b.loop("j", k) as j:
                old = load(self.product, j)
                new = sub(old, mul(step, self._apart(row, t, j)))
                b.store(self.product, j, div(new, scale))
                other = self._at(row, j)
                b.store(self.p, other, div(load(self.p, other), scale))
            b.store(self.product, t, moved)
