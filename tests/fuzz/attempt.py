"""One damaged file: read it, export it, and say what went wrong that mustn't."""

from __future__ import annotations

import signal
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crtexport.backends.c.source import emit_c
from crtexport.firmware.board import Board
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.pipeline.driver import prepare
from crtexport.support.errors import CrtExportError
from tests.fuzz.corpus import Seed
from tests.fuzz.pool import Outcome

MEMORY_FACTOR = 10
MEMORY_FLOOR = 4 << 20
"""Bytes that reading may take whatever the file's size: Python's own objects, and what is built
once and kept (the schema of model.json)."""

SECONDS = 30
"""No file may take longer."""


class _TooSlowError(BaseException):
    """Not caught by anything on the way."""


@contextmanager
def _deadline(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(seed: Seed, folder: Path, boards: Sequence[Board]) -> Outcome:
    """Reads ``seed`` from ``folder`` and exports it as C, as far as that goes, for each board."""
    path = folder / "model"
    path.write_bytes(seed.content)
    for name, content in seed.beside.items():
        (folder / name).write_bytes(content)
    start = time.monotonic()
    reached = "refused"
    try:
        with _deadline(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")  # arithmetic that overflows unnoticed
            graph, peak = _measured(path)
            if graph is not None:
                reached = "unexportable"
                for board in boards:
                    emit_c(prepare(graph, board).artifact)
                reached = "exported"
    except (Exception, _TooSlowError) as error:
        # Only the class itself: its relatives speak of tools and runs, which are none of these.
        if type(error) is not CrtExportError:
            return Outcome(reached, _where(error), _text(error), time.monotonic() - start)
        _ = str(error)  # messages with names from the file must be writable
        peak = 0
    size = len(seed.content) + sum(map(len, seed.beside.values()))
    if peak > MEMORY_FACTOR * size + MEMORY_FLOOR:
        return Outcome(reached, "memory", f"{peak} bytes for a file of {size}")
    return Outcome(reached, seconds=time.monotonic() - start)


def _measured(path: Path) -> tuple[Graph | None, int]:
    """The network, None where it is refused; the most memory that this took."""
    tracemalloc.start()
    try:
        return load(path), tracemalloc.get_traced_memory()[1]
    except CrtExportError as error:
        if type(error) is not CrtExportError:
            raise
        _ = str(error)
        return None, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _where(error: BaseException) -> str:
    """Kind and innermost place in the program, which tells findings apart."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__)
        if "crtexport/" in f.filename.replace("\\", "/") and "/tests/" not in f.filename
    ]
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3000:]
