"""Quantizes a network after training, and says what that costs and gains.

Ranges of activations are calibrated on the user's data. Calibration and the new file are the work
of onnxruntime.quantization, or of ai-edge-quantizer for .tflite files, in a process of its own
(:mod:`.worker`).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.firmware.board import Board
from crtexport.importers.files import data_files
from crtexport.importers.formats import NO_CHOICES, ONNX, TFLITE, Format, InputChoices, format_of
from crtexport.ir.graph import Graph
from crtexport.mlf.arrays import Array
from crtexport.package_actions import inputs_of
from crtexport.pipeline import driver
from crtexport.quantization.cost import BoardCost, compare
from crtexport.quantization.data import files_of, read_samples
from crtexport.simulation.runtimes import RuntimeName, find_runtime, installation_hint
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from crtexport.support.outputs.claims import Claims
from crtexport.support.outputs.single import replacing
from crtexport.support.short import count, line

Form = Literal["qdq", "qoperator"]
Activations = Literal["uint8", "int8", "int16"]
Calibration = Literal["minmax", "entropy", "percentile"]

_WORKER = Path(__file__).with_name("worker.py")
_QUANTIZERS: dict[str, tuple[str, RuntimeName]] = {
    ONNX.name: ("onnx_quantizer", "onnxruntime.quantization"),
    TFLITE.name: ("tflite_quantizer", "ai-edge-quantizer"),
}
"""The module that quantizes a format, and the library that it needs."""


class Ratio(Struct, frozen=True):
    """The error against the float network over all samples: ratios of signal to quantization error
    in dB, None where there is no error (or no signal). ``channel`` is the worst one."""

    sqnr: float | None
    channel: int | None
    channel_sqnr: float | None


class LayerError(Ratio, frozen=True):
    """Of one layer, with all errors of those before it. ``type`` is that of its result's elements,
    float32 where it stayed float."""

    layer: str
    operator: str
    output: str
    type: str


class OutputError(Ratio, frozen=True):
    """Of an output of the network, in the file that was written."""

    output: str


class Hint(Struct, frozen=True):
    """The least ratio of all outputs, in dB, as it is and with one ``layer`` more in ``bits`` 16 or
    32 (float): the one that is worth most; where none is, ``layer`` is "" and the ratio that with
    int16 activations."""

    layer: str
    before: float
    after: float
    bits: int = 32


class Correction(Struct, frozen=True):
    """A change of the float network that was tried, and is ``used`` if it is worth at least 1 dB:
    the least ratio of all outputs without and with it, in dB."""

    name: str
    before: float
    after: float
    used: bool


class QuantizeResult(Struct, frozen=True):
    """``layers`` are sorted, the worst first. ``cost`` is None where no board was given."""

    path: Path
    library: str
    samples: int
    layers: tuple[LayerError, ...]
    outputs: tuple[OutputError, ...]
    hint: Hint | None = None
    cost: BoardCost | None = None
    corrections: tuple[Correction, ...] = ()

    def __repr__(self) -> str:
        least = min((o.sqnr for o in self.outputs if o.sqnr is not None), default=None)
        return line(
            "QuantizeResult", f"{self.path}:", f"{count(len(self.layers), 'layer')},",
            count(self.samples, "sample"), *([] if least is None else [f", {least:.1f} dB"]),
        )


def quantize(
    model: Path | str, data: str | Path, output: Path | str, *, format: Form = "qdq",  # noqa: A002
    activations: Activations | None = None, calibration: Calibration = "minmax",
    keep: Sequence[str] = (), keep16: Sequence[str] = (), corrections: bool = True,
    samples: int = 1000, board: Board | Path | str | None = None,
    choices: InputChoices = NO_CHOICES, claims: Claims | None = None,
) -> QuantizeResult:
    """Writes the float network of an .onnx or .tflite file to ``output`` with integers.

    Weights become int8 with a scale per channel and zero point 0, ``activations`` what is said, by
    default uint8 in .onnx files and int8 in .tflite files, of which the ``format`` isn't chosen.
    Ranges are calibrated on ``data`` (:func:`crtexport.quantization.data.read_samples`), of which
    ``samples`` are used at most. ``keep`` names layers that stay float, in .onnx files with those
    that read their results, ``keep16`` layers whose results have 16 bits. With ``corrections``,
    channels of .onnx files are equalized between layers and biases corrected, where that pays.
    ``board``: what both networks cost there is compared. ``choices`` as for
    :func:`crtexport.export`. Raises ToolMissingError without the library, and CrtExportError for
    data that doesn't fit the network, for a network that is quantized already, and where an output
    is a file that is read.
    """
    source, place = Path(model), Path(output)
    claims = claims or Claims()
    claims.file("-o", place)
    claims.reads(source, *files_of(str(data)), *choices.values.values())
    kind = _format(source)
    activations = activations or ("uint8" if kind is ONNX else "int8")
    _check_options(kind, format, activations, calibration, words=bool(keep16))
    graph = driver.load(source, choices=replace(choices, layout="nchw"))  # data is as in the file
    claims.reads(*data_files(graph))
    if kind is TFLITE:
        _check_float(graph, source)
    target = None if board is None else driver.resolve_board(board)
    arrays = read_samples(str(data), inputs_of(graph), samples)
    count = max(map(len, arrays.values()), default=0)
    bound = {name: np.load(path, allow_pickle=False) for name, path in choices.values.items()}
    arrays |= {name: np.stack([value] * count) for name, value in bound.items()}
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        made = Path(folder) / place.name
        module, library = _QUANTIZERS[kind.name]
        answer = _work(Path(folder), arrays, library, {
            "quantizer": module, "model": str(source.resolve()), "output": str(made),
            "format": format,
            "activations": activations, "calibration": calibration, "keep": list(keep),
            "wide": list(keep16), "corrections": corrections,
            "dims": dict(choices.dims), "shapes": {k: list(v) for k, v in choices.shapes.items()},
        }, str(source))
        cost = None if target is None else compare((source, made), target, choices)
        _write(made, place)
    layers = [LayerError(**entry) for entry in answer["layers"]]
    return QuantizeResult(
        place, answer["library"], count,
        tuple(sorted(layers, key=lambda layer: (layer.sqnr is None, layer.sqnr or 0.0))),
        tuple(OutputError(**entry) for entry in answer["outputs"]),
        None if answer["hint"] is None else Hint(**answer["hint"]), cost,
        tuple(Correction(**entry) for entry in answer["corrections"]),
    )


def quantizer_of(model: Path | str) -> RuntimeName:
    """Returns the name of the library that quantizes a file. Raises CrtExportError where none does.
    """
    return _QUANTIZERS[_format(Path(model)).name][1]


def _format(source: Path) -> Format:
    found = format_of(source)
    if found not in (ONNX, TFLITE):
        raise CrtExportError("only .onnx and .tflite files can be quantized", location=str(source))
    return found


def _check_options(
    kind: Format, form: Form, activations: Activations, calibration: Calibration, *, words: bool
) -> None:
    if form == "qoperator" and (activations == "int16" or words):
        raise CrtExportError(
            "the format qoperator has no operators of int16",
            location="--keep16" if words else "--activations",
            hint="leave out --format: qdq has them",
        )
    if kind is ONNX:
        return
    wrong = {
        "--format": form != "qdq", "--activations": activations == "uint8",
        "--calibration": calibration != "minmax",
    }
    for option, given in wrong.items():
        if given:
            raise CrtExportError(
                "what quantizes .tflite files has no such choice", location=option,
                hint=f"leave out {option}",
            )


def _check_float(graph: Graph, source: Path) -> None:
    """Refuses a network with quantized activations; weights may be."""
    if any(tensor.type.quant is not None and tensor.constant is None for tensor in graph.tensors):
        raise CrtExportError(
            "the network is quantized already", location=str(source),
            hint="quantize the float network that it was made of; this one can be exported",
        )


def _work(
    folder: Path, arrays: dict[str, Array], library: RuntimeName, job: dict[str, Any], source: str
) -> dict[str, Any]:
    """Returns what the worker answers."""
    stored: dict[str, Any] = {str(number): array for number, array in enumerate(arrays.values())}
    np.savez(folder / "samples.npz", **stored)
    job |= {"samples": str(folder / "samples.npz"), "inputs": list(arrays)}
    python = find_runtime(library).python
    try:
        done = subprocess.run(
            [python, str(_WORKER)], input=json.dumps(job).encode(), capture_output=True, check=False
        )
    except OSError as error:
        raise ToolMissingError(
            f"can't be started: {error.strerror}", location=python, hint=installation_hint(library)
        ) from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise RunFailedError(
            f"quantizing ended with status {done.returncode}" + "".join(f": {x}" for x in last),
            location=python,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    if "missing" in found:
        raise ToolMissingError(
            f"what quantizes is not there: {found['missing']}", location=python,
            hint=installation_hint(library),
        )
    if "error" in found:
        refusal = found["error"]
        raise CrtExportError(
            refusal["problem"], location=(source, refusal["where"]), hint=refusal["hint"]
        )
    return found


def _write(temporary: Path, place: Path) -> None:
    try:
        with replacing(place) as stream:
            stream.write(temporary.read_bytes())
    except OSError as error:
        raise CrtExportError(
            f"the file can't be written ({error.strerror or error})", location=str(place)
        ) from error
