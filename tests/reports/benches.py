"""Benchmarks made up for tests."""

from __future__ import annotations

from crtexport.reports.bench import Bench, LayerCost
from crtexport.reports.peers import PeerFigure


def layer(name: str, instructions: int | None) -> LayerCost:
    return LayerCost(name, "Conv2D", "1x2x2x4", 50, instructions, 10, 20)


def result(*layers: LayerCost, peers: tuple[PeerFigure, ...] = ()) -> Bench:
    return Bench(
        "net.tflite", "0" * 64, "mps2_an386", "c", "balanced", 1000, 1000, True, layers,
        {".text": 10, ".test_inputs": 99}, {".bss": 4}, 64, 0, None, peers,
    )
