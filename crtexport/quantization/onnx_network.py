"""A float .onnx network made ready: folded, named, in operators that have integers.

Imported by the worker, in the Python that has onnx and onnxruntime.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization.shape_inference import quant_pre_process

from crtexport.quantization.ratios import RefusedError

_LEAST_OPSET = 13
STANDARD_INT16 = 21  # the opset from which on QuantizeLinear knows int16
QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinear", "QGemm")
_PRODUCTS = {"Gemm", "LayerNormalization", "MatMul"}
_INTEGERS = ("ConvInteger", "MatMulInteger")


def prepared(job: dict[str, Any], folder: str) -> Any:
    """Returns the float network with its constants folded, batch normalizations in the weights,
    types and shapes of all tensors, and a name of its own for each layer."""
    model = onnx.load(job["model"])
    for node in model.graph.node:
        if node.op_type.startswith(QUANTIZED) or node.op_type in _INTEGERS:
            raise RefusedError(
                "the network is quantized already", node.name or node.output[0],
                "quantize the float network that it was made of",
            )
    names = {output: node.name for output, node in producers(model).items()}
    fix_sizes(model, job)
    words = job["activations"] == "int16" or job["wide"]
    least = STANDARD_INT16 if words else _LEAST_OPSET
    if opset(model) < least:
        model = onnx.version_converter.convert_version(model, least)
    given, made = os.path.join(folder, "given.onnx"), os.path.join(folder, "float.onnx")
    onnx.save(model, given)
    # Without its symbolic shapes, for which it needs another package: sizes are fixed here.
    quant_pre_process(given, made, skip_symbolic_shape=True)
    model = onnx.load(made)
    join_hard_swish(model)
    average_by_pools(model)
    flatten_biases(model)
    name_layers(model, names)
    used = {node.domain for node in model.graph.node} | {""}
    kept = [copy.deepcopy(entry) for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    del model.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model)


def opset(model: Any) -> int:
    return max((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), default=1)


def fix_sizes(model: Any, job: dict[str, Any]) -> None:
    """Puts the sizes that the user chose into the inputs' shapes."""
    for value in model.graph.input:
        sizes = value.type.tensor_type.shape.dim
        chosen = job["shapes"].get(value.name)
        if chosen is not None:
            del sizes[:]
            for size in chosen:
                sizes.add().dim_value = size
        for size in sizes:
            if size.dim_param in job["dims"]:
                size.dim_value = job["dims"][size.dim_param]


def name_layers(model: Any, names: dict[str, str]) -> None:
    """Names nodes that have no name, or another's, by their outputs; ``names`` are those of the
    file."""
    seen: set[str] = set()
    for node in model.graph.node:
        if not node.name or node.name in seen:
            node.name = names.get(node.output[0]) or f"{node.op_type} {node.output[0]}"
        seen.add(node.name)


def join_hard_swish(model: Any) -> None:
    """Makes one node again of what the optimizer made of HardSwish: x HardSigmoid(x)."""
    if opset(model) < 14:
        return
    nodes, makers, users = list(model.graph.node), producers(model), consumers(model)
    outputs = {value.name for value in model.graph.output}
    for node in nodes:
        for inner in (makers.get(name) for name in node.input):
            if node.op_type != "Mul" or inner is None or inner.op_type != "HardSigmoid":
                continue
            facts = {a.name: a.f for a in inner.attribute}
            alone = len(users[inner.output[0]]) == 1 and inner.output[0] not in outputs
            slope = facts.get("alpha", 0.2), facts.get("beta", 0.5)
            other = set(node.input) == {inner.input[0], inner.output[0]}
            if alone and other and np.allclose(slope, (1 / 6, 0.5)):
                node.op_type, node.input[:] = "HardSwish", [inner.input[0]]
                model.graph.node.remove(inner)
                break


def flatten_biases(model: Any) -> None:
    """Makes biases of Gemm that are rows, (1, n), as scikit-learn's networks have them, vectors:
    onnxruntime.quantization takes no others with weights that have a scale for each channel."""
    constants, users = {t.name: t for t in model.graph.initializer}, consumers(model)
    for node in model.graph.node:
        bias = constants.get(node.input[2]) if node.op_type == "Gemm" and node.input[2:] else None
        if bias is not None and len(bias.dims) == 2 and bias.dims[0] == 1 and all(
            user.op_type == "Gemm" for user in users[bias.name]
        ):
            del bias.dims[0]


def average_by_pools(model: Any) -> None:
    """Makes GlobalAveragePool, which is computed with integers, of ReduceMean over all axes of
    images: so PyTorch writes it. Means of rows are left alone: normalizations are made of them."""
    known = onnx.shape_inference.infer_shapes(model).graph
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*known.input, *known.value_info) if value.type.tensor_type.HasField("shape")
    }
    constants = {t.name: t for t in model.graph.initializer}
    for place, node in reversed(list(enumerate(model.graph.node))):
        rank = ranks.get(node.input[0], 0) if node.op_type == "ReduceMean" else 0
        facts = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if len(node.input) > 1 and node.input[1] in constants:
            facts["axes"] = numpy_helper.to_array(constants[node.input[1]]).tolist()
        axes = sorted(axis % rank for axis in facts.get("axes", ())) if rank > 3 else []
        if not axes or axes != list(range(2, rank)):
            continue
        name, result = node.name, node.output[0]
        pooled = result if facts.get("keepdims", 1) else f"{result}_pooled"
        model.graph.node.remove(node)
        if pooled != result:
            flatten = helper.make_node("Flatten", [pooled], [result], name and f"{name}_flat")
            model.graph.node.insert(place, flatten)
        pool = helper.make_node("GlobalAveragePool", [node.input[0]], [pooled], name)
        model.graph.node.insert(place, pool)


def producers(model: Any) -> dict[str, Any]:
    return {output: node for node in model.graph.node for output in node.output}


def consumers(model: Any) -> dict[str, list[Any]]:
    users: dict[str, list[Any]] = {name: [] for name in producers(model)}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    return users


def channel_axes(model: Any) -> dict[str, int]:
    """Returns the axis of the channels of each result: the last one behind products, else 1."""
    axes: dict[str, int] = {}
    for node in model.graph.node:
        before = axes.get(node.input[0], 1) if node.input else 1
        axes |= dict.fromkeys(node.output, -1 if node.op_type in _PRODUCTS else before)
    return axes
