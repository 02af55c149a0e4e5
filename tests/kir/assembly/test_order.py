"""The order of a block's instructions: what it depends on, and that none is missed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir.assembly.armv7em import order
from crtexport.kir.assembly.armv7em.dependences import BlockFacts, dependences
from crtexport.kir.assembly.armv7em.instructions import (
    Instruction,
    Kind,
    MemoryOperand,
    Register,
    UnsupportedError,
)
from crtexport.kir.assembly.armv7em.list_order import order_by
from crtexport.kir.assembly.armv7em.spellings import Features
from tests.kir.assembly.loops import M7, M33, drawn_blocks


@pytest.mark.parametrize("dsp", [True, False])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_preferences_that_are_left_out_find_nothing_better(
    dsp: bool, data: st.DataObject
) -> None:
    with suppress(UnsupportedError):
        for _, block in drawn_blocks(data, Features(dsp)):
            for room in (14, data.draw(st.integers(2, 12))):
                found = order.best_order.__wrapped__(block, room)
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(order.Run, "decides_as", lambda *_: False)
                    assert order.best_order.__wrapped__(block, room) == found


@pytest.mark.parametrize("features", [Features(dsp=True), Features(dsp=False), M7, M33])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_all_instructions_are_there_behind_what_they_depend_on(
    features: Features, data: st.DataObject
) -> None:
    with suppress(UnsupportedError):
        for _, block in drawn_blocks(data, features):
            found = order_by(block, data.draw(st.integers(6, 14)), features.rules)
            if found is None:
                continue
            places = {number: place for place, number in enumerate(found.places) if number >= 0}
            assert sorted(places) == list(range(len(block.steps)))
            for number, one in enumerate(block.steps):
                assert all(places[number] < places[later] for later in one.after)
                made = [found.places.index(~value) for value in one.constants]
                assert all(place < places[number] for place in made)


def _sum_of_products(offset: int, buffer: str) -> list[Instruction]:
    address, total = Register("address"), Register("total")
    body = []
    for number in range(3):
        value = Register("value")
        at = MemoryOperand(buffer, address, 4 * number, address, offset + 4 * number, 4)
        body.append(Instruction("ldr {w}, [{base}, #{at}]", (value,), (), Kind.LOAD, at))
        body.append(Instruction(
            "mla {w}, {0}, {0}, {1}", (total,), (value, total), Kind.ACCUMULATE, adds=total
        ))
    return body


def test_blocks_that_differ_in_registers_and_offsets_depend_alike() -> None:
    features = Features(dsp=True)
    first, second = (
        dependences(_sum_of_products(*which), BlockFacts((), ()), features)[0]
        for which in ((0, "x"), (64, "y"))
    )
    assert first == second
    assert hash(first) == hash(second)
    shorter = _sum_of_products(0, "x")[:-1]
    assert dependences(shorter, BlockFacts((), ()), features)[0] != first
    stored = [*_sum_of_products(0, "x")]
    memory = stored[0].memory
    stored[0] = Instruction("str {0}, [{base}, #{at}]", (), stored[0].writes, Kind.STORE, memory)
    assert dependences(stored, BlockFacts((), ()), features)[0] != first
