"""Loops that are longer than the cache before the flash, and variants that are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.kir.builder import KernelBuilder, add, i32, load
from crtexport.kir.language import Kernel, Scalar
from crtexport.schedules.common.target_features import flash_of
from crtexport.schedules.select.code_cache import LoopCode, missed_lines
from crtexport.schedules.select.cost_model import CORTEX_M4, Work, estimate
from crtexport.support.target import USUAL_FLASH, Flash
from tests.helpers import target_of

BYTES = CORTEX_M4.width * CORTEX_M4.weights[Work.SIMPLE]


def loop(turns: float, size: float, *inside: LoopCode[Work]) -> LoopCode[Work]:
    """``size`` bytes, those inside of it included."""
    return LoopCode(turns, dict.fromkeys(Work, 0.0) | {Work.SIMPLE: size / BYTES}, inside)


@given(st.integers(1, 100), st.floats(1, 1000))
def test_a_loop_that_fits_is_read_once(turns: int, size: float) -> None:
    lines = missed_lines([loop(turns, size)], CORTEX_M4.code_bytes, USUAL_FLASH)
    assert round(lines * 16, 6) == round(size, 6)


def test_a_longer_one_is_read_in_each_iteration_but_for_what_its_inner_loops_keep() -> None:
    longer, fitting = loop(10, 1600), loop(100, 480)
    assert round(missed_lines([longer], CORTEX_M4.code_bytes, USUAL_FLASH)) == 10 * 100
    around = loop(10, 1600, fitting)
    assert round(missed_lines([around], CORTEX_M4.code_bytes, USUAL_FLASH)) == 10 * (70 + 30)
    around = loop(10, 1600, loop(7, 1280))
    lines = missed_lines([around], CORTEX_M4.code_bytes, USUAL_FLASH)
    assert round(lines) == 10 * (20 + 7 * 80)


def test_one_as_large_as_the_cache_begins_within_a_line() -> None:
    size = USUAL_FLASH.code_cache
    lines = missed_lines([loop(10, size)], CORTEX_M4.code_bytes, USUAL_FLASH)
    assert round(lines) == 10 * size // USUAL_FLASH.line


def written_out(copies: int) -> Kernel:
    """Adds 3 to 512 words, ``copies`` of them in each iteration, 50 times."""
    b = KernelBuilder("sums")
    x, y = b.buffer("x", Scalar.I32, 512), b.buffer("y", Scalar.I32, 512, writable=True)
    with b.loop("again", 50), b.loop("i", 512, unroll=copies) as i:
        b.store(y, i, add(load(x, i), i32(3)))
    return b.finish()


def test_estimates_count_the_lines_of_long_loops() -> None:
    short, long = (
        estimate(written_out(copies), CORTEX_M4, flash=USUAL_FLASH) for copies in (4, 256)
    )
    assert short.lines < 10
    assert long.lines > 50 * 2 * USUAL_FLASH.code_cache // USUAL_FLASH.line
    assert estimate(written_out(256), CORTEX_M4).lines == 0


def test_boards_say_how_their_flash_is_read() -> None:
    known, silent = target_of("nrf52840dk"), target_of("teensy41")
    assert flash_of(known) == Flash(wait_states=2, code_cache=2048, data_cache=0, line=16)
    assert flash_of(silent) == USUAL_FLASH
    assert flash_of(target_of("mps2_an385")) is None
    assert flash_of(replace(known, flash=None)) == USUAL_FLASH
