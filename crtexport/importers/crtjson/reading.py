"""model.json to Graph."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from crtexport.importers.crtjson.attributes import decode
from crtexport.importers.crtjson.constants import Sidecars, inline
from crtexport.importers.crtjson.document import (
    Document,
    FileData,
    GraphModel,
    GraphsModel,
    NodeModel,
    QuantizationModel,
    TensorModel,
)
from crtexport.importers.crtjson.modules import read_modules
from crtexport.importers.crtjson.problems import explain
from crtexport.importers.files import head, regular_size
from crtexport.importers.formats import ReadOptions
from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.modules import ConstantVariable
from crtexport.ir.types import ConstantRef, Quantization, TensorType
from crtexport.ir.variables import lend
from crtexport.ir.verify import check_type
from crtexport.support.errors import CrtExportError
from crtexport.support.files import text
from crtexport.support.schema import InvalidDataError, decode_json, did_you_mean

_BY_HAND = 4 << 20
"""The largest file that is searched for duplicate keys, as only hand-written files have them."""
MAX_TEXT = 256 << 20
"""Bytes of the largest model.json that is read; larger constants belong in a file beside it."""


def read(path: Path, options: ReadOptions) -> Graph:
    """Returns the network in a model.json, its names resolved, not yet verified.

    Raises CrtExportError naming the key. Constants in files beside it must lie in its folder,
    links followed, unless ``options`` allow others.
    """
    size = regular_size(path)
    if size > MAX_TEXT:
        raise CrtExportError(
            f"{size} bytes of JSON are too many; {MAX_TEXT} is the most",
            location=str(path),
            hint="put constants into a .safetensors or raw file beside the model",
        )
    content = head(path, size)  # reading a prefix bounds the memory
    try:
        document = decode_json(Document, content.removeprefix(b"\xef\xbb\xbf"))
    except InvalidDataError as error:
        raise explain(error).within(path.name) from None
    repeated = _repeated_key(content)
    if repeated is not None:
        raise CrtExportError(
            f"the key {repeated!r} is twice in one object", location=path.name,
            hint="only one of its values could count",
        )
    try:
        sidecars = Sidecars(path.parent, options.allow_outside)
        names = _Reading(document, sidecars)
        graph = names.graph(document.name if document.name is not None else text(path.stem))
        graph = replace(graph, modules=read_modules(document, sidecars, names.constant_of(graph)))
    except CrtExportError as error:
        raise error.within(path.name) from error.__cause__
    return lend(graph).from_file(path.name, hashlib.sha256(content).hexdigest(), options.numerics)


def _repeated_key(content: bytes) -> str | None:
    """Returns a key that an object of valid JSON has twice; None if there is none, or if the file
    is too large to be written by hand, since the search would take much memory."""
    if len(content) > _BY_HAND:
        return None
    repeated: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.append(next(key for key, count in counts.items() if count > 1))

    with contextlib.suppress(ValueError, RecursionError):  # as for numbers with too many digits
        json.loads(content, object_pairs_hook=note)
    return repeated[0] if repeated else None


class _Reading:
    """Resolves names to tensor ids and constants to references. ``within`` has the keys that lead
    to the graph."""

    def __init__(self, document: GraphModel, sidecars: Sidecars, within: str = "") -> None:
        self._document = document
        self._sidecars = sidecars
        self._within = within
        self._numbers: dict[str, int] = {}
        for index, tensor in enumerate(document.tensors):
            if tensor.name in self._numbers:
                raise CrtExportError(
                    f"a second tensor is called {tensor.name!r}",
                    location=f"{within}tensors[{index}].name",
                    hint="names must be unique; 'label' may repeat",
                )
            self._numbers[tensor.name] = index

    def graph(self, name: str) -> Graph:
        document, within = self._document, self._within
        return Graph(
            name=name,
            tensors=tuple(self._tensor(i, t) for i, t in enumerate(document.tensors)),
            nodes=tuple(self._node(i, node) for i, node in enumerate(document.nodes)),
            inputs=self._all(document.inputs, f"{within}inputs"),
            outputs=self._all(document.outputs, f"{within}outputs"),
        )

    def constant_of(self, graph: Graph) -> Callable[[str], ConstantVariable]:
        """Returns a function that finds constants of ``graph``, which this reader made, by their
        tensors' names."""

        def find(name: str) -> ConstantVariable:
            tensor = graph.tensors[self._number(name, "")]
            if tensor.constant is None:
                raise CrtExportError(f"the tensor {name!r} is no constant")
            return ConstantVariable(name, tensor.type, tensor.constant)

        return find

    def _tensor(self, index: int, tensor: TensorModel) -> Tensor:
        quant = tensor.quantization
        type_ = TensorType(
            tensor.dtype, tuple(tensor.shape), _quantization(quant) if quant else None
        )
        label = tensor.name if tensor.label is None else tensor.label
        try:
            check_type(type_)
            data = self._constant(tensor.data, type_)
            if tensor.variable:
                return Tensor(label, type_, variable=Variable(data))
            return Tensor(label, type_, data)
        except CrtExportError as error:
            raise error.within(
                f"{self._within}tensors[{index}] {tensor.name!r}"
            ) from error.__cause__

    def _constant(self, data: object, type_: TensorType) -> ConstantRef | None:
        if data is None:
            return None
        if isinstance(data, FileData):
            return self._sidecars.constant(data, type_)
        return inline(data, type_)

    def _node(self, index: int, node: NodeModel) -> Node:
        where = f"{self._within}nodes[{index}]"
        graphs = node.graphs if isinstance(node, GraphsModel) else []
        return Node(
            op=decode(node.kind, node.attributes),
            inputs=tuple(
                None if name is None else self._number(name, f"{where}.inputs[{i}]")
                for i, name in enumerate(node.inputs)
            ),
            outputs=self._all(node.outputs, f"{where}.outputs"),
            name=node.name,
            # A saved file has an origin, possibly an empty one; only a hand-written file has none.
            origin=f"{where} ({node.kind.__name__})" if node.origin is None else node.origin,
            graphs=tuple(
                _Reading(graph, self._sidecars, f"{where}.graphs[{i}].").graph(graph.name or "")
                for i, graph in enumerate(graphs)
            ),
        )

    def _all(self, names: list[str], where: str) -> tuple[int, ...]:
        return tuple(self._number(name, f"{where}[{i}]") for i, name in enumerate(names))

    def _number(self, name: str, where: str) -> int:
        if name not in self._numbers:
            raise CrtExportError(
                f"there is no tensor {name!r}",
                location=where,
                hint=did_you_mean(name, self._numbers),
            )
        return self._numbers[name]


def _quantization(model: QuantizationModel) -> Quantization:
    given = model.scale if isinstance(model.scale, list) else [model.scale]
    # Scales are float32 everywhere else; 0.05 must mean the same number to every kernel.
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused
        scale = tuple(float(np.float32(value)) for value in given)
    zero = model.zero_point
    zeros = tuple(zero) if isinstance(zero, list) else (zero,) * len(scale)
    return Quantization(scale, zeros, model.axis)
