"""``crtexport`` and ``python -m crtexport``"""

import gc
import os
import resource
import signal
import sys
from types import FrameType
from typing import NoReturn, TextIO

from crtexport.support.errors import Terminated

_LEAST = 96 << 20  # bytes of addresses; the smallest export takes more
_OBJECTS = 200_000  # made between two searches for unreachable ones; few exports make as many


def run() -> None:
    """Runs the command and exits with its code."""
    # They are None where whoever started the program closed them: then nobody reads.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    gc.set_threshold(_OBJECTS)
    # OpenBLAS starts threads for large matrices, beside LLVM; there are none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        code = _exit_code()
        if signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to be unwound
        sys.exit(code)
    except Terminated:  # between the return of main and the line above
        sys.exit(143)
    finally:
        _flush()


def _exit_code() -> int:
    """Runs the command and returns its exit code, also where ``main`` can't be imported."""
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        _look_for_memory()
        from crtexport.cli.main import main  # noqa: PLC0415

        return main()
    except KeyboardInterrupt:  # before or after main could report it itself
        sys.stderr.write("interrupted\n")
        return 130
    except (OSError, ImportError, MemoryError) as error:  # main reports its own
        sys.stderr.write(
            f"error: crtexport can't start: {error or type(error).__name__}\n"
            "  hint: raise the limits (ulimit -v, ulimit -n), or install it again\n"
        )
        return 3
    except Terminated:
        sys.stderr.write("terminated\n")
        return 143


def _flush() -> None:
    """Writes what is buffered. Where that fails, as ``main`` has reported, the rest is dropped:
    Python would fail again while it exits, and replace the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Unwinds as Ctrl-C does, so that nothing stays that was written by half."""
    raise Terminated


def _look_for_memory() -> None:
    """Raises OSError where a limit leaves too little: the BLAS of NumPy would end the process while
    it is imported."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        import mmap  # noqa: PLC0415

        mmap.mmap(-1, _LEAST).close()


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


if __name__ == "__main__":
    run()
