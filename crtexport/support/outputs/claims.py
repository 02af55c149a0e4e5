"""The outputs of a command, checked against its inputs before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.single import refuse_place


class Claims:
    """The files that a command will write, each under the option that names it, and those that it
    reads: none may be both. Every verb declares both before any work."""

    def __init__(self) -> None:
        self._written: list[tuple[str, Path]] = []
        self._read: list[Path] = []

    def file(self, option: str, path: Path | None) -> None:
        """Claims ``path``, if there is one. Raises CrtExportError where it is a folder or a device,
        where its folder isn't there or can't be written, and where it is read or claimed already.
        """
        if path is None or (option, path) in self._written:
            return
        for other, taken in self._written:
            if _same(path, taken):
                raise CrtExportError(
                    f"{option} and {other} name one file", location=str(path),
                    hint="give each a file of its own",
                )
        _refuse_any(option, path, self._read)
        try:
            refuse_place(path)
            path.parent.stat()
        except (OSError, ValueError) as error:
            raise _unwritable(option, path, error) from error
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise CrtExportError(f"{option}: the folder can't be written", location=str(path))
        self._written.append((option, path))

    @staticmethod
    def folder(option: str, path: Path | None) -> None:
        """Checks that ``path``, if there is one, is a folder or may become one, into which the
        command will write files. Raises CrtExportError where it can't."""
        if path is None:
            return
        there = path
        while not os.path.lexists(there) and there != there.parent:
            there = there.parent
        if not there.is_dir():
            raise CrtExportError(
                f"{option}: a file is where the folder should be", location=str(there)
            )

    def reads(self, *paths: Path | None) -> None:
        """Declares files that the command reads. Raises CrtExportError where one of them is
        claimed: under another name, through links and as a hard link, too."""
        given = [path for path in paths if path is not None]
        self._read += given
        for option, path in self._written:
            _refuse_any(option, path, given)

    def links(self) -> tuple[str, ...]:
        """Returns a sentence for each symbolic link that will be replaced."""
        return tuple(
            f"{path} is a symbolic link: it is replaced, {path.readlink()} stays as it is"
            for _, path in self._written if path.is_symlink()
        )


def _refuse_any(option: str, path: Path, read: Iterable[Path]) -> None:
    for given in read:
        if _same(path, given):
            called = "" if path == given else f" ({given})"
            raise CrtExportError(
                f"{option} names a file that is read{called}", location=str(path),
                hint="write to another file; nothing was changed",
            )


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.stat(), other.stat())
    except (OSError, ValueError):  # one isn't there: then they may still share a name
        return os.path.realpath(one) == os.path.realpath(other)


def _unwritable(option: str, path: Path, error: Exception) -> CrtExportError:
    hint = None
    if isinstance(error, FileNotFoundError):
        hint = f"create the folder {path.parent} first"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return CrtExportError(f"{option} can't be written ({reason})", location=str(path), hint=hint)
