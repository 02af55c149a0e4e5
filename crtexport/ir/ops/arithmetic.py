"""Elementwise operators of two inputs."""

from __future__ import annotations

from dataclasses import dataclass

from crtexport.ir.ops.base import Activation, Elementwise


@dataclass(frozen=True)
class Add(Elementwise):
    """Elementwise sum with NumPy broadcasting."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Sub(Elementwise):
    """Elementwise difference with NumPy broadcasting."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True)
class Mul(Elementwise):
    """Elementwise product with NumPy broadcasting."""

    activation: Activation = Activation.NONE
