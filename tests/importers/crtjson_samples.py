"""A model.json that the tests of that format vary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crtexport.importers import load
from crtexport.ir.graph import Graph

Json = dict[str, Any]


def document() -> Json:
    """A dense layer of int8 with inline constants."""
    return {
        "format": "crtexport-model",
        "version": 1,
        "inputs": ["x"],
        "outputs": ["y"],
        "tensors": [
            {
                "name": "x",
                "dtype": "int8",
                "shape": [1, 3],
                "quantization": {"scale": 0.5, "zero_point": 1},
            },
            {
                "name": "w",
                "dtype": "int8",
                "shape": [2, 3],
                "quantization": {"scale": [0.5, 0.25], "axis": 0},
                "data": [[1, 2, 3], [-4, -5, -6]],
            },
            {"name": "y", "dtype": "int8", "shape": [1, 2], "quantization": {"scale": 0.25}},
        ],
        "nodes": [{"op": "FullyConnected", "inputs": ["x", "w"], "outputs": ["y"]}],
    }


def load_json(folder: Path, content: Json | str | bytes, **options: Any) -> Graph:
    if isinstance(content, dict):
        content = json.dumps(content)
    path = folder / "model.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load(path, **options)


def sidecar(data: Json, *, shape: list[int] | None = None, dtype: str = "int8") -> Json:
    """The document with its weights in a file."""
    result = document()
    result["tensors"][1].update(data=data, dtype=dtype)
    if shape:
        result["tensors"][1]["shape"] = shape
    return result
