"""ONNX files to Graph. Constants stay in the file, or beside it, until they are written."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from crtexport.importers.files import regular_size, sha256
from crtexport.importers.formats import ReadOptions
from crtexport.importers.onnx.builder import Builder
from crtexport.importers.onnx.compared_results import LayerResults, places_of, result_names
from crtexport.importers.onnx.dataflow import Dataflow
from crtexport.importers.onnx.integer_operators import with_integer_operators
from crtexport.importers.onnx.interface import read_inputs, read_outputs
from crtexport.importers.onnx.messages import GraphInfo, OnnxModelInfo
from crtexport.importers.onnx.messages import read as read_message
from crtexport.importers.onnx.registry import load_table
from crtexport.importers.onnx.values import Value
from crtexport.importers.onnx.walk import CallFrame, NameScope, Walker, versions
from crtexport.importers.onnx.wire import Span
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError
from crtexport.support.files import text

__all__ = ["LayerResults", "read", "read_layers", "result_names"]

Choice = Callable[[str, DType], bool]
"""Decides by a result's name and element type if it is compared."""

_log = logging.getLogger(__name__)
_OLDEST_IR = 3


def read(path: Path, options: ReadOptions) -> Graph:
    """Returns the graph of the file, not yet verified.

    Raises CrtExportError, naming the node, when the file is damaged or contains anything that can't
    be exported: operators, attributes, element types, shapes that aren't fixed.
    """
    return _read(path, options, None).graph


def read_layers(
    path: Path, options: ReadOptions, choose: Choice = lambda _, __: True
) -> LayerResults:
    """Returns the graph of the file with results of its nodes as outputs, in their order and layout
    in the file, not yet verified: those that ``choose`` takes, and the outputs of the file.

    Constant results are left out, and those of nodes in inner graphs. Raises as :func:`read`.
    """
    return _read(path, options, choose)


def _read(path: Path, options: ReadOptions, choose: Choice | None) -> LayerResults:
    regular_size(path)
    digest = sha256(path)
    try:
        with path.open("rb") as stream:
            # Not closed here: the traceback of an error may still hold views of the map.
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        found = _graph(data, path, options, choose)
    except CrtExportError as error:
        raise error.within(path.name) from error.__cause__
    except OSError as error:
        raise CrtExportError(
            f"the file can't be read: {error.strerror}", location=str(path)
        ) from error
    graph = found.graph
    usual = Numerics.ORT if any(t.type.quant is not None for t in graph.tensors) else None
    return replace(found, graph=graph.from_file(path.name, digest, options.numerics or usual))


def _graph(
    data: mmap.mmap, path: Path, options: ReadOptions, choose: Choice | None
) -> LayerResults:
    model = read_message(OnnxModelInfo, Span(data, 0, len(data)))
    if model.ir_version < _OLDEST_IR:
        raise CrtExportError(
            f"the file has IR version {model.ir_version}; {_OLDEST_IR} and later are read"
        )
    if model.graph is None:
        raise CrtExportError("the file has no graph")
    load_table()
    builder = Builder()
    values, inputs = read_inputs(builder, model.graph, options.choices)
    scope = _walked(builder, model, model.graph, path, options, values)
    places, unseen = {output.name: "" for output in model.graph.outputs}, tuple[str, ...]()
    if choose is not None:
        computed = {
            name: builder.type(scope[name].tensor).dtype
            for node in model.graph.nodes for name in node.outputs
            if name in scope and not builder.is_constant(scope[name])
        }
        chosen = {name for name, dtype in computed.items() if choose(name, dtype)}
        places, unseen = places_of(model.graph, computed, chosen | places.keys())
    outputs = [(name, scope[name]) for name in places]
    tensors = read_outputs(builder, outputs, inputs, options.choices)
    graph = Graph(
        text(path.stem), tuple(builder.tensors), tuple(builder.nodes), tuple(inputs), tuple(tensors)
    )
    if any(t.type.dtype is DType.FLOAT64 and t.constant is None for t in graph.tensors):
        _log.warning("what is double in the file is computed as float32")
    numerics = options.numerics or Numerics.ORT
    unsigned = set(builder.signed.values())
    graph = with_integer_operators(graph, builder.integers, unsigned, numerics)
    return LayerResults(graph, tuple(places.values()), unseen)


def _walked(
    builder: Builder, model: OnnxModelInfo, graph: GraphInfo, path: Path, options: ReadOptions,
    values: dict[str, Value],
) -> NameScope:
    """Reads all nodes; returns the values of all names."""
    scope = NameScope()
    for name, value in values.items():
        scope.define(name, value)
    names = [output.name for output in graph.outputs]
    frame = CallFrame(scope, versions(model.opsets), {}, Dataflow(graph.nodes, names))
    Walker(
        builder, model, path, allow_outside=options.allow_outside,
        integer_weights=options.numerics in (None, Numerics.ORT),
    ).graph(graph, frame)
    return scope
