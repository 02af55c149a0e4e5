"""Which instructions are told of a processor, by what its features say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crtexport.firmware.board import load_board
from crtexport.schedules import machines


@pytest.mark.parametrize(("features", "integers", "floats"), [
    (("+v",), True, True), (("+m",), False, False), ((), False, False),
    (("+zve32x",), False, False), (("+zve32x", "+zvl64b"), False, False),
    (("+zve32x", "+zvl128b"), True, False), (("+zve64x", "+zvl128b"), True, False),
    (("+zve32f", "+zvl128b"), True, True), (("+zve64d", "+zvl1024b"), True, True),
    # A longer register is a shorter one, too: a processor may have both names.
    (("+zve32f", "+zvl32b", "+zvl64b", "+zvl256b"), True, True),
    (("+zve32f", "+zvl128b", "+zvl32b"), True, True),
    (("+zvl128b",), False, False), (("+zve32f", "-zvl128b"), False, False),
    (("+zve32f", "+zvlxb"), False, False), (("+v", "+zvl32b", "+zvl128b"), True, True),
])
def test_vectors_of_a_risc_v_have_128_bits(
    features: tuple[str, ...], integers: bool, floats: bool
) -> None:
    board = load_board("qemu_riscv32").target
    target = replace(board, features=features)
    assert (machines.has_rvv(target), machines.has_rvv_floats(target)) == (integers, floats)
    other = replace(target, triple="armv7em-none-eabi")
    assert not machines.has_rvv(other)
    assert not machines.has_rvv_floats(other)


@pytest.mark.parametrize(("board", "found"), [
    ("host", {"is_x86_64"}), ("qemu_cortex_m0", set()), ("mps2_an385", set()),
    ("mps2_an386", {"has_dsp", "has_fpu"}), ("nucleo_f746zg", {"has_dsp", "has_fpu"}),
    ("mps3_an547", {"has_dsp", "has_fpu", "has_mve", "has_mve_floats"}),
    ("qemu_riscv32", set()), ("qemu_riscv32_v", {"has_rvv", "has_rvv_floats"}),
    ("qemu_x86", set()),
])
def test_boards_have_what_their_processors_have(board: str, found: set[str]) -> None:
    target = load_board(board).target
    names = {name for name in vars(machines) if name.startswith(("has_", "is_"))}
    assert {name for name in names if getattr(machines, name)(target)} == found
