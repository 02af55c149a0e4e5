"""Arrays in .npz files, NumPy's archives: their types and shapes are known before any is read.

A small file may unpack to gigabytes, so what is read is first compared with what is wanted.
"""

from __future__ import annotations

import functools
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
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
        self, path: Path, described: Mapping[str, Described], members: Mapping[str, str]
    ) -> None:
        """``members``: under which names arrays are in the file."""
        self.path, self._described, self._members = path, described, members

    def described(self, name: str) -> Described:
        """Returns what the file says about an array, which isn't read for that."""
        return self._described[self._members[name]]

    def member(self, name: str) -> str:
        """Returns the name of an array in the file."""
        return self._members[name]

    def renamed(self, names: Mapping[str, str]) -> StoredArrays:
        """Returns some of these arrays under other names; ``names`` maps these to their names
        here."""
        members = {name: self._members[own] for name, own in names.items()}
        return StoredArrays(self.path, self._described, members)

    def __getitem__(self, name: str) -> Array:
        member = self._members[name]
        with _opened(self.path) as archive, archive.open(member + _ENDING) as stream:
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
            return array

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
        begin = io.BytesIO(stream.read(_HEADER))
    version = np.lib.format.read_magic(begin)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0
    }.get(version)
    if read is None:  # whose fields have names, so that its elements are no numbers
        raise ValueError(f"{name} isn't an array of numbers")
    shape, _, dtype = read(begin)
    if dtype.hasobject:
        raise ValueError(f"{name} isn't an array of numbers")
    return Described(dtype, shape)


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
