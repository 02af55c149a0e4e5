"""Fixed-point arithmetic of quantized networks, in exact Python integers.

Multipliers and tables are computed with these while exporting; kernels restate the run-time part
in Kernel IR; tests hold both together. Formulas: TensorFlow Lite's
``kernels/internal/quantization_util.cc`` and ``common.h``, gemmlowp's ``fixedpoint.h``.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


class Rounding(enum.Enum):
    """The rounding of an integer accumulator that is scaled down to the output type.

    DOUBLE: gemmlowp's ``MultiplyByQuantizedMultiplier`` (rounding doubling high multiply, then
    rounding shift), as TensorFlow Lite Micro and tflite-runtime 2.14 reference kernels do.
    SINGLE: as LiteRT 2.x, whose fully connected layers round one product once, halves away from
    zero; its other operators are those of DOUBLE. FLOAT: as ONNX Runtime, in float32: the sum, its
    product with a scale, and that to an integer, halves to even.
    """

    DOUBLE = "double"
    SINGLE = "single"
    FLOAT = "float"


def round_half_away(value: float) -> int:
    """C's ``round``: to nearest, halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value)) if abs(value) < 2**52 else int(
        value
    )


def wrap(value: int, bits: int) -> int:
    """``value`` modulo 2**bits as a signed integer."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def saturate(value: int, bits: int) -> int:
    """Returns the nearest signed integer of so many bits."""
    half = 1 << (bits - 1)
    return max(-half, min(value, half - 1))


def wrap32(value: int) -> int:
    """``value`` modulo 2**32 as a signed 32-bit integer."""
    return wrap(value, 32)


def fused_multiply_add(a: float, b: float, c: float) -> float:
    """a * b + c of float32 values as the float64 that rounds to the right float32.

    The product is exact in float64. Its sum is rounded to odd there, which leaves the second
    rounding right (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    product = float(a) * float(b)
    total = product + float(c)
    if math.isfinite(total):
        back = total - product
        error = (product - (total - back)) + (float(c) - back)
        bits = struct.unpack("<q", struct.pack("<d", total))[0]
        if error and not bits & 1:
            total = math.nextafter(total, math.inf if error > 0 else -math.inf)
    return total


def quantize_multiplier(real: float) -> tuple[int, int]:
    """(m, shift) with real ≈ m / 2**31 * 2**shift and m in [2**30, 2**31), or (0, 0).

    TFLite ``QuantizeMultiplier``. Raises OverflowError for what is not finite.
    """
    if real == 0.0:
        return 0, 0
    if not math.isfinite(real):
        raise _infinite()
    fraction, shift = math.frexp(real)
    mantissa = round_half_away(fraction * (1 << 31))
    if mantissa == 1 << 31:
        mantissa //= 2
        shift += 1
    if shift < -31:
        return 0, 0
    return mantissa, shift


def quantize_multipliers(reals: Sequence[float]) -> tuple[Ints, Ints]:
    """:func:`quantize_multiplier` of many numbers, none of them negative: all m, and all shifts."""
    if not all(map(math.isfinite, reals)):
        raise _infinite()
    fractions, exponents = np.frexp(np.array(reals, np.float64))
    mantissas = np.floor(fractions * (1 << 31) + 0.5).astype(np.int64)
    shifts = exponents.astype(np.int64)
    carried = mantissas >> 31
    mantissas >>= carried
    shifts += carried
    there = shifts >= -31
    return mantissas * there, shifts * there


def _infinite() -> OverflowError:
    return OverflowError("no multiplier is that large")


def rounding_doubling_high_mul(a: int, b: int) -> int:
    """gemmlowp ``SaturatingRoundingDoublingHighMul``: (a*b + 2**30) >> 31, saturated.

    gemmlowp nudges by the sign and truncates; that equals one floor shift for all operands.
    """
    if a == b == INT32_MIN:
        return INT32_MAX
    return (a * b + (1 << 30)) >> 31


def rounding_divide_by_pot(value: int, exponent: int) -> int:
    """gemmlowp ``RoundingDivideByPOT``: to nearest, halves away from zero."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if value < 0 else 0)
    return (value >> exponent) + (1 if (value & mask) > threshold else 0)


def multiply_by_quantized_multiplier(
    value: int, multiplier: int, shift: int, rounding: Rounding = Rounding.DOUBLE
) -> int:
    """``value * multiplier / 2**31 * 2**shift``: TFLite's function of the same name (DOUBLE), or
    one product rounded to nearest, halves away from zero (SINGLE), or :func:`scale_in_float32`."""
    if rounding is Rounding.FLOAT:
        scale = math.ldexp(multiplier, shift - 31)
        return int(scale_in_float32(np.array(value, np.int64), scale))
    if rounding is Rounding.SINGLE:
        total = 31 - shift
        product = value * multiplier
        return wrap32((product + (1 << (total - 1)) - (1 if product < 0 else 0)) >> total)
    left, right = max(shift, 0), max(-shift, 0)
    return rounding_divide_by_pot(
        rounding_doubling_high_mul(wrap32(value << left), multiplier), right
    )


def scale_in_float32(values: Ints, scale: float) -> Ints:
    """Returns rint(float32(float32(value) * scale)), halves to even, as ONNX Runtime scales sums
    (MLAS ``MlasRequantizeOutput``); within ±2**40."""
    with np.errstate(over="ignore"):
        return nearest_even(values.astype(np.float32) * np.float32(scale))


def nearest_even(values: npt.NDArray[np.floating[Any]]) -> Ints:
    """Returns the nearest integers, halves to even, within ±2**40."""
    limited = np.clip(values.astype(np.float64), -(2.0**40), 2.0**40)
    rounded: Ints = np.rint(limited).astype(np.int64)
    return rounded


def multiply_all_by_quantized_multiplier(
    values: Ints, multipliers: Ints | int, rights: Ints | int
) -> Ints:
    """:func:`multiply_by_quantized_multiplier` (DOUBLE) of many values, whose products with
    multipliers fit 64 bits, and their halves 32; ``rights`` are shifts to the right."""
    high = (values * multipliers + (1 << 30)) >> 31
    mask = (np.int64(1) << rights) - 1
    scaled: Ints = (high >> rights) + ((high & mask) > (mask >> 1) + (high < 0))
    return scaled


def reduced_multiplier(mantissa: int) -> int:
    """Returns the upper 15 bits of a multiplier, rounded: the factor of 64-bit accumulators."""
    return (mantissa + (1 << 15)) >> 16 if mantissa < 0x7FFF0000 else 0x7FFF


def multiply_wide_by_quantized_multiplier(value: int, multiplier: int, shift: int) -> int:
    """TFLite's ``MultiplyByQuantizedMultiplier`` of a 64-bit accumulator."""
    total = 15 - shift
    return wrap32((value * reduced_multiplier(multiplier) + (1 << (total - 1))) >> total)


def power_of_two(scale: float) -> int | None:
    """Returns the exponent of a scale that is a power of two within 0.07 % (TFLite's
    ``CheckedLog2``), None for others."""
    exponent = math.log2(scale)
    nearest = round_half_away(exponent)
    return nearest if abs(exponent - nearest) < 1e-3 else None


def shifts_between(scales: tuple[float, float], result: float) -> tuple[int, int] | None:
    """Returns the right shifts that bring int16 operands on two ``scales`` to the scale ``result``.

    None where TFLite doesn't shift: unless all are powers of two, one of the operands is on the
    scale of the result, and the other on a finer one by at most 2**15.
    """
    exponents = [power_of_two(scale) for scale in (*scales, result)]
    shifts = [exponents[2] - e for e in exponents[:2] if e is not None and exponents[2] is not None]
    if len(shifts) < 2 or min(shifts) != 0 or max(shifts) > 15:
        return None
    return shifts[0], shifts[1]


# ---- gemmlowp fixed point with 31-bit fractions, as used by the softmax of integer networks ----


def _mul_by_pot_saturating(value: int, exponent: int) -> int:
    """gemmlowp ``SaturatingRoundingMultiplyByPOT``."""
    if exponent >= 0:
        return min(max(value << exponent, INT32_MIN), INT32_MAX)
    return rounding_divide_by_pot(value, -exponent)


def _exp_on_interval_between_negative_one_quarter_and_0_excl(a: int) -> int:
    """gemmlowp's polynomial; ``a`` and the result are Q0.31."""
    constant_term = 1895147668
    constant_1_over_3 = 715827883
    x = a + (1 << 28)
    x2 = rounding_doubling_high_mul(x, x)
    x3 = rounding_doubling_high_mul(x2, x)
    x4 = rounding_doubling_high_mul(x2, x2)
    x4_over_4 = rounding_divide_by_pot(x4, 2)
    inner = rounding_divide_by_pot(
        rounding_doubling_high_mul(x4_over_4 + x3, constant_1_over_3) + x2, 1
    )
    return constant_term + rounding_doubling_high_mul(constant_term, x + inner)


_EXP_BARREL = (
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535),
    (3, 720401), (4, 242),
)


def exp_on_negative_values(a: int, integer_bits: int) -> int:
    """gemmlowp ``exp_on_negative_values``: exp of ``a`` ≤ 0 in Q(integer_bits), result Q0.31."""
    if a == 0:
        return INT32_MAX
    fractional_bits = 31 - integer_bits
    one_quarter = 1 << (fractional_bits - 2)
    a_mod = (a & (one_quarter - 1)) - one_quarter
    result = _exp_on_interval_between_negative_one_quarter_and_0_excl(
        _mul_by_pot_saturating(a_mod, integer_bits)
    )
    remainder = a_mod - a
    for exponent, multiplier in _EXP_BARREL:
        if integer_bits > exponent and remainder & (1 << (fractional_bits + exponent)):
            result = rounding_doubling_high_mul(result, multiplier)
    if integer_bits > 5 and a < -(1 << (fractional_bits + 5)):
        return 0
    return result


def _newton_inverse(a: int) -> int:
    """gemmlowp's division: 2 / (1 + ``a``) as Q2.29, for a in Q0.31 from 0 to 1."""
    half_denominator = (a + INT32_MAX + 1) // 2
    x = 1515870810 + rounding_doubling_high_mul(half_denominator, -1010580540)
    for _ in range(3):
        rest = (1 << 29) - rounding_doubling_high_mul(half_denominator, x)
        x += _mul_by_pot_saturating(rounding_doubling_high_mul(x, rest), 2)
    return x


def fixed_logistic(a: int, integer_bits: int) -> int:
    """gemmlowp ``logistic``: of ``a`` in Q(integer_bits), result Q0.31."""
    if a == 0:
        return 1 << 30
    inverse = _newton_inverse(exp_on_negative_values(-abs(a), integer_bits))
    positive = _mul_by_pot_saturating(inverse, 1)
    return positive if a > 0 else INT32_MAX - positive


def fixed_tanh(a: int, integer_bits: int) -> int:
    """gemmlowp ``tanh``: of ``a`` in Q(integer_bits), result Q0.31."""
    if a == 0:
        return 0
    inverse = _newton_inverse(exp_on_negative_values(-abs(a), integer_bits + 1))
    positive = _mul_by_pot_saturating(inverse - (1 << 29), 2)
    return positive if a > 0 else -positive


_HALF_ROOT_OF_2 = 1518500250  # Q0.31


def inverse_sqrt_multiplier(value: int) -> tuple[int, int]:
    """(m, shift) with m / 2**31 * 2**shift ≈ 1 / sqrt(value); 1 for values below 2.

    TFLite ``GetInvSqrtQuantizedMultiplierExp``: five Newton-Raphson steps in Q3.28.
    """
    if value <= 1:
        return INT32_MAX, 0
    right = 11
    while value >= 1 << 29:
        value //= 4
        right += 1
    pairs = (31 - value.bit_length()) // 2 - 1
    right -= pairs
    value <<= 2 * pairs
    half_input = rounding_divide_by_pot(value >> 1, 1)
    half_three, x = (1 << 28) + (1 << 27), 1 << 28
    for _ in range(5):
        square = rounding_doubling_high_mul(x, x)
        cube = _mul_by_pot_saturating(rounding_doubling_high_mul(square, x), 6)
        x = _mul_by_pot_saturating(
            rounding_doubling_high_mul(half_three, x)
            - rounding_doubling_high_mul(half_input, cube), 3
        )
    x = rounding_doubling_high_mul(x, _HALF_ROOT_OF_2)
    return (x << -right, 0) if right < 0 else (x, -right)
