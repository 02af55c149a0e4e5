"""Errors for resources that the system lacks: memory, processes, file descriptors, disk space."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from crtexport.support.errors import CrtExportError

_UNMAPPED = ("failed to map segment", "annot allocate memory", "out of memory", "bad_alloc")
"""Words of dynamic linkers, LLVM and C++ for lack of memory."""
_UNOPENED = ("oo many open files", "File descriptor limit")
_NO_THREAD = ("can't start new thread", "unable to start a thread", "pthread_create")
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


_NEAR = 0.75
"""Distance from a limit that counts as reaching it: libraries allocate many megabytes at once."""


class ShortageError(CrtExportError):
    """Raised when the system refuses memory, a process or a file."""

    exit_code = 3


def shortage(error: BaseException) -> CrtExportError | None:
    """Returns the error that names the lacking resource where ``error``, or one of its causes,
    stems from it; else None."""
    for inner in _chain(error):
        if isinstance(inner, OSError) and (found := _of_system(inner)) is not None:
            return found
        if isinstance(inner, MemoryError):
            return no_memory()
        # What extensions raise that look at no result of an allocation.
        if isinstance(inner, SystemError | ImportError) and _memory_is_short():
            return no_memory(str(inner))
        if isinstance(inner, ImportError | OSError | RuntimeError):
            found = shortage_told(str(inner))
            if found is not None:
                return found
    return None


def shortage_told(text: str) -> CrtExportError | None:
    """Returns the error that names the lacking resource, from the ``text`` of another program; None
    where it tells of none."""
    for made, known in ((no_process, _NO_THREAD), (no_memory, _UNMAPPED), (_no_files, _UNOPENED)):
        for line in text.replace("; ", "\n").splitlines():
            if any(words in line for words in known):
                return made(line.strip())
    return None


def no_memory(why: str = "") -> ShortageError:
    """Returns the error for too little memory."""
    return ShortageError(
        _because("there is too little memory", why),
        hint=_raise(resource.RLIMIT_AS, "ulimit -v", 1024) or "end other programs",
    )


def no_process(why: str = "") -> ShortageError:
    """Returns the error for a process or thread that can't be started; these need address space,
    too, and the system doesn't say which of both it lacks."""
    limits = (
        _raise(resource.RLIMIT_AS, "ulimit -v", 1024), _raise(resource.RLIMIT_NPROC, "ulimit -u"),
    )
    return ShortageError(
        _because("the system starts no further process or thread", why),
        hint=", or ".join(filter(None, limits)) or "end other programs, or try again",
    )


def _no_files(why: str = "") -> ShortageError:
    return ShortageError(
        _because("too many files are open", why),
        hint=_raise(resource.RLIMIT_NOFILE, "ulimit -n") or "try again",
    )


def _of_system(error: OSError) -> CrtExportError | None:
    reason, where = os.strerror(error.errno or 0), str(error.filename or "")
    match error.errno:
        case errno.ENOMEM:
            return no_memory(reason)
        case errno.EMFILE | errno.ENFILE:
            return _no_files(reason)
        case errno.EAGAIN:
            return no_process(reason)
        case errno.ENAMETOOLONG:
            return CrtExportError(f"this name is too long for the file system ({reason})",
                                  location=where, hint="choose a shorter one")
        case code if code in _FULL:
            what = "the file" if where else "the output"  # without a name it is standard output
            return CrtExportError(f"{what} can't be written: {error.strerror}", location=where)
        case code if code in _REFUSED:
            return CrtExportError(f"the system refuses access ({reason})", location=where)
        case _:
            return None


def _memory_is_short() -> bool:
    """Returns whether this process came near a limit of its address space."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return False
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    peak = re.search(r"^VmPeak:\s*(\d+) kB", status, re.MULTILINE)
    return peak is not None and int(peak[1]) * 1024 > limit * _NEAR


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and its causes, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _because(problem: str, why: str) -> str:
    return f"{problem} ({why})" if why else problem


def _raise(limit: int, command: str, unit: int = 1) -> str:
    """Returns advice about a limit of this process; empty where there is none."""
    soft, _ = resource.getrlimit(limit)
    return "" if soft == resource.RLIM_INFINITY else f"raise the limit: {command} is {soft // unit}"
