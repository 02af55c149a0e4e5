"""Runs ``.tflite`` or ``.onnx`` models with a reference runtime, in a process of its own.

This file is a plain script: another Python, without crtexport and with another NumPy, may run it.
It imports nothing but NumPy and the runtime, and stays readable for Python 3.9.

Usage: ``python reference_worker.py tflite-runtime|ai-edge-litert|tflite-micro|onnxruntime``

Frames go both ways over stdin and stdout: one byte for the kind, eight bytes for the length
(little-endian), then the payload.

====  ======================================  ====================================================
kind  request                                 answer
====  ======================================  ====================================================
      (at the start)                          ``H`` JSON: runtime, version, numpy
``L`` path of a model, UTF-8                  ``D`` JSON: kernels, inputs, outputs, see describe()
``C`` content of a model                      ``D`` likewise
``R`` npz: inputs "0", "1", ...               ``O`` npz: outputs "0", "1", ...
``I`` npz: inputs "0", "1", ...               ``O`` npz: every computed tensor, by its index
``X`` npz: inputs "0", "1", ...               ``O`` npz: outputs, computed in float64
``F`` nothing                                 ``M`` the .onnx file after the runtime's optimizer
``N`` JSON: names of results                  ``D`` JSON likewise, with these as outputs
``A`` JSON: names of results                  ``D`` JSON likewise, as the optimizer leaves them
====  ======================================  ====================================================

Any request may be answered by ``E`` and a message in UTF-8. A closed stdin ends the process.
"""

# ruff: noqa: E402, PTH100, PTH118, PTH120, UP045  (imports follow the path; Python 3.9)

from __future__ import annotations

import os
import sys

# A script's folder comes first on the path; nothing in this one may stand in for a library.
_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]

import importlib
import importlib.metadata
import io
import json
import struct
import tempfile
from typing import Any, BinaryIO, Optional

import numpy as np

HEADER = struct.Struct("<cQ")
RUNTIMES = {
    "tflite-runtime": "tflite_runtime.interpreter",
    "ai-edge-litert": "ai_edge_litert.interpreter",
    "tflite-micro": "tflite_micro.python.tflite_micro.runtime",
    "onnxruntime": "onnxruntime",
}
ARENAS = (1 << 20, 1 << 24, 1 << 28)  # bytes that TensorFlow Lite Micro may take
ENDED_EARLY = 15  # its kTfLiteAbort: nothing failed, but an operator ended the run


class Runner:
    """One runtime and the model loaded last."""

    def __init__(self, runtime: str) -> None:
        self.runtime = runtime
        self.module: Any = importlib.import_module(RUNTIMES[runtime])
        self.version = importlib.metadata.version(runtime)
        self.model: Optional[dict[str, Any]] = None
        self.interpreter: Any = None
        self.kernels = ""
        self.preserves = False

    def load(self, model: dict[str, Any], preserve: bool = False) -> None:
        """Loads a model (``model_path`` or ``model_content``) with the reference kernels and no
        delegate.

        Where an operator (CUMSUM) is not among the reference kernels, with the usual ones.
        """
        for kernels in ("BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"):
            try:
                self.interpreter = self.module.Interpreter(
                    **model,
                    experimental_op_resolver_type=getattr(self.module.OpResolverType, kernels),
                    experimental_preserve_all_tensors=preserve,
                    num_threads=1,
                )
                break
            except ValueError as error:
                if kernels != "BUILTIN_REF" or "Didn't find op" not in str(error):
                    raise
        self.interpreter.allocate_tensors()
        self.model, self.preserves, self.kernels = model, preserve, kernels

    def run(self, inputs: dict[str, Any], every_tensor: bool = False) -> dict[str, Any]:
        """Returns the outputs for ``inputs`` (both by position), or all computed tensors by
        index."""
        if self.model is None:
            raise ValueError("no model is loaded")
        if every_tensor and not self.preserves:
            self.load(self.model, preserve=True)
        details = self.interpreter.get_input_details()
        for detail, value in zip(details, _checked(inputs, details)):  # noqa: B905
            self.interpreter.set_tensor(detail["index"], value)
        self.interpreter.invoke()
        if every_tensor:
            return self._tensors()
        outputs = self.interpreter.get_output_details()
        return {str(i): self.interpreter.get_tensor(d["index"]) for i, d in enumerate(outputs)}

    def _tensors(self) -> dict[str, Any]:
        found = {}
        for detail in self.interpreter.get_tensor_details():
            try:
                found[str(detail["index"])] = self.interpreter.get_tensor(detail["index"])
            except ValueError:  # kernels' own scratch tensors hold nothing after the run
                continue
        return found

    def describe(self) -> dict[str, Any]:
        """Returns the loaded model's inputs and outputs, in the order that run() uses."""
        return {
            "kernels": self.kernels,
            "inputs": [_describe(d) for d in self.interpreter.get_input_details()],
            "outputs": [_describe(d) for d in self.interpreter.get_output_details()],
        }


class MicroRunner:
    """TensorFlow Lite Micro and the model loaded last."""

    def __init__(self, runtime: str) -> None:
        self.module: Any = importlib.import_module(RUNTIMES[runtime])
        self.version = importlib.metadata.version(runtime)
        self.content = b""
        self.interpreter: Any = None
        self.tensors: Any = ()
        self.inputs: Any = ()
        self.outputs: Any = ()
        self.results: dict[str, Any] = {}  # of the last run that didn't end early
        self.preserves = False

    def load(self, model: dict[str, Any], preserve: bool = False) -> None:
        """Loads a model (``model_path`` or ``model_content``) into an arena as large as needed."""
        self.content = model.get("model_content") or _content(model["model_path"])
        if self.content[4:8] != b"TFL3":  # the runtime would read past its end
            raise ValueError("the file has another identifier than TFL3")
        main = self.module.convert_bytearray_to_object(bytearray(self.content)).subgraphs[0]
        self.tensors, self.inputs, self.outputs = main.tensors, main.inputs, main.outputs
        kind = self.module.InterpreterConfig
        for arena in ARENAS:
            try:
                self.interpreter = self.module.Interpreter.from_bytes(
                    self.content, arena_size=arena + 2 * len(self.content),
                    intrepreter_config=(
                        kind.kPreserveAllTensors if preserve else kind.kAllocationRecording
                    ),
                )
                break
            except RuntimeError:
                if arena == ARENAS[-1]:
                    raise
        self.preserves = preserve
        details = self.describe()["outputs"]
        self.results = {
            str(i): np.zeros(detail["shape"], detail["dtype"]) for i, detail in enumerate(details)
        }

    def run(self, inputs: dict[str, Any], every_tensor: bool = False) -> dict[str, Any]:
        """Returns the outputs for ``inputs`` (both by position), or all computed tensors by index.

        A run that a CIRCULAR_BUFFER ends gives the outputs of the one before.
        """
        if self.interpreter is None:
            raise ValueError("no model is loaded")
        if every_tensor and not self.preserves:
            self.load({"model_content": self.content}, preserve=True)
        for position, value in enumerate(_checked(inputs, self.describe()["inputs"])):
            self.interpreter.set_input(value, position)
        if self.interpreter.invoke() != ENDED_EARLY:
            count = range(len(self.outputs))
            self.results = {str(i): self.interpreter.get_output(i) for i in count}
        if every_tensor:
            return self._tensors()
        return self.results

    def describe(self) -> dict[str, Any]:
        """Returns the loaded model's inputs and outputs, in the order that run() uses."""
        made = self.interpreter
        return {
            "kernels": "reference kernels",
            "inputs": [
                _describe({**made.get_input_details(i), "name": self._name(tensor)})
                for i, tensor in enumerate(self.inputs)
            ],
            "outputs": [
                _describe({**made.get_output_details(i), "name": self._name(tensor)})
                for i, tensor in enumerate(self.outputs)
            ],
        }

    def _tensors(self) -> dict[str, Any]:
        tensors = range(len(self.tensors))
        return {str(i): self.interpreter.GetTensor(i, 0)["tensor_data"] for i in tensors}

    def _name(self, tensor: int) -> str:
        return (self.tensors[tensor].name or b"").decode("utf-8", "replace")


class OnnxRunner:
    """ONNX Runtime on the processor, and the model loaded last."""

    def __init__(self, runtime: str) -> None:
        self.module: Any = importlib.import_module(RUNTIMES[runtime])
        self.version = importlib.metadata.version(runtime)
        self.session: Any = None
        self.path = ""
        self.fused = b""  # the file after the optimizer
        self.inside: Any = None  # a session with it, for results inside of it
        self.names: list[str] = []  # of these

    def load(self, model: dict[str, Any]) -> None:
        """Loads a model (``model_path`` or ``model_content``)."""
        self.path = model.get("model_path", "")
        self.session = self._started(model, self._options())
        self.fused, self.inside, self.names = b"", None, []

    def fuse(self) -> bytes:
        """Returns the file with the nodes that compute its outputs, once the optimizer has joined
        many."""
        with tempfile.TemporaryDirectory() as folder:
            options = self._options()
            options.optimized_model_filepath = os.path.join(folder, "fused.onnx")
            options.graph_optimization_level = self._levels().ORT_ENABLE_EXTENDED
            self._started({"model_path": self.path}, options)
            self.fused = _content(options.optimized_model_filepath)
        return self.fused

    def add_outputs(self, names: list[str]) -> None:
        """Loads the file again with more outputs, so that what they are is not joined with others.
        """
        content = _with_outputs(_content(self.path), names)
        self.session = self._started({"model_content": content}, self._options())

    def add_fused(self, names: list[str]) -> None:
        """Takes results inside of the optimized file as outputs, too."""
        options = self._options()
        options.graph_optimization_level = self._levels().ORT_DISABLE_ALL
        content = _with_outputs(self.fused or self.fuse(), names)
        self.inside, self.names = self._started({"model_content": content}, options), names

    def _levels(self) -> Any:
        return self.module.GraphOptimizationLevel

    def _options(self) -> Any:
        options = self.module.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Activations that the file has as floats aren't rounded to integers.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        # int8 stays int8: what reads such a tensor beside others would be computed in floats.
        options.add_session_config_entry("session.qdqisint8allowed", "1")
        return options

    def _started(self, model: dict[str, Any], options: Any) -> Any:
        content = model.get("model_content")
        if content is not None:  # what lies beside the file is looked for there
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", os.path.dirname(self.path)
            )
        return self.module.InferenceSession(
            content or model["model_path"], options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: dict[str, Any], every_tensor: bool = False) -> dict[str, Any]:
        """Returns the outputs for ``inputs`` (both by position)."""
        if self.session is None or every_tensor:
            raise ValueError("no model is loaded, or more than its outputs are wanted")
        names = [one.name for one in self.session.get_inputs()]
        given = {name: inputs[str(position)] for position, name in enumerate(names)}
        found = self.session.run(None, given)
        if self.names:
            found += self.inside.run(self.names, given)
        return {str(position): value for position, value in enumerate(found)}

    def exact(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the outputs for ``inputs`` as the package onnx's own evaluator computes them in
        float64."""
        onnx: Any = importlib.import_module("onnx")
        evaluator: Any = importlib.import_module("onnx.reference").ReferenceEvaluator
        model = onnx.load(self.path)
        _widen(onnx, model.graph)
        given = {
            one.name: _wide(inputs[str(position)])
            for position, one in enumerate(self.session.get_inputs())
        }
        found = evaluator(model).run(None, given)
        return {str(position): np.asarray(value) for position, value in enumerate(found)}

    def describe(self) -> dict[str, Any]:
        """Returns the loaded model's inputs and outputs, in the order that run() uses; open sizes
        are -1."""
        return {
            "kernels": "CPUExecutionProvider",
            "inputs": [_tensor(one) for one in self.session.get_inputs()],
            "outputs": [_tensor(one) for one in self._outputs()],
        }

    def _outputs(self) -> list[Any]:
        inner = {one.name: one for one in self.inside.get_outputs()} if self.names else {}
        return [*self.session.get_outputs(), *(inner[name] for name in self.names)]


def _wide(array: Any) -> Any:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _widen(onnx: Any, graph: Any) -> None:
    """Makes all float32 of a graph, and of those inside of its nodes, float64."""
    codes = onnx.TensorProto
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    tensors = [*graph.initializer, *(a.t for a in attributes if a.HasField("t"))]
    for tensor in tensors:
        if tensor.data_type == codes.FLOAT:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == codes.FLOAT:
            info.type.tensor_type.elem_type = codes.DOUBLE
    for attribute in attributes:
        if attribute.name == "to" and attribute.i == codes.FLOAT:
            attribute.i = codes.DOUBLE
        if attribute.HasField("g"):
            _widen(onnx, attribute.g)


def _with_outputs(content: bytes, names: list[str]) -> bytes:
    """Returns an .onnx file with more outputs: another graph (field 7) that only has these (field
    12, their names field 1), which protobuf joins with the one before."""
    more = b"".join(_block(12, _block(1, name.encode("utf-8"))) for name in names)
    return content + _block(7, more)


def _block(field: int, content: bytes) -> bytes:
    """Returns a field of bytes in protobuf's format."""
    out, size = bytearray([field << 3 | 2]), len(content)
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(out) + bytes([size]) + content


def _tensor(one: Any) -> dict[str, Any]:
    sizes = [size if isinstance(size, int) else -1 for size in one.shape or []]
    return {"name": one.name, "dtype": one.type, "shape": sizes}


def _content(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


def _checked(inputs: dict[str, Any], details: list[dict[str, Any]]) -> list[Any]:
    """Returns the inputs in their order; ValueError for any that doesn't fit."""
    if len(inputs) != len(details):
        raise ValueError(f"the model has {len(details)} inputs, not {len(inputs)}")
    for position, detail in enumerate(details):
        value = inputs[str(position)]
        shape, dtype = tuple(int(n) for n in detail["shape"]), np.dtype(detail["dtype"])
        if value.shape != shape or value.dtype != dtype:
            raise ValueError(
                f"input {position} wants {dtype}{list(shape)}, not {value.dtype}{list(value.shape)}"
            )
    return [inputs[str(position)] for position in range(len(details))]


def _describe(detail: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": detail["name"],
        "dtype": np.dtype(detail["dtype"]).name,
        "shape": [int(n) for n in detail["shape"]],
    }


def _send(stream: BinaryIO, kind: bytes, payload: bytes) -> None:
    stream.write(HEADER.pack(kind, len(payload)) + payload)
    stream.flush()


def _receive(stream: BinaryIO) -> Optional[tuple[bytes, bytes]]:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    kind, length = HEADER.unpack(header)
    return kind, stream.read(length)


def _answer(runner: Any, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    if kind in (b"L", b"C"):
        model: dict[str, Any] = {"model_content": payload}
        runner.load(model if kind == b"C" else {"model_path": payload.decode("utf-8")})
        return b"D", json.dumps(runner.describe()).encode()
    if kind == b"F":
        return b"M", runner.fuse()
    if kind in (b"N", b"A"):
        (runner.add_outputs if kind == b"N" else runner.add_fused)(json.loads(payload))
        return b"D", json.dumps(runner.describe()).encode()
    if kind in (b"R", b"I", b"X"):
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            inputs = {name: archive[name] for name in archive.files}
        packed = io.BytesIO()
        if kind == b"X":
            np.savez(packed, **runner.exact(inputs))
        else:
            np.savez(packed, **runner.run(inputs, every_tensor=kind == b"I"))
        return b"O", packed.getvalue()
    raise ValueError(f"unknown request {kind!r}")


def serve(runtime: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests until ``requests`` ends."""
    try:
        kinds: dict[str, Any] = {"tflite-micro": MicroRunner, "onnxruntime": OnnxRunner}
        runner = kinds.get(runtime, Runner)(runtime)
    except Exception as error:
        _send(answers, b"E", f"{type(error).__name__}: {error}".encode())
        return
    hello = {"runtime": runtime, "version": runner.version, "numpy": np.__version__}
    _send(answers, b"H", json.dumps(hello).encode())
    while True:
        request = _receive(requests)
        if request is None:
            return
        try:
            kind, payload = _answer(runner, *request)
        except Exception as error:
            kind, payload = b"E", str(error).encode()
        _send(answers, kind, payload)


def main() -> None:
    """Serves stdin; what the runtime itself prints goes to stderr, never between the frames."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
