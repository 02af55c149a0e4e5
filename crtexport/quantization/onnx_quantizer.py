"""Quantizes an .onnx network with onnxruntime.quantization, and measures what that costs.

Imported by the worker, in the Python that has onnx and onnxruntime.
"""

from __future__ import annotations

import copy
import difflib
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.quantization import calibrate, quant_utils, registry
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from crtexport.quantization.corrections import bias_corrected, equalized
from crtexport.quantization.onnx_network import (
    QUANTIZED,
    STANDARD_INT16,
    channel_axes,
    consumers,
    opset,
    prepared,
    producers,
)
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

# Elementwise functions, which are tables on integers; the library doesn't quantize them unasked.
TABLES = {
    "Celu", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Mish", "PRelu", "Selu", "Softplus",
    "Softsign", "Swish", "Tanh", "ThresholdedRelu",
}
# Those that nothing computes with integers: their weights would lose digits for no gain.
FLOATS = {
    "BatchNormalization", "CumSum", "EmbedLayerNormalization", "InstanceNormalization",
    "LayerNormalization",
}
MOVES = {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
LIMITS = {"Clip", "Relu"}  # part of the range of the layer before them
THROUGH = MOVES | LIMITS | {"MaxPool"}  # whose results have no digits of their own

_SYMMETRIC = "int16"  # whose kernels know no zero point

OBSERVED = 64  # samples that corrections are made of
PAYS = 1.0  # dB that a correction must be worth


class OnnxQuantizer:
    """Quantizes one network, calibrated once, with any layers kept in float, or their results in 16
    bits. ``exact`` is the float network, ``model`` that which is quantized."""

    def __init__(self, job: dict[str, Any], samples: Samples, folder: str, model: Any) -> None:
        self.job, self.samples, self.folder = job, samples, folder
        self.exact = self.model = model
        self.users = consumers(self.model)
        known = set(registry.QLinearOpsRegistry)
        if job["format"] == "qdq":
            known |= set(registry.QDQRegistry) | TABLES
        self.operators = sorted(known - FLOATS)
        path = os.path.join(folder, "calibrated.onnx")
        onnx.save(self.model, path)
        calibrator = calibrate.create_calibrator(
            path, self.operators, os.path.join(folder, "augmented.onnx"),
            {
                "minmax": calibrate.CalibrationMethod.MinMax,
                "entropy": calibrate.CalibrationMethod.Entropy,
                "percentile": calibrate.CalibrationMethod.Percentile,
            }[job["calibration"]],
            extra_options={"symmetric": job["activations"] == _SYMMETRIC},
        )
        samples.next = 0
        calibrator.collect_data(samples)
        self.ranges = calibrator.compute_data()

    def with_model(self, model: Any) -> OnnxQuantizer:
        """Returns one that quantizes a network that is nearly the same, with the same ranges."""
        made = copy.copy(self)
        made.model = model
        return made

    def observe(self, names: list[str]) -> Iterator[Any]:
        """Yields tensors of the float network by their names, for one sample after the other."""
        computed = [name for name in names if name not in self.samples.arrays]
        run = session(self.exact, computed)
        for row in self.samples.each(OBSERVED):
            found = {**row, **dict(zip(computed, run.run(computed, row)))}
            yield [found[name] for name in names]

    def named(self, name: str) -> Any:
        """Returns a layer by its name."""
        layers = {node.name: node for node in self.model.graph.node}
        if name not in layers:
            near = difflib.get_close_matches(name, layers, n=1)
            raise RefusedError(
                "no layer has this name", name,
                f"did you mean {near[0]!r}?" if near else
                "the report lists all layers: quantize without --keep first",
            )
        return layers[name]

    def wide(self, names: list[str]) -> dict[str, Any]:
        """Returns what the library is told of results in 16 bits: those of these layers, behind
        their Relu or Clip."""
        found = {}
        limited = limits(self.model)
        for name in names:
            result = self.named(name).output[0]
            found[limited.get(result, result)] = [{"quant_type": quant_utils.QuantType.QInt16}]
        return found

    def kept(self, names: list[str]) -> list[str]:
        """Returns layers, and those that read their results: what computes with float weights
        between integers is given integer weights by ONNX Runtime while it optimizes."""
        found: list[str] = []
        for name in names:
            behind = [self.named(name)]
            while behind:
                node = behind.pop()
                found.append(node.name)
                if node.name == name or node.op_type in THROUGH:
                    behind += [user for out in node.output for user in self.users.get(out, ())]
        return found

    def quantized(
        self, keep: list[str], activations: str, form: str = "qdq",
        int16_layers: Sequence[str] = (),
    ) -> Any:
        """Returns the quantized network (a ModelProto). The layers in ``keep`` stay in float; the
        results of ``int16_layers`` and of those that the job names have 16 bits."""
        types = {
            "int8": quant_utils.QuantType.QInt8, "uint8": quant_utils.QuantType.QUInt8,
            "int16": quant_utils.QuantType.QInt16,
        }
        rest: tuple[Any, ...] = (
            self.ranges, [], self.kept(keep), self.operators,
            {
                "ActivationSymmetric": activations == _SYMMETRIC, "WeightSymmetric": True,
                "TensorQuantOverrides": self.wide([*self.job["wide"], *int16_layers]),
                "UseQDQContribOps": opset(self.model) < STANDARD_INT16,
            },
        )
        model = copy.deepcopy(self.model)
        made = (
            QDQQuantizer(model, True, False, types["int8"], types[activations], *rest)
            if form == "qdq" else ONNXQuantizer(
                model, True, False, quant_utils.QuantizationMode.QLinearOps, True, types["int8"],
                types[activations], *rest,
            )
        )
        made.quantize_model()
        made.model.clean_initializers()
        made.model.topological_sort()
        return made.model.model


def session(model: Any, outputs: list[str] | None = None) -> Any:
    """Returns a network in ONNX Runtime: as it is, or node by node as the file says, with the
    tensors ``outputs`` as its outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if outputs is not None:
        model = copy.deepcopy(model)
        there = {value.name for value in model.graph.output}
        model.graph.output.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in outputs if name not in there
        )
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def outputs_error(
    exact: Any, quantized: Any, samples: Samples, most: int | None = None
) -> dict[str, Error]:
    """Returns the errors of the network's outputs that are floats."""
    first, second = session(exact), session(quantized)
    names = [one.name for one in first.get_outputs() if one.type == "tensor(float)"]
    axes = channel_axes(exact)
    errors = {name: Error(axes.get(name, 1)) for name in names}
    for row in samples.each(most):
        for name, one, two in zip(names, first.run(names, row), second.run(names, row)):
            errors[name].add(one, two)
    return errors


class OnnxLayerOutput:
    """A node of the quantized network: ``place`` is its result in the float network, ``tensor`` the
    one that holds it in this network, ``type`` how that is stored."""

    def __init__(self, node: Any, place: str, tensor: str, type_: str, axis: int) -> None:
        self.node, self.place, self.tensor, self.type = node, place, tensor, type_
        self.error = Error(axis)


def layers_of(exact: Any, quantized: Any) -> list[OnnxLayerOutput]:
    """Returns the layers whose results are floats in the float network, and its inputs."""
    users = consumers(quantized)
    floats = {
        value.name for value in (*exact.graph.value_info, *exact.graph.input, *exact.graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    zeros = {t.name: t.data_type for t in quantized.graph.initializer}
    axes = channel_axes(exact)
    layers = []
    own = [n for n in quantized.graph.node if not n.op_type.startswith(QUANTIZED)]
    limited = limits(exact)
    sources = [(None, value.name) for value in quantized.graph.input]
    for node, output in sources + [(n, output) for n in own for output in n.output]:
        place = output.removesuffix("_QuantizeLinear_Input")
        if place not in floats:
            continue
        found, type_ = output, "float32"
        for user in users.get(output, ()):
            behind = users.get(user.output[0], ()) if user.op_type == "QuantizeLinear" else ()
            if behind:
                found = behind[0].output[0]
                type_ = TensorProto.DataType.Name(zeros[user.input[2]]).lower()
        if (node is None and found == output) or output in limited:
            continue
        # What a Relu or a Clip gives is the result of the layer before it.
        limiting = [one for one in own if limited.get(one.output[0]) == place]
        maker = limiting[0] if limiting else node
        layers.append(OnnxLayerOutput(maker, place, found, type_, axes.get(place, 1)))
    return layers


def limits(model: Any) -> dict[str, str]:
    """Returns the results that only a Relu or a Clip reads, each with that one's result."""
    outputs = {value.name for value in model.graph.output}
    return {
        name: users[0].output[0] for name, users in consumers(model).items()
        if len(users) == 1 and users[0].op_type in LIMITS and name in producers(model)
        and name not in outputs
    }


def measure(exact: Any, quantized: Any, samples: Samples) -> list[OnnxLayerOutput]:
    """Returns the layers with their errors against the float network."""
    layers = layers_of(exact, quantized)
    first = session(exact, [layer.place for layer in layers if layer.node is not None])
    second = session(quantized, [layer.tensor for layer in layers])
    for row in samples.each():
        wanted = [layer.place for layer in layers if layer.place not in row]
        floats = {**row, **dict(zip(wanted, first.run(wanted, row)))}
        found = second.run([layer.tensor for layer in layers], row)
        for layer, value in zip(layers, found):
            layer.error.add(floats[layer.place], value)
    return layers


def suspects(layers: list[OnnxLayerOutput]) -> list[str]:
    """Returns the layers whose results have lost most beside what they were given."""
    known = {layer.tensor: layer.error for layer in layers}
    found = [
        (lost(layer.error, [known[name] for name in layer.node.input if name in known]),
         layer.node.name)
        for layer in layers if layer.node is not None and layer.type != "float32"
    ]
    return [name for _, name in sorted(found, key=lambda pair: -pair[0])[:CANDIDATES]]


def ratio(
    quantizer: OnnxQuantizer, activations: str, keep: Sequence[str] = (),
    int16_layers: Sequence[str] = (),
) -> float:
    """Returns the least ratio of all outputs in dB, with more layers kept in float or 16 bits."""
    made = quantizer.quantized(
        [*quantizer.job["keep"], *keep], activations, int16_layers=int16_layers
    )
    errors = outputs_error(quantizer.exact, made, quantizer.samples, HINT_SAMPLES)
    return min((error.sqnr for error in errors.values()), default=math.inf)


def hint_for(
    job: dict[str, Any], quantizer: OnnxQuantizer, layers: list[OnnxLayerOutput]
) -> dict[str, Any] | None:
    """Returns the layer that is worth most in 16 bits or float, by trying."""
    kind = job["activations"]
    before = ratio(quantizer, kind)
    if before >= ENOUGH:
        return None
    names, narrow = suspects(layers), kind != _SYMMETRIC
    words = names if narrow and job["format"] == "qdq" else []
    return best_hint(
        before, [(ratio(quantizer, kind, keep=[name]), name) for name in names],
        [(ratio(quantizer, kind, int16_layers=[name]), name) for name in words],
        (lambda: ratio(quantizer, _SYMMETRIC)) if narrow else None,
    )


def corrected(quantizer: OnnxQuantizer) -> tuple[OnnxQuantizer, list[dict[str, Any]]]:
    """Tries equalization, and then bias correction; returns what gives the least error, and what
    each was worth."""
    kind = quantizer.job["activations"]
    tried: list[dict[str, Any]] = []
    before = ratio(quantizer, kind)
    for name, change in (
        ("equalization", equalized), ("bias correction", bias_corrected),
    ):
        model = change(quantizer.model, quantizer.observe)
        if model is None:
            continue
        if name == "equalization":
            other = OnnxQuantizer(quantizer.job, quantizer.samples, quantizer.folder, model)
        else:
            other = quantizer.with_model(model)
        after = ratio(other, kind)
        used = math.isfinite(after) and after >= before + PAYS
        if math.isfinite(before) and math.isfinite(after):
            tried.append({"name": name, "before": before, "after": after, "used": used})
        if used:
            quantizer, before = other, after
    return quantizer, tried


def answer(job: dict[str, Any], folder: str) -> dict[str, Any]:
    """Quantizes and measures as the job says."""
    samples = Samples(job["inputs"], job["samples"])
    quantizer = OnnxQuantizer(job, samples, folder, prepared(job, folder))
    tried: list[dict[str, Any]] = []
    if job["corrections"]:
        quantizer, tried = corrected(quantizer)
    twin = made = quantizer.quantized(job["keep"], job["activations"])
    if job["format"] != "qdq":
        made = quantizer.quantized(job["keep"], job["activations"], job["format"])
    with open(job["output"], "wb") as file:
        file.write(made.SerializeToString(deterministic=True))
    layers = measure(quantizer.exact, twin, samples)
    outputs = outputs_error(quantizer.exact, made, samples)
    return {
        "library": f"onnxruntime.quantization {onnxruntime.__version__}",
        "layers": [
            {
                "layer": layer.node.name, "operator": layer.node.op_type, "output": layer.place,
                "type": layer.type, **ratios(layer.error),
            }
            for layer in layers if layer.node is not None and layer.node.op_type not in MOVES
        ],
        "outputs": [{"output": name, **ratios(error)} for name, error in outputs.items()],
        "hint": hint_for(job, quantizer, layers), "corrections": tried,
    }
