"""The figures at the beginning of the README: others' are those on record, ours are of memory that
an export still takes."""

from __future__ import annotations

import re

import pytest

import crtexport
from crtexport.reports.peers import PeerFigure, figures_for
from tests.helpers import ROOT, shared_model

ROW = re.compile(r"^\| \w+, (\w+) \|(.*)\|$", re.MULTILINE)
PAIR = re.compile(r"([\d,]+) → \*\*([\d,]+)\*\*")
BOARD = "mps2_an386"


def table() -> dict[str, list[tuple[int, int]]]:
    """TFLM's figure and ours, by network: thousands of cycles, start-up, flash, RAM."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return {
        name: [(int(a.replace(",", "")), int(b.replace(",", ""))) for a, b in PAIR.findall(row)]
        for name, row in ROW.findall(text)
    }


def recorded(name: str) -> PeerFigure:
    graph = crtexport.load(shared_model(f"{name}_int8"))
    return next(f for f in figures_for(graph.sha256, BOARD) if f.peer == "TFLM + CMSIS-NN")


def test_the_table_has_the_networks_of_mlperf_tiny() -> None:
    assert {*table()} == {"ad01", "kws", "resnet8", "vww96"}
    assert all(len(figures) == 4 for figures in table().values())


@pytest.mark.parametrize("name", table())
def test_others_figures_are_those_on_record(name: str) -> None:
    peer = recorded(name)
    assert peer.cycles is not None
    assert [theirs for theirs, _ in table()[name]] == [
        peer.cycles // 1000, peer.start_up, peer.flash, peer.ram,
    ]


def test_our_memory_is_as_it_says() -> None:
    report = crtexport.report(shared_model("kws_int8"), board=BOARD)
    totals = report.totals
    assert totals.workspace + totals.state + totals.io == table()["kws"][3][1]
