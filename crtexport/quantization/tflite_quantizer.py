"""Quantizes a .tflite network with ai-edge-quantizer, and measures what that costs.

Imported by the worker, in the Python that has ai_edge_quantizer, which brings LiteRT.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import ai_edge_quantizer
import flatbuffers
import numpy as np
from ai_edge_litert import interpreter as litert
from ai_edge_litert import schema_py_generated as schema
from ai_edge_quantizer.algorithm_manager import AlgorithmName
from ai_edge_quantizer.qtyping import TFLOperationName
from ai_edge_quantizer.recipe_manager import RecipeManager

from crtexport.quantization.ratios import (
    CANDIDATES,
    ENOUGH,
    HINT_SAMPLES,
    Error,
    RefusedError,
    Samples,
    best_hint,
    lost,
    ratios,
)

_ALL = TFLOperationName.ALL_SUPPORTED
_MOVES = {"RESHAPE", "QUANTIZE", "DEQUANTIZE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS"}


class TfliteNetwork:
    """A .tflite file in LiteRT's reference kernels, with all its tensors."""

    def __init__(self, content: bytes) -> None:
        self.run = litert.Interpreter(
            model_content=content, num_threads=1, experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        )
        self.run.allocate_tensors()
        self.tensors = {tensor["index"]: tensor for tensor in self.run.get_tensor_details()}
        self.by_name = {tensor["name"]: tensor for tensor in self.tensors.values()}
        self.inputs, self.outputs = self.run.get_input_details(), self.run.get_output_details()
        self.nodes = self.run._get_ops_details()

    def feed(self, row: Sequence[Any]) -> None:
        for tensor, real in zip(self.inputs, row):
            values, (scale, zero) = real, tensor["quantization"]
            if np.issubdtype(tensor["dtype"], np.integer) and scale:
                limits = np.iinfo(tensor["dtype"])
                values = np.clip(np.rint(real / scale) + zero, limits.min, limits.max)
            self.run.set_tensor(tensor["index"], np.asarray(values).astype(tensor["dtype"]))
        self.run.invoke()

    def real(self, tensor: dict[str, Any]) -> Any:
        """Returns the numbers that a tensor stands for."""
        values, (scale, zero) = self.run.get_tensor(tensor["index"]), tensor["quantization"]
        return (values.astype(np.float64) - zero) * scale if scale else values


class TfliteQuantizer:
    """Quantizes one network, whose ranges were observed once."""

    def __init__(self, job: dict[str, Any], samples: Samples) -> None:
        self.job, self.samples = job, samples
        with open(job["model"], "rb") as file:
            self.content = normalized(file.read())
        self.exact = TfliteNetwork(self.content)
        made = {index for node in self.exact.nodes for index in node["outputs"]}
        made |= {tensor["index"] for tensor in self.exact.inputs}
        self.floats = [
            tensor for index, tensor in self.exact.tensors.items()
            if index in made and tensor["dtype"] == np.float32
        ]
        self.ranges: dict[str, Any] = {}
        for row in self.rows():
            self.exact.feed(row)
            for tensor in self.floats:
                self._widen(tensor)

    def rows(self, most: int | None = None) -> Iterator[Any]:
        for row in self.samples.each(most):
            yield list(row.values())

    def _widen(self, tensor: dict[str, Any]) -> None:
        values = self.exact.run.get_tensor(tensor["index"])
        if not values.size:
            return
        low, high = values.min(keepdims=True), values.max(keepdims=True)
        known = self.ranges.get(tensor["name"], {"min": low, "max": high})
        self.ranges[tensor["name"]] = {
            "min": np.minimum(low, known["min"]), "max": np.maximum(high, known["max"]),
        }

    def layers(self) -> dict[str, str]:
        """Operators by the names of their results."""
        names = {tensor["index"]: tensor["name"] for tensor in self.floats}
        return {
            names[index]: node["op_name"] for node in self.exact.nodes
            for index in node["outputs"] if index in names
        }

    def checked(self, names: Sequence[str]) -> list[str]:
        layers = self.layers()
        for name in names:
            if name not in layers:
                near = difflib.get_close_matches(name, layers, n=1)
                raise RefusedError(
                    "no layer has this name", name,
                    f"did you mean {near[0]!r}?" if near else
                    "the report lists all layers: quantize without --keep first",
                )
        return list(names)

    def quantized(self, keep: Sequence[str], int16_layers: Sequence[str], bits: int) -> bytes:
        """Returns the quantized network, as the bytes of a .tflite file. The layers in ``keep``
        stay in float; inputs and outputs of ``int16_layers`` have 16 bits."""
        recipe = RecipeManager()
        recipe.add_static_config(".*", _ALL, activation_num_bits=bits, weight_num_bits=8)
        for name in self.checked(int16_layers):
            recipe.add_static_config(
                _scope(name), _ALL, activation_num_bits=16, weight_num_bits=8
            )
        for name in self.checked(keep):
            recipe.add_quantization_config(
                _scope(name), _ALL, algorithm_key=AlgorithmName.NO_QUANTIZE
            )
        made = ai_edge_quantizer.quantizer.Quantizer(
            self.content, recipe.get_quantization_recipe()
        ).quantize(dict(self.ranges), enable_progress_report=False)
        return bytes(made.quantized_model)

    def output_errors(self, content: bytes, most: int | None = None) -> list[Error]:
        other = TfliteNetwork(content)
        errors = [Error(-1) for _ in other.outputs]
        for row in self.rows(most):
            self.exact.feed(row)
            other.feed(row)
            for error, one, two in zip(errors, self.exact.outputs, other.outputs):
                error.add(self.exact.real(one), other.real(two))
        return errors

    def ratio(
        self, keep: Sequence[str] = (), int16_layers: Sequence[str] = (), bits: int = 0
    ) -> float:
        """Returns the least ratio of all outputs in dB, with more layers in float or 16 bits."""
        content = self.quantized(
            [*self.job["keep"], *keep], [*self.job["wide"], *int16_layers], bits or _bits(self.job)
        )
        errors = self.output_errors(content, HINT_SAMPLES)
        return min((error.sqnr for error in errors), default=math.inf)


def _scope(name: str) -> str:
    return f"(^|;){re.escape(name)};"


def _bits(job: dict[str, Any]) -> int:
    return 16 if job["activations"] == "int16" else 8


def normalized(content: bytes) -> bytes:
    """Returns a file with the codes of operators where the library looks for them: old files have
    them in another field."""
    model = schema.ModelT.InitFromPackedBuf(bytearray(content), 0)
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class TfliteLayerOutput:
    """The result of a layer: its name, that of the layer's operator, and how it is stored."""

    def __init__(self, name: str, operator: str, dtype: Any) -> None:
        self.name, self.operator, self.type = name, operator, np.dtype(dtype).name
        self.error = Error(-1)


def measured(quantizer: TfliteQuantizer, content: bytes) -> list[TfliteLayerOutput]:
    """Returns the results of layers that both networks have, with their errors."""
    other, exact = TfliteNetwork(content), quantizer.exact
    layers = [
        TfliteLayerOutput(name, operator, other.by_name[name]["dtype"])
        for name, operator in quantizer.layers().items()
        if name in other.by_name and operator not in _MOVES
    ]
    for row in quantizer.rows():
        exact.feed(row)
        other.feed(row)
        for layer in layers:
            layer.error.add(
                exact.real(exact.by_name[layer.name]), other.real(other.by_name[layer.name])
            )
    return layers


def suspects(quantizer: TfliteQuantizer, layers: list[TfliteLayerOutput]) -> list[str]:
    """Returns the layers whose results have lost most beside what they were given."""
    known = {layer.name: layer.error for layer in layers}
    names = {index: tensor["name"] for index, tensor in quantizer.exact.tensors.items()}
    found = []
    for node in quantizer.exact.nodes:
        own = names[node["outputs"][0]]
        if own in known:
            given = [known[names[i]] for i in node["inputs"] if names.get(i) in known]
            found.append((lost(known[own], given), own))
    return [name for _, name in sorted(found, key=lambda pair: -pair[0])[:CANDIDATES]]


def hint_for(quantizer: TfliteQuantizer, layers: list[TfliteLayerOutput]) -> dict[str, Any] | None:
    """Returns the layer that is worth most in 16 bits or float, by trying."""
    before = quantizer.ratio()
    if before >= ENOUGH:
        return None
    names, narrow = suspects(quantizer, layers), _bits(quantizer.job) == 8
    return best_hint(
        before, [(quantizer.ratio(keep=[name]), name) for name in names],
        [(quantizer.ratio(int16_layers=[name]), name) for name in names] if narrow else [],
        (lambda: quantizer.ratio(bits=16)) if narrow else None,
    )


def answer(job: dict[str, Any], _folder: str) -> dict[str, Any]:
    """Quantizes and measures as the job says."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    quantizer = TfliteQuantizer(job, Samples(job["inputs"], job["samples"]))
    content = quantizer.quantized(job["keep"], job["wide"], _bits(job))
    with open(job["output"], "wb") as file:
        file.write(content)
    layers = measured(quantizer, content)
    outputs = quantizer.output_errors(content)
    names = [tensor["name"] for tensor in quantizer.exact.outputs]
    return {
        "library": f"ai-edge-quantizer {importlib.metadata.version('ai-edge-quantizer')}",
        "layers": [
            {
                "layer": layer.name, "operator": layer.operator, "output": layer.name,
                "type": layer.type, **ratios(layer.error),
            }
            for layer in layers
        ],
        "outputs": [
            {"output": name, **ratios(error)} for name, error in zip(names, outputs)
        ],
        "hint": hint_for(quantizer, layers), "corrections": [],
    }
