"""Graph to model.json: one line per tensor and node, large constants in a file beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from crtexport.importers.crtjson.attributes import encode
from crtexport.importers.crtjson.constants import to_inline
from crtexport.importers.crtjson.document import FORMAT, VERSION
from crtexport.importers.crtjson.safetensors_file import RESERVED, is_unchanged, write_entries
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import ConstantRef, Quantization, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.single import replacing

INLINE_BYTES = 64
"""Constants up to this size are written as numbers."""


def save(graph: Graph, path: Path, *, force: bool = False) -> None:
    """Writes ``graph`` as model.json at ``path`` and its large constants as .safetensors beside it.

    The same graph gives the same bytes, and reading them back the same graph, apart from where it
    came from and its numerics, which are a choice of the export. Both files appear whole or not at
    all; constants are copied in pieces. Raises CrtExportError when they can't be written.
    """
    if graph.modules:
        raise CrtExportError(
            "a network with external modules can't be written", location=graph.modules[0].name,
            hint="edit its model.json by hand",
        )
    sidecar = sidecar_of(path)
    writing = _JsonWriter(graph, sidecar.name)
    text = writing.text()
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise CrtExportError(
            f"a name can't be written as UTF-8: {error.reason}", location=str(path)
        ) from error

    if writing.stored and not force:
        _refuse_foreign(sidecar)

    def fill(stream: BinaryIO) -> None:
        stream.write(content)
        stream.flush()  # with this file on disk, only names are missing once the other is there
        if writing.stored:
            _write(sidecar, lambda stream: write_entries(stream, writing.stored))

    _write(path, fill)


def sidecar_of(path: Path) -> Path:
    """Returns the path of the large constants of a model.json at ``path``. Raises CrtExportError
    where that would be the same file."""
    sidecar = path.with_suffix(".safetensors")
    if sidecar == path:
        raise CrtExportError("a model.json can't be called .safetensors", location=str(path))
    return sidecar


def _refuse_foreign(sidecar: Path) -> None:
    """Raises CrtExportError if the sidecar would replace a file that crtexport didn't write: no
    option names the sidecar, so the user didn't ask for it."""
    try:
        if not os.path.lexists(sidecar):
            return
        ours = not sidecar.is_symlink() and sidecar.is_file() and is_unchanged(sidecar)
    except OSError as error:
        raise _unwritten(sidecar, error) from error
    if not ours:
        raise CrtExportError(
            "the constants would replace this file, which crtexport didn't write, or which was"
            " changed since", location=str(sidecar),
            hint="give model.json another name, or replace both files with --force",
        )


def _unwritten(path: Path, error: OSError) -> CrtExportError:
    reason = error.strerror or str(error)
    return CrtExportError(f"the file can't be written: {reason}", location=str(path))


def _write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    try:
        with replacing(path) as stream:
            fill(stream)
    except OSError as error:
        raise _unwritten(path, error) from error


class _JsonWriter:
    """``stored`` is what goes into the sidecar, once the text has been made."""

    def __init__(self, graph: Graph, sidecar: str) -> None:
        self._graph = graph
        self._sidecar = sidecar
        self._places: dict[tuple[ConstantRef, str, tuple[int, ...]], str] = {}
        self.stored: list[tuple[str, TensorType, ConstantRef]] = []

    def text(self) -> str:
        fields = {"format": FORMAT, "version": VERSION}
        return "\n".join(self._graph_lines(self._graph, fields, "", "")) + "\n"

    def _graph_lines(
        self, graph: Graph, fields: dict[str, Any], within: str, indent: str
    ) -> list[str]:
        """Returns ``graph`` as an object after ``fields``; ``within``: the keys that lead to it."""
        names = _unique(tensor.name for tensor in graph.tensors)
        fields = {
            **fields,
            "name": graph.name,
            "inputs": [names[t] for t in graph.inputs],
            "outputs": [names[t] for t in graph.outputs],
        }
        lines = [f"{indent}  {_json(key)}: {_json(value)}," for key, value in fields.items()]
        tensors = [[_json(self._tensor(tensor, name, names))]
                   for tensor, name in zip(graph.tensors, names, strict=True)]
        nodes = [self._node(node, names, f"{within}nodes[{i}]", f"{indent}    ")
                 for i, node in enumerate(graph.nodes)]
        lines += [*_lines("tensors", tensors, indent, ","), *_lines("nodes", nodes, indent, "")]
        return ["{", *lines, f"{indent}}}"]

    def _tensor(self, tensor: Tensor, name: str, names: list[str]) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "name": name,
            "dtype": tensor.type.dtype.value,
            "shape": list(tensor.type.shape),
        }
        if name != tensor.name:
            fields["label"] = tensor.name
        if tensor.type.quant is not None:
            fields["quantization"] = _quantization(tensor.type.quant)
        if tensor.variable is not None:
            fields["variable"] = True
        data = tensor.variable.initial if tensor.variable is not None else tensor.constant
        if data is not None:
            fields["data"] = self._data(name, tensor, data, names)
        return fields

    def _data(
        self, name: str, tensor: Tensor, constant: ConstantRef, names: list[str]
    ) -> Any:
        if constant.nbytes <= INLINE_BYTES:
            values = to_inline(constant, tensor.type)
            if values is not None:
                return values
        # Tensors that share bytes also share them in the sidecar.
        key = (constant, tensor.type.dtype.value, tensor.type.shape)
        if key not in self._places:
            taken = {RESERVED, *(place for place, *_ in self.stored)}
            self._places[key] = name if name not in taken else _free(name, {*taken, *names})
            self.stored.append((self._places[key], tensor.type, constant))
        return {"file": self._sidecar, "tensor": self._places[key]}

    def _node(self, node: Node, names: list[str], where: str, indent: str) -> list[str]:
        kind = type(node.op).__name__
        fields: dict[str, Any] = {
            "op": kind,
            "inputs": [None if t is None else names[t] for t in node.inputs],
            "outputs": [names[t] for t in node.outputs],
        }
        attributes = encode(node.op)
        if attributes:
            fields["attributes"] = attributes
        if node.name:
            fields["name"] = node.name
        if node.origin != f"{where} ({kind})":  # not the default that reading assigns
            fields["origin"] = node.origin
        if not node.graphs:
            return [_json(fields)]
        lines = [f'{_json(fields)[:-1]}, "graphs": [']
        for i, graph in enumerate(node.graphs):
            first, *rest, last = self._graph_lines(graph, {}, f"{where}.graphs[{i}].", indent)
            comma = "," if i < len(node.graphs) - 1 else ""
            lines += [f"{indent}{first}", *rest, f"{last}{comma}"]
        return [*lines, f"{indent}]}}"]


def _quantization(quant: Quantization) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "scale": quant.scale[0] if quant.axis is None and quant.per_tensor else list(quant.scale)
    }
    if len(set(quant.zero_point)) == 1 and len(quant.zero_point) == len(quant.scale):
        if quant.zero_point[0]:
            fields["zero_point"] = quant.zero_point[0]
    else:
        fields["zero_point"] = list(quant.zero_point)
    if quant.axis is not None:
        fields["axis"] = quant.axis
    return fields


def _unique(names: Iterable[str]) -> list[str]:
    """Returns ``names`` with the second and later of equal ones changed."""
    given = list(names)
    taken = set(given)
    seen: set[str] = set()
    result = []
    for name in given:
        free = name if name not in seen else _free(name, taken)
        taken.add(free)
        seen.add(name)
        result.append(free)
    return result


def _free(name: str, used_names: set[str]) -> str:
    count = 2
    while f"{name}#{count}" in used_names:
        count += 1
    return f"{name}#{count}"


def _lines(key: str, items: Sequence[list[str]], indent: str, comma: str) -> list[str]:
    """Returns an array of objects; all lines of an object but the first are indented."""
    if not items:
        return [f'{indent}  "{key}": []{comma}']
    inner = []
    for number, (first, *rest) in enumerate(items):
        lines = [f"{indent}    {first}", *rest]
        lines[-1] += "," if number < len(items) - 1 else ""
        inner += lines
    return [f'{indent}  "{key}": [', *inner, f"{indent}  ]{comma}"]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
