"""The cost of exporting: wall and CPU seconds as medians of several runs, and memory.

Python's bytecode is compiled before, as it is where crtexport was installed.

Memory is the most that the exporter and the processes that it started were seen to take together;
pages that several of them share count once, those that others share in part. To look at it stops
processes and takes a good part of a processor, so that is done in runs of their own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

_ROUNDS = 5
_WATCHED = 2  # more runs, to look at their memory
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_LOOK = 0.02  # seconds between looks at the memory of processes


@dataclass(frozen=True)
class _Run:
    """Seconds."""

    wall: float
    cpu: float


def print_exports(console: Console, models: Sequence[Path], boards: Sequence[str]) -> None:
    """A table with a row for each model and board."""
    table = Table(
        "network", "board", "wall s", "from", "to", "CPU s", "MiB",
        title=f"exports, medians of {_ROUNDS} after one that doesn't count, on {os.cpu_count()}"
        " processors",
    )
    with tempfile.TemporaryDirectory() as bytecode:
        for board in boards:
            for model in models:
                _timed(model, board, bytecode)
                runs = [_timed(model, board, bytecode) for _ in range(_ROUNDS)]
                peak = max(_peak(model, board, bytecode) for _ in range(_WATCHED))
                walls = sorted(run.wall for run in runs)
                table.add_row(
                    model.stem, board, f"{statistics.median(walls):.2f}", f"{walls[0]:.2f}",
                    f"{walls[-1]:.2f}", f"{statistics.median(run.cpu for run in runs):.2f}",
                    f"{peak / (1 << 20):.0f}",
                )
    console.print(table)


def _timed(model: Path, board: str, bytecode: str) -> _Run:
    """An export that nobody looks at."""
    start = time.perf_counter()
    with _exporting(model, board, bytecode) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    return _Run(wall, usage.ru_utime + usage.ru_stime)


def _peak(model: Path, board: str, bytecode: str) -> int:
    """The most bytes of memory that an export was seen to take."""
    peak = 0
    with _exporting(model, board, bytecode) as process:
        while process.poll() is None:
            # Whoever ends during a look leaves its part of shared pages to those looked at later.
            peak = max(peak, min(_memory_of_all(process.pid) for _ in range(2)))
            time.sleep(_LOOK)
    return peak


@contextmanager
def _exporting(model: Path, board: str, bytecode: str) -> Iterator[subprocess.Popen[bytes]]:
    """An export, which must have ended, and well, with the context. ``bytecode``: the folder for
    what Python compiles."""
    variables = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
    variables["PYTHONPYCACHEPREFIX"] = bytecode
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([
            sys.executable, "-m", "crtexport", str(model), "--board", board, "-q",
            "-o", str(Path(folder) / "package.tar"),
        ], env=variables)
        yield process
        if process.returncode:
            raise SystemExit(f"{model.name} can't be exported for {board}")


def _family(parent: int) -> list[int]:
    """A process and those that it started."""
    found = [parent]
    for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            found += map(int, tasks.read_text().split())
        except OSError:
            continue
    return found


def _memory_of_all(parent: int) -> int:
    """The bytes that a process and those that it started take, looked at one after the other."""
    return sum(map(_memory, _family(parent)))


def _memory(number: int) -> int:
    """The bytes that a process takes, its part of those that it shares; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
