"""Element types, quantization, tensor types and references to constant bytes."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.support.errors import CrtExportError


class DType(enum.Enum):
    """Element type of a tensor; the value is its name in model.json and in metadata."""

    BOOL = "bool"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    numpy: np.dtype[np.generic]
    """The NumPy dtype, always little-endian."""
    itemsize: int
    """Bytes per element."""
    is_float: bool
    is_integer: bool

    def __init__(self, name: str) -> None:
        self.numpy = np.dtype(name).newbyteorder("<")
        self.itemsize = self.numpy.itemsize
        self.is_float = self.numpy.kind == "f"
        self.is_integer = self.numpy.kind in "iu"

    @property
    def limits(self) -> tuple[int, int]:
        """Returns the smallest and largest value of an integer type; ValueError for others."""
        if not self.is_integer:
            raise ValueError(f"{self.value} is no type of integers")
        count = 1 << 8 * self.itemsize
        low = -count // 2 if self.numpy.kind == "i" else 0
        return low, low + count - 1


class Quantization(Struct, frozen=True):
    """real = scale * (stored - zero_point); per tensor (``axis`` None) or one pair per slice."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    @property
    def per_tensor(self) -> bool:
        return len(self.scale) == 1


class TensorType(Struct, frozen=True):
    """``shape`` is static; ``()`` is a scalar."""

    dtype: DType
    shape: tuple[int, ...]
    quant: Quantization | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.value}[{'x'.join(map(str, self.shape))}]"


class Making(Protocol):
    """A rule that computes the bytes of a constant from those of other constants while they are
    written. Equal rules make the same bytes."""

    def chunks(self, nbytes: int) -> Iterator[bytes]:
        """Yields the first ``nbytes`` bytes, in pieces."""

    def part(self, start: int, nbytes: int) -> bytes:
        """Returns ``nbytes`` bytes from ``start`` on."""


class Made(Struct, frozen=True):
    """The elements of another constant with ``rule`` applied to each piece, one after the other.

    ``rule`` takes the position of a piece in bytes, and the piece; it must be equal to rules that
    do the same. ``sizes``: bytes of an element before and after.
    """

    source: ConstantRef
    rule: Callable[[int, bytes], bytes]
    sizes: tuple[int, int]

    def chunks(self, nbytes: int) -> Iterator[bytes]:
        """At most ``nbytes`` bytes of what is made."""
        at, left = 0, nbytes
        for piece in self.source.chunks():
            result = self.rule(at, piece)[:left]
            at, left = at + len(piece), left - len(result)
            if result:
                yield result

    def part(self, start: int, nbytes: int) -> bytes:
        """Returns ``nbytes`` bytes from ``start`` on."""
        given, made = self.sizes
        first, end = start // made, -(-(start + nbytes) // made)
        piece = self.source.part(first * given, (end - first) * given)
        begin = start - first * made
        return self.rule(first * given, piece)[begin : begin + nbytes]


class ConstantRef(Struct, frozen=True):
    """Bytes of a constant, little-endian, C order: in memory, or a range of a file until written,
    or ``made`` from another constant while it is written.

    Exactly one of ``data``, ``path`` and ``made`` is set. Constants of any size are streamed by
    :meth:`chunks`; only code that needs all values at once calls :meth:`array`.
    """

    nbytes: int
    data: bytes | None = None
    path: Path | None = None
    offset: int = 0
    made: Making | None = None

    def __repr__(self) -> str:
        held = "" if self.data is None else ", data=..."
        return f"ConstantRef({self.nbytes}{held}, {self.path!r}, {self.offset}, {self.made!r})"

    @staticmethod
    def of(array: npt.NDArray[np.generic]) -> ConstantRef:
        """Returns a constant from an array, converted to little-endian C order."""
        data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        return ConstantRef(nbytes=len(data), data=data)

    def chunks(self, window: int = 1 << 20) -> Iterator[bytes]:
        """Yields the bytes in pieces, of ``window`` bytes and a rest, or as they are made.

        Pieces end where elements do. Raises CrtExportError when the file has become shorter than
        it was when checked.
        """
        if self.data is not None:
            for start in range(0, self.nbytes, window):
                yield self.data[start : start + window]
            return
        if self.made is not None:
            yield from self.made.chunks(self.nbytes)
            return
        with self._opened() as stream:
            stream.seek(self.offset)
            left = self.nbytes
            while left:
                piece = stream.read(min(window, left))
                if not piece:
                    raise self._cut(left)
                left -= len(piece)
                yield piece

    def _opened(self) -> BinaryIO:
        if self.path is None:
            raise CrtExportError("a constant has neither bytes nor a file")
        return self.path.open("rb")

    def _cut(self, missing: int) -> CrtExportError:
        return CrtExportError(
            f"the file ends {missing} bytes before the end of a constant", location=str(self.path)
        )

    def part(self, start: int, nbytes: int) -> bytes:
        """Returns some of the bytes."""
        (piece,) = self.parts((start,), nbytes)
        return piece

    def parts(self, starts: Iterable[int], nbytes: int) -> Iterator[bytes]:
        """Yields ``nbytes`` bytes from each of ``starts`` on."""
        if self.data is not None:
            for start in starts:
                yield self.data[start : start + nbytes]
        elif self.made is not None:
            for start in starts:
                yield self.made.part(start, nbytes)
        else:
            with self._opened() as stream:
                for start in starts:
                    stream.seek(self.offset + start)
                    piece = stream.read(nbytes)
                    if len(piece) < nbytes:
                        raise self._cut(self.nbytes - start - len(piece))
                    yield piece

    def read(self) -> bytes:
        """Returns all bytes."""
        return self.data if self.data is not None else b"".join(self.chunks())

    def array(self, type_: TensorType) -> npt.NDArray[np.generic]:
        """Returns the values as a read-only array of ``type_``'s dtype and shape."""
        return np.frombuffer(self.read(), dtype=type_.dtype.numpy).reshape(type_.shape)
