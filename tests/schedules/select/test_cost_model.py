"""The cost model: what it counts, and how near that is to what machines execute."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.kir.builder import KernelBuilder, add, cast, const, i32, load, mul, shr
from crtexport.kir.language import Expr, Kernel, Scalar, Var
from crtexport.lowering.registry import Context
from crtexport.pipeline import driver
from crtexport.reports.measure import MeasureSetting, measure
from crtexport.schedules.select.choose import ByEstimate
from crtexport.schedules.select.cost_model import (
    CORTEX_M0,
    CORTEX_M4,
    RV32,
    RV32_V,
    Work,
    counted,
    estimate,
    machine_for,
)
from crtexport.schedules.variants import variants_of
from tests.helpers import require, target_of
from tests.schedules.scalar.test_blocks import Network


def dot(count: int, unroll: int | None = None, offset: int = 0) -> Kernel:
    """The dot product of ``count`` bytes, those of ``x`` from ``offset`` on."""
    b = KernelBuilder("dot")
    x, w = b.buffer("x", Scalar.I8, count + offset), b.buffer("w", Scalar.I8, count)
    y = b.buffer("y", Scalar.I32, 1, writable=True)
    total = b.local("total", i32(0))
    with b.loop("i", count, unroll=unroll) as i:
        left = cast(load(x, add(i, const(offset))), Scalar.I32)
        b.assign(total, add(total, mul(left, cast(load(w, i), Scalar.I32))))
    b.store(y, const(0), total)
    return b.finish()


def test_a_turn_of_a_dot_product_is_two_loads_and_a_product() -> None:
    work = counted(dot(10), 8).run
    assert (work[Work.LOAD], work[Work.SIMPLE], work[Work.POINTER]) == (20, 10, 20)
    assert (work[Work.TURN], work[Work.LOOP], work[Work.STORE], work[Work.SPILL]) == (10, 1, 1, 0)


def test_the_upper_word_of_a_product_is_one_instruction_where_there_is_one() -> None:
    b = KernelBuilder("high")
    x, y = b.buffer("x", Scalar.I32, 2), b.buffer("y", Scalar.I32, 1, writable=True)
    first, second = (cast(load(x, const(at)), Scalar.I64) for at in (0, 1))
    upper = shr(mul(first, second), const(32, Scalar.I64))
    b.store(y, const(0), cast(upper, Scalar.I32))
    alone, whole = (counted(b.finish(), 8, high=high).run for high in (True, False))
    assert (alone[Work.SIMPLE], alone[Work.WIDE]) == (1, 0)
    assert whole[Work.WIDE] == 2


def test_what_is_added_to_an_address_costs_nothing() -> None:
    assert counted(dot(10, offset=3), 8).run == counted(dot(10), 8).run


def test_copies_of_a_turn_save_turns_and_cost_code() -> None:
    rolled, copied, whole = (counted(dot(16, unroll), 8) for unroll in (1, 4, 16))
    assert [w.run[Work.TURN] for w in (rolled, copied, whole)] == [16, 4, 0]
    assert [w.code[Work.LOAD] for w in (rolled, copied, whole)] == [2, 8, 32]
    assert len({w.run[Work.LOAD] for w in (rolled, copied, whole)}) == 1
    costs = [estimate(dot(16, unroll), CORTEX_M4) for unroll in (1, 4, 16)]
    assert [c.instructions for c in costs] == sorted((c.instructions for c in costs), reverse=True)
    assert [c.code for c in costs] == sorted(c.code for c in costs)


def test_sums_beyond_the_registers_are_spilt() -> None:
    b = KernelBuilder("sums")
    x = b.buffer("x", Scalar.I32, 8)
    sums = [b.local("sum", i32(0)) for _ in range(8)]
    with b.loop("i", 8) as i:
        for one in sums:
            b.assign(one, add(one, load(x, i)))
    kernel = b.finish()
    # Eight sums, a pointer and a counter.
    assert counted(kernel, 10).run[Work.SPILL] == 0
    assert counted(kernel, 8).run[Work.SPILL] == 2 * 8


def test_what_a_loop_does_not_change_is_computed_before_it() -> None:
    b = KernelBuilder("outside")
    x, y = b.buffer("x", Scalar.I32, 1), b.buffer("y", Scalar.I32, 9, writable=True)
    value = b.let("value", load(x, const(0)))
    with b.loop("i", 9) as i:
        b.store(y, i, add(mul(value, value), i32(7)))
    assert counted(b.finish(), 8).run[Work.SIMPLE] == 2


@pytest.mark.parametrize(("turns", "more"), [(9, 0), (3, 2 * 3)])
def test_parameters_in_addresses_that_are_sums_cost_something_in_short_loops(
    turns: int, more: int
) -> None:
    pitch = Var("pitch", Scalar.INDEX)

    def lines(by: Expr) -> Kernel:
        b = KernelBuilder("lines")
        x, y = b.buffer("x", Scalar.I32, 99), b.buffer("y", Scalar.I32, 9, writable=True)
        with b.loop("i", turns) as i:
            b.store(y, i, load(x, mul(i, by)))
        return b.finish()

    known, given = lines(const(5)), replace(lines(pitch), params=(pitch,))
    one, many = (counted(k, 32, {"pitch": 5}, indexed=True).run for k in (known, given))
    assert many[Work.SIMPLE] - one[Work.SIMPLE] == more


def test_machines_are_known_by_their_instructions() -> None:
    known = {name: machine_for(target_of(name)) for name in (
        "mps2_an386", "nrf52840dk", "mps3_an547", "mps2_an385", "host", "qemu_riscv32", "rpi_pico",
        "qemu_riscv32_v",
    )}
    assert known["mps2_an386"] is known["nrf52840dk"] is CORTEX_M4
    assert len({id(known[name]) for name in ("mps2_an386", "mps3_an547", "mps2_an385")}) == 3
    assert known["mps3_an547"] is not None
    assert known["mps2_an385"] is not None
    assert known["host"] is None
    assert known["qemu_riscv32"] is RV32
    assert known["qemu_riscv32_v"] is RV32_V
    assert known["rpi_pico"] is CORTEX_M0


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "tool"), [
    ("mps2_an386", "qemu-system-arm"), ("mps2_an385", "qemu-system-arm"),
    ("mps3_an547", "qemu-system-arm"), ("qemu_riscv32", "qemu-system-riscv32"),
    ("qemu_cortex_m0", "qemu-system-arm"), ("qemu_riscv32_v", "qemu-system-riscv32"),
])
def test_estimates_are_near_what_machines_execute(
    board: str, tool: str, tmp_path: Path
) -> None:
    require(tool)
    rng = np.random.default_rng(3)
    n = Network(lambda low, high: int(rng.integers(low, high + 1)), 7)
    inner = (1, 12, 12, 8)
    x = n.tensor(inner)
    y, shape = n.window(x, inner[1:], depthwise=False)
    for depthwise in (True, False, False):
        y, shape = n.window(y, shape, depthwise=depthwise)
    y, _ = n.dense(y, int(np.prod(shape)))
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    target = target_of(board)
    machine = machine_for(target)
    assert machine is not None
    measured = measure(MeasureSetting(tmp_path / "m.tflite", board))
    choose = ByEstimate(target, "balanced")
    errors = []
    for step in measured.steps():
        context = Context(step.place.graph, step.place.node)
        variant = choose(context, variants_of(context, target, "balanced"), 1.0)
        assert step.executed
        errors.append(abs(
            estimate(variant.make().kernel, machine).instructions / step.executed.instructions - 1
        ))
    assert len(errors) >= 4
    assert statistics.median(errors) < 0.25
    assert max(errors) < 0.6


def test_nodes_of_no_weight_keep_their_usual_variant(tmp_path: Path) -> None:
    n = Network(lambda low, high: high, 1)
    x = n.tensor((1, 128))
    y, _ = n.dense(x, 128)
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = driver.load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    for board, differs in (("mps2_an386", True), ("host", False)):
        target = target_of(board)
        found = variants_of(context, target, "balanced")
        choose = ByEstimate(target, "balanced")
        assert choose(context, found, 0.0) is found[0]
        assert (choose(context, found, 1.0) is not found[0]) == differs
