"""Files that users name: their names are any bytes, and where theirs are read in any order, pipes
and devices are none."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def text(name: str) -> str:
    """Returns a name as Unicode text: a file's may have bytes that are none, and JSON can smuggle
    in halves of surrogate pairs."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def open_regular(path: Path) -> BinaryIO:
    """Returns a stream of the bytes of a regular file.

    Raises OSError for a file that can't be read, and for one of another kind: to open a pipe would
    wait for whoever writes into it, and a device may have no end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(
        errno.EINVAL, "this is not a regular file: save what comes through a pipe to one first",
        str(path),
    )
