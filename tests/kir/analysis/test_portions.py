"""Facts found in portions, so that they take little memory, are those that are found at once."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from crtexport.ir.ops import Concatenation, Relu
from crtexport.kir.analysis import access_trace, address_intervals
from crtexport.lowering import inplace_facts
from crtexport.lowering.facts import Facts
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.model import Step
from tests.helpers import ROOT
from tests.lowered import plain
from tests.lowering.test_inplace_facts import GRAPHS, single
from tests.plan.deeplab import deeplab

PEAK = 200
"""Mebibytes that an export of a large float network may take."""


def facts(name: str) -> Facts:
    return plain(GRAPHS[name]).nodes[0].facts


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("chunk", [1, 3, 17])
def test_freedoms_and_copies_of_parts(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = facts(name)
    expected = dict(whole.forward), dict(whole.backward or {}), whole.moves
    monkeypatch.setattr(address_intervals, "CHUNK", chunk)
    found = facts(name)
    assert (dict(found.forward), dict(found.backward or {}), found.moves) == expected


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("chunk", "window"), [(50, 1 << 20), (1 << 20, 90)])
def test_proofs_in_windows(
    name: str, chunk: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = GRAPHS[name]
    node = graph.nodes[0]
    nbytes, size = graph.type(graph.inputs[0]).nbytes, graph.type(node.outputs[0]).nbytes
    step = Step(0, ((0, 0),))
    # Some distances are no multiple of an element: then bytes are told apart.
    distances = [*range(-size + 1, nbytes, 1 + (size + nbytes) // 9)]
    proof = ReplayProof(plain(graph))
    expected = [proof.harmless(step, 0, 0, d) for d in distances]
    moves = proof.moves(0)
    monkeypatch.setattr(access_trace, "CHUNK", chunk)
    monkeypatch.setattr(access_trace, "WINDOW", window)
    proof = ReplayProof(plain(graph))
    assert [proof.harmless(step, 0, 0, d) for d in distances] == expected
    assert proof.moves(0) == moves


def test_a_loop_of_any_length_is_replayed_in_chunks() -> None:
    graph = single(lambda b: b.node(Relu(), b.input(1, 300, 1000)))
    tracemalloc.start()
    try:
        assert ReplayProof(plain(graph)).harmless(Step(0, ((0, 0),)), 0, 0, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Eight bytes per element are known, and what a chunk takes.
    assert peak < 8 * 300_000 + (16 << 20)


@pytest.mark.parametrize(("rows", "shares"), [(4, True), (5, False)])
def test_tensors_beyond_a_limit_share_nothing(
    rows: int, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inplace_facts, "SHARE_LIMIT", 4 * 4 * 4)
    graph = single(lambda b: b.node(Relu(), b.input(rows, 4)))
    assert (plain(graph).nodes[0].facts.forward.get((0, 0)) is not None) == shares


@pytest.mark.parametrize(("rows", "view"), [(4, True), (5, False)])
def test_copies_beyond_a_limit_are_no_views(
    rows: int, view: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planner and proof have the same limit, in elements of the whole result."""
    assert inplace_facts.COPY_LIMIT == access_trace.COPIED
    monkeypatch.setattr(inplace_facts, "COPY_LIMIT", 32)
    monkeypatch.setattr(access_trace, "COPIED", 32)
    graph = single(lambda b: b.node(Concatenation(0), b.input(rows, 4), b.input(4, 4)))
    assert (plain(graph).nodes[0].facts.moves is not None) == view
    assert (ReplayProof(plain(graph)).moves(0) is not None) == view


# Not getrusage(): there, a process begins with what the one that started it has taken.
_EXPORT = """
import re, sys
from pathlib import Path
import crtexport
crtexport.export(sys.argv[1], board="host", emit="llvm", output=sys.argv[2], jobs=1)
peak, = re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(int(peak) >> 10)
"""


def test_a_float_network_for_segmentation_takes_little_to_export(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(deeplab())
    ended = subprocess.run(
        [sys.executable, "-c", _EXPORT, str(model), str(tmp_path / "x.tar")], check=True,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert 0 < int(ended.stdout) < PEAK
