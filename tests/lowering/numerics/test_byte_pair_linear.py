"""Linear forms of sums of bytes give what TFLite's arithmetic gives, or ONNX Runtime's, or there is
none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.lowering.numerics.byte_pair_linear import FloatTerms, Terms, linear, rows
from crtexport.support.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier

SCALES = st.floats(2.0**-13, 1.0, width=32)
BYTES = st.integers(-128, 127)
LIMIT = 1 << 31


def reference(terms: Terms, a: int, b: int) -> int:
    """TFLite's ``AddElementwise`` and ``SubFunc`` of int8 and uint8, in Python's integers."""
    twice = 2.0 * max(terms.scales)
    first, second = (
        multiply_by_quantized_multiplier(
            (value - zero) << 20, *quantize_multiplier(scale / twice)
        )
        for value, zero, scale in zip((a, b), terms.zeros, terms.scales, strict=True)
    )
    real = twice / ((1 << 20) * terms.scale_out)
    raw = first + terms.sign * second
    result = multiply_by_quantized_multiplier(raw, *quantize_multiplier(real)) + terms.zero_out
    return min(max(result, terms.bounds[0]), terms.bounds[1])


@st.composite
def sums(draw: st.DrawFn) -> Terms:
    """Sums and differences of int8 or uint8, on scales that may be far apart or alike."""
    lowest = draw(st.sampled_from((-128, 0)))
    zeros = [draw(BYTES) + lowest + 128 for _ in range(3)]
    scales = [draw(SCALES) for _ in range(2)]
    scale_out = draw(st.one_of(SCALES, st.sampled_from((*scales, 2 * scales[0]))))
    low, high = sorted(draw(st.tuples(BYTES, BYTES)))
    whole = draw(st.booleans())
    return Terms(
        lowest, (scales[0], scales[1]), (zeros[0], zeros[1]), scale_out, zeros[2],
        (lowest, lowest + 255) if whole else (low + lowest + 128, high + lowest + 128),
        draw(st.sampled_from((1, -1))), 20,
    )


@settings(max_examples=60)
@given(sums(), st.lists(st.tuples(BYTES, BYTES), min_size=50, max_size=50))
def test_linear_forms_are_tflites_arithmetic_within_32_bits(
    terms: Terms, pairs: list[tuple[int, int]]
) -> None:
    found = linear(terms)
    if found is None:
        return
    for pair in (*pairs, (-128, -128), (-128, 127), (127, -128), (127, 127)):
        a, b = (value + terms.lowest + 128 for value in pair)
        steps = (found.start, a * found.first + found.start)
        total = steps[-1] + b * found.second
        assert all(-LIMIT <= value < LIMIT for value in (*steps, total, b * found.second))
        result = min(max(total >> found.places, terms.bounds[0]), terms.bounds[1])
        assert result == reference(terms, a, b), (a, b)


def test_a_residual_layer_has_a_linear_form() -> None:
    terms = Terms(
        -128, (0.0394, 0.1042), (-128, 4), 0.0509, -128, (-128, 127), 1, 20
    )
    assert linear(terms) is not None


def test_halves_go_away_from_zero_on_both_sides() -> None:
    terms = Terms(-128, (0.5, 0.5), (0, 0), 1.0, 0, (-128, 127), 1, 20)
    assert [reference(terms, 1, 0), reference(terms, -1, 0)] == [1, -1]
    assert linear(terms) is not None


def test_halves_that_scaling_hits_by_chance_have_none() -> None:
    scales = (0.3389999866485596, 0.03700000047683716)
    assert linear(
        Terms(-128, scales, (-120, -123), 0.7080000042915344, 10, (-128, 127), 1, 20)
    ) is None


def test_scales_that_are_too_far_apart_have_none() -> None:
    assert linear(Terms(0, (1.0, 1.0), (0, 0), 1e-8, 0, (0, 255), 1, 20)) is None


def of_onnx_runtime(terms: Terms, a: int, b: int) -> int:
    """``MlasQLinearAdd`` with FMA, of numbers as uint8, in fractions."""
    def rounded(exact: Fraction) -> Fraction:
        return Fraction(float(np.float32(float(exact))))

    first, second = (
        Fraction(float(np.float32(s) / np.float32(terms.scale_out))) for s in terms.scales
    )
    zeros = [zero - terms.lowest for zero in (*terms.zeros, terms.zero_out)]
    rest = rounded(zeros[2] - rounded(first * zeros[0] + rounded(second * zeros[1])))
    inner = rounded(second * (b - terms.lowest) + rest)
    total = rounded(first * (a - terms.lowest) + inner)
    return min(max(round(total) + terms.lowest, terms.bounds[0]), terms.bounds[1])


@settings(max_examples=40)
@given(
    st.floats(2.0**-6, 1.0, width=32), st.floats(2.0**-6, 1.0, width=32),
    st.floats(2.0**-5, 1.0, width=32), st.tuples(BYTES, BYTES, BYTES),
    st.lists(st.tuples(BYTES, BYTES), min_size=50, max_size=50),
)
def test_addends_are_onnx_runtimes_arithmetic_within_32_bits(
    first: float, second: float, out: float, zeros: tuple[int, int, int],
    pairs: list[tuple[int, int]],
) -> None:
    terms = FloatTerms(-128, (first, second), zeros[:2], out, zeros[2], (-128, 127), 1, 20)
    found = rows(terms)
    if found is None:
        return
    for a, b in (*pairs, (-128, -128), (-128, 127), (127, -128), (127, 127)):
        addend = int(found.addends[b + 128])
        total = a * found.first + addend
        assert all(-LIMIT <= value < LIMIT for value in (addend, a * found.first, total))
        assert min(max(total >> found.places, -128), 127) == of_onnx_runtime(terms, a, b)


def test_scales_without_a_linear_form_have_addends() -> None:
    rng = np.random.default_rng(6)
    without, found = 0, 0
    for _ in range(30):
        scales = [float(np.float32(s)) for s in rng.uniform(0.01, 0.1, 3)]
        terms = FloatTerms(-128, (scales[0], scales[1]), (5, -9), scales[2], 3, (-128, 127), 1, 20)
        if linear(terms) is None:
            without += 1
            found += rows(terms) is not None
    assert found >= 0.9 * without > 0
