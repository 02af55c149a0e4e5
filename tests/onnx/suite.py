"""onnx's backend tests: their models and data, and which of their inputs have to be constants."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.importers.onnx.messages import GraphInfo, NodeInfo, OnnxModelInfo, read
from crtexport.importers.onnx.wire import Span
from tests.helpers import require_environment

WORKER = Path(__file__).with_name("worker.py")

STEERING: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Clip": (), "Col2Im": (1, 2),
    "ConstantOfShape": (0,), "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Dropout": (1, 2),
    "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,), "Loop": (0, 1), "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "NonMaxSuppression": (2, 3, 4), "OneHot": (1,),
    "Pad": (1, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 2, 3),
    "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,),
    "Trilu": (1,), "Unsqueeze": (1,), "Upsample": (1,),
    **dict.fromkeys(
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
         "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), (1,),
    ),
    # Weights, which stay in flash.
    "Conv": (1, 2), "ConvTranspose": (1, 2), "ConvInteger": (1, 2, 3), "DeformConv": (1, 3),
    "CausalConvWithState": (1, 2), "GRU": (1, 2, 3), "LSTM": (1, 2, 3, 7), "RNN": (1, 2, 3),
    # Scales and zero points.
    "DequantizeLinear": (1, 2), "QuantizeLinear": (1, 2),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8), "QLinearMatMul": (1, 2, 3, 4, 5, 6, 7),
}
"""Inputs that steer an operator, or that are its weights: a static exporter has them as constants.
"""

_ONLY_SHAPES = ("Shape", "Size")


class Case(Struct, frozen=True):
    """A test; ``operator`` is that of its first node. ``why`` it makes no sense on a
    microcontroller; "" where it does."""

    name: str
    suite: str
    operator: str
    why: str
    rtol: float
    atol: float
    expanded: bool
    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / f"{self.name}.onnx"

    def arrays(self, side: str) -> list[npt.NDArray[Any]]:
        """Returns the test's inputs ("in") or outputs ("out")."""
        with np.load(self.folder / f"{self.name}.{side}.npz") as archive:
            return [archive[str(i)] for i in range(len(archive.files))]


def written(folder: Path) -> list[Case]:
    """Returns all tests, which it writes into ``folder`` where they aren't yet."""
    index = folder / "index.json"
    if not index.is_file():
        found = require_environment("onnx", "onnx", "onnxruntime")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as new:
            made = Path(new) / "cases"
            made.mkdir()
            subprocess.run(
                (found, "-W", "ignore", str(WORKER), str(made)), check=True, capture_output=True
            )
            with contextlib.suppress(OSError):  # another process was first
                made.rename(folder)
    entries = json.loads(index.read_text())["cases"]
    return [Case(**entry, folder=folder) for entry in entries]


def model_of(path: Path) -> GraphInfo:
    data = path.read_bytes()
    graph = read(OnnxModelInfo, Span(data, 0, len(data))).graph
    assert graph is not None
    return graph


def steering(graph: GraphInfo) -> set[str]:
    """Returns the inputs of a graph on whose values shapes, or weights, depend."""
    wanted: set[str] = set()
    for node in reversed(_all_nodes(graph)):
        positions = STEERING.get(node.operator, ())
        wanted.update(name for i, name in enumerate(node.inputs) if i in positions)
        if not wanted.isdisjoint(node.outputs) and node.operator not in _ONLY_SHAPES:
            wanted.update(node.inputs)
            wanted.update(
                output.name for attribute in node.attributes if attribute.g is not None
                for output in attribute.g.outputs
            )
    return wanted & {*fed(graph)}


def fed(graph: GraphInfo) -> list[str]:
    """Returns the names of the inputs that have no value in the file."""
    constant = {initializer.name for initializer in graph.initializers}
    return [info.name for info in graph.inputs if info.name not in constant]


def _all_nodes(graph: GraphInfo) -> list[NodeInfo]:
    nodes = []
    for node in graph.nodes:
        for attribute in node.attributes:
            if attribute.g is not None:
                nodes += _all_nodes(attribute.g)
        nodes.append(node)
    return nodes
