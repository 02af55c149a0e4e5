"""Writes the backend tests of the package onnx to a folder: models, inputs, outputs, tolerances.

Run by the Python of an environment that has the package; crtexport needs none of it. Which tests
could run on a microcontroller at all is decided here, from the element types of everything in them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import light
import numpy as np
import onnx
from onnx.backend.test.loader import DATA_DIR, load_model_tests

SUITES = {
    "node": "node", "pytorch-operator": "pytorch-operator",
    "pytorch-converted": "pytorch-converted", "simple": "simple", "light": "real",
}
"""What onnx's loader calls them, by the names of their folders."""
LIGHT = Path(DATA_DIR) / "light"
T = onnx.TensorProto
PLAUSIBLE = {
    T.FLOAT, T.DOUBLE, T.BOOL, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32,
}
SMALL = {T.INT4, T.UINT4, T.INT2, T.UINT2}
BYTES = {"int4": np.int8, "uint4": np.uint8, "int2": np.int8, "uint2": np.uint8}
"""What elements of less than a byte are stored in."""
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
    if left <= {*SMALL, T.FLOAT16}:
        return ""
    return " and ".join(sorted(T.DataType.Name(code).lower() for code in left))


def arrays(values: Any) -> dict[str, np.ndarray] | None:
    result = {}
    for number, value in enumerate(values):
        array = onnx.numpy_helper.to_array(value) if isinstance(value, T) else value
        if not isinstance(array, np.ndarray | np.generic):
            return None
        whole = np.asarray(array)
        whole = whole.astype(BYTES.get(whole.dtype.name, whole.dtype))
        if whole.dtype.kind not in "biuf":
            return None
        result[str(number)] = whole
    return result


def beyond_float32(array: np.ndarray) -> bool:
    """Returns whether doubles are too large for what they are computed as."""
    finite = array[np.isfinite(array)] if array.dtype == np.float64 else np.zeros(0)
    return bool((np.abs(finite) > np.finfo(np.float32).max).any())


def model_and_data(case: Any) -> tuple[Any, Callable[[], tuple[Any, Any]]]:
    """Returns the model of a test, and what reads its inputs and the expected outputs."""
    def read(folder: Path, pattern: str) -> list[np.ndarray]:
        return [
            onnx.numpy_helper.to_array(onnx.load_tensor(path))
            for path in sorted(folder.glob(pattern))
        ]

    if case.model is not None:
        return case.model, lambda: case.data_sets[0] if case.data_sets else ([], [])
    if case.url is not None:
        path = LIGHT / Path(case.url).name
        model = onnx.load(path)
        return model, lambda: (
            light.inputs(model, drawn=False), read(path.parent, f"{path.stem}_output_*.pb")
        )
    folder = Path(case.model_dir)
    data = folder / "test_data_set_0"
    return onnx.load(folder / "model.onnx"), lambda: (
        read(data, "input_*.pb"), read(data, "output_*.pb")
    )


def entries(suite: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yields lines of the index; writes the tests that make sense on a microcontroller."""
    for case in sorted(load_model_tests(kind=SUITES[suite]), key=lambda case: case.name):
        model, data = model_and_data(case)
        name, why = case.name.removeprefix("test_"), reason(model, case.name)
        inputs, outputs = (None, None) if why else map(arrays, data())
        if not why and (inputs is None or outputs is None):
            why = "values that are no numbers"
        elif not why and any(map(beyond_float32, [*inputs.values(), *outputs.values()])):
            why = "numbers beyond float32"
        if not why:
            write(folder / name, model, inputs, outputs)
        yield {
            "name": name, "suite": suite, "operator": model.graph.node[0].op_type, "why": why,
            "rtol": case.rtol, "atol": case.atol, "expanded": "_expanded" in name,
        }


def drawn(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields lines for light models whose weights are drawn, which ONNX Runtime runs."""
    light.write_numbers(folder)
    for name in light.DRAWN:
        model = light.with_drawn_weights(onnx.load(LIGHT / f"light_{name}.onnx"))
        path, inputs = folder / f"{name}_drawn.onnx", light.inputs(model, drawn=True)
        path.write_bytes(model.SerializeToString())
        outputs = light.outputs(path, inputs)
        write(path.with_suffix(""), model, arrays(inputs), arrays(outputs))
        yield {
            "name": f"{name}_drawn", "suite": "light", "operator": "", "why": "", "rtol": 0.0,
            "atol": 1e-5 * float(np.abs(outputs[0]).max()), "expanded": False,
        }


def write(path: Path, model: Any, inputs: Any, outputs: Any) -> None:
    Path(f"{path}.onnx").write_bytes(model.SerializeToString())
    np.savez(f"{path}.in.npz", **inputs)
    np.savez(f"{path}.out.npz", **outputs)


def main() -> None:
    folder = Path(sys.argv[1])
    index = [line for suite in SUITES for line in entries(suite, folder)]
    index += drawn(folder)
    assert len({line["name"] for line in index}) == len(index)
    done = {"version": onnx.__version__, "cases": index}
    (folder / "index.json").write_text(json.dumps(done))


main()
