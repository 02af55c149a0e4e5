"""Compares exported code with a reference runtime on the same random inputs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from crtexport import package_actions
from crtexport.firmware.board import Board
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.importers import onnx
from crtexport.importers.formats import (
    NO_CHOICES,
    ONNX,
    TFLITE,
    InputChoices,
    ReadOptions,
    format_of,
)
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Reshape, Transpose
from crtexport.ir.types import DType, TensorType
from crtexport.ir.verify import verify as check_graph
from crtexport.mlf.arrays import Array
from crtexport.passes import simplify
from crtexport.passes.all_outputs import with_all_outputs
from crtexport.passes.drop_dead import drop_dead
from crtexport.pipeline import driver
from crtexport.pipeline.options import ExportOptions
from crtexport.simulation.onnx_reference import Inner, OnnxReference, fused_names
from crtexport.simulation.random_inputs import random_inputs
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.refusals import in_plain_words, refuse_unknown
from crtexport.simulation.runtimes import find_reference, install, runtime_of
from crtexport.simulation.tflite_legalize import computed_wrong
from crtexport.simulation.tflite_writer import is_hybrid, to_tflite
from crtexport.support.errors import CrtExportError, ToolMissingError
from crtexport.support.short import count, line, table

FLOAT_TOLERANCE = 1e-5
"""Largest difference of float outputs, as a part of the reference's largest magnitude."""
HALF_TOLERANCE = 4e-3
"""The same for float16: ONNX Runtime rounds every result inside of a network to 11 bits."""

_SLIGHT = 10
"""Times the tolerance: a larger difference isn't one of rounding."""

_FLOAT_WEIGHTS = (
    "its int8 weights as float32, as the exported kernels scale them; the runtime would quantize"
    " the activations instead"
)


_OPTIMIZED = "results that are left after its optimizer as outputs of the network"

_ROWS = (
    "FULLY_CONNECTED of the rows of a matrix, because tflite-runtime 2.14 computes it wrong with a"
    " scale per channel and a result that has not two dimensions"
)


class OutputComparison(Struct, frozen=True):
    """One output over all samples. Differences are in the output's own units (steps, for integers);
    ``tolerance`` is the largest allowed one, 0 for integers."""

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
    ``rewritten``: the reason why the reference ran another file than the model, "" where it did
    not."""

    reference: str
    ran_on: str
    samples: int
    outputs: tuple[OutputComparison, ...]
    rewritten: str = ""

    def __repr__(self) -> str:
        return line(
            "VerifyResult", "agrees" if self.agrees else "differs", f"with {self.reference}",
            f"on {self.ran_on}:", count(self.samples, "sample"),
        )

    def _repr_html_(self) -> str:
        return _table(f"{self.ran_on} beside {self.reference}", self.outputs)

    @property
    def agrees(self) -> bool:
        return all(output.agrees for output in self.outputs)


def _table(title: str, outputs: Sequence[OutputComparison]) -> str:
    return table(
        title, [(x.name, x.dtype, x.largest_difference, x.tolerance, x.agrees) for x in outputs],
        ("output", "type", "largest difference", "allowed", "agrees"),
    )


class OutputDifference(Struct, frozen=True):
    """An element that differs more than allowed: its sample, position, and both values."""

    sample: int
    position: tuple[int, ...]
    exported: float
    reference: float


class LayerComparison(Struct, frozen=True):
    """One output of one operator over all samples; ``first`` is None where it agrees. ``kept``:
    whether an export has a kernel that computes it, rather than only what follows from it."""

    operator: str
    output: OutputComparison
    shape: tuple[int, ...]
    first: OutputDifference | None = None
    kept: bool = True

    @property
    def agrees(self) -> bool:
        return self.output.agrees


class LayersResult(Struct, frozen=True):
    """Every operator's outputs, in order of execution; else as :class:`VerifyResult`. ``unseen``:
    the operators whose results the reference doesn't show, for it computes them with others."""

    reference: str
    ran_on: str
    samples: int
    layers: tuple[LayerComparison, ...]
    rewritten: str = ""
    unseen: tuple[str, ...] = ()

    def __repr__(self) -> str:
        wrong = sum(not layer.agrees for layer in self.layers)
        return line(
            "LayersResult", f"{wrong} of {count(len(self.layers), 'layer')} differ from",
            self.reference,
        )

    def _repr_html_(self) -> str:
        return _table(
            f"{self.ran_on} beside {self.reference}", [layer.output for layer in self.layers]
        )

    @property
    def agrees(self) -> bool:
        return all(layer.agrees for layer in self.layers)

    @property
    def first_difference(self) -> LayerComparison | None:
        """Returns the first operator that differs: later ones may only pass its difference on."""
        return next((layer for layer in self.layers if not layer.agrees), None)


def verify(
    model: Path | str, *, board: Board | Path | str | None = None, samples: int = 10,
    seed: int = 0, numerics: str | None = None, emit: driver.Emit | None = None,
    io: driver.Io = "caller", accelerators: Sequence[str] | None = None,
    choices: InputChoices = NO_CHOICES, weights: driver.Weights = "auto",
    optimize: driver.Optimize | None = None, tuning: Path | str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> VerifyResult:
    """Exports ``model``, runs it and a reference runtime on ``samples`` random inputs, and compares
    the outputs. The model runs on this computer, or on ``board``.

    The reference for .tflite and model.json files is tflite-runtime 2.14 with its reference kernels
    (``numerics`` "tflite"), ai-edge-litert 2.x ("litert") or tflite-micro ("tflm"); for .onnx files
    it is ONNX Runtime. A .tflite file is rewritten for the runtime if the runtime refuses it or is
    known to compute it wrong, and if it is a hybrid network (float activations, int8 weights).

    Other options are as for :func:`crtexport.export`; ``timeout`` limits each boot of a board, in
    seconds. Raises ToolMissingError if the runtime isn't installed.
    """
    _check_samples(samples)
    path = Path(model)
    graph = driver.load(path, numerics=numerics, choices=choices)
    given, rewritten = _reference_model(graph, path, choices)
    inputs = random_inputs(graph, samples, seed)
    options = ExportOptions(
        emit=emit, io=io, accelerators=accelerators, weights=weights, system_lib=False,
        optimize=optimize, tuning=tuning,
    )
    answers = _answers(graph, given, inputs, board, options, timeout)
    outputs = tuple(
        _judged(
            graph.tensors[tensor].name, graph.type(tensor),
            [row[i] for row in answers.expected], [row[i] for row in answers.got],
            {sample: row[i] for sample, row in answers.exact.items()},
        )
        for i, tensor in enumerate(graph.outputs)
    )
    judge = ", and onnx in float64 where rounding makes the difference" if answers.exact else ""
    return VerifyResult(
        answers.reference + judge, answers.ran_on, samples, outputs, answers.anew or rewritten
    )


def verify_layers(
    model: Path | str, *, board: Board | Path | str | None = None, samples: int = 10,
    seed: int = 0, numerics: str | None = None, emit: driver.Emit | None = None,
    accelerators: Sequence[str] | None = None, choices: InputChoices = NO_CHOICES,
    weights: driver.Weights = "auto", optimize: driver.Optimize | None = None,
    tuning: Path | str | None = None, timeout: float = DEFAULT_TIMEOUT,
) -> LayersResult:
    """Compares the outputs of every operator, where :func:`verify` compares those of the network.

    The network is exported with the results of all operators as outputs, so nothing is fused and no
    memory is shared. The board needs memory for all results at once. Of a quantized .onnx file, the
    results are compared that are left after ONNX Runtime's optimizer, which makes operators of
    integers of those between DequantizeLinear and QuantizeLinear.
    """
    _check_samples(samples)
    path = Path(model)
    loaded = driver.load(path, numerics=numerics, choices=choices)
    hybrid = format_of(path) is not ONNX and is_hybrid(loaded)
    fused, unseen = False, tuple[str, ...]()
    if format_of(path) is ONNX:
        fused = any(tensor.type.quant is not None for tensor in loaded.tensors)
        found = _onnx_layers(path, choices, loaded if fused else None)
        graph, operators, unseen = found.graph, found.places, found.unseen
        check_graph(graph)
        compared: Model = _OnnxFile(path, choices, "fused" if fused else "apart")
    else:
        graph = with_all_outputs(loaded)
        operators = tuple(str(node) for node in graph.nodes for _ in node.outputs)
        compared = to_tflite(graph, dequantize_weights=hybrid)
    if not graph.outputs:
        raise CrtExportError("the network has no operator", location=graph.source)
    inputs = random_inputs(graph, samples, seed)
    options = ExportOptions(
        emit=emit, accelerators=accelerators, weights=weights, system_lib=False,
        optimize=optimize, tuning=tuning,
    )
    answers = _answers(graph, compared, inputs, board, options, timeout)
    names = (graph if isinstance(compared, _OnnxFile) else loaded).tensors
    simple = simplify(loaded).graph
    kept = {
        simple.tensors[tensor].name for node in simple.nodes for tensor in node.outputs
        if not isinstance(node.op, Reshape | Transpose)
    }
    return LayersResult(
        answers.reference, answers.ran_on, samples,
        tuple(
            _compare_layer(
                operator, names[tensor].name, graph.type(tensor),
                [row[i] for row in answers.expected], [row[i] for row in answers.got],
                kept=names[tensor].name in kept,
            )
            for i, (operator, tensor) in enumerate(zip(operators, graph.outputs, strict=True))
        ),
        (_OPTIMIZED if fused else "every operator's outputs as outputs of the network")
        + (f"; {_FLOAT_WEIGHTS}" if hybrid else ""),
        unseen,
    )


def _onnx_layers(
    path: Path, choices: InputChoices, quantized: Graph | None
) -> onnx.LayerResults:
    """Returns the network with results of the file's nodes as outputs: all, or of a ``quantized``
    one those that both the reference and an export compute."""
    if quantized is None:
        return onnx.read_layers(path, ReadOptions(choices=choices))
    left, live = fused_names(path), drop_dead(quantized)
    made = [live.tensors[tensor] for node in live.nodes for tensor in node.outputs]
    reals = {tensor.name for tensor in made if tensor.type.dtype.is_float}
    return onnx.read_layers(
        path, ReadOptions(choices=choices),
        lambda name, dtype: name in left and (dtype.is_integer or name in reals),
    )


def install_reference(model: Path | str, numerics: str | None) -> None:
    """Makes an environment with the runtime that :func:`verify` would ask about ``model``, where
    there is none. Raises as :func:`crtexport.simulation.runtimes.install` does."""
    if format_of(Path(model)) is ONNX:
        install("onnxruntime")
    else:
        install(runtime_of(Numerics.of(numerics) or Numerics.TFLITE))


def _check_samples(samples: int) -> None:
    if samples < 1:
        raise CrtExportError(f"at least 1 sample is needed, not {samples}")


class _Results(Struct, frozen=True):
    """Results by sample and output of the graph; ``anew``: the reason why the reference ran the
    network in a file of ours."""

    reference: str
    ran_on: str
    expected: list[list[Array]]
    got: list[list[Array]]
    anew: str = ""
    exact: dict[int, list[Array]] = {}
    """Of some samples: results in float64."""


class _OnnxFile(Struct, frozen=True):
    """An .onnx file, and what was chosen of its inputs."""

    path: Path
    choices: InputChoices
    inner: Inner = ""


Model = Path | bytes | _OnnxFile

_OLDER = "the network written anew, with versions of operators that are among its reference kernels"


def _answers(
    graph: Graph, model: Model, inputs: list[list[Array]], board: Board | Path | str | None,
    options: ExportOptions, timeout: float,
) -> _Results:
    """Returns the results of the reference for ``model`` and of the exported code of ``graph``."""
    refuse_unknown(graph)
    target = driver.resolve_board("host" if board is None else board)
    reference, anew = _reference(graph, model)
    with reference:
        expected = [reference.run(row) for row in inputs]
        description = reference.description
        with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
            exported = driver.export(
                graph, options, board=target, output=Path(folder) / "model.tar"
            )
            got = _run(exported, inputs, timeout=None if board is None else timeout)
        exact = dict[int, list[Array]]()
        if isinstance(model, _OnnxFile) and not model.inner:
            slight = _slightly_different(graph, expected, got)
            found = {sample: reference.exact(inputs[sample]) for sample in slight}
            exact = {sample: row for sample, row in found.items() if row is not None}
    return _Results(description, f"{target.name} ({exported.emit})", expected, got, anew, exact)


def _slightly_different(
    graph: Graph, expected: Sequence[Sequence[Array]], got: Sequence[Sequence[Array]]
) -> list[int]:
    """Returns the samples whose floats differ by little more than allowed; none where anything
    differs by more."""
    slight = set[int]()
    for i, tensor in enumerate(graph.outputs):
        difference, tolerance = _differences(
            graph.type(tensor), [row[i] for row in expected], [row[i] for row in got]
        )
        by_sample = difference.reshape(len(expected), -1).max(axis=1, initial=0.0)
        if by_sample.max(initial=0.0) > _SLIGHT * tolerance:
            return []
        slight.update(np.flatnonzero(by_sample > tolerance).tolist())
    return sorted(slight)


def _reference(graph: Graph, model: Model) -> tuple[ReferenceModel | OnnxReference, str]:
    """Returns the reference with ``model``, or with ``graph`` written anew where it
    refuses that file or has an operator of it in that version among its optimized kernels only,
    whose results are others; and the reason for it."""
    if isinstance(model, _OnnxFile):
        return OnnxReference(model.path, graph, model.choices, inner=model.inner), ""
    runtime = find_reference(graph.numerics)
    try:
        reference_model = ReferenceModel(model, runtime=runtime)
    except ToolMissingError:
        raise
    except CrtExportError as refusal:
        if isinstance(model, bytes):
            raise
        try:
            reference = ReferenceModel(to_tflite(graph), runtime=runtime)
        except CrtExportError:
            raise in_plain_words(refusal, graph.numerics) from None
        return reference, f"the network written anew, because of {refusal.problem!r}"
    if reference_model.optimized and isinstance(model, Path):
        with contextlib.suppress(CrtExportError):
            reference = ReferenceModel(to_tflite(graph), runtime=runtime)
            if not reference.optimized:
                reference_model.close()
                return reference, _OLDER
            reference.close()
    return reference_model, ""


def _reference_model(graph: Graph, path: Path, choices: InputChoices) -> tuple[Model, str]:
    """Returns the model for the reference, and the reason why it is another file than the user's.
    """
    if format_of(path) is ONNX:
        return _OnnxFile(path, choices), ""
    hybrid = is_hybrid(graph)
    if format_of(path) is not TFLITE:
        reason = "the network as .tflite, which the runtime can read"
    elif graph.numerics is Numerics.TFLITE and computed_wrong(graph):
        reason = _ROWS
    else:
        reason = ""
    reason = _FLOAT_WEIGHTS if hybrid else reason
    return (to_tflite(graph, dequantize_weights=hybrid) if reason else path), reason


def _run(
    exported: driver.Exported, inputs: Sequence[Sequence[Array]], *, timeout: float | None
) -> list[list[Array]]:
    fields = [i.field for i in exported.artifact.inputs]
    stacked = {
        field: np.stack([row[i] for row in inputs]) for i, field in enumerate(fields)
    }
    if timeout is not None:  # on the board
        return [list(row) for row in package_actions.run(
            exported.path, stacked, trust_package=True, timeout=timeout
        ).outputs]
    results = package_actions.simulate(exported.path, stacked, trust_package=True)
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


def _judged(
    name: str, type_: TensorType, expected: Sequence[Array], got: Sequence[Array],
    exact: Mapping[int, Array],
) -> OutputComparison:
    """Compares with what is ``exact`` where that is known, by sample: there results may be off by
    as much as the reference is, twice, as long as that is no more than rounding."""
    usual = _compare(name, type_, expected, got)
    if usual.agrees or not exact:
        return usual
    order = sorted(exact)
    truth = [exact[sample] for sample in order]
    own, tolerance = _differences(type_, truth, [expected[sample] for sample in order])
    if own.max() > _SLIGHT * tolerance:
        return usual
    seen = [exact.get(sample, one) for sample, one in enumerate(expected)]
    compared = _compare(name, type_, seen, got)
    difference, _ = _differences(type_, seen, got)
    allowed = max(usual.tolerance, 2 * float(own.max()))
    by_sample = difference.reshape(len(seen), -1).max(axis=1, initial=0.0)
    return replace(
        compared, tolerance=allowed, differing_samples=int((by_sample > allowed).sum())
    )


def _compare_layer(
    operator: str, name: str, type_: TensorType, expected: Sequence[Array], got: Sequence[Array],
    *, kept: bool,
) -> LayerComparison:
    difference, tolerance = _differences(type_, expected, got)
    where = np.argwhere(difference > tolerance)
    first = None
    if len(where):
        sample, *position = (int(i) for i in where[0])
        at = tuple(position)
        first = OutputDifference(sample, at, float(got[sample][at]), float(expected[sample][at]))
    compared = _compare(name, type_, expected, got)
    return LayerComparison(operator, compared, type_.shape, first, kept)


def _differences(
    type_: TensorType, expected: Sequence[Array], got: Sequence[Array]
) -> tuple[npt.NDArray[np.float64], float]:
    """Returns the difference of each element of each sample, and the allowed one."""
    reference = np.stack([np.asarray(e, np.float64) for e in expected])
    # Where both are the same infinity the difference is 0; a NaN differs from everything.
    ours = np.stack([np.asarray(g, np.float64) for g in got])
    with np.errstate(invalid="ignore"):
        difference = np.where(ours == reference, 0.0, np.abs(ours - reference))
    difference = np.where(np.isnan(difference), np.inf, difference)
    full_scale = float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0))
    if not type_.dtype.is_float:
        return difference, 0.0
    part = HALF_TOLERANCE if type_.dtype is DType.FLOAT16 else FLOAT_TOLERANCE
    return difference, part * full_scale
