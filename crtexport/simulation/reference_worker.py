"""Runs ``.tflite`` models with a reference runtime, in a process of its own.

This file is a plain script: another Python, without crtexport and with another NumPy, may run it.
It imports nothing but NumPy and the runtime, and stays readable for Python 3.9.

Usage: ``python reference_worker.py tflite-runtime|ai-edge-litert``

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
====  ======================================  ====================================================

Any request may be answered by ``E`` and a message in UTF-8. A closed stdin ends the process.
"""

# ruff: noqa: E402, PTH100, PTH120, UP045  (imports follow the path; Python 3.9)

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
from typing import Any, BinaryIO, Optional

import numpy as np

HEADER = struct.Struct("<cQ")
RUNTIMES = {
    "tflite-runtime": "tflite_runtime.interpreter",
    "ai-edge-litert": "ai_edge_litert.interpreter",
}


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
        """Load a model (``model_path`` or ``model_content``) with the reference kernels and no
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
        """The outputs for ``inputs`` (both by position), or all computed tensors by index."""
        if self.model is None:
            raise ValueError("no model is loaded")
        if every_tensor and not self.preserves:
            self.load(self.model, preserve=True)
        details = self.interpreter.get_input_details()
        if len(inputs) != len(details):
            raise ValueError(f"the model has {len(details)} inputs, not {len(inputs)}")
        for position, detail in enumerate(details):
            value = inputs[str(position)]
            shape = tuple(int(n) for n in detail["shape"])
            dtype = np.dtype(detail["dtype"])
            if value.shape != shape or value.dtype != dtype:
                raise ValueError(
                    f"input {position} wants {dtype}{list(shape)},"
                    f" not {value.dtype}{list(value.shape)}"
                )
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
        """The loaded model's inputs and outputs, in the order that run() uses."""
        return {
            "kernels": self.kernels,
            "inputs": [_describe(d) for d in self.interpreter.get_input_details()],
            "outputs": [_describe(d) for d in self.interpreter.get_output_details()],
        }


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


def _answer(runner: Runner, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    if kind in (b"L", b"C"):
        path = {"model_path": payload.decode("utf-8")} if kind == b"L" else None
        runner.load(path or {"model_content": payload})
        return b"D", json.dumps(runner.describe()).encode()
    if kind in (b"R", b"I"):
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            inputs = {name: archive[name] for name in archive.files}
        packed = io.BytesIO()
        np.savez(packed, **runner.run(inputs, every_tensor=kind == b"I"))
        return b"O", packed.getvalue()
    raise ValueError(f"unknown request {kind!r}")


def serve(runtime: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until ``requests`` ends."""
    try:
        runner = Runner(runtime)
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
    """Serve stdin; what the runtime itself prints goes to stderr, never between the frames."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
