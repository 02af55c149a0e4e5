"""Quantizes drawn networks with ONNX Runtime's tool, and runs them with ONNX Runtime.

``python quantized_networks.py FOLDER INPUTS NAME_FORMAT...``, in an environment with onnx and
onnxruntime, writes NAME_FORMAT.onnx, whose outputs are ``y`` and all quantized tensors that ONNX
Runtime's optimizer leaves, and inputs and outputs beside it. int8 stays int8: where ONNX Runtime
makes uint8 of it, its default, tensors with several readers are left in floats.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from drawn_networks import NETWORKS, Net
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

Array = np.ndarray[Any, Any]
_QDQ, _OPERATORS = QuantFormat.QDQ, QuantFormat.QOperator
_U8, _S8 = QuantType.QUInt8, QuantType.QInt8
FORMATS: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "u8s8": (_QDQ, _U8, _S8, {}),
    "s8s8": (_QDQ, _S8, _S8, {}),
    "u8u8": (_QDQ, _U8, _U8, {"per_channel": False}),
    "qoperator": (_OPERATORS, _U8, _S8, {}),
    "symmetric": (_QDQ, _S8, _S8, {"extra_options": {"ActivationSymmetric": True}}),
    "real": (_QDQ, _U8, _S8, {}),
    "reals8": (_QDQ, _S8, _S8, {}),
}
"""``real``: weights and biases of real numbers between quantized tensors, which ONNX Runtime's
optimizer quantizes."""

_SIGNED = ("s8s8", "symmetric", "reals8")


class Data(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(5)
        self._left = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(8)]

    def get_next(self) -> dict[str, Any] | None:
        return self._left.pop() if self._left else None


def session(path: Path, kind: str, **settings: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for name, value in settings.items():
        setattr(options, name, value)
    if kind in _SIGNED:
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def bytes_in(model: onnx.ModelProto) -> dict[str, str]:
    """The tensors of bytes that nodes compute, by these nodes' names; QuantizeLinear's behind a
    node, too, by that of the latter."""
    maker = {name: node for node in model.graph.node for name in node.output}
    found: dict[str, str] = {}
    for node in model.graph.node:
        made = node.output[0]
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear")) or (
            node.input and node.input[0] in found.values()
            and node.op_type != "DequantizeLinear"
        ):
            found[node.name] = made
        source = maker.get(node.input[0]) if node.op_type == "QuantizeLinear" else None
        while source is not None:
            found[source.name] = made
            relu = source.op_type in ("Relu", "Clip")
            source = maker.get(source.input[0]) if relu else None
    return found


def answers(path: Path, kind: str, xs: list[Array]) -> dict[str, Array]:
    """Returns what ONNX Runtime computes: the output, and the bytes in between as the file has
    them."""
    fused = path.with_suffix(".fused")
    plain = session(
        path, kind, optimized_model_filepath=str(fused),
        graph_optimization_level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    )
    given, model = onnx.load(path), onnx.load(fused)
    asked = bytes_in(given)
    names = {node.output[0]: asked[node.name] for node in model.graph.node if node.name in asked}
    names.pop("y", None)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    onnx.save(model, fused)
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    every = session(fused, kind, graph_optimization_level=level)
    rows = [every.run(None, {"x": x}) for x in xs]
    arrays = [np.stack(values) for values in zip(*rows, strict=True)]
    whole = np.stack([plain.run(None, {"x": x})[0] for x in xs])
    assert np.array_equal(arrays[0], whole), "more outputs, other numbers"
    stored = onnx.TensorProto.INT8 if kind in _SIGNED else onnx.TensorProto.UINT8
    found = {"y": whole}
    for array, name in zip(arrays[1:], names.values(), strict=True):
        if array.dtype in (np.uint8, np.int8):
            became = stored == onnx.TensorProto.INT8 and array.dtype == np.uint8
            found[name] = (array ^ 0x80).view(np.int8) if became else array
    fused.unlink()
    given.graph.output.extend(
        helper.make_tensor_value_info(name, stored, None) for name in found if name != "y"
    )
    onnx.save(given, path)
    return found


def with_real_weights(path: Path, real: Path) -> None:
    """Gives the layers of a quantized network the weights and biases that they had before."""
    model, old = onnx.load(path), onnx.load(real)
    weights = {one.name: one for one in old.graph.initializer}
    before = {node.name: node.input[1:] for node in old.graph.node}
    kept = {
        name for node in model.graph.node if node.op_type in ("Conv", "ConvTranspose", "Gemm")
        for name in before[node.name]
    }
    made = {node.name: node for node in model.graph.node}
    for name, node in made.items():
        if node.op_type in ("Conv", "ConvTranspose", "Gemm"):
            node.input[1:] = before[name]
        if node.output[0] in kept:
            model.graph.node.remove(node)
    model.graph.initializer.extend(weights[name] for name in sorted(kept))
    onnx.save(model, path)


def main() -> None:
    logging.disable()
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    for stem in sys.argv[3:]:
        name, _, kind = stem.partition("_")
        form, values, weights, more = FORMATS[kind]
        net = Net(np.random.default_rng(3))
        shape = NETWORKS[name](net)
        onnx.save(net.model(name, shape), folder / "float")
        path = folder / f"{stem}.onnx"
        quantize_static(
            folder / "float", path, Data(shape), quant_format=form, activation_type=values,
            weight_type=weights, **{"per_channel": True, **more},
        )
        if kind.startswith("real"):
            with_real_weights(path, folder / "float")
        xs = np.random.default_rng(7).normal(size=(count, *shape)).astype(np.float32)
        np.savez(path.with_suffix(".npz"), x=xs, **answers(path, kind, list(xs)))
    (folder / "float").unlink()


if __name__ == "__main__":
    main()
