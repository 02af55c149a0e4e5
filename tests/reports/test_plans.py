"""Plans are compared by what exports with their options have, and the best that fits is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import crtexport
from crtexport.firmware.board import Board, load_board
from crtexport.ir.graph import Graph
from crtexport.pipeline.driver import export, prepare
from crtexport.reports.plans import PlanPoint, Plans, _marked, percent_of, plans_of
from crtexport.support.errors import CrtExportError
from tests.lowering.rows.research import Layers

M4 = load_board("mps2_an386")


def _network() -> Graph:
    net = Layers(1, 24, 24, 3).conv(8, 3)
    for _ in range(2):
        net.inverted(32, 8)
    return net.mean_and_dense(4)


GRAPH = _network()


@pytest.fixture(scope="module")
def plans() -> Plans:
    return plans_of(GRAPH, M4)


def _changes(point: PlanPoint) -> dict[str, Any]:
    match point.options:
        case ("--optimize", goal):
            return {"optimize": goal}
        case ("--ram", size):
            return {"ram": int(size)}
        case _:
            return {"feed": True}


def test_options_give_what_is_said_of_them(plans: Plans) -> None:
    assert plans.fed is not None
    assert len({point.options[0] for point in plans.points}) == 2
    for point in (*plans.points, plans.fed):
        made = prepare(GRAPH, M4, **_changes(point))
        assert made.artifact.workspace_total == point.workspace
        assert (made.whole is not None) == (point.by_rows > 0 and point is not plans.fed)


def test_less_memory_is_paid_for(plans: Plans) -> None:
    assert [p.ram for p in plans.points] == sorted(p.ram for p in plans.points)
    least, usual = plans.points[0], plans.usual
    assert usual.options == ("--optimize", "balanced")
    assert least.workspace < usual.workspace / 3
    assert least.best
    assert plans.chosen is not None
    assert plans.chosen.instructions == min(p.instructions or 0 for p in plans.points)


def test_plans_that_others_beat_are_marked() -> None:
    def point(ram: int, instructions: int, code: int) -> PlanPoint:
        return PlanPoint((), ram, ram, instructions, code, 0, fits=True)

    points = [point(1, 9, 5), point(2, 9, 5), point(2, 8, 5), point(3, 9, 1)]
    assert [p.best for p in _marked(points)] == [True, False, True, True]


def _board(ram: int) -> Board:
    memory = dict(M4.memory)
    memory["ram"] = replace(memory["ram"], size=ram)
    return replace(M4, memory=memory)


def test_an_export_takes_the_cheapest_plan_that_fits_the_board(plans: Plans) -> None:
    large, *_, = sorted((p for p in plans.points if p.by_rows), key=lambda p: -p.ram)
    assert prepare(GRAPH, _board(plans.usual.ram)).whole is None
    made = prepare(GRAPH, _board(plans.usual.ram - 16))
    assert made.whole == plans.usual.workspace
    assert made.plan.total <= plans.usual.workspace - 16
    assert prepare(GRAPH, _board(large.ram)).plan.total == large.workspace


def test_a_board_that_is_too_small_for_all_is_told_the_least(
    plans: Plans, tmp_path: Path
) -> None:
    least = min(p.workspace for p in plans.points)
    with pytest.raises(CrtExportError, match=rf"workspace +ram +{least:,}\n") as error:
        export(GRAPH, board=_board(9_000), output=tmp_path / "m.tar")
    assert "--feed" in (error.value.hint or "")


def test_the_verb_draws_them(tmp_path: Path) -> None:
    found = crtexport.plans_of(GRAPH, board="mps2_an386", picture=tmp_path / "plans.svg")
    drawn = (tmp_path / "plans.svg").read_text(encoding="utf-8")
    shown = [p for p in found.points if (p.instructions or 0) < 2 * (found.usual.instructions or 0)]
    assert drawn.count("bytes of code -->") == len(shown)
    with pytest.raises(CrtExportError, match=r"\.svg or \.png"):
        crtexport.plans_of(GRAPH, picture=tmp_path / "plans.gif")


def test_percent_is_of_the_other_figure() -> None:
    assert percent_of(150, 100) == 50
    assert percent_of(0, 0) == 0
