"""TensorFlow Lite files (.tflite) to Graph. Constants stay in the file until they are written."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from crtexport.importers.files import regular_size, sha256
from crtexport.importers.formats import ReadOptions
from crtexport.importers.tflite import decode, ethosu, schema, signal
from crtexport.importers.tflite.finite import with_limits
from crtexport.importers.tflite.flatbuffer import Reader, root
from crtexport.importers.tflite.folded import FOLDED
from crtexport.importers.tflite.operators import Decoder
from crtexport.importers.tflite.ops_detection import CUSTOM_DECODERS
from crtexport.importers.tflite.pauses import with_pauses
from crtexport.importers.tflite.schema import BuiltinOperator, any_name, constant_names
from crtexport.importers.tflite.spectra import spectra
from crtexport.importers.tflite.subgraphs import (
    BUILTIN,
    DECODE,
    EXPANDED,
    Imported,
    Reading,
    SubgraphCaller,
    with_file_numbers,
)
from crtexport.importers.tflite.tensors import TensorTable
from crtexport.importers.tflite.tflite_ops import DECODERS
from crtexport.importers.tflite.variables import STEERING, Key, Subgraph, initial_values
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import EthosU
from crtexport.ir.variables import lend
from crtexport.ir.verify import MAX_DEPTH, verify
from crtexport.support.errors import CrtExportError
from crtexport.support.files import text

_SCHEMA_VERSION = 3
_OPERATOR_NAMES = constant_names(BuiltinOperator)

_WITHOUT_DECODER = frozenset({
    *STEERING, *FOLDED, BuiltinOperator.IF, BuiltinOperator.WHILE,
})

# How many operators the runs of inner subgraphs may come to: so often all there are, and a few.
_REPEATS, _FEW = 4, 1000

_log = logging.getLogger(__name__)


def read(path: Path, options: ReadOptions) -> Graph:
    """Returns the first subgraph of the file, verified: errors have the file's numbers.

    Raises CrtExportError when the file is damaged or contains anything that can't be exported:
    operators (all of them listed at once), attributes, element types, dynamic shapes.
    """
    if options.numerics is Numerics.ORT:
        raise CrtExportError(
            "ONNX Runtime doesn't run .tflite files, so its numerics are none of theirs",
            location=(path.name, "--numerics"), hint="tflite, litert and tflm are",
        )
    regular_size(path)
    digest = sha256(path)
    try:
        with path.open("rb") as stream:
            # Never closed by hand: an error's traceback may still hold views of the map.
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        importer = _Importer(data, path)
        graph = importer.graph()
    except CrtExportError as error:
        raise error.within(path.name) from error.__cause__
    except OSError as error:
        raise CrtExportError(
            f"the file can't be read: {error.strerror}", location=str(path)
        ) from error
    graph = graph.from_file(path.name, digest, options.numerics)
    try:
        verify(graph)
    except CrtExportError:
        if len(importer.numbers) == len(graph.tensors):
            verify(with_file_numbers(graph, importer.numbers))  # raises the same
        raise
    return graph


def has_commands(path: Path) -> bool:
    """Returns whether the file has operators that Vela made for an Ethos-U. Raises CrtExportError
    for one that can't be read."""
    try:
        with path.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return _Importer(data, path).has_commands
    except CrtExportError as error:
        raise error.within(path.name) from error.__cause__


def _custom_name(name: str) -> str:
    """Returns a custom operator's name for messages."""
    return f"custom {name!r}"


_CUSTOM_DECODERS = {
    **CUSTOM_DECODERS, **signal.DECODERS, ethosu.CUSTOM_NAME: ethosu.ethos_u,
}
_CUSTOM = {_custom_name(name): decoder for name, decoder in _CUSTOM_DECODERS.items()}
_EXPANDED = {DECODE, *BUILTIN, *map(_custom_name, EXPANDED)}


def _refuse_other_runtimes(name: str) -> None:
    """Refuses, as what it is, a network for another runtime, which one of its operators shows."""
    if name == _custom_name("edgetpu-custom-op"):
        raise CrtExportError(
            "the network was compiled for the Edge TPU, which alone can run it",
            hint="export the original .tflite file, from before edgetpu_compiler",
        )
    if name.startswith("custom 'Flex"):
        raise CrtExportError(
            f"{name.removeprefix('custom ')} is an operator of TensorFlow itself, which only its"
            " Flex delegate runs",
            hint="convert the model without tf.lite.OpsSet.SELECT_TF_OPS, or without the operator",
        )


class _Importer:
    """One reading of one file."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._path, self._size = path, len(data)
        self._model = root(Reader(data), schema.Model)
        version = self._model.version
        if version != _SCHEMA_VERSION:
            raise CrtExportError(
                f"the file's schema has version {version}; only {_SCHEMA_VERSION} can be read"
            )
        self._subgraphs, self._buffers = self._model.subgraphs, self._model.buffers
        self._count = len(self._subgraphs)
        if self._count == 0:
            raise CrtExportError("the file has no subgraph")
        self._kinds = list(self._all_codes())
        self.has_commands = any(
            name == _custom_name(ethosu.CUSTOM_NAME) for _, name in self._kinds
        )
        self._planned = (
            ethosu.planned_offsets(self._model, self._buffers) if self.has_commands else ()
        )
        self.numbers: tuple[int, ...] = ()
        """In the file, of the tensors of the graph that was read last."""
        self._loaded: dict[int, Subgraph] = {}
        self._nested: dict[tuple[int, tuple[tuple[int, Key], ...]], Imported] = {}

    def _all_codes(self) -> Iterator[tuple[int, str]]:
        """Codes and names that the file's operators refer to."""
        for table in self._model.operator_codes:
            # Old files have the one field, some tools write the other only.
            code = max(table.builtin_code, table.deprecated_builtin_code)
            if code == BuiltinOperator.CUSTOM:
                yield code, _custom_name(table.custom_code)
            else:
                known = _OPERATOR_NAMES.get(code) or any_name("BuiltinOperator", code)
                yield code, known or f"operator code {code}"

    def load(self, number: int) -> Subgraph:
        """Returns a subgraph of the file, its tensors not yet read."""
        if not 0 <= number < self._count:
            raise CrtExportError(f"there is no subgraph {number}; the file has {self._count}")
        subgraph = self._loaded.get(number)
        table = subgraph.table if subgraph else self._subgraphs[number]
        tensors = TensorTable(
            self._buffers, table, self._path, self._size, () if number else self._planned
        )
        if subgraph is not None:
            return replace(subgraph, tensors=tensors)
        operators = tuple(table.operators)
        subgraph = Subgraph(table, tensors, operators, tuple(self._codes(operators)))
        self._refuse_unsupported(subgraph)
        self._loaded[number] = subgraph
        return subgraph

    def decoder(self, code: int, name: str) -> Decoder | None:
        """Returns the decoder of an operator, given its code and readable name; None for an unknown
        one."""
        if code == BuiltinOperator.CUSTOM:
            return _CUSTOM.get(name)
        return DECODERS.get(code)

    def graph(self) -> Graph:
        """Returns the first subgraph, with those that it runs."""
        initial = initial_values(self.load(0), self.load)
        reading = Reading(self, 0, SubgraphCaller((), (0,)), initial)
        graph = with_limits(with_pauses(reading.imported(self._signature_names).graph))
        self.numbers = reading.numbers
        if len(self._loaded) < self._count:
            used = len(self._loaded)
            some = "only the first is" if used == 1 else f"{used} are"
            _log.warning("%s has %d subgraphs; %s used", self._path.name, self._count, some)
        operators = (node.op for inner in graph.nested() for node in inner.nodes)
        made_for = {op.accelerator for op in operators if isinstance(op, EthosU)}
        modules = (ethosu.module(made_for),) if made_for else ()
        return replace(lend(graph), name=text(self._path.stem), modules=modules)

    def nested(self, number: int, caller: SubgraphCaller) -> Imported:
        """Returns a subgraph that an operator runs."""
        if len(caller.path) > MAX_DEPTH:
            raise CrtExportError(f"subgraphs are nested more than {MAX_DEPTH} deep")
        key = (number, caller.handles)
        if key not in self._nested:
            self._nested[key] = Reading(self, number, caller, None).imported(lambda *_: {})
        runs = self._nested[key].runs
        there = sum(len(subgraph.operators) for subgraph in self._loaded.values())
        if runs > _REPEATS * there + _FEW:
            raise CrtExportError(
                f"subgraphs run each other so often that {runs} operators would be generated",
                hint="each run of a subgraph by an IF or WHILE is code of its own",
            )
        return self._nested[key]

    def _codes(self, operators: Sequence[schema.Operator]) -> list[tuple[int, str]]:
        """Code and readable name of each operator."""
        known, result = self._kinds, []
        for index, operator in enumerate(operators):
            position = operator.opcode_index
            if not position < len(known):
                raise CrtExportError(
                    f"there is no operator code {position}; the file has {len(known)}",
                    location=f"operator {index}",
                )
            result.append(known[position])
        return result

    def _refuse_unsupported(self, subgraph: Subgraph) -> None:
        unsupported: dict[str, list[str]] = {}
        known = spectra(subgraph)
        read = {*known, *(index for one in known.values() for index in one.slices)}
        for index, (operator, (code, name)) in enumerate(
            zip(subgraph.operators, subgraph.codes, strict=True)
        ):
            without = code in _WITHOUT_DECODER or name in _EXPANDED or index in read
            if self.decoder(code, name) is None and not without:
                called = self._called(subgraph.tensors, operator.outputs)
                unsupported.setdefault(name, []).append(f"operator {index}{called}")
        if not unsupported:
            return
        for name in unsupported:
            _refuse_other_runtimes(name)
        lines = [f"\n  {name}: {', '.join(nodes)}" for name, nodes in unsupported.items()]
        count = sum(map(len, unsupported.values()))
        what = "1 operator is" if count == 1 else f"{count} operators are"
        custom = ", ".join(sorted((*_CUSTOM_DECODERS, *EXPANDED, decode.NAME)))
        raise CrtExportError(
            f"{what} not supported:{''.join(lines)}",
            hint=f"docs/operators.md lists those that are; of custom ones {custom}",
        )

    def _called(self, tensors: TensorTable, outputs: tuple[int, ...]) -> str:
        """Returns the name of an operator's first output, by which converters name operators."""
        return f" ({tensors.name(outputs[0])!r})" if outputs else ""

    def _signature_names(self, inputs: set[int], outputs: set[int]) -> dict[int, str]:
        """Returns the names of inputs and outputs in the file's signature, where it has just one
        for them."""
        signatures = [
            table for table in self._model.signature_defs if table.subgraph_index == 0
        ]
        if len(signatures) != 1:
            return {}
        (signature,) = signatures
        names: dict[int, str] = {}
        for among, entries in ((outputs, signature.outputs), (inputs, signature.inputs)):
            for entry in entries:
                tensor, name = entry.tensor_index, entry.name
                if tensor in among and name:
                    names[tensor] = name
        return names
