"""Finds constants of the same bytes, reading as little of them as necessary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from msgspec import Struct, field

from crtexport.ir.graph import Graph
from crtexport.ir.types import ConstantRef

Kind = tuple[str, int]
"""Element type and number of elements."""

_PIECES, _PIECE = 8, 1 << 12
_LARGE = 1 << 20


class _Known(Struct):
    data: ConstantRef
    symbol: str
    samples: bytes | None = None  # computed when first needed
    digest: bytes | None = None  # of all bytes


class KnownConstants(Struct):
    """The constants so far. Only those of one kind and with equal samples are read as a whole, and
    each of them once."""

    _known: dict[Kind, list[_Known]] = field(default_factory=dict)

    def add(self, data: ConstantRef, kind: Kind, symbol: str) -> None:
        """Records the constant ``data`` under the name ``symbol``."""
        self._known.setdefault(kind, []).append(_Known(data, symbol))

    def symbol(self, data: ConstantRef, kind: Kind) -> str | None:
        """Returns the symbol of a constant of the same bytes and kind; None if there is none."""
        rivals = self._known.get(kind, [])
        for rival in rivals:
            if rival.data == data:
                return rival.symbol
        if not rivals:
            return None
        own, digest = _samples(data), b""
        for rival in rivals:
            rival.samples = rival.samples or _samples(rival.data)
            if own != rival.samples:
                continue
            digest = digest or _digest(data)
            rival.digest = rival.digest or _digest(rival.data)
            if rival.digest == digest:
                return rival.symbol
        return None


def computed(graph: Graph) -> Iterator[tuple[str, int]]:
    """Yields the names and sizes of tensors that aren't constants, including those of inner graphs.
    """
    for part in graph.nested():
        for tensor in part.tensors:
            if tensor.constant is None:
                yield tensor.name, tensor.type.nbytes


def least_bytes(graph: Graph) -> int:
    """Returns a lower bound of the size of a network's constants: the sum of those of at least one
    mebibyte, packed or not, each counted once; no lowering makes these smaller."""
    contents, total = KnownConstants(), 0
    read = {tensor for node in graph.nodes for tensor in node.inputs if tensor is not None}
    for tensor in sorted(read):
        data, type_ = graph.constant(tensor), graph.type(tensor)
        kind = (type_.dtype.value, type_.elements)
        if data is None or data.nbytes < _LARGE or contents.symbol(data, kind) is not None:
            continue
        contents.add(data, kind, str(tensor))
        total += data.nbytes * (graph.tensors[tensor].packed_bits or 8) // 8
    return total


def _digest(data: ConstantRef) -> bytes:
    digest = hashlib.sha256()
    for chunk in data.chunks():
        digest.update(chunk)
    return digest.digest()


def _samples(data: ConstantRef) -> bytes:
    """Returns the digest of samples spread over ``data``; of all of it if it is small."""
    if data.nbytes <= _PIECES * _PIECE:
        return _digest(data)
    digest = hashlib.sha256()
    for piece in range(_PIECES):
        at = (data.nbytes - _PIECE) * piece // (_PIECES - 1)
        digest.update(data.part(at, _PIECE))
    return digest.digest()
