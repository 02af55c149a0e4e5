"""``python -m tests.bench``: the MLPerf Tiny networks on boards, against what we aim for.

Prints one table per board: instructions and flash as parts of TensorFlow Lite Micro's with
CMSIS-NN, beside the most that we want them to be. It asserts nothing: tests that time or count
would fail for reasons of their own. ``--exports`` measures exporting instead: time and memory,
``--accuracy`` how often three networks are right before and after quantizing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from crtexport.pipeline.options import ExportOptions
from crtexport.reports.bench import Bench, bench
from crtexport.reports.measure import MeasureSetting
from crtexport.support.levels import LEVELS
from tests.bench import accuracy
from tests.bench.exports import print_exports
from tests.bench.images import tables
from tests.helpers import INT8_NETWORKS, require_environment, shared_model

AIMS = {
    "mps2_an386": (0.70, 0.60, 0.55, 0.38),
    "mps3_an547": (0.60, 0.55, 0.55, 0.42),
    "mps2_an385": (0.80, 0.70, 0.70, 0.40),
}
FLASH_AIMS = {"mps2_an386": (0.90, 0.42, 0.63, 0.28)}
PEER = "TFLM + CMSIS-NN"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--board", action="append", help="by default all that have aims")
    parser.add_argument("--emit", choices=("llvm", "c"))
    parser.add_argument("--optimize", choices=LEVELS, default="balanced")
    parser.add_argument(
        "--images", action="store_true", help="compressed device programs instead"
    )
    parser.add_argument("--exports", action="store_true", help="time and memory of exports instead")
    parser.add_argument(
        "--accuracy", action="store_true",
        help="predictions of three networks, float and quantized, instead; trains them first",
    )
    options = parser.parse_args()
    console = Console(width=120)
    if options.accuracy:
        for board in options.board or ("mps2_an386",):
            _print_accuracy(console, board)
        return
    if options.exports:
        names = [name.replace("int8", kind) for kind in ("int8", "fp32") for name in INT8_NETWORKS]
        models = [shared_model(name) for name in names]
        print_exports(console, models, options.board or ("host", "mps2_an386"))
        return
    if options.images:
        for board in options.board or ("mps2_an386",):
            for table in tables(board):
                console.print(table)
        return
    for board in options.board or AIMS:
        table = Table(
            "network", "instructions", "per MAC", "part", "aim", "flash", "part", "aim",
            "workspace", "stack", title=f"{board}, {options.emit or 'llvm'}, {options.optimize}",
        )
        for index, name in enumerate(INT8_NETWORKS):
            result = bench(MeasureSetting(
                shared_model(name), board,
                ExportOptions(emit=options.emit, optimize=options.optimize),
            ))
            table.add_row(name, *_cells(result, board, index))
        console.print(table)


def _print_accuracy(console: Console, board: str) -> None:
    python = require_environment("onnx", "torch", "onnxscript", "sklearn", "onnxruntime")
    os.environ["CRTEXPORT_ONNX_PYTHON"] = python
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        accuracy.train(python, Path(folder))
        found = [accuracy.measure(Path(folder), name, board) for name in accuracy.NAMES]
    table = Table("", *(one.name for one in found), title=f"{board}, quantized with uint8")
    for what, *cells in zip(accuracy.ROWS, *map(accuracy.rows, found), strict=True):
        table.add_row(what, *cells)
    console.print(table)


def _cells(result: Bench, board: str, index: int) -> list[str]:
    peer = next((p for p in result.peers if p.peer == PEER), None)
    count = result.second or 0
    return [
        f"{count:,}", f"{count / result.macs:.2f}",
        _part(count, peer.instructions if peer else None), _aim(AIMS, board, index),
        f"{result.flash_size:,}", _part(result.flash_size, peer.flash if peer else None),
        _aim(FLASH_AIMS, board, index), f"{result.workspace:,}", str(result.stack),
    ]


def _part(ours: int, theirs: int | None) -> str:
    return f"{ours / theirs:.3f}" if theirs else "-"


def _aim(aims: dict[str, tuple[float, ...]], board: str, index: int) -> str:
    return f"{aims[board][index]:.2f}" if board in aims else "-"


if __name__ == "__main__":
    main()
