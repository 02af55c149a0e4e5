"""Counts of multiply-accumulates against those that others publish for the same networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport import importers
from crtexport.ir.macs import macs

# MLPerf Tiny's figures, as counted by hand from the layers' shapes.
PUBLISHED = {
    "ad01_int8": 264_192, "kws_int8": 2_656_768, "resnet8_int8": 12_501_632,
    "vww96_int8": 7_489_664,
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_counts_are_those_published_for_the_network(model: str, shared_models: Path) -> None:
    graph = importers.load(shared_models / f"{model}.tflite")
    assert sum(macs(graph, node) for node in graph.nodes) == PUBLISHED[model]
