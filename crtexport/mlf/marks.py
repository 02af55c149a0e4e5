"""Records which packages this user exported on this computer: hashes in the user's cache.

A package's metadata has the hashes of all its files, so the metadata's own hash stands for all of
it. The file of hashes is only ever appended to and cut to its newest entries; without a cache
folder, only this process remembers.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from crtexport.mlf import layout
from crtexport.support.resources import cache_folder

if TYPE_CHECKING:  # exports read no packages
    from crtexport.mlf.reader import Package

_LINE = 65  # 64 hexadecimal digits and the end of the line
_MOST = 4096
"""The most packages that are recorded; when there are more, the older half is removed."""

_LOOKS_RIGHT = re.compile(rb"[0-9a-f]{64}\n")

_here: set[bytes] = set()


def remember(metadata: bytes) -> None:
    """Records that a package with this metadata was exported here. Never fails."""
    mark = _mark(metadata)
    _here.add(mark)
    path = _file()
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            marks = _marks(descriptor)
            if mark in marks:
                return
            if len(marks) >= _MOST:
                marks = marks[-_MOST // 2 :]
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"".join(marks), 0)
            os.pwrite(descriptor, mark, _LINE * len(marks))


def exported_here(package: Package) -> bool:
    """Returns True if this user exported ``package``, whose files match its metadata, on this
    computer and the record of it still exists."""
    mark = _mark(package.read(layout.METADATA))
    path = _file()
    if mark in _here or path is None:
        return mark in _here
    try:
        with _opened(path, os.O_RDONLY) as descriptor:
            return mark in _marks(descriptor)
    except OSError:
        return False


def _mark(metadata: bytes) -> bytes:
    return hashlib.sha256(metadata).hexdigest().encode() + b"\n"


def _file() -> Path | None:
    """Returns the path of the hashes; None without a cache folder."""
    folder = cache_folder()
    return None if folder is None else folder / "exported"


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Opens the file, which must be the user's own and for others to read at most. Raises OSError.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(descriptor)
        if (not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid()
                or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise PermissionError("others could have written the file")
        yield descriptor
    finally:
        os.close(descriptor)


def _marks(descriptor: int) -> list[bytes]:
    """Returns the hashes in the file, the oldest first, up to the first invalid one."""
    data = os.pread(descriptor, _LINE * _MOST, 0)
    lines = (data[at : at + _LINE] for at in range(0, len(data), _LINE))
    return list(itertools.takewhile(_LOOKS_RIGHT.fullmatch, lines))
