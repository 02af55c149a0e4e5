"""Runs artifacts: interpreted, statement by statement, and compiled, many in one library."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.artifact.model import (
    Arg,
    Artifact,
    BranchStatement,
    Constant,
    ConstantArg,
    Feed,
    Function,
    FunctionCall,
    InputArg,
    LoopStatement,
    OutputArg,
    Repeat,
    ScalarArg,
    StateArg,
    Statement,
    WorkspaceArg,
)
from crtexport.backends.c.header import emit_header
from crtexport.backends.c.source import emit_c
from crtexport.backends.constants import ConstantPlacement, constants_object
from crtexport.backends.llvm.compile import compile_modules
from crtexport.backends.llvm.module import emit_llvm
from crtexport.firmware.board import Board
from crtexport.kir.interpreter import Cells, compile_kernel
from crtexport.kir.language import Scalar
from crtexport.kir.to_python import Translator
from crtexport.simulation.library import LoadedCode, SharedLibrary, load_objects
from crtexport.support.resources import templates_dir

Array = npt.NDArray[Any]
_RUBBISH = 0xA5
MOST_ROUNDS = 1000
"""Rounds of a loop that nobody draws."""

_NUMPY: dict[Scalar, str] = {
    Scalar.I8: "i1", Scalar.U8: "u1", Scalar.I16: "<i2", Scalar.U16: "<u2", Scalar.I32: "<i4",
    Scalar.U32: "<u4", Scalar.I64: "<i8", Scalar.F16: "<f2", Scalar.F32: "<f4", Scalar.F64: "<f8",
}


class Interpreted:
    """An artifact in the interpreter, where its memories are arrays of bytes. ``functions`` and
    ``constants`` are those of all models of its package, where there are several."""

    def __init__(
        self, artifact: Artifact, pointer_bits: int, functions: Sequence[Function] = (),
        constants: Sequence[Constant] = (),
    ) -> None:
        self._artifact, self._bits = artifact, pointer_bits
        self._kernels = {f.symbol: f.kernel for f in (*functions, *artifact.functions)}
        self._compiled: dict[tuple[str, bool], Callable[..., None]] = {}
        self._constants = {
            c.symbol: np.frombuffer(c.data.read(), np.uint8)
            for c in (*constants, *artifact.constants)
        }
        self._state = np.zeros(artifact.state_size, np.uint8)
        self._pools = [
            np.full(size, _RUBBISH, np.uint8)
            for size in (artifact.workspace_size, *(pool.size for pool in artifact.spilled))
        ]
        self._inputs: list[Array] = []
        self._outputs: list[Array] = []
        self._runs: list[int] = []  # of the loops around a call

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of one run; the state is kept for the next."""
        own = self._artifact
        self._inputs = [np.frombuffer(x.tobytes(), np.uint8).copy() for x in inputs]
        self._outputs = [np.full(y.type.nbytes, _RUBBISH, np.uint8) for y in own.outputs]
        for index, tensor in enumerate(own.inputs):
            if tensor.place is not None:
                start = tensor.place.offset
                pool = self._pools[tensor.place.pool]
                pool[start : start + tensor.type.nbytes] = self._inputs[index]
        self._all(own.calls)
        results = []
        for index, tensor in enumerate(own.outputs):
            data = self._outputs[index]
            if tensor.place is not None:
                start = tensor.place.offset
                data = self._pools[tensor.place.pool][start : start + tensor.type.nbytes]
            results.append(
                np.frombuffer(data.tobytes(), tensor.type.dtype.numpy).reshape(tensor.type.shape)
            )
        return results

    def _all(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            match statement:
                case FunctionCall():
                    self._call(statement)
                case BranchStatement(condition=condition, then=then, other=other):
                    self._all(then if self._memory(condition)[0] else other)
                case LoopStatement(before=before, condition=condition, body=body):
                    for _ in range(MOST_ROUNDS):
                        self._all(before)
                        if not self._memory(condition)[0]:
                            break
                        self._all(body)
                    else:
                        raise RuntimeError(f"{statement.comment} doesn't end")
                case Repeat(times=1, body=body):
                    self._all(body)
                case Repeat(times=times, body=body):
                    for number in range(times):
                        self._runs.append(number)
                        self._all(body)
                        self._runs.pop()
                case Feed():
                    self._by_rows(statement)

    def _by_rows(self, feed: Feed[FunctionCall]) -> None:
        """All rows of the input; before them some for earlier results, where there are several."""
        before = 3 * feed.hop
        rows = (*(number % feed.rows for number in range(before)), *range(feed.rows))
        rest = tuple(s for s in self._artifact.calls if not isinstance(s, Feed))
        for done, (row, (number, run)) in enumerate(zip(rows, feed.order(), strict=False)):
            self._fed(feed, row, number, run)
            if feed.rows <= done + 1 < len(rows) and (done + 1 - feed.rows) % feed.hop == 0:
                self._all(rest)

    def _fed(self, feed: Feed[FunctionCall], row: int, number: int, run: int | None) -> None:
        """What runs with a row of the input."""
        given = self._inputs[feed.index]
        self._inputs[feed.index] = given[row * feed.row_bytes : (row + 1) * feed.row_bytes]
        self._runs = [] if run is None else [run]
        self._all(feed.segments[number])
        self._inputs[feed.index], self._runs = given, []

    def _call(self, call: FunctionCall) -> None:
        kernel = self._kernels[call.symbol]
        count = len(kernel.buffers)
        arrays = []
        for buffer, arg in zip(kernel.buffers, call.args[:count], strict=True):
            kind = np.dtype(_NUMPY[buffer.dtype])
            memory = self._memory(arg)
            whole = min(buffer.size, len(memory) // kind.itemsize) * kind.itemsize
            arrays.append(memory[:whole].view(kind))
        params = [arg.value for arg in call.args[count:] if isinstance(arg, ScalarArg)]
        exact = not kernel.params and all(
            len(array) == buffer.size for buffer, array in zip(kernel.buffers, arrays, strict=True)
        )
        key = call.symbol, exact
        if key not in self._compiled:
            self._compiled[key] = (
                compile_kernel(kernel, index_bits=self._bits) if exact
                else Translator(kernel, self._bits, True).translate()
            )
        if exact:
            self._compiled[key](arrays)
            return
        # One kernel of several tensors: its buffers are as large as the largest of them.
        with np.errstate(all="ignore"):
            self._compiled[key](*map(Cells, arrays), *params)

    def _memory(self, arg: Arg) -> Array:
        """The bytes from where an argument points."""
        match arg:
            case InputArg(index=index):
                return self._inputs[index][self._offset(arg) :]
            case OutputArg(index=index):
                return self._outputs[index][self._offset(arg) :]
            case WorkspaceArg(pool=pool):
                return self._pools[pool][self._offset(arg) :]
            case StateArg():
                return self._state[self._offset(arg) :]
            case ConstantArg(symbol=symbol, offset=offset):
                return self._constants[symbol][offset:]
            case ScalarArg():
                raise TypeError(arg)

    def _offset(self, arg: InputArg | OutputArg | WorkspaceArg | StateArg) -> int:
        moved = zip(arg.steps, self._runs, strict=False)
        return arg.offset + sum(step * run for step, run in moved)


_OWN = re.compile(r"\bcrt_")


def compiled_c(artifacts: Sequence[Artifact], folder: Path, optimize: str = "-O1") -> LoadedCode:
    """Returns what C makes of ``artifacts``, each of which is a package of its own, in one library.

    All of them are one unit, which compiles faster; the names of their helpers tell the models.
    """
    texts = []
    for artifact in artifacts:
        (folder / f"{artifact.prefix}.h").write_text(emit_header(artifact), encoding="utf-8")
        sources = emit_c(artifact)
        texts.append(_OWN.sub(f"crt_{artifact.module}_", sources[f"{artifact.module}_lib0.c"]))
    source, library = folder / "models.c", folder / f"models{optimize}-{artifacts[0].module}.so"
    source.write_text("\n".join(texts), encoding="utf-8")
    done = subprocess.run(
        [
            "gcc", "-std=c99", optimize, "-ffp-contract=off", "-fPIC", "-shared", "-w",
            f"-I{templates_dir() / 'runtime' / 'include'}", f"-I{folder}", str(source), "-lm",
            "-o", str(library),
        ],
        check=False, capture_output=True, text=True,
    )
    if done.returncode:
        raise AssertionError(f"C doesn't compile:\n{done.stderr[:4000]}")
    return SharedLibrary(ctypes.CDLL(str(library)), ())


def compiled_llvm(artifacts: Sequence[Artifact], board: Board, optimize: str) -> LoadedCode:
    """The same by LLVM, for this computer."""
    texts: dict[str, str] = {}
    blobs = []
    for artifact in artifacts:
        texts |= emit_llvm(artifact, board.target, optimize)
        constants = constants_object(artifact, board.target, ConstantPlacement())
        if constants is not None:
            blobs.append(constants)
    objects = compile_modules(texts, board.target, optimize, jobs=1)
    return load_objects([*objects.values(), *blobs])
