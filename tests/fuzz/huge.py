"""Operators on tensors that nothing could hold: their files are small, and so must exporting be.

``python -m tests.fuzz.huge`` makes one dimension of the inputs of each single-operator network of
the differential tests very large, and exports that for a board: it is refused with the tensor's
name, or exported in bounded memory and time.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from crtexport.importers import load
from crtexport.importers.crtjson.writing import save
from crtexport.ir.graph import Graph
from crtexport.ir.infer import infer
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError
from tests.differential.cases import CASES, PAIRS, SeededDraw
from tests.fuzz.cases import Case
from tests.fuzz.pool import CHUNK, Outcome, Tally, run
from tests.fuzz.sandbox import SECONDS, Sandbox

FACTORS = (1 << 28, 1 << 17)
"""For tensors beyond all memories, and for such as a computer could hold."""
BOARDS = ("host", "mps3_an547", "host_avx2", "qemu_riscv32")
MEMORY = 300 << 20


def enlarged(graph: Graph, axis: int, factor: int) -> Graph | None:
    """The network with inputs that are larger along ``axis``; None where its operators refuse."""
    tensors = list(graph.tensors)
    for tensor in graph.inputs:
        shape = [*tensors[tensor].type.shape]
        if axis >= len(shape):
            continue
        shape[axis] *= factor
        tensors[tensor] = replace(
            tensors[tensor], type=replace(tensors[tensor].type, shape=tuple(shape))
        )
    if tensors == list(graph.tensors):
        return None
    try:
        for node in graph.nodes:
            given = tuple(None if t is None else tensors[t].type for t in node.inputs)
            declared = tuple(tensors[t].type.dtype for t in node.outputs)
            found = infer(node.op, given, declared=declared, graphs=node.graphs)
            for tensor, type_ in zip(node.outputs, found, strict=True):
                quant = tensors[tensor].type.quant
                tensors[tensor] = replace(
                    tensors[tensor], type=TensorType(type_.dtype, type_.shape, quant)
                )
    except CrtExportError:
        return None
    return replace(graph, tensors=tuple(tensors))


def cases(pairs: Sequence[tuple[str, str]], *, every: bool) -> Iterator[Case]:
    """Networks of one operator; of ``every`` axis and factor, or the first that operators take."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (operator, dtype) in enumerate(pairs):
            source, path = folder / "model.tflite", folder / "model.json"
            source.write_bytes(CASES[operator](SeededDraw(0), dtype).content)
            graph = load(source)
            for step, (axis, factor) in enumerate((a, f) for f in FACTORS for a in range(4)):
                large = enlarged(graph, axis, factor)
                if large is None:
                    continue
                sidecar = path.with_suffix(".safetensors")
                sidecar.unlink(missing_ok=True)
                save(large, path)
                files = {"model.json": path.read_bytes()}
                if sidecar.exists():
                    files[sidecar.name] = sidecar.read_bytes()
                board = BOARDS[(number + step) % len(BOARDS)]
                yield Case("huge", f"{operator}-{dtype} axis {axis} x {factor}", files, (
                    "export", "{in}/model.json", "--board", board, "--emit", "c",
                    "-o", "{out}/x.tar",
                ))
                if not every:
                    break


def _serve(drawn: Sequence[Case], numbers: range, tell: Callable[[Outcome], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="crtexport-fuzz-") as folder:
        sandbox = Sandbox(Path(folder) / "root", MEMORY)
        for number in numbers:
            tell(sandbox.attempt(drawn[number]))


def _report(drawn: Sequence[Case], number: int, outcome: Outcome) -> None:
    sys.stdout.write(
        f"{drawn[number].name}: {outcome.finding}, {outcome.seconds:.1f} s, "
        f"{outcome.nbytes >> 20} MiB\n{outcome.detail}\n"
    )
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.huge")
    parser.add_argument("--few", action="store_true", help="one type and size of each operator")
    arguments = parser.parse_args()
    pairs = [*{name: (name, dtype) for name, dtype in reversed(PAIRS)}.values()]
    drawn = [*cases(pairs if arguments.few else PAIRS, every=not arguments.few)]
    tally, next_ = Tally(), 0
    while next_ < len(drawn):
        next_ = run(
            functools.partial(_serve, drawn), range(next_, min(next_ + CHUNK, len(drawn))), tally,
            functools.partial(_report, drawn), seconds=SECONDS + 5,
        )
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
