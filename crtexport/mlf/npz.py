"""Arrays in .npz files, NumPy's archives: their types and shapes are known before any is read.

A small file may unpack to gigabytes, so what is read is first compared with what is wanted.
"""

from __future__ import annotations

import functools
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.support.errors import CrtExportError
from crtexport.support.files import open_regular
from crtexport.support.outputs.single import replacing

Array = npt.NDArray[np.generic]

_ZIP32_LIMIT = 1 << 30
_HEADER = 1 << 16
"""Bytes of a member that its header is looked for in."""
_MOST_AT_ONCE = 1 << 30
"""Bytes of an array that are read where only some rows are wanted, which lie all over it."""
_PASSED = 1 << 20
"""Bytes that are read at once to pass over rows."""
_ENDING = ".npy"
_HINT = "write one with numpy.savez(path, NAME=array)"


class Described(Struct, frozen=True):
    """The type of an array's elements, and its shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


class StoredArrays(Mapping[str, Array]):
    """The arrays of a file by their names, each of which is read when it is looked up.

    Looking up raises CrtExportError where an array can't be read.
    """

    def __init__(
        self, path: Path, described: Mapping[str, Described], members: Mapping[str, str],
        rows: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """``described``, by names in the file: what the arrays are when they have been read;
        ``members``: under which names arrays are in the file; ``rows``, by these: which rows are
        read of an array, all where it has no entry."""
        self.path, self._described, self._members = path, described, members
        self._rows = rows or {}

    def described(self, name: str) -> Described:
        """Returns type and shape that an array will have, which isn't read for that."""
        return self._described[self._members[name]]

    def member(self, name: str) -> str:
        """Returns the name of an array in the file."""
        return self._members[name]

    def renamed(self, names: Mapping[str, str]) -> StoredArrays:
        """Returns some of these arrays under other names; ``names`` maps these to their names
        here."""
        members = {name: self._members[own] for name, own in names.items()}
        return StoredArrays(self.path, self._described, members, self._rows)

    def reshaped(
        self, shapes: Mapping[str, tuple[int, ...]], rows: Sequence[int] | None = None
    ) -> StoredArrays:
        """Returns these arrays, those of ``shapes`` with other shapes of as many elements. Of
        these, only some ``rows`` of the new shape are read, whose numbers rise; all by default."""
        described, chosen = dict(self._described), dict(self._rows)
        for name, shape in shapes.items():
            member = self._members[name]
            if rows is not None:
                chosen[member] = rows
            read = shape if rows is None else (len(rows), *shape[1:])
            described[member] = Described(described[member].dtype, read)
        return StoredArrays(self.path, described, self._members, chosen)

    def __getitem__(self, name: str) -> Array:
        member = self._members[name]
        shape, rows = self._described[member].shape, self._rows.get(member)
        with _opened(self.path) as archive, archive.open(member + _ENDING) as stream:
            if rows is None:
                whole: Array = np.lib.format.read_array(stream, allow_pickle=False)
                return whole.reshape(shape)
            return _read_rows(stream, member, rows, shape)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def load_npz(path: Path) -> StoredArrays:
    """Returns the arrays of an .npz file. Raises CrtExportError for anything else."""
    with _opened(path) as archive:
        described = {
            name.removesuffix(_ENDING): _header(archive, name) for name in archive.namelist()
        }
    return StoredArrays(path, described, {name: name for name in described})


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with open_regular(path) as stream:
            if stream.read(6) == np.lib.format.MAGIC_PREFIX:
                raise CrtExportError(
                    "this holds one array without a name", location=str(path),
                    hint="write it with numpy.savez(path, NAME=array)",
                )
            with zipfile.ZipFile(stream) as archive:
                yield archive
    # NotImplementedError is what zipfile raises for compressions that it doesn't know.
    except (ValueError, EOFError, zipfile.BadZipFile, MemoryError, NotImplementedError) as error:
        raise CrtExportError(
            f"this is no archive of arrays that can be read ({error})", location=str(path),
            hint=_HINT,
        ) from error
    except OSError as error:
        raise CrtExportError(
            f"the arrays can't be read ({error.strerror or error})", location=str(path)
        ) from error


def _header(archive: zipfile.ZipFile, name: str) -> Described:
    """Returns what a member says about its array. Raises ValueError where it is none."""
    if not name.endswith(_ENDING):
        raise ValueError(f"{name} is no array")
    with archive.open(name) as stream:
        described, _ = _read_header(io.BytesIO(stream.read(_HEADER)), name)
    return described


def _read_header(stream: IO[bytes], name: str) -> tuple[Described, bool]:
    """Returns what a member begins with, and whether the first index of its array runs fastest."""
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0
    }.get(version)
    if read is None:  # whose fields have names, so that its elements are no numbers
        raise ValueError(f"{name} isn't an array of numbers")
    shape, columns_first, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError(f"{name} isn't an array of numbers")
    return Described(dtype, shape), columns_first


def _read_rows(
    stream: IO[bytes], name: str, rows: Sequence[int], shape: tuple[int, ...]
) -> Array:
    """Returns some rows of a member's array, which has ``shape`` then."""
    stored, columns_first = _read_header(stream, name)
    if columns_first:
        if stored.nbytes > _MOST_AT_ONCE:
            raise ValueError(f"{name} has {stored.nbytes:,} bytes in Fortran's order")
        whole = np.frombuffer(stream.read(stored.nbytes), stored.dtype)
        return whole.reshape(stored.shape, order="F").reshape(-1, *shape[1:])[rows]
    found = np.empty(shape, stored.dtype)
    nbytes, position = Described(stored.dtype, shape[1:]).nbytes, 0
    for number, row in enumerate(rows):
        left = row * nbytes - position
        while left:  # seek() of an archive's member reads 16 MB at once
            passed = len(stream.read(min(left, _PASSED)))
            if not passed:
                raise EOFError(f"{name} ends early")
            left -= passed
        found[number] = np.frombuffer(stream.read(nbytes), stored.dtype).reshape(shape[1:])
        position = (row + 1) * nbytes
    return found


_write_array: Callable[[IO[bytes], Array], None] = functools.partial(
    np.lib.format.write_array, allow_pickle=False
)


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes ``arrays`` to ``path``, the same bytes for the same arrays; a failure leaves no
    partial file."""
    try:
        # numpy.savez has parameters of its own, whose names a tensor may not have.
        with replacing(path) as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                entry = zipfile.ZipInfo(f"{name}{_ENDING}")
                # Only where needed: the bytes of small members then depend on Python's version.
                large = array.nbytes > _ZIP32_LIMIT
                with archive.open(entry, "w", force_zip64=large) as member:
                    _write_array(member, np.asarray(array))
    except OSError as error:
        raise CrtExportError(
            f"the arrays can't be written ({error.strerror or error})", location=str(path)
        ) from error
