"""Sums that count the iterations of their loops are, behind these, what they would be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.assemble import Assembled
from crtexport.kir.builder import KernelBuilder, add, call, const, i32, load, mul
from crtexport.kir.language import Kernel, Scalar
from tests.kir.assembly.loops import M7, M33, SIZE, assembled, assert_same

M4 = Features(dsp=True)
_SUMS = 9
"""With that many there is no register for the end of a loop."""
_BEGIN = 1 << 12
"""The magnitude of what sums begin with, at most."""


def _products(extent: int, blocks: int, bits: int | None, *, again: bool = False) -> Kernel:
    """Returns a loop over blocks of sums of ``extent`` products of pairs; every other sum has no
    more than ``bits`` bits. ``again``: something else is added to these sums, too."""
    b = KernelBuilder("products")
    x = b.buffer("x", Scalar.I32, SIZE)
    w = b.buffer("w", Scalar.I32, SIZE)
    begin = b.buffer("begin", Scalar.I32, SIZE)
    y = b.buffer("y", Scalar.I32, SIZE, writable=True)
    with b.loop("all", 1, assembled=True), b.loop("block", blocks) as block:
        first = b.let("first", mul(block, const(_SUMS)))
        sums = [
            b.local(f"sum{one}", load(begin, add(first, const(one))), None if one % 2 else bits)
            for one in range(_SUMS)
        ]
        with b.loop("i", extent, unroll=1) as i:
            value = b.let("value", load(x, i))
            for one, total in enumerate(sums):
                weight = load(w, add(mul(i, const(5)), const(one // 2)))
                factor = call("arm_sxtb16", weight, type_=Scalar.I32)
                b.assign(total, call("arm_smlad", value, factor, total, type_=Scalar.I32))
                if again and not one % 2:
                    b.assign(total, add(total, i32(1)))
        for one, total in enumerate(sums):
            b.store(y, add(first, const(one)), total)
    return b.finish()


def _counts(made: Assembled) -> bool:
    return any(line.startswith("bmi") for line in made.lines)


def _arrays(extent: int, bits: int, seed: int) -> dict[str, np.ndarray]:
    """Returns values with whose products sums reach, but don't exceed, so many bits."""
    rng = np.random.default_rng(seed)
    most = min(((1 << bits - 1) - _BEGIN) // (2 * 128 * extent), (1 << 15) - 1)
    halves = rng.choice([-most, most, 0, most // 2], (SIZE, 2), p=[0.4, 0.4, 0.1, 0.1])
    if seed % 2:  # all to one side
        halves = -abs(halves)
    weights = rng.choice([-128, 127] if seed % 3 else [127], (SIZE, 4)).astype(np.int8)
    return {
        "x": halves.astype(np.int16).view(np.int32).reshape(-1),
        "w": weights.view(np.int32).reshape(-1),
        "begin": rng.integers(-_BEGIN, _BEGIN, SIZE).astype(np.int32),
        "y": np.zeros(SIZE, np.int32),
    }


@pytest.mark.parametrize("features", [M4, M7, M33])
@settings(max_examples=40, deadline=None)
@given(
    extent=st.integers(2, 140), blocks=st.integers(1, 3), bits=st.integers(21, 31),
    seed=st.integers(0, 1000),
)
@example(extent=128, blocks=2, bits=24, seed=0)
@example(extent=128, blocks=2, bits=24, seed=1)
@example(extent=2, blocks=1, bits=30, seed=3)
def test_results_are_the_same_up_to_the_limits_of_the_bits(
    features: Features, extent: int, blocks: int, bits: int, seed: int
) -> None:
    kernel = _products(extent, blocks, bits)
    assert_same(kernel, _arrays(extent, bits, seed), features)


@pytest.mark.parametrize("bits", [22, 24, 28, 30])
def test_as_many_iterations_are_counted_as_the_other_bits_can(bits: int) -> None:
    most = 1 << 31 - bits
    assert _counts(assembled(_products(most, 2, bits), M4))
    assert not _counts(assembled(_products(most + 1, 2, bits), M4))


def test_counting_spares_a_load_and_its_place_on_the_stack() -> None:
    counted, compared = (assembled(_products(40, 3, bits), M4) for bits in (24, None))
    assert not _counts(compared)
    inner = [
        lines[lines.index("2:") : next(i for i, line in enumerate(lines) if "2b" in line)]
        for lines in (counted.lines, compared.lines)
    ]
    assert len(inner[0]) == len(inner[1]) - 1
    assert not any("sp" in line for line in inner[0])
    # A number instead of an address.
    assert len(counted.arguments) == len(compared.arguments)


def test_functions_for_other_extents_are_the_same() -> None:
    """Layers share them: what sums begin with is an argument."""
    assert len({assembled(_products(extent, 3, 24), M4).code for extent in (8, 40, 127)}) == 1


def test_sums_to_which_something_else_is_added_dont_count() -> None:
    assert not _counts(assembled(_products(16, 2, 24, again=True), M4))
