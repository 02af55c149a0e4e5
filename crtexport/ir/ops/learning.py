"""Operators of classical machine learning."""

from __future__ import annotations

from crtexport.ir.ops.base import Op


class TreeEnsemble(Op, frozen=True):
    """Sums over decision trees: each row of features goes, in each tree, from its root to a leaf,
    whose row of numbers is added. Inputs after the features are constants: of each inner node the
    feature (~feature where NaN goes left) and the threshold up to which it goes left; its children,
    left and right, where ~n is leaf n; the roots; the leaves."""


class SquaredDistance(Op, frozen=True):
    """The squared distance of each row of the first matrix to each row of the second."""


class PairwiseCoupling(Op, frozen=True):
    """The probabilities of classes, (rows, classes), from those with which each wins against each
    other, (rows, classes, classes), 0 on the diagonal: steps of libsvm's second method (Wu, Lin and
    Weng 2004), up to 100, until none changes them by more than 0.005 / classes."""
