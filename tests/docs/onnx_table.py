"""The documentation's facts about ONNX: which of its operators become one of ours, and which are
put together of several, as onnx's node tests show it."""

from __future__ import annotations

import functools
import tempfile
from collections import defaultdict
from pathlib import Path

from msgspec import Struct

from crtexport.importers.onnx.domains import LEARNING, ONNX
from crtexport.importers.onnx.registry import TABLE, load_table
from crtexport.ir import ops
from crtexport.ir.ops import Op
from tests.onnx.batch import imported
from tests.onnx.nodes import FOLDER
from tests.onnx.suite import written
from tests.onnx.test_nodes import SUBSET

_MOVES = {ops.Reshape, ops.Transpose, ops.Cast}
_GRAPHS = ("If", "Loop", "Scan")
"""Operators that become what their graphs have."""


class Facts(Struct, frozen=True):
    """``same`` are the names of ONNX's operators by ours; ``composed`` those of the others."""

    same: dict[type[Op], list[str]]
    composed: list[str]
    learning: list[str]


@functools.cache
def onnx_facts() -> Facts:
    """Returns what becomes of ONNX's operators. Skips without the package onnx."""
    load_table()
    same: dict[type[Op], list[str]] = defaultdict(list, {ops.Cast: ["Cast", "CastLike"]})
    known = {case.name: case for case in written(FOLDER)}
    with tempfile.TemporaryDirectory() as folder:
        for case in (known[name] for name in SUBSET):
            graph, _ = imported(case, Path(folder))
            kinds = {type(node.op) for node in graph.nodes} - {ops.Reshape}
            kinds = kinds if len(kinds) == 1 else kinds - _MOVES
            if len(kinds) == 1 and case.operator not in _GRAPHS and not _there(same, case.operator):
                same[kinds.pop()].append(case.operator)
    rest = sorted(
        name for domain, name in TABLE if domain == ONNX and not _there(same, name)
    )
    return Facts(dict(same), rest, sorted(name for of, name in TABLE if of == LEARNING))


def _there(same: dict[type[Op], list[str]], name: str) -> bool:
    return any(name in names for names in same.values())


def onnx_lists() -> str:
    """Returns the operators that no row of the table has."""
    facts = onnx_facts()
    return (
        "Put together of several of these, or computed while reading: "
        + ", ".join(facts.composed) + ". Of `ai.onnx.ml`: " + ", ".join(facts.learning) + "."
    )
