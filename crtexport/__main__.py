"""``crtexport`` and ``python -m crtexport``"""

import atexit
import gc
import os
import sys

_OBJECTS = 200_000  # made between two searches for unreachable ones; few exports make as many


def run() -> None:
    """Runs the command and leaves with its exit code."""
    _hurry()
    try:
        from crtexport.cli.main import main  # noqa: PLC0415
    except KeyboardInterrupt:  # before main could say so itself
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    sys.exit(main())


def _hurry() -> None:
    """Leaves out what takes a tenth of a short-lived process's time and is of no use in it."""
    gc.set_threshold(_OBJECTS)
    atexit.register(gc.freeze)  # what is still there at the end needn't be searched once more
    # Its threads ask for large matrices again and again, beside LLVM; there are none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Plugins of pydantic are looked for among all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


if __name__ == "__main__":
    run()
