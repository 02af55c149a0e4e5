"""The files that are mutated: networks as .tflite, .onnx and model.json, whole ones and operators.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tflite

from crtexport.importers import load
from crtexport.importers.crtjson.writing import save
from crtexport.simulation.tflite_writer import to_tflite
from crtexport.support.errors import CrtExportError
from tests.control.networks import NETWORKS as CONTROLLED
from tests.differential.cases import CASES, PAIRS, SeededDraw
from tests.fuzz import protobuf
from tests.helpers import ROOT, SHARED_MODELS
from tests.importers.onnx import writer
from tests.importers.onnx.test_layout import CLASSIFIER
from tests.onnx.nodes import FOLDER
from tests.onnx.suite import model_of, steering, written

_EXAMPLE = ROOT / "docs" / "examples" / "digits" / "model.json"
_GRAPH, _INITIALIZER = 7, 5
"""Fields of ONNX's messages: the graph of a model, an initializer of a graph."""
_LARGE = 64
"""Bytes from which on a constant is mutated seldom: most of its values mean nothing."""


@dataclass(frozen=True)
class Seed:
    """A file that loads; ``dull`` are the (start, end) of large constants in it.

    ``beside`` are the files that it refers to, by name.
    """

    name: str
    content: bytes
    dull: tuple[tuple[int, int], ...] = ()
    beside: dict[str, bytes] = field(default_factory=dict)

    @property
    def is_onnx(self) -> bool:
        return self.name.endswith(".onnx")

    @property
    def is_json(self) -> bool:
        return self.content.lstrip().startswith(b"{")


def tflite_seed(name: str, content: bytes) -> Seed:
    """A .tflite file with the places of its large constants."""
    model = tflite.Model.GetRootAs(content, 0)
    dull = []
    for index in range(model.BuffersLength()):
        data = model.Buffers(index).DataAsNumpy()
        if not isinstance(data, int) and data.size > _LARGE:
            start = content.find(data.tobytes())
            dull.append((start, start + data.size))
    return Seed(name, content, tuple(sorted(dull)))


def operators(pairs: Sequence[tuple[str, str]] = PAIRS) -> Iterator[Seed]:
    """The single-operator networks of the differential tests: one of each element type, as .tflite
    and as model.json."""
    with tempfile.TemporaryDirectory() as folder:
        for name, dtype in pairs:
            content = CASES[name](SeededDraw(0), dtype).content
            yield tflite_seed(f"{name}-{dtype}", content)
            yield from _as_json(f"{name}-{dtype}", content, Path(folder))


def controlled(names: Iterable[str] = CONTROLLED) -> Iterator[Seed]:
    """Networks that run graphs of their own, as .tflite and as model.json."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            content = to_tflite(CONTROLLED[name]().graph)
            yield tflite_seed(name, content)
            yield from _as_json(name, content, Path(folder))


def onnx_networks() -> Iterator[Seed]:
    """Networks as .onnx: one with images, one with functions and constants in a file of their own,
    and one with a loop and a branch."""
    yield Seed("classifier.onnx", CLASSIFIER)
    data = np.arange(6, dtype="<f4").tobytes()
    twice = writer.function(
        "Twice", ["a"], ["b"], [writer.node("Add", ["a", "a"], ["b"])]
    )
    yield Seed("called.onnx", writer.model(
        writer.graph(
            [writer.node("MatMul", ["x", "w"], ["h"]),
             writer.node("Twice", ["h"], ["y"], domain="mine")],
            [writer.value("x", ["n", 2])], ["y"],
            more=[writer.external("w", (2, 3), {"location": "w.bin", "length": "24"})],
        ), functions=[twice], domains=["mine"],
    ), beside={"w.bin": data})
    body = writer.graph(
        [writer.node("Identity", ["on"], ["again"]), writer.node("Add", ["s", "one"], ["t"])],
        [writer.value("i", [], "int64"), writer.value("on", [], "bool"), writer.value("s", [3])],
        ["again", "t"],
    )
    branches = [
        writer.graph([
            writer.node(name, ["t"], ["a"]), writer.node("Exp", ["a"], ["b"]),
            writer.node("Add", ["b", "x"], [name]),
        ], [], [name]) for name in ("Abs", "Neg")
    ]
    yield Seed("repeated.onnx", writer.model(writer.graph(
        [writer.node("Loop", ["count", "", "x"], ["t"], body=body),
         writer.node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        [writer.value("x", [3]), writer.value("c", [], "bool")], ["y"],
        {"count": np.array(9, np.int64), "one": np.ones(1, np.float32)},
    )))


def onnx_operators() -> Iterator[Seed]:
    """One of onnx's node tests for each operator, what steers it as constants."""
    seen = set[str]()
    for case in written(FOLDER):
        info = None if case.why or case.operator in seen else model_of(case.model)
        tree = protobuf.parsed(case.model.read_bytes()) if info is not None else None
        if info is None or not tree:
            continue
        seen.add(case.operator)
        graph = next(field.value for field in tree if field.number == _GRAPH)
        wanted = steering(info)
        for value, array in zip(info.inputs, case.arrays("in"), strict=False):
            if value.name in wanted and isinstance(graph, list):
                content = writer.tensor(value.name, array)
                graph.append(protobuf.Field(_INITIALIZER, 2, content))
        yield Seed(f"{case.name}.onnx", protobuf.written(tree))


def networks() -> Iterator[Seed]:
    """The reference networks, where they are beside the checkout, and the bundled example."""
    for path in sorted(SHARED_MODELS.glob("*.tflite")):
        yield tflite_seed(path.stem, path.read_bytes())
    yield example()


def example() -> Seed:
    """The bundled model.json, with the file of its constants."""
    sidecar = _EXAMPLE.with_suffix(".safetensors")
    beside = {sidecar.name: sidecar.read_bytes()}
    return Seed("digits.json", _EXAMPLE.read_bytes(), beside=beside)


def _as_json(name: str, content: bytes, folder: Path) -> Iterator[Seed]:
    source, target = folder / "model.tflite", folder / "model.json"
    source.write_bytes(content)
    sidecar = target.with_suffix(".safetensors")
    sidecar.unlink(missing_ok=True)
    try:
        save(load(source), target)
    except CrtExportError:
        return
    beside = {sidecar.name: sidecar.read_bytes()} if sidecar.exists() else {}
    yield Seed(f"{name}.json", target.read_bytes(), beside=beside)
