"""Writes the node tests of the package onnx to a folder: models, inputs, outputs, tolerances.

Run by the Python of an environment that has the package; crtexport needs none of it. Which tests
could run on a microcontroller at all is decided here, from the element types of everything in them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_node_model_tests

T = onnx.TensorProto
PLAUSIBLE = {T.FLOAT, T.BOOL, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32}
SMALL = {T.INT4, T.UINT4, T.INT2, T.UINT2}
REASONS = {
    **dict.fromkeys(("NonZero", "Unique", "Compress", "TfIdfVectorizer"), "output shape by data"),
    **dict.fromkeys(
        ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
         "Multinomial"), "random",
    ),
    **dict.fromkeys(("Adagrad", "Adam", "Momentum"), "training"),
    "ImageDecoder": "image decoder",
}


def types_of_graph(graph: Any, found: set[int], operators: set[str], odd: set[str]) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type":
            found.add(info.type.tensor_type.elem_type)
        elif kind is not None:
            odd.add("sequence, map or optional")
    found.update(tensor.data_type for tensor in graph.initializer)
    for node in graph.node:
        operators.add(node.op_type)
        if node.domain not in ("", "ai.onnx", "ai.onnx.preview"):
            odd.add(f"domain {node.domain}")
        for attribute in node.attribute:
            if attribute.HasField("t"):
                found.add(attribute.t.data_type)
            if attribute.name in ("to", "output_dtype", "dtype") and node.op_type != "Attention":
                found.add(attribute.i)
            if attribute.HasField("g"):
                types_of_graph(attribute.g, found, operators, odd)


def training(graph: Any) -> str:
    """Returns the reason why a graph is about training, "" where it isn't."""
    for node in graph.node:
        attributes = {a.name: a for a in node.attribute}
        if node.op_type == "BatchNormalization" and "training_mode" in attributes and (
            attributes["training_mode"].i
        ):
            return "training"
        if node.op_type == "Dropout" and len(node.input) > 2:
            values = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
            if node.input[2] in values and values[node.input[2]].any():
                return "random"
    return ""


def reason(model: Any, name: str) -> str:
    """Returns why a test makes no sense on a microcontroller; "" where it does."""
    found: set[int] = set()
    operators: set[str] = set()
    odd: set[str] = set()
    inferred = onnx.shape_inference.infer_shapes(model)
    types_of_graph(inferred.graph, found, operators, odd)
    found.discard(0)
    if odd:
        return sorted(odd)[0]
    for operator in sorted(operators):
        if operator in REASONS:
            return REASONS[operator]
    # The inputs of a training Dropout are inputs of the graph: the tests' names say it.
    if "training_dropout" in name:
        return "random"
    if training(model.graph):
        return training(model.graph)
    left = found - PLAUSIBLE
    if T.STRING in left:
        return "strings"
    if not left:
        return ""
    if left <= SMALL:
        return "int4, int2"
    if left == {T.FLOAT16}:
        return "float16"
    return " and ".join(sorted(T.DataType.Name(code).lower() for code in left))


def arrays(values: Any) -> dict[str, np.ndarray] | None:
    result = {}
    for number, value in enumerate(values):
        if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "biuf":
            return None
        result[str(number)] = np.asarray(value)
    return result


def main() -> None:
    folder = Path(sys.argv[1])
    index = []
    for case in load_node_model_tests():
        why = reason(case.model, case.name)
        data = case.data_sets[0] if case.data_sets else ([], [])
        inputs, outputs = arrays(data[0]), arrays(data[1])
        if not why and (inputs is None or outputs is None):
            why = "values that are no numbers"
        first = case.name.removeprefix("test_")
        index.append({
            "name": first, "operator": case.model.graph.node[0].op_type, "why": why,
            "rtol": case.rtol, "atol": case.atol, "expanded": "_expanded" in first,
        })
        if why:
            continue
        (folder / f"{first}.onnx").write_bytes(case.model.SerializeToString())
        np.savez(folder / f"{first}.in.npz", **inputs)
        np.savez(folder / f"{first}.out.npz", **outputs)
    done = {"version": onnx.__version__, "cases": index}
    (folder / "index.json").write_text(json.dumps(done))


main()
