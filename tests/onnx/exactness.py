"""Quantized networks against ONNX Runtime: how many of all integers in them differ.

``python -m tests.onnx.exactness`` draws fourteen networks, has them quantized in three formats, and
compares the output and all quantized tensors in between, for 200 inputs each: as C, as LLVM's
objects, as the interpreter of Kernel IR computes them, and on the boards of ``--board`` in QEMU.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import replace

from crtexport import package_actions
from crtexport.importers import load
from crtexport.ir.numerics import Numerics
from crtexport.pipeline import driver
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.helpers import require, require_environment

Array = np.ndarray[Any, Any]
NETWORKS = (
    "dscnn", "residual", "mixed", "inverted", "autoencoder", "temporal", "segmenter", "attention",
    "excited", "branches", "swish", "digits", "pooled", "resized",
)
FORMATS = ("u8s8", "s8s8", "qoperator")
MORE_FORMATS = ("u8u8", "symmetric", "real", "reals8")
INPUTS = 200
_WORKER = Path(__file__).with_name("quantized_networks.py")


class Compared(Struct, frozen=True):
    """``wrong``: of each tensor that differs, how many elements."""

    tensors: int
    elements: int
    wrong: dict[str, int]

    @property
    def differing(self) -> int:
        return sum(self.wrong.values())


def require_whole_products() -> None:
    """Skips a test where ONNX Runtime isn't exact itself."""
    flags = Path("/proc/cpuinfo")
    if not flags.is_file() or "vnni" not in flags.read_text():
        pytest.skip("without VNNI, ONNX Runtime's products of uint8 and int8 saturate in 16 bits")


def draw(folder: Path, inputs: int, stems: Iterable[str]) -> None:
    """Writes quantized networks, and what ONNX Runtime makes of so many inputs."""
    require("gcc")
    require_whole_products()
    python = require_environment("onnx", "onnx", "onnxruntime")
    subprocess.run(
        (python, "-W", "ignore", str(_WORKER), str(folder), str(inputs), *stems), check=True,
        capture_output=True,
    )


def _package(
    folder: Path, stems: Sequence[str], outputs: Sequence[int] = (), **options: Any
) -> Path:
    graphs = [load(folder / f"{stem}.onnx") for stem in stems]
    assert all(graph.numerics is Numerics.ORT for graph in graphs)
    if outputs:
        graphs = [replace(graph, outputs=tuple(outputs)) for graph in graphs]
    path = folder / "package.tar"
    driver.export(graphs, output=path, module_name=list(stems), system_lib=False, **options)
    return path


def _inputs(folder: Path, stems: Sequence[str], count: int | None = None) -> dict[str, Array]:
    return {f"{stem}/x": np.load(folder / f"{stem}.npz")["x"][:count] for stem in stems}


def _compared(folder: Path, stem: str, rows: Sequence[dict[str, Array]]) -> Compared:
    with np.load(folder / f"{stem}.npz") as archive:
        expected = {name: archive[name][: len(rows)] for name in archive.files if name != "x"}
    ours = {name: np.stack([row[name] for row in rows]) for name in expected}
    wrong = {name: int((ours[name] != wanted).sum()) for name, wanted in expected.items()}
    return Compared(
        len(expected), sum(array.size for array in expected.values()),
        {name: count for name, count in wrong.items() if count},
    )


def here(folder: Path, stems: Sequence[str], emit: driver.Emit) -> dict[str, Compared]:
    """As compiled for this computer, all networks in one package."""
    package = _package(folder, stems, board="host", emit=emit)
    found = package_actions.simulate_all(package, _inputs(folder, stems), trust_package=True)
    return {stem: _compared(folder, stem, found[stem]) for stem in stems}


def interpreted(
    folder: Path, stems: Sequence[str], count: int | None = None
) -> dict[str, Compared]:
    """As the portable kernels of Kernel IR say, of the first so many inputs."""
    found = {}
    for stem, xs in zip(stems, _inputs(folder, stems, count).values(), strict=True):
        graph = load(folder / f"{stem}.onnx")
        names = [graph.tensors[tensor].name for tensor in graph.outputs]
        rows = [dict(zip(names, interpret(graph, [x]), strict=True)) for x in xs]
        found[stem] = _compared(folder, stem, rows)
    return found


def on_board(
    folder: Path, stems: Sequence[str], board: str, count: int | None = None
) -> dict[str, Compared]:
    """In a board's firmware, of the first so many inputs; each network in one of its own, or in
    several with some of the outputs each, where these don't fit a board's memory together."""
    found = {}
    for stem in stems:
        xs = _inputs(folder, [stem], count)[f"{stem}/x"]
        graph = load(folder / f"{stem}.onnx")
        rows: list[dict[str, Array]] = [{} for _ in xs]
        for package, part in _packages(folder, stem, board, graph.outputs):
            names = [graph.tensors[tensor].name for tensor in part]
            result = package_actions.run(package, {"x": xs})
            for row, outputs in zip(rows, result.outputs, strict=True):
                row.update(zip(names, outputs, strict=True))
        found[stem] = _compared(folder, stem, rows)
    return found


def _packages(
    folder: Path, stem: str, board: str, outputs: Sequence[int]
) -> Iterator[tuple[Path, Sequence[int]]]:
    """Yields a package that fits, and its outputs, until these are all of ``outputs``."""
    try:
        yield _package(folder, [stem], outputs, board=board, io="workspace"), outputs
    except CrtExportError as error:
        if len(outputs) == 1 or "does not fit" not in error.problem:
            raise
        half = len(outputs) // 2
        for part in (outputs[:half], outputs[half:]):
            yield from _packages(folder, stem, board, part)


_WAYS: dict[str, Callable[[Path, Sequence[str]], dict[str, Compared]]] = {
    "C": partial(here, emit="c"), "LLVM": partial(here, emit="llvm"), "interpreter": interpreted,
}


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.exactness")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--formats", nargs="+", choices=(*FORMATS, *MORE_FORMATS), default=FORMATS)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=tuple(_WAYS))
    parser.add_argument("--board", nargs="+", default=[], help="boards that run the networks, too")
    arguments = parser.parse_args()
    totals: dict[str, list[int]] = {}
    for network in arguments.networks:
        stems = [f"{network}_{form}" for form in arguments.formats]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            draw(folder, arguments.inputs, stems)
            ways = {way: _WAYS[way](folder, stems) for way in arguments.ways} | {
                board: on_board(folder, stems, board) for board in arguments.board
            }
        for stem, (way, results) in itertools.product(stems, ways.items()):
            one = results[stem]
            _say(f"{stem:24}{way:16}{one.tensors:4} tensors {one.elements:10,} elements "
                 f"{one.differing:6} differ  {one.wrong or ''}")
            total = totals.setdefault(way, [0, 0, 0])
            for i, number in enumerate((one.tensors, one.elements, one.differing)):
                total[i] += number
    for way, (tensors, elements, differing) in totals.items():
        _say(f"{'all':24}{way:16}{tensors:4} tensors {elements:10,} elements "
             f"{differing:6} differ")
    return 1 if any(total[2] for total in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
