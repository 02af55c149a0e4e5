"""An open folder and its contents, reached through no symbolic link."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Literal

from crtexport.support.errors import CrtExportError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
Kind = Literal["", "file", "link", "folder", "other"]
"""Kinds of a file system's entries; "": no entry."""


class Tree:
    """Files by their names below a folder, parts separated by ``/``.

    Methods raise OSError as those of ``os``, and CrtExportError where a symbolic link stands for a
    folder on the way.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    @contextlib.contextmanager
    def parent(self, name: str) -> Iterator[tuple[int, str]]:
        """The open folder that ``name`` is in, and its last part."""
        *folders, last = name.split("/")
        at = os.dup(self.descriptor)
        try:
            for number, part in enumerate(folders):
                try:
                    inner = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=at)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR) and _kind(at, part) == "link":
                        raise CrtExportError(
                            "a symbolic link stands where a folder of ours belongs",
                            location=str(self.path / "/".join(folders[: number + 1])),
                            hint="links are never followed: remove it, or name another folder",
                        ) from None
                    raise
                outer, at = at, inner  # at is open all along: a signal may end this anywhere
                os.close(outer)
            yield at, last
        finally:
            os.close(at)

    def kind(self, name: str) -> Kind:
        """Returns the kind of the entry of this name."""
        try:
            with self.parent(name) as (folder, last):
                return _kind(folder, last)
        except FileNotFoundError:
            return ""

    def digest(self, name: str) -> str:
        """Returns the SHA-256 of a file."""
        with self.open(name) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def open(self, name: str) -> BufferedReader:
        """Returns a file to read."""
        with self.parent(name) as (folder, last):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.fdopen(os.open(last, flags, dir_fd=folder), "rb")

    def create(self, name: str) -> BinaryIO:
        """Returns a new file to write."""
        with self.parent(name) as (folder, last):
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            return os.fdopen(os.open(last, flags, 0o666, dir_fd=folder), "wb")

    def move(self, name: str, to: str) -> None:
        """Renames a file, replacing any file of the new name."""
        with self.parent(name) as (folder, last), self.parent(to) as (new, own):
            os.replace(last, own, src_dir_fd=folder, dst_dir_fd=new)

    def remove(self, name: str) -> None:
        """Removes a file or a link."""
        with self.parent(name) as (folder, last):
            os.unlink(last, dir_fd=folder)

    def make_folder(self, name: str) -> None:
        """Makes a folder, unless it is there, in one that is there."""
        with self.parent(name) as (folder, last):
            try:
                os.mkdir(last, dir_fd=folder)
            except FileExistsError:
                if _kind(folder, last) == "folder":
                    return
                with self.parent(f"{name}/"):  # which says what is wrong with it
                    raise

    def remove_folder(self, name: str) -> None:
        """Removes a folder if it is empty."""
        with self.parent(name) as (folder, last), contextlib.suppress(OSError):
            os.rmdir(last, dir_fd=folder)

    def remove_all(self, name: str) -> None:
        """Removes a folder with everything in it."""
        with self.parent(name) as (folder, last):
            shutil.rmtree(last, dir_fd=folder)


def ancestors(name: str) -> list[str]:
    """Returns the folders that ``name`` is in, from the outside in."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _kind(folder: int, name: str) -> Kind:
    try:
        mode = os.lstat(name, dir_fd=folder).st_mode
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
