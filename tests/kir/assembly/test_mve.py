"""Loops of vectors for Cortex-M55: their text and bytes are the same to GNU's assembler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.kir.assembly.assemble import assembled
from crtexport.kir.assembly.frame import name_of
from crtexport.kir.assembly.mve import encoding
from crtexport.kir.assembly.mve.instructions import (
    ACCESSES,
    ADVANCE,
    ADVANCE_SCALED,
    FORMS,
    LANES_LEFT,
    STORES,
    Bank,
    Form,
    VectorAccess,
)
from crtexport.kir.assembly.mve.lines import Adding, AnyLine, BankRegister, Copying, Line, Setting
from crtexport.kir.assembly.mve.pointers import Address
from crtexport.kir.assembly.mve.text import text
from crtexport.kir.language import For
from crtexport.kir.walk import walk
from crtexport.lowering.registry import Context
from crtexport.schedules.mve import candidates as mve
from tests.helpers import target_of
from tests.kir.assembly.test_encode import assembled as by_gnu
from tests.schedules.mve.test_mve import KINDS, add_layer
from tests.schedules.scalar.test_blocks import Network
from tests.schedules.vector_targets import MVE

PROCESSOR = "-march=armv8.1-m.main+mve.fp"
_ROOM = {Bank.VECTOR: 7, Bank.GENERAL: 12, Bank.LOW: 7, Bank.EVEN: 6}
_WORDS = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-300, 300), st.just(1 << 16)
)


@st.composite
def instructions(draw: st.DrawFn) -> Line:
    """An instruction of any form, with any registers that it may have."""
    form: Form = draw(st.sampled_from([
        *FORMS.values(), *LANES_LEFT.values(), ADVANCE, ADVANCE_SCALED
    ]))
    registers: list[BankRegister] = []
    for _, bank, _ in form.fields:
        number = draw(st.integers(0, _ROOM[bank]))
        even = bank is Bank.EVEN
        registers.append(BankRegister(
            "q" if bank is Bank.VECTOR else "r", 2 * number if even else number
        ))
    pairs = {"set_02", "set_13"} & {name for name, other in FORMS.items() if other is form}
    if pairs and registers[1] == registers[2]:  # which would be unpredictable
        registers[2] = BankRegister("r", (registers[1].number + 1) % 13)
    return Line(form, tuple(registers), draw(st.integers(1, 16 if form.tied else 31)))


@st.composite
def accesses(draw: st.DrawFn) -> Line:
    """A load or store at any offset that it may have."""
    access: VectorAccess = draw(st.sampled_from([*ACCESSES.values(), *STORES.values()]))
    distance = draw(st.integers(-127, 127)) * access.size
    moves = draw(st.booleans()) and distance != 0
    address = Address(draw(st.integers(0, 7 if access.low else 12)), distance, moves)
    return Line(access, (BankRegister("q", draw(st.integers(0, 7))),), address=address)


@st.composite
def others(draw: st.DrawFn) -> AnyLine:
    """What sets, moves and adds to general registers."""
    low, any_one = (BankRegister("r", draw(st.integers(0, most))) for most in (7, 12))
    return draw(st.sampled_from([
        Setting(any_one, draw(_WORDS)), Copying(any_one, low), Copying(low, any_one),
        Adding(any_one, draw(_WORDS)), Adding(low, draw(st.integers(0, 255)), short=True),
    ]))


@settings(max_examples=15, deadline=None)
@given(drawn=st.lists(st.one_of(instructions(), accesses(), others()), min_size=60, max_size=60))
def test_instructions_are_encoded_as_gnu_does(
    drawn: list[AnyLine], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = [text(line, lambda register: name_of(register.number)) for line in drawn]
    found = by_gnu(
        "\n".join(each for line in lines for each in line), tmp_path_factory.mktemp("as"),
        PROCESSOR,
    )
    at = 0
    for line, own in zip(drawn, lines, strict=True):
        code = encoding.encode(line, lambda register: register.number)
        assert found[at : at + len(code)] == code, own
        at += len(code)
    assert not any(found[at:])


def loops_of(kind: str, seed: int, folder: Path) -> list[tuple[str, bytes]]:
    """The functions of all variants of a drawn layer: their text and their bytes."""
    rng = np.random.default_rng(seed)
    n = Network(lambda low, high: int(rng.integers(low, high + 1)), seed)
    _, inputs, y = add_layer(n, kind)
    (folder / "m.tflite").write_bytes(n.m.build(inputs, [y]))
    graph = load(folder / "m.tflite")
    context, target = Context(graph, graph.nodes[0]), target_of("mps3_an547")
    found = []
    for variant in mve.candidates(context, MVE):
        kernel = variant.make().kernel
        for loop in walk(kernel.body):
            if isinstance(loop, For) and loop.assembled:
                made = assembled(loop, kernel, target)
                found += [("\n".join(made.lines), made.code)] if made is not None else []
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_the_same_as_text_and_as_bytes(kind: str, tmp_path: Path) -> None:
    found = [each for seed in range(6) for each in loops_of(kind, seed, tmp_path)]
    assert found
    whole = by_gnu("".join(f".p2align 2\n{lines}\n" for lines, _ in found), tmp_path, PROCESSOR)
    at = 0
    for lines, code in found:
        at += -at % 4
        assert whole[at : at + len(code)] == code, lines
        at += len(code)
