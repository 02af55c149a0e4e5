"""The instructions of a processor follow from its features."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from crtexport.schedules.common import target_features
from tests.helpers import target_of


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
    board = target_of("qemu_riscv32")
    target = replace(board, features=features)
    assert target_features.has_rvv(target) is integers
    assert target_features.has_rvv_floats(target) is floats
    other = replace(target, triple="armv7em-none-eabi")
    assert not target_features.has_rvv(other)
    assert not target_features.has_rvv_floats(other)


@pytest.mark.parametrize(("board", "found"), [
    ("host", {"is_x86_64"}), ("mps2_an385", set()), ("qemu_cortex_m0", {"has_few_registers"}),
    ("rpi_pico", {"has_few_registers"}), ("rpi_pico2", {"has_dsp", "has_fpu"}),
    ("mps2_an386", {"has_dsp", "has_fpu"}), ("nucleo_f746zg", {"has_dsp", "has_fpu"}),
    ("mps3_an547", {"has_dsp", "has_fpu", "has_mve", "has_mve_floats"}),
    ("qemu_riscv32", set()), ("qemu_riscv32_v", {"has_rvv", "has_rvv_floats"}),
    ("qemu_x86", set()),
])
def test_boards_have_what_their_processors_have(board: str, found: set[str]) -> None:
    target = target_of(board)
    names = {name for name in vars(target_features) if name.startswith(("has_", "is_"))}
    assert {name for name in names if getattr(target_features, name)(target)} == found
