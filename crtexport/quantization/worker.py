"""Quantizes a network in a process of its own.

Another Python, without crtexport and with another NumPy, may run this file. It reads one JSON
object from stdin:

    quantizer    which module here does it: onnx_quantizer or tflite_quantizer
    model        the float file
    output       the file to write
    samples      an .npz with the inputs "0", "1", ..., each with the samples' axis in front
    inputs       their names in the file
    dims         sizes of dimensions that have names, and
    shapes       shapes of inputs, which the new file then has
    format       qdq or qoperator
    activations  int8, uint8 or int16; with tflite_quantizer not uint8
    calibration  minmax, entropy or percentile
    keep         names of layers that stay float
    wide         names of layers whose results have 16 bits
    corrections  whether equalization and bias correction are tried

and writes one to stdout: ``library``, ``layers``, ``outputs``, ``corrections`` and ``hint`` as in
:mod:`crtexport.quantization.quantize`; or ``error`` with the sentences ``problem``, ``where`` and
``hint``; or ``missing``, the package that can't be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import sys
import tempfile
from typing import Any

_LIBRARIES = {
    "onnx_quantizer": "onnxruntime.quantization", "tflite_quantizer": "ai-edge-quantizer",
}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find_own_modules() -> None:
    """Makes crtexport's modules importable by their names, and nothing else that lies beside them:
    those packages may be for another Python. A script's folder comes first on the path; nothing in
    this one may stand in for a library."""
    sys.path[:] = [entry for entry in sys.path if os.path.dirname(entry) != _PACKAGE]
    spec = importlib.util.spec_from_file_location(
        "crtexport", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
    )
    if spec is not None:
        sys.modules["crtexport"] = importlib.util.module_from_spec(spec)


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Does one job."""
    try:
        quantizer = importlib.import_module(f"crtexport.quantization.{job['quantizer']}")
    except ImportError as lacking:
        return {"missing": str(lacking)}
    refused = importlib.import_module("crtexport.quantization.ratios").RefusedError
    try:
        with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
            answer: dict[str, Any] = quantizer.answer(job, folder)
            return answer
    except refused as error:
        return {"error": dict(zip(("problem", "where", "hint"), error.args))}
    except Exception as error:  # whatever the library raises
        problem = f"{_LIBRARIES[job['quantizer']]} can't do this: {error}"
        return {"error": {"problem": problem, "where": "", "hint": None}}


def main() -> None:
    """Does the job on stdin; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    find_own_modules()
    with answers:
        json.dump(work(json.load(sys.stdin)), answers)


if __name__ == "__main__":
    main()
