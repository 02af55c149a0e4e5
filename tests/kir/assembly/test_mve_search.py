"""The search for codes of Cortex-M55's loops: asking whether there is one is less work, and doesn't
change which one is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.kir.assembly.mve import attempt, machine_loop, schedule
from crtexport.kir.assembly.mve.body import Body, MveOp, UnsupportedLoopError, VectorLoad
from crtexport.kir.assembly.mve.machine_loop import becomes_machine_code, definitions_in
from crtexport.kir.assembly.mve.outline import ordered, outline
from crtexport.kir.assembly.mve.selection import select
from crtexport.kir.language import Const, For, Kernel, Scalar
from crtexport.kir.walk import walk
from crtexport.lowering.registry import Context
from crtexport.schedules.mve import candidates as mve
from tests.schedules.mve.test_mve import KINDS, add_layer
from tests.schedules.scalar.test_blocks import Network
from tests.schedules.vector_targets import MVE

VARIANTS = 2


def kernels(kind: str, seed: int, folder: Path) -> list[Kernel]:
    """The kernels of all variants of a drawn layer."""
    rng = np.random.default_rng(seed)
    n = Network(lambda low, high: int(rng.integers(low, high + 1)), seed)
    _, inputs, y = add_layer(n, kind)
    (folder / "m.tflite").write_bytes(n.m.build(inputs, [y]))
    graph = load(folder / "m.tflite")
    found = mve.candidates(Context(graph, graph.nodes[0]), MVE)
    return [variant.make().kernel for variant in found[:VARIANTS]]


def loops(kernel: Kernel) -> Iterator[For]:
    """The loops that ask for machine code, but those that are all that another one does."""
    for loop in walk(kernel.body):
        whole = isinstance(loop, For) and loop.assembled and machine_loop._inner(loop) is None
        if isinstance(loop, For) and whole and loop.extent != Const(0, Scalar.INDEX):
            yield loop


def forget() -> None:
    machine_loop._codes.cache_clear()
    schedule._plan.cache_clear()


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The intervals that are tried."""
    tried: list[int] = []
    usual = attempt.OutlineDependences.attempt

    def counted(
        plan: attempt.OutlineDependences, interval: int, manner: attempt.Manner
    ) -> attempt.Times | float:
        tried.append(interval)
        return usual(plan, interval, manner)

    monkeypatch.setattr(attempt.OutlineDependences, "attempt", counted)
    return tried


@pytest.mark.parametrize("kind", KINDS)
def test_asking_whether_there_is_code_doesnt_change_it(
    kind: str, tmp_path: Path, attempts: list[int]
) -> None:
    asked = searched = 0
    for kernel in kernels(kind, 3, tmp_path):
        definitions, names = definitions_in(kernel), [each.name for each in kernel.buffers]
        forget()
        attempts.clear()
        becomes = becomes_machine_code(kernel)
        asked += len(attempts)
        later = [
            machine_loop.machine_loop(loop, definitions, overlapping)
            for loop in loops(kernel) for overlapping in ((), names)
        ]
        assert becomes == (None not in later)
        forget()
        attempts.clear()
        assert later == [
            machine_loop.machine_loop(loop, definitions, overlapping)
            for loop in loops(kernel) for overlapping in ((), names)
        ]
        searched += len(attempts)
    assert asked <= searched
    assert asked < searched or not searched


def further(body: Body, times: int) -> Body:
    """A body whose places are so many times as far from each other."""
    def moved(some: MveOp | VectorLoad) -> MveOp | VectorLoad:
        place = some.place
        if place is None:
            return some
        return replace(some, place=replace(place, offset=place.offset * times))

    ops = [op for op in map(moved, body.ops) if isinstance(op, MveOp)]
    loads = {
        value: load for value, each in body.loads.items()
        if isinstance(load := moved(each), VectorLoad)
    }
    return replace(body, ops=ops, loads=loads)


def test_loops_that_differ_in_offsets_have_one_outline(tmp_path: Path) -> None:
    seen = 0
    for kernel in kernels("pointwise", 3, tmp_path):
        for loop in loops(kernel):
            try:
                body = select(loop, definitions_in(kernel))
            except UnsupportedLoopError:
                continue
            made = [
                outline(each, ordered(each, 2, late=late), (), (), late=late)
                for each in (body, further(body, 3)) for late in (False, True)
            ]
            assert made[:2] == made[2:]
            assert made[0] != made[1]
            assert outline(body, ordered(body, 3, late=False), (), (), late=False) != made[0]
            seen += 1
    assert seen


def test_loops_of_depthwise_layers_hardly_wait(tmp_path: Path) -> None:
    """An instruction begins in nearly every cycle: vectors live too briefly to be in the way."""
    n = Network(lambda low, high: low, 1)
    x = n.tensor((1, 6, 6, 64))
    w = n.m.tensor(
        "w", (1, 3, 3, 64), "int8", scale=n.rng.uniform(0.001, 0.01, 64).tolist(), axis=3,
        data=n.rng.integers(-127, 128, (1, 3, 3, 64)),
    )
    y = n.tensor((1, 6, 6, 64))
    n.m.op("DEPTHWISE_CONV_2D", [x, w], [y], padding="SAME")
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    (variant,) = mve.candidates(Context(graph, graph.nodes[0]), MVE)
    kernel = variant.make().kernel
    both = [loop for loop in walk(kernel.body) if isinstance(loop, For) and loop.assembled]
    made = machine_loop.machine_loop(both[0], definitions_in(kernel))
    assert made is not None
    assert made.code.interval <= len(made.code.loop) + 3
