"""Files that appear whole or not at all.

Where the system has files without a name, one is written and named at its end: a process that is
killed leaves nothing. Elsewhere, and for the moment in which a file takes the place of another, it
has a name that later writers recognize; a lock tells them whether its writer still lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from crtexport.support.outputs.signals import held

_LEFTOVER = re.compile(r"\.crtexport-[0-9a-f]{16}\.tmp")
_OPEN_FILES = Path("/proc/self/fd")
"""The folder through which files without a name are given one."""
_UNNAMED = getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS}
"""Errors of opening a file without a name where the system or the file system has none."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields a new file that replaces ``path`` where the block ends without an exception, and is
    deleted otherwise.

    A symbolic link at ``path`` is replaced; what it leads to stays as it is. What killed writers
    left in the folder is removed. Raises OSError where the file can't be written, and where
    ``path`` is, or leads to, a folder or a device.
    """
    refuse_place(path)
    folder = os.open(path.parent, _FOLDER)
    try:
        remove_leftovers(folder)
        with _unnamed(folder, path.name) or _named(folder, path.name) as stream:
            yield stream
    finally:
        os.close(folder)


def refuse_place(path: Path) -> None:
    """Raises OSError where no file may take the place of ``path``: of a folder, a device, or a link
    to one of these; and among the system's own files."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    place = path.parent.resolve() / path.name
    system = place.parent == Path("/dev") or place.is_relative_to("/proc")
    if system or (path.exists() and not path.is_file()):
        raise FileExistsError(errno.EEXIST, "Not a regular file", str(path))


def remove_leftovers(folder: int) -> None:
    """Removes temporary files of writers that were killed from an open folder."""
    for name in os.listdir(folder):
        if _LEFTOVER.fullmatch(name):
            with contextlib.suppress(OSError):  # another may be as fast, or a lock be refused
                _remove_dead(folder, name)


def temporary_name() -> str:
    """Returns a name by which later writers know that the file may be removed once its lock is
    free."""
    return f".crtexport-{secrets.token_hex(8)}.tmp"


def lock(descriptor: int) -> bool:
    """Locks an open file or folder while it is open. Returns False where another process holds the
    lock, True on file systems without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
    return True


def _remove_dead(folder: int, name: str) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    found = os.open(name, flags, dir_fd=folder)
    try:
        # Without the suppressions of lock(): where nothing can be locked, nobody is known dead.
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened, there = os.fstat(found), os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not os.path.samestat(opened, there):
            return
        if stat.S_ISDIR(opened.st_mode):
            shutil.rmtree(name, dir_fd=folder)
        elif stat.S_ISREG(opened.st_mode):
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(found)


def _unnamed(folder: int, name: str) -> contextlib.AbstractContextManager[BinaryIO] | None:
    """Opens a file without a name; None where the system has no such thing."""
    if not _UNNAMED or not _OPEN_FILES.is_dir():
        return None
    try:
        file = os.open(".", _UNNAMED | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_UNNAMED:
            return None
        raise
    return _writing_unnamed(file, folder, name)


@contextlib.contextmanager
def _writing_unnamed(file: int, folder: int, name: str) -> Iterator[BinaryIO]:
    with os.fdopen(file, "wb") as stream:
        yield stream
        stream.flush()
        source = str(_OPEN_FILES / str(file))
        try:
            # Python asks for the file behind the link in /proc only with a folder.
            os.link(source, name, dst_dir_fd=folder, follow_symlinks=True)
        except FileExistsError:
            lock(file)  # before it has a name, so that nobody takes it for a dead one's
            temporary = temporary_name()
            with held(), _removed(folder, temporary):
                os.link(source, temporary, dst_dir_fd=folder, follow_symlinks=True)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextlib.contextmanager
def _named(folder: int, name: str) -> Iterator[BinaryIO]:
    temporary, file = temporary_name(), -1
    with _removed(folder, temporary):
        while (file := _created(folder, temporary)) < 0:
            temporary = temporary_name()
        with os.fdopen(file, "wb") as stream:
            yield stream
            stream.flush()
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _created(folder: int, name: str) -> int:
    """Returns a new locked file of ours; -1 where another process removed it before it was locked.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    file = os.open(name, flags, 0o666, dir_fd=folder)
    if lock(file) and os.fstat(file).st_nlink:
        return file
    os.close(file)
    return -1


@contextlib.contextmanager
def _removed(folder: int, temporary: str) -> Iterator[None]:
    """Removes the name at the end, whatever happens."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
