"""A loop is called one over channels only where it alone decides which element of a pixel is
touched: tried for all values of all loops."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.analysis.channel_loop import ChannelLoop, channel_loop
from crtexport.kir.builder import KernelBuilder, add, const, div, load, load_vector, mul
from crtexport.kir.language import Kernel, Scalar

Address = tuple[int, int, int, int]
"""The factors of the loops c, i and j, and what is added."""
NAMES = frozenset({"x", "y"})


def made(extents: tuple[int, int, int], reads: Address, writes: Address) -> Kernel:
    b = KernelBuilder("drawn")
    x = b.buffer("x", Scalar.I8, 500)
    y = b.buffer("y", Scalar.I8, 500, writable=True)
    with b.loop("c", extents[0]) as c, b.loop("i", extents[1]) as i, b.loop("j", extents[2]) as j:
        read, written = (
            add(*(mul(loop, const(f)) for loop, f in zip((c, i, j), address, strict=False)),
                const(address[3]))
            for address in (reads, writes)
        )
        b.store(y, written, load(x, read))
    return b.finish()


def alone(
    found: ChannelLoop, extents: tuple[int, int, int], addresses: tuple[Address, Address]
) -> bool:
    """Returns whether each value of the loop touches an element of a pixel that no other value
    does."""
    own = "cij".index(found.loop)
    touched: dict[int, set[int]] = {}
    for values in itertools.product(*map(range, extents)):
        for *factors, added in addresses:
            at = sum(f * v for f, v in zip(factors, values, strict=True)) + added
            touched.setdefault(values[own], set()).add(at % found.count)
    return sum(map(len, touched.values())) == len(set().union(*touched.values()))


factors = st.sampled_from([0, 1, 1, -1, 2, 3, 4, 6, 8])
addresses = st.tuples(factors, factors, factors, st.integers(0, 9))
sizes = st.tuples(st.sampled_from([2, 3, 4]), st.sampled_from([2, 3, 4]), st.integers(2, 3))


@settings(max_examples=300, deadline=None)
@given(extents=sizes, reads=addresses, writes=addresses, alike=st.booleans())
def test_channels_touch_elements_of_their_own(
    extents: tuple[int, int, int], reads: Address, writes: Address, alike: bool
) -> None:
    pair = (reads, reads if alike else writes)
    found = channel_loop(made(extents, *pair), NAMES)
    if found is not None:
        assert found.count == extents["cij".index(found.loop)]
        assert alone(found, extents, pair)


@pytest.mark.parametrize("stores", [False, True])
def test_vectors_touch_more_than_one_channel(stores: bool) -> None:
    b = KernelBuilder("vectors")
    x = b.buffer("x", Scalar.I8, 500)
    y = b.buffer("y", Scalar.I8, 500, writable=True)
    z = b.buffer("z", Scalar.I8, 500)
    with b.loop("i", 4) as i, b.loop("c", 4) as c:
        at = add(mul(i, const(4)), c)
        b.store(y, at, load(x, at))
        if stores:
            b.store_vector(y, at, load_vector(z, at, Scalar.I8X16, 2), 2)
        else:
            b.let("loaded", load_vector(x, at, Scalar.I8X16, 2))
    assert channel_loop(b.finish(), NAMES) is None


@pytest.mark.parametrize(("reads", "writes", "expected"), [
    ((1, 4, 8, 0), (1, 8, 16, 0), ChannelLoop("c", 4)),
    ((1, 4, 8, 3), (1, 8, 16, 7), ChannelLoop("c", 4)),
    ((1, 4, 8, 0), (1, 4, 8, 1), None),  # an element further in the output
    ((1, 4, 1, 0), (1, 4, 1, 0), None),  # j decides, too
    ((1, 1, 4, 0), (1, 1, 4, 0), None),
    ((1, 3, 8, 0), (1, 4, 8, 0), None),
    ((2, 4, 8, 0), (2, 4, 8, 0), None),
    ((1, 4, 8, 0), (-1, 4, 8, 0), None),
    ((-1, 4, 8, 3), (-1, 4, 8, 7), ChannelLoop("c", 4)),
])
def test_pixels_are_whole_numbers_of_channels_apart(
    reads: Address, writes: Address, expected: ChannelLoop | None
) -> None:
    assert channel_loop(made((4, 3, 5), reads, writes), NAMES) == expected


@pytest.mark.parametrize("own", [True, False])
def test_a_variable_made_of_the_channel_decides_as_much_as_it(own: bool) -> None:
    """Of two variables in an address, one follows from the channel."""
    b = KernelBuilder("made")
    x = b.buffer("x", Scalar.I8, 99)
    y = b.buffer("y", Scalar.I8, 99, writable=True)
    with b.loop("c", 4) as c, b.loop("i", 3) as i:
        half = b.let("half", div(c if own else i, const(2)))
        at = add(c, mul(i, const(8)), mul(half, const(4)))
        b.store(y, at, load(x, at))
    assert channel_loop(b.finish(), NAMES) == (None if own else ChannelLoop("c", 4))
