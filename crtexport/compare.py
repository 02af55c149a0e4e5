"""Exported code against a reference runtime: the same random inputs through both."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport import actions, pipeline
from crtexport.errors import CrtExportError
from crtexport.firmware.board import Board
from crtexport.importers.files import is_tflite
from crtexport.ir.graph import Graph
from crtexport.ir.types import TensorType
from crtexport.mlf.arrays import Array
from crtexport.passes.all_outputs import with_all_outputs
from crtexport.simulation.reference import TFLiteReference
from crtexport.simulation.runtimes import find_reference
from crtexport.simulation.tflite_writer import is_hybrid, to_tflite

FLOAT_TOLERANCE = 1e-5
"""Largest difference of float outputs, as a part of the reference's largest magnitude."""

_FLOAT_WEIGHTS = (
    "its int8 weights as float32, as the exported kernels scale them; the runtime would quantize"
    " the activations instead"
)


class OutputComparison(Struct, frozen=True):
    """One output over all samples. Differences are in the output's own units (steps, for
    integers); ``tolerance`` is what was allowed, 0 for integers."""

    name: str
    dtype: str
    largest_difference: float
    tolerance: float
    differing_samples: int

    @property
    def agrees(self) -> bool:
        return self.largest_difference <= self.tolerance


class VerifyResult(Struct, frozen=True):
    """``reference`` is the runtime and its version, ``ran_on`` the board and the kind of code.
    ``rewritten`` says why the reference got another file than the model, "" where it did not."""

    reference: str
    ran_on: str
    samples: int
    outputs: tuple[OutputComparison, ...]
    rewritten: str = ""

    @property
    def agrees(self) -> bool:
        return all(output.agrees for output in self.outputs)


class Difference(Struct, frozen=True):
    """An element that differs more than it may: of which sample, where, and both values."""

    sample: int
    position: tuple[int, ...]
    exported: float
    reference: float


class LayerComparison(Struct, frozen=True):
    """One output of one operator over all samples; ``first`` is None where it agrees."""

    operator: str
    output: OutputComparison
    shape: tuple[int, ...]
    first: Difference | None = None

    @property
    def agrees(self) -> bool:
        return self.output.agrees


class LayersResult(Struct, frozen=True):
    """Every operator's outputs, in order of execution; else as :class:`VerifyResult`."""

    reference: str
    ran_on: str
    samples: int
    layers: tuple[LayerComparison, ...]
    rewritten: str = ""

    @property
    def agrees(self) -> bool:
        return all(layer.agrees for layer in self.layers)

    @property
    def first_difference(self) -> LayerComparison | None:
        """The operator that differs before all others do: those after it only pass it on."""
        return next((layer for layer in self.layers if not layer.agrees), None)


def verify(
    model: Path | str, *, board: Board | Path | str | None = None, samples: int = 10,
    seed: int = 0, rounding: str = "double", emit: pipeline.Emit | None = None,
    io: pipeline.Io = "caller", accelerators: Sequence[str] | None = None,
) -> VerifyResult:
    """Exports ``model``, runs it (on this computer, or on ``board``) and a reference runtime on
    ``samples`` random inputs, and compares.

    The reference is tflite-runtime 2.14's reference kernels for double rounding (what TensorFlow
    Lite Micro computes), ai-edge-litert 2.x's for single. It runs the .tflite file as it is; a
    model.json, and a hybrid network (float activations, int8 weights), whose weights the kernels
    scale in float arithmetic, are handed to it rewritten. ``accelerators`` as for
    :func:`crtexport.export`. Raises ToolMissingError without the runtime.
    """
    _check_samples(samples)
    path = Path(model)
    graph = pipeline.load(path, rounding=rounding)
    given, rewritten = _reference_model(graph, path)
    inputs = _random_inputs(graph, samples, seed)
    answers = _answers(graph, given, inputs, board, emit, io, accelerators=accelerators)
    return VerifyResult(
        answers.reference, answers.ran_on, samples,
        tuple(
            _compare(
                graph.tensors[tensor].name, graph.type(tensor),
                [row[i] for row in answers.expected], [row[i] for row in answers.got],
            )
            for i, tensor in enumerate(graph.outputs)
        ),
        rewritten,
    )


def verify_layers(
    model: Path | str, *, board: Board | Path | str | None = None, samples: int = 10,
    seed: int = 0, rounding: str = "double", emit: pipeline.Emit | None = None,
    accelerators: Sequence[str] | None = None,
) -> LayersResult:
    """As :func:`verify`, of every operator's outputs and not only the network's.

    What is exported and run is the network with all of them as its outputs, operator by operator:
    nothing is fused and no memory is shared. The reference runs that same network, written as
    .tflite. A board must have room for all of it at once.
    """
    _check_samples(samples)
    loaded = pipeline.load(Path(model), rounding=rounding)
    graph = with_all_outputs(loaded)
    if not graph.outputs:
        raise CrtExportError("the network has no operator", location=graph.source)
    hybrid = is_hybrid(graph)
    given = to_tflite(graph, dequantize_weights=hybrid)
    inputs = _random_inputs(graph, samples, seed)
    answers = _answers(graph, given, inputs, board, emit, accelerators=accelerators)
    operators = [node for node in graph.nodes for _ in node.outputs]
    return LayersResult(
        answers.reference, answers.ran_on, samples,
        tuple(
            _compare_layer(
                str(node), loaded.tensors[tensor].name, graph.type(tensor),
                [row[i] for row in answers.expected], [row[i] for row in answers.got],
            )
            for i, (node, tensor) in enumerate(zip(operators, graph.outputs, strict=True))
        ),
        "every operator's outputs as outputs of the network"
        + (f"; {_FLOAT_WEIGHTS}" if hybrid else ""),
    )


def _check_samples(samples: int) -> None:
    if samples < 1:
        raise CrtExportError(f"at least 1 sample is needed, not {samples}")


class _Answers(Struct, frozen=True):
    """By sample and output of the graph."""

    reference: str
    ran_on: str
    expected: list[list[Array]]
    got: list[list[Array]]


def _answers(
    graph: Graph, given: Path | bytes, inputs: list[list[Array]], board: Board | Path | str | None,
    emit: pipeline.Emit | None, io: pipeline.Io = "caller", *,
    accelerators: Sequence[str] | None,
) -> _Answers:
    """What the reference makes of ``given``, a .tflite file or its content, and the exported code
    of ``graph``."""
    target = pipeline.resolve_board("host" if board is None else board)
    with TFLiteReference(given, runtime=find_reference(graph.rounding)) as reference:
        expected = [reference.run(row) for row in inputs]
        description = reference.description
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        exported = pipeline.export(
            graph, board=target, output=Path(folder) / "model.tar", emit=emit, io=io,
            accelerators=accelerators, system_lib=False,
        )
        got = _run(exported, inputs, on_board=board is not None)
    return _Answers(description, f"{target.name} ({exported.emit})", expected, got)


def _reference_model(graph: Graph, path: Path) -> tuple[Path | bytes, str]:
    """What the reference runs, and why it is another file than the model."""
    hybrid = is_hybrid(graph)
    if is_tflite(path) and not hybrid:
        return path, ""
    return to_tflite(graph, dequantize_weights=hybrid), (
        _FLOAT_WEIGHTS if hybrid else "the network as .tflite, which the runtime can read"
    )


def _random_inputs(graph: Graph, samples: int, seed: int) -> list[list[Array]]:
    rng = np.random.default_rng(seed)
    return [
        [_random(graph.type(tensor), rng) for tensor in graph.inputs] for _ in range(samples)
    ]


def _random(type_: TensorType, rng: np.random.Generator) -> Array:
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape).astype(type_.dtype.numpy)
    low, high = type_.dtype.limits if type_.dtype.is_integer else (0, 1)
    return rng.integers(low, high, type_.shape, endpoint=True).astype(type_.dtype.numpy)


def _run(
    exported: pipeline.Exported, inputs: Sequence[Sequence[Array]], *, on_board: bool
) -> list[list[Array]]:
    fields = [i.field for i in exported.artifact.inputs]
    stacked = {
        field: np.stack([row[i] for row in inputs]) for i, field in enumerate(fields)
    }
    if on_board:
        return [list(row) for row in actions.run(
            exported.path, stacked, trust_package=True
        ).outputs]
    results = actions.simulate(exported.path, stacked, trust_package=True)
    return [[row[o.field] for o in exported.artifact.outputs] for row in results]


def _compare(
    name: str, type_: TensorType, expected: Sequence[Array], got: Sequence[Array]
) -> OutputComparison:
    difference, tolerance = _differences(type_, expected, got)
    by_sample = difference.reshape(len(expected), -1).max(axis=1, initial=0.0)
    return OutputComparison(
        name, type_.dtype.value, float(by_sample.max(initial=0.0)), tolerance,
        int((by_sample > tolerance).sum()),
    )


def _compare_layer(
    operator: str, name: str, type_: TensorType, expected: Sequence[Array], got: Sequence[Array]
) -> LayerComparison:
    difference, tolerance = _differences(type_, expected, got)
    where = np.argwhere(difference > tolerance)
    first = None
    if len(where):
        sample, *position = (int(i) for i in where[0])
        at = tuple(position)
        first = Difference(sample, at, float(got[sample][at]), float(expected[sample][at]))
    return LayerComparison(operator, _compare(name, type_, expected, got), type_.shape, first)


def _differences(
    type_: TensorType, expected: Sequence[Array], got: Sequence[Array]
) -> tuple[npt.NDArray[np.float64], float]:
    """How much each element of each sample differs, and how much it may."""
    reference = np.stack([np.asarray(e, np.float64) for e in expected])
    # Where both are the same infinity the difference is 0; a NaN differs from everything.
    ours = np.stack([np.asarray(g, np.float64) for g in got])
    with np.errstate(invalid="ignore"):
        difference = np.where(ours == reference, 0.0, np.abs(ours - reference))
    difference = np.where(np.isnan(difference), np.inf, difference)
    full_scale = float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0))
    return difference, FLOAT_TOLERANCE * full_scale if type_.dtype.is_float else 0.0
