"""TensorFlow Lite files (.tflite) to Graph. Constants stay in the file until they are written."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tflite

from crtexport.errors import CrtExportError
from crtexport.importers.files import regular_size, sha256
from crtexport.importers.tflite.flatbuffer import Reader
from crtexport.importers.tflite.folded import FOLDED, constant, steering
from crtexport.importers.tflite.operators import Decoder, Operator, constant_names
from crtexport.importers.tflite.ops_detection import CUSTOM_DECODERS
from crtexport.importers.tflite.tensors import TensorTable
from crtexport.importers.tflite.tflite_ops import DECODERS
from crtexport.importers.tflite.variables import STEERING, Subgraph, resolve
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import Rounding

IDENTIFIER = b"TFL3"
"""Bytes 4 to 7 of every such file."""

_SCHEMA_VERSION = 3
_OPERATOR_NAMES = constant_names(tflite.BuiltinOperator)
_CUSTOM_CODE = 6  # slot of OperatorCode.custom_code
_TENSOR_MAP_NAME = 4  # slot of TensorMap.name

_log = logging.getLogger(__name__)


def load_tflite(path: Path, rounding: Rounding) -> Graph:
    """The first subgraph of the file, not yet verified.

    Raises CrtExportError when the file is damaged or has what can't be exported: operators (all
    of them listed at once), attributes, element types, dynamic shapes.
    """
    size = regular_size(path)
    digest = sha256(path)
    try:
        with path.open("rb") as stream:
            # Never closed by hand: an error's traceback may still hold views of the map.
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        graph = _Importer(data, size, path).graph()
    except CrtExportError as error:
        raise error.within(path.name) from error.__cause__
    except OSError as error:
        raise CrtExportError(
            f"the file can't be read: {error.strerror}", location=str(path)
        ) from error
    return replace(graph, source=path.name, sha256=digest, rounding=rounding)


def _custom_name(name: str) -> str:
    """How messages call a custom operator."""
    return f"custom {name!r}"


_CUSTOM = {_custom_name(name): decoder for name, decoder in CUSTOM_DECODERS.items()}


def _decoder(code: int, name: str) -> Decoder | None:
    """What imports an operator, given its code and readable name; None for an unknown one."""
    if code == tflite.BuiltinOperator.CUSTOM:
        return _CUSTOM.get(name)
    return DECODERS.get(code)


class _Importer:
    """One reading of one file."""

    def __init__(self, data: mmap.mmap, size: int, path: Path) -> None:
        self._path = path
        self._reader = Reader(size)
        self._model: Any = self._reader.get(tflite.Model.GetRootAs, data, 0)
        version = self._reader.get(self._model.Version)
        if version != _SCHEMA_VERSION:
            raise CrtExportError(
                f"the file's schema has version {version}; only {_SCHEMA_VERSION} can be read"
            )
        self._size = size
        self._count = self._reader.length(self._model.SubgraphsLength, 4)
        if self._count == 0:
            raise CrtExportError("the file has no subgraph")
        self._used: set[int] = set()
        self._main = self._load(0)
        self._tensors = self._main.tensors
        self._handles: dict[int, int] = {}

    def _load(self, number: int) -> Subgraph:
        """A subgraph of the file."""
        if not 0 <= number < self._count:
            raise CrtExportError(f"there is no subgraph {number}; the file has {self._count}")
        self._used.add(number)
        reader = self._reader
        table = reader.get(self._model.Subgraphs, number)
        tensors = TensorTable(self._model, table, reader, self._path, self._size)
        operators = tuple(reader.tables(table.OperatorsLength, table.Operators))
        return Subgraph(table, tensors, operators, tuple(self._codes(operators)))

    def graph(self) -> Graph:
        """The subgraph with file tensor numbers replaced by those of the tensors that are used."""
        reader, subgraph = self._reader, self._main.table
        self._refuse_unsupported(self._main.operators, self._main.codes)
        self._handles = resolve(reader, self._main, self._load)
        nodes = list(self._nodes())
        if len(self._used) < self._count:
            some = "only the first is" if len(self._used) == 1 else f"{len(self._used)} are"
            _log.warning("%s has %d subgraphs; %s used", self._path.name, self._count, some)
        inputs = reader.numbers(subgraph.InputsLength, subgraph.InputsAsNumpy, 4)
        outputs = reader.numbers(subgraph.OutputsLength, subgraph.OutputsAsNumpy, 4)
        for tensor in inputs:
            self._tensors.check_input(tensor)
        used = sorted(
            {t for node in nodes for t in (*node.inputs, *node.outputs) if t is not None}
            | set(inputs)
            | set(outputs)
        )
        number = {old: new for new, old in enumerate(used)}
        names = self._signature_names(set(inputs), set(outputs))
        return Graph(
            name=self._path.stem,
            tensors=tuple(self._named(old, names) for old in used),
            nodes=tuple(
                replace(
                    node,
                    inputs=tuple(None if t is None else number[t] for t in node.inputs),
                    outputs=tuple(number[t] for t in node.outputs),
                )
                for node in nodes
            ),
            inputs=tuple(number[t] for t in inputs),
            outputs=tuple(number[t] for t in outputs),
        )

    def _nodes(self) -> Iterator[Node]:
        """What runs; what gives constants becomes them, in the tensors."""
        for index, (operator, (code, name)) in enumerate(
            zip(self._main.operators, self._main.codes, strict=True)
        ):
            if code in STEERING:
                continue
            node = self._node(index, operator, code, name)
            if node is None:
                continue
            values = steering(node, self._tensors.tensor)
            if values is None:
                yield node
            else:
                self._define(node.outputs, values)

    def _define(self, tensors: tuple[int, ...], values: Sequence[Any]) -> None:
        """Makes constants of an operator's outputs."""
        if len(tensors) != len(values):
            raise CrtExportError(f"expected {len(values)} outputs, found {len(tensors)}")
        for tensor, array in zip(tensors, values, strict=True):
            self._tensors.define(tensor, constant(self._tensors.tensor(tensor), array))

    def _named(self, index: int, names: dict[int, str]) -> Tensor:
        tensor = self._tensors.tensor(index)
        return replace(tensor, name=names.get(index, tensor.name))

    def _codes(self, operators: Sequence[Any]) -> list[tuple[int, str]]:
        """Code and readable name of each operator."""
        reader = self._reader
        known = []
        for table in reader.tables(self._model.OperatorCodesLength, self._model.OperatorCodes):
            code = reader.get(table.BuiltinCode)
            name = _OPERATOR_NAMES.get(code, f"operator code {code}")
            if code == tflite.BuiltinOperator.CUSTOM:
                name = _custom_name(reader.text(table, _CUSTOM_CODE))
            known.append((code, name))
        result = []
        for index, operator in enumerate(operators):
            position = reader.get(operator.OpcodeIndex)
            if not 0 <= position < len(known):
                raise CrtExportError(
                    f"there is no operator code {position}; the file has {len(known)}",
                    location=f"operator {index}",
                )
            result.append(known[position])
        return result

    def _refuse_unsupported(
        self, operators: Sequence[Any], codes: Sequence[tuple[int, str]]
    ) -> None:
        found: dict[str, list[str]] = {}
        for index, (operator, (code, name)) in enumerate(zip(operators, codes, strict=True)):
            known = _decoder(code, name) is not None or code in STEERING or code in FOLDED
            if not known:
                outputs = self._reader.numbers(operator.OutputsLength, operator.OutputsAsNumpy, 4)
                found.setdefault(name, []).append(f"operator {index}{self._called(outputs)}")
        if not found:
            return
        lines = [f"\n  {name}: {', '.join(nodes)}" for name, nodes in found.items()]
        count = sum(map(len, found.values()))
        what = "1 operator is" if count == 1 else f"{count} operators are"
        names = (_OPERATOR_NAMES[code] for code in {*DECODERS, *STEERING, *FOLDED})
        supported = sorted((*names, *CUSTOM_DECODERS))
        raise CrtExportError(
            f"{what} not supported:{''.join(lines)}", hint=f"supported are {', '.join(supported)}"
        )

    def _called(self, outputs: tuple[int, ...]) -> str:
        """The name of an operator's first output, which is what converters name operators by."""
        return f" ({self._tensors.name(outputs[0])!r})" if outputs else ""

    def _node(self, index: int, table: Any, code: int, kind: str) -> Node | None:
        """An operator; None for one that gives constants."""
        origin = f"operator {index} ({kind})"
        reader = self._reader
        try:
            operands = reader.numbers(table.InputsLength, table.InputsAsNumpy, 4)
            outputs = reader.numbers(table.OutputsLength, table.OutputsAsNumpy, 4)
            inputs = tuple(None if t == -1 else self._handles.get(t, t) for t in operands)
            source = Operator(table, inputs, outputs, reader, self._tensors)
            for tensor in (*inputs, *outputs):
                if tensor is not None:
                    self._tensors.tensor(tensor)
            if code in FOLDED:
                self._define(outputs, [FOLDED[code](source)])
                return None
            decode = _decoder(code, kind)
            if decode is None:
                raise CrtExportError("the operator is not supported")
            op, kept = decode(source)
        except CrtExportError as error:
            raise error.within(origin) from error.__cause__
        while kept and kept[-1] is None:
            kept = kept[:-1]
        name = self._tensors.tensor(outputs[0]).name if outputs else ""
        return Node(op, kept, outputs, name, origin)

    def _signature_names(self, inputs: set[int], outputs: set[int]) -> dict[int, str]:
        """What the file's signature calls inputs and outputs, where it has just one for them."""
        reader = self._reader
        signatures = [
            table
            for table in reader.tables(self._model.SignatureDefsLength, self._model.SignatureDefs)
            if reader.get(table.SubgraphIndex) == 0
        ]
        if len(signatures) != 1:
            return {}
        (signature,) = signatures
        names: dict[int, str] = {}
        for among, length, accessor in (
            (outputs, signature.OutputsLength, signature.Outputs),
            (inputs, signature.InputsLength, signature.Inputs),
        ):
            for entry in reader.tables(length, accessor):
                tensor = reader.get(entry.TensorIndex)
                name = reader.text(entry, _TENSOR_MAP_NAME)
                if tensor in among and name:
                    names[tensor] = name
        return names
