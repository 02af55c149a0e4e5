"""The part of a kernel that decides where it touches some buffers says the same as all of it."""

from __future__ import annotations

from hypothesis import given

from crtexport.kir.analysis.accesses import Access, accesses, touching
from crtexport.kir.analysis.address_intervals import Bounds, addresses, hulls
from crtexport.kir.builder import KernelBuilder, add, const, i32, load, mul, sub
from crtexport.kir.language import For, Kernel, Scalar
from tests.kir.strategies import Case, cases

MOST = 1 << 12  # points of a grid


@given(cases())
def test_a_part_touches_what_the_whole_does(case: Case) -> None:
    for buffer in case.kernel.buffers:
        part = touching(case.kernel, {buffer.name})
        mine, whole = of(part, buffer.name), of(case.kernel, buffer.name)
        assert [seen(a) for a in mine] == [seen(a) for a in whole]
        for first, second in zip(mine, whole, strict=True):
            assert same(at(part, first), at(case.kernel, second))


@given(cases())
def test_a_hull_is_around_the_accesses_of_its_group(case: Case) -> None:
    """And around nothing else, as all of them lie in their buffers."""
    for buffer in case.kernel.buffers:
        mine = of(case.kernel, buffer.name)
        single = addresses(case.kernel, (), {buffer.name})
        found = hulls(case.kernel, (), {access.number: 0 for access in mine})
        assert len(found) == bool(mine)
        for low, high in found.values():
            assert low == min(single[a.number][0] for a in mine)
            assert high == max(single[a.number][1] for a in mine)


def test_only_what_decides_addresses_is_kept() -> None:
    b = KernelBuilder("kernel")
    x, y = b.buffer("x", Scalar.I32, 40), b.buffer("y", Scalar.I32, 10, writable=True)
    with b.loop("i", 10) as i:
        start = b.let("start", mul(i, const(4)))
        value = b.let("value", load(x, add(start, const(3))))
        with b.loop("again", 5):
            b.let("aside", add(value, i32(1)))
        b.store(y, sub(const(9), i), value)
    kernel = b.finish()
    outer = loop_of(kernel)
    assert loop_of(touching(kernel, {"y"})).body == outer.body[-1:]
    assert loop_of(touching(kernel, {"x"})).body == outer.body[:2]
    assert touching(kernel, {"z"}).body == ()


def loop_of(kernel: Kernel) -> For:
    (loop,) = kernel.body
    assert isinstance(loop, For)
    return loop


def of(kernel: Kernel, name: str) -> list[Access]:
    return [access for access in accesses(kernel) if access.buffer.name == name]


def seen(access: Access) -> tuple[object, ...]:
    """Returns what does not depend on other accesses."""
    return access.stores, access.loops, access.conditional, access.width


def at(kernel: Kernel, access: Access) -> Bounds:
    """Returns the element of an access at each point of the loops around it."""
    grid, points = [], 1
    for name, extent in access.loops:
        points *= extent or MOST + 1
        if points > MOST:
            break
        grid.append((name, extent or 0))
    return addresses(kernel, tuple(grid), {access.buffer.name})[access.number]


def same(one: Bounds, other: Bounds) -> bool:
    return all((a == b).all() for a, b in zip(one, other, strict=True))
