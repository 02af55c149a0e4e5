"""The least that constants take on a board, known before any of them is looked at."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from crtexport.artifact.constant_dedup import least_bytes
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.types import ConstantRef
from tests.large.models import Large, Table


def _graph(folder: Path) -> Graph:
    tables = Table("a", 1, 512, 4096), Table("b", 2, 512, 4096), Table("c", 3, 16, 4096)
    return load(Large(tables).write(folder))


def test_large_constants_count_once_and_small_ones_not(tmp_path: Path) -> None:
    graph = _graph(tmp_path)
    assert least_bytes(graph) == 2 * 512 * 4096
    first = graph.constant(graph.required(graph.nodes[0], 1))
    assert first is not None
    copied = ConstantRef(first.nbytes, first.read())
    tensors = [
        replace(t, constant=copied) if t.name == "b" else t for t in graph.tensors
    ]
    assert least_bytes(replace(graph, tensors=tuple(tensors))) == 512 * 4096


def test_what_no_node_reads_does_not_count(tmp_path: Path) -> None:
    graph = _graph(tmp_path)
    assert least_bytes(graph.with_nodes(graph.nodes[1:])) == 512 * 4096
