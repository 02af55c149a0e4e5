"""float32 functions as reference kernels compute them on a PC, for tables made while exporting."""

from __future__ import annotations

import math

import numpy as np

_ROOT_OF_HALF = np.float32(math.sqrt(0.5))
_ROOT_OF_2_OVER_PI = np.float32(math.sqrt(2 / math.pi))


def exp(x: float) -> float:
    """e**x, infinity where it overflows."""
    return float(np.float32(math.exp(x))) if x < 88.8 else math.inf


def precise_exp(x: float) -> float:
    """e**x in double precision."""
    return math.exp(x)


def logistic(x: float) -> float:
    """1 / (1 + e**-x)."""
    return float(np.float32(1.0) / (np.float32(1.0) + np.float32(exp(-x))))


def tanh(x: float) -> float:
    """Hyperbolic tangent."""
    return math.tanh(x)


def elu(x: float) -> float:
    """x where it is positive, e**x - 1 elsewhere."""
    return math.expm1(x) if x < 0 else x


def gelu(x: float) -> float:
    """x/2 * (1 + erf(x/√2)), rounded after each step."""
    value = np.float32(x)
    error = np.float32(math.erf(float(value * _ROOT_OF_HALF)))
    return float(np.float32(0.5) * value * (np.float32(1.0) + error))


def gelu_by_tanh(x: float) -> float:
    """x/2 * (1 + tanh(√(2/π) * (x + 0.044715 x³))), rounded after each step."""
    value = np.float32(x)
    cubic = value + np.float32(0.044715) * value * value * value
    bent = np.float32(math.tanh(float(_ROOT_OF_2_OVER_PI * cubic)))
    return float(np.float32(0.5) * value * (np.float32(1.0) + bent))
