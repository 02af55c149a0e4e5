"""The speed of an exported model on this computer, beside LiteRT and ONNX Runtime.

CPU time of one thread, batches of all runtimes interleaved in one process
(:mod:`crtexport.reports.host_worker`): other load of the computer then disturbs all alike, and the
ratios hold where the times don't.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from msgspec import Struct

from crtexport.firmware.board_schema import Board
from crtexport.firmware.toolchain import log_tail, run_tool
from crtexport.importers.formats import TFLITE, format_of
from crtexport.ir.macs import macs
from crtexport.mlf import layout
from crtexport.mlf.arrays import Array, key_of, samples_for
from crtexport.mlf.reader import Package, open_package
from crtexport.pipeline import driver
from crtexport.pipeline.driver import Emit, Optimize
from crtexport.pipeline.options import ExportChanges
from crtexport.simulation.runtimes import RuntimeName, find_runtime
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from crtexport.support.this_processor import check_processor

OURS = "crtexport"
ROUNDS = 31
_BATCH_NS = 2_000_000
_WORKER = Path(__file__).with_name("host_worker.py")
_RUNTIMES: tuple[RuntimeName, ...] = ("ai-edge-litert", "tflite-runtime")


class Timing(Struct, frozen=True):
    """Nanoseconds of CPU time per inference of one runtime: the median of all rounds, and the
    quartiles ``low`` and ``high``.

    ``ratio`` is the median of crtexport's time divided by this runtime's in the same round,
    ``ratio_low`` and ``ratio_high`` are its quartiles.
    """

    name: str
    median: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float


class HostBench(Struct, frozen=True):
    """One network on this computer: the times of each runtime over ``rounds`` rounds. ``missing``
    says why a runtime could not be timed. ``workspace``, ``state`` and ``constants`` are bytes of
    the exported model.
    """

    model: str
    board: str
    emit: Emit
    optimize: Optimize
    rounds: int
    timings: tuple[Timing, ...]
    missing: tuple[str, ...]
    sha256: str
    macs: int
    workspace: int
    state: int
    constants: int


def bench_host(
    model: Path | str, *, board: Board | Path | str = "host",
    inputs: Mapping[str, Array] | None = None, onnx: Path | None = None, rounds: int = ROUNDS,
    **changes: Unpack[ExportChanges],
) -> HostBench:
    """Exports ``model`` for a board that is this computer, times it beside other runtimes, and
    returns the times.

    LiteRT is timed if ``model`` is a .tflite file, ONNX Runtime if ``onnx`` is the same network in
    its format; both run under the Python that ``CRTEXPORT_LITERT_PYTHON`` names, or this one. A
    runtime that isn't installed is named in the result, which then has the other times. ``changes``
    are those of :func:`crtexport.export`. Raises CrtExportError for a board that isn't this
    computer, or whose code it can't run, and what exporting raises.
    """
    chosen = driver.resolve_board(board)
    if not chosen.hosted:
        raise CrtExportError("this board is not this computer", location=chosen.name)
    check_processor(chosen.cpu.name, chosen.cpu.features, chosen.name)
    with tempfile.TemporaryDirectory(prefix="crtexport-") as name:
        folder = Path(name)
        changes |= {"system_lib": False}
        exported = driver.export(model, board=chosen, output=folder / "bench.tar", **changes)
        package = open_package(exported.path)
        row = samples_for(package.inputs, inputs).rows[0]
        arrays: dict[str, Any] = {str(i): row[key_of(t)] for i, t in enumerate(package.inputs)}
        np.savez(folder / "inputs.npz", **arrays)
        python, lacking = _python()
        asked = format_of(Path(model)) is TFLITE
        answer = _time(python, {
            "library": str(_link(package, chosen, folder)),
            "run": f"tvmgen_{package.module}_run",
            "outputs": [tensor.nbytes for tensor in package.outputs],
            "inputs": str(folder / "inputs.npz"),
            "tflite": str(Path(model).resolve()) if asked and not lacking else None,
            "onnx": None if onnx is None else str(onnx.resolve()),
            "rounds": rounds,
            "batch_ns": _BATCH_NS,
        })
    times: dict[str, list[float]] = answer["times"]
    graph, artifact = exported.graph, exported.artifact
    return HostBench(
        model=graph.source, board=chosen.name, emit=exported.emit,
        optimize=changes.get("optimize") or chosen.optimize, rounds=rounds,
        timings=tuple(_timing(name, values, times[OURS]) for name, values in times.items()),
        missing=(
            *([lacking] if asked and lacking else []),
            *(f"{what}: {why}" for what, why in answer["missing"].items()),
        ),
        sha256=graph.sha256, macs=sum(macs(graph, node) for node in graph.nodes),
        workspace=artifact.workspace_total, state=artifact.state_size,
        constants=artifact.constants_size,
    )


def _link(package: Package, board: Board, folder: Path) -> Path:
    """Returns the package as a shared library, linked by the board's own compiler."""
    package.extract(folder)
    library = folder / "model.so"
    inputs = [
        *(layout.library(name) for name in package.objects),
        *(layout.source(name) for name in package.sources),
    ]
    run_tool(
        [
            *board.toolchain.compiler, "-shared", "-fPIC", "-O2", "-ffp-contract=off",
            *board.cpu.cflags, f"-I{layout.INCLUDE_DIR}", f"-I{layout.RUNTIME_INCLUDE_DIR}",
            "-o", library.name, *inputs,
        ],
        cwd=folder, what="linking the model",
    )
    return library


def _python() -> tuple[str, str]:
    """Returns the path of the Python that runs the timing, and why it has no runtime for .tflite
    files ("" if it has one)."""
    problems = []
    for name in _RUNTIMES:
        try:
            return find_runtime(name).python, ""
        except ToolMissingError as error:
            problems.append(error)
    return sys.executable, f"{problems[0].problem} ({problems[0].hint})"


def _time(python: str, job: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, str(_WORKER)], input=json.dumps(job).encode(), capture_output=True, check=False
        )
    except OSError as error:
        raise ToolMissingError(
            f"can't be started: {error.strerror}", location=python,
            hint="CRTEXPORT_LITERT_PYTHON names the Python for ai-edge-litert",
        ) from None
    if done.returncode:
        raise RunFailedError(
            "timing failed; the last words were:\n"
            + log_tail(done.stderr.decode("utf-8", "replace"))
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _timing(name: str, values: Sequence[float], ours: Sequence[float]) -> Timing:
    ratios = [mine / other for mine, other in zip(ours, values, strict=True)]
    return Timing(name, *_spread(values), *_spread(ratios))


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns median and quartiles."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4)
    return statistics.median(values), low, high
