"""What exporting takes: wall and CPU seconds as medians of several runs, and memory.

Python's bytecode is compiled before, as it is where crtexport was installed.

Memory is the most that the exporter and the processes that it started were seen to take together;
pages that several of them share count once, those that others share in part.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

_ROUNDS = 5
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_LOOK = 0.02  # seconds between looks at the memory of processes


@dataclass(frozen=True)
class _Run:
    """Seconds, and bytes of memory."""

    wall: float
    cpu: float
    peak: int


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
                _export(model, board, bytecode)
                runs = [_export(model, board, bytecode) for _ in range(_ROUNDS)]
                walls = sorted(run.wall for run in runs)
                table.add_row(
                    model.stem, board, f"{statistics.median(walls):.2f}", f"{walls[0]:.2f}",
                    f"{walls[-1]:.2f}", f"{statistics.median(run.cpu for run in runs):.2f}",
                    f"{max(run.peak for run in runs) / (1 << 20):.0f}",
                )
    console.print(table)


def _export(model: Path, board: str, bytecode: str) -> _Run:
    """``bytecode``: the folder for what Python compiles."""
    variables = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
    variables["PYTHONPYCACHEPREFIX"] = bytecode
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        process = subprocess.Popen([
            sys.executable, "-m", "crtexport", str(model), "--board", board, "-q",
            "-o", str(Path(folder) / "package.tar"),
        ], env=variables)
        done, peak = 0, 0
        while not done:
            peak = max(peak, sum(map(_memory, _family(process.pid))))
            time.sleep(_LOOK)
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{model.name} can't be exported for {board}")
        return _Run(wall, usage.ru_utime + usage.ru_stime, peak)


def _family(parent: int) -> list[int]:
    """A process and those that it started."""
    found = [parent]
    for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            found += map(int, tasks.read_text().split())
        except OSError:
            continue
    return found


def _memory(number: int) -> int:
    """The bytes that a process takes, its part of those that it shares; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
