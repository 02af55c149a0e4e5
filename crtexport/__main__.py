"""``crtexport`` and ``python -m crtexport``"""

import atexit
import contextlib
import gc
import os
import resource
import signal
import sys
from types import FrameType
from typing import NoReturn, TextIO

from crtexport.errors import Terminated

_LEAST = 96 << 20  # bytes of addresses; the smallest export takes more
_OBJECTS = 200_000  # made between two searches for unreachable ones; few exports make as many


class _End:
    """The end of the process, at which the system frees its memory as a whole. Python would do so
    object by object before, which takes longer than writing a package.
    """

    def __init__(self) -> None:
        self._code = 1  # that of an exception which nobody caught

    def leave(self, code: int) -> NoReturn:
        """Leaves with an exit code."""
        self._code = code
        sys.exit(code)

    def __call__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # of which main has told
                stream.flush()
        os._exit(self._code)


def run() -> None:
    """Runs the command and leaves with its exit code."""
    # They are None where whoever started the program closed them: then nobody reads.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    end = _End()
    _hurry(end)
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        _look_for_memory()
        from crtexport.cli.main import main  # noqa: PLC0415

        end.leave(main())
    except KeyboardInterrupt:  # before or after main could say so itself
        sys.stderr.write("interrupted\n")
        end.leave(130)
    except (OSError, ImportError, MemoryError) as error:  # main tells of its own
        sys.stderr.write(
            f"error: crtexport can't start: {error or type(error).__name__}\n"
            "  hint: raise the limits (ulimit -v, ulimit -n), or install it again\n"
        )
        end.leave(3)
    except Terminated:
        sys.stderr.write("terminated\n")
        end.leave(143)


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


def _hurry(end: _End) -> None:
    """Leaves out what takes a tenth of a short-lived process's time and is of no use in it."""
    gc.set_threshold(_OBJECTS)
    atexit.register(end)  # before all others, so that it comes after all that they do
    # Its threads ask for large matrices again and again, beside LLVM; there are none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Plugins of pydantic are looked for among all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


if __name__ == "__main__":
    run()
