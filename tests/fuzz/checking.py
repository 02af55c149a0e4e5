"""Checks that exported networks compute what their graphs mean: planned, interpreted, compiled by C
and by LLVM, on boards of different kinds, and in the reference runtime."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crtexport.firmware.board import Board, load_board
from crtexport.ir.numerics import Numerics
from crtexport.ir.verify import verify
from crtexport.pipeline.driver import prepare
from crtexport.pipeline.options import Optimize
from crtexport.pipeline.result import Prepared
from crtexport.simulation.library import LoadedCode
from crtexport.simulation.reference import ReferenceModel, find_runtime
from crtexport.simulation.tflite_writer import is_hybrid, to_tflite
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from crtexport.support.levels import LEVELS
from tests.fuzz.artifacts import Interpreted, compiled_c, compiled_llvm
from tests.fuzz.growing import Array, Drawing, Grown
from tests.fuzz.meaning import UndefinedError, Wanted, wanted
from tests.packed_functions import simulation_of

BOARDS = ("host", "mps2_an386", "mps3_an547")
"""Words of 64 bits and vectors, a scalar machine with 16-bit products, predicated vectors."""

Results = list[list[Array]]


@dataclass(frozen=True)
class Options:
    """The options that a network is exported with."""

    optimize: Optimize = "balanced"
    io: Literal["caller", "workspace"] = "caller"
    workspace: Literal["static", "caller"] = "static"
    feed: bool = False
    """Whether the input is given row by row, where that can be."""

    @staticmethod
    def drawn(seed: int | str) -> Options:
        draw = Drawing(f"options {seed}")
        return Options(
            draw.choice((*LEVELS, "ram")),
            draw.choice(("caller", "caller", "workspace")),
            draw.choice(("static", "static", "caller")),
            draw.choice((False, False, True)),
        )


@dataclass(frozen=True)
class Example:
    """A network, where it came from, and how it is exported."""

    seed: int | str
    grown: Grown
    options: Options


@dataclass
class Outcome:
    """The outcome of an example: ``refused`` is the rule that it breaks, ``finding`` what mustn't
    be with its ``detail``, ``reference`` what the reference runtime said, ``undefined`` why the
    network computes nothing that anybody could agree on."""

    example: Example
    refused: str = ""
    finding: str = ""
    detail: str = ""
    reference: str = ""
    undefined: str = ""


@dataclass
class _Checked:
    """An example on its way: what is known of it so far."""

    outcome: Outcome
    prepared: dict[str, Prepared] = field(default_factory=dict)
    wanted: list[list[Wanted]] = field(default_factory=list)
    results: dict[str, Results] = field(default_factory=dict)

    @property
    def going(self) -> bool:
        done = self.outcome
        return not (done.finding or done.refused or done.undefined)

    def attempt(self, what: str, action: Callable[[], None]) -> None:
        """Does ``action``; an error in it is a finding."""
        if not self.going:
            return
        try:
            action()
        except Exception as error:
            self.fail(f"{what}: {_where(error)}", _text(error))

    def fail(self, finding: str, detail: str) -> None:
        if self.going:
            self.outcome.finding, self.outcome.detail = finding, detail


REFERENCE_SECONDS = 60
"""After which the reference runtime is ended."""


class Checker:
    """Checks examples; a context manager, because it keeps the reference runtime running.

    ``everywhere``: C for boards is compiled and run here of every example, else of one in four.
    """

    def __init__(self, boards: Sequence[str] = BOARDS, *, everywhere: bool = False) -> None:
        self.boards = {name: load_board(name) for name in boards}
        self._everywhere = everywhere
        self._stack = ExitStack()
        self._reference: ReferenceModel | None = None
        self._folder = Path()
        self._number = 0

    def __enter__(self) -> Checker:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_reference()
        self._stack.close()

    def check(self, examples: Sequence[Example]) -> list[Outcome]:
        """Returns the outcome of each."""
        checked = [_Checked(Outcome(example)) for example in examples]
        for one in checked:
            self._prepare(one)
            one.attempt("meaning", lambda one=one: self._mean(one))
            for name, board in self.boards.items():
                one.attempt(f"interpreter for {name}", lambda one=one, name=name, board=board: (
                    self._interpret(one, name, board)
                ))
        for name in self.boards:
            some = checked if name == "host" or self._everywhere else [
                c for number, c in enumerate(checked) if number % 4 == 0
            ]
            self._compiled(some, f"C for {name}", name, lambda found, name=name: compiled_c(
                [one.prepared[name].artifact for one in found], self._fresh(),
                "-O1" if name == "host" else "-O0",
            ))
        for level in LEVELS:
            goals = (level, "ram") if level == "balanced" else (level,)
            self._compiled(
                [c for c in checked if c.outcome.example.options.optimize in goals],
                f"LLVM at {level}", "host", lambda found, level=level: compiled_llvm(
                    [one.prepared["host"].artifact for one in found], self.boards["host"], level
                ),
            )
        for one in checked:
            one.attempt("reference", lambda one=one: self._refer(one))
        return [one.outcome for one in checked]

    def _fresh(self) -> Path:
        self._number += 1
        folder = self._folder / f"{self._number}"
        folder.mkdir()
        return folder

    # -- by ourselves

    def _prepare(self, one: _Checked) -> None:
        example = one.outcome.example
        try:
            verify(example.grown.graph)
            for name, board in self.boards.items():
                one.prepared[name] = _prepared(example, board)
        except Exception as error:
            if type(error) is CrtExportError:
                one.outcome.refused = error.problem
                return
            one.fail(f"export: {_where(error)}", _text(error))

    def _mean(self, one: _Checked) -> None:
        grown = one.outcome.example.grown
        try:
            one.wanted = wanted(grown.graph, grown.runs)
        except UndefinedError as error:
            one.outcome.undefined = str(error)
        except CrtExportError:
            # Exports drop what branches with constant conditions don't need, too.
            one.outcome.undefined = "a node that isn't exported breaks a rule"

    def _interpret(self, one: _Checked, name: str, board: Board) -> None:
        artifact = one.prepared[name].artifact
        machine = Interpreted(artifact, board.target.pointer_bits)
        found = [machine.run(given) for given in one.outcome.example.grown.runs]
        one.results[name] = found
        self._compare(one, found, f"interpreter for {name} against meaning")

    @staticmethod
    def _compare(
        one: _Checked, found: Results, what: str, *, reference: bool = False
    ) -> None:
        for run, (results, wishes) in enumerate(zip(found, one.wanted, strict=True)):
            for number, (result, wish) in enumerate(zip(results, wishes, strict=True)):
                if not (reference and wish.beyond) and not wish.agrees(result):
                    one.fail(what, f"run {run}, output {number}, within {wish.tolerance}:\n"
                             f"{_shown(result)}\nbut wanted\n{_shown(wish.value)}")

    def _compiled(
        self, checked: Sequence[_Checked], what: str, name: str,
        build: Callable[[list[_Checked]], LoadedCode],
    ) -> None:
        """Runs a library of many examples; if it can't be made, one of each."""
        found = [one for one in checked if one.going]
        if not found:
            return
        try:
            library = build(found)
        except Exception as error:
            if len(found) == 1:
                found[0].fail(f"{what}: {_where(error)}", _text(error))
                return
            for one in found:
                self._compiled([one], what, name, build)
            return
        for one in found:
            one.attempt(what, lambda one=one: self._run(one, library, what, name))

    @staticmethod
    def _run(one: _Checked, library: LoadedCode, what: str, name: str) -> None:
        simulation = simulation_of(one.prepared[name].artifact, library)
        passes = [(simulation.run, what)]
        if simulation.feed is not None:
            passes.append((simulation.run_whole, f"{what}, all rows at once"))
        for compute, how in passes:
            simulation.reset()  # each begins with the first state
            for run, given in enumerate(one.outcome.example.grown.runs):
                wishes = one.results[name][run]
                for number, (result, wish) in enumerate(zip(compute(given), wishes, strict=True)):
                    if not _same(result, wish):
                        one.fail(f"{how} against interpreter", f"run {run}, output {number}:\n"
                                 f"{_shown(result)}\nbut wanted\n{_shown(wish)}")

    # -- the reference

    def _refer(self, one: _Checked) -> None:
        grown = one.outcome.example.grown
        if grown.graph.numerics is not Numerics.TFLITE:
            one.outcome.reference = f"{grown.graph.numerics.value} numerics"
            return
        if all(wish.beyond for run in one.wanted for wish in run):
            one.outcome.reference = "not asked"
            return
        try:
            content = to_tflite(grown.graph, dequantize_weights=is_hybrid(grown.graph))
            path = self._folder / "model.tflite"
            path.write_bytes(content)
            reference = self._loaded(path)
            # It has been seen to go on for ever where it reads what isn't its own.
            with reference.ended_after(REFERENCE_SECONDS):
                found = [reference.run(given) for given in grown.runs]
        except ToolMissingError:
            one.outcome.reference = "not there"
            return
        except CrtExportError as error:
            if isinstance(error, RunFailedError):
                self._stop_reference()
            one.outcome.reference = f"refused: {error.problem.splitlines()[0][:100]}"
            return
        if reference.kernels != "BUILTIN_REF":  # the usual kernels round otherwise
            one.outcome.reference = "has no reference kernels"
            return
        one.outcome.reference = "agreed"
        self._compare(one, found, "reference against meaning", reference=True)

    def _loaded(self, path: Path) -> ReferenceModel:
        if self._reference is None:
            self._reference = ReferenceModel(path, runtime=find_runtime("tflite-runtime"))
        else:
            self._reference.load(path)
        return self._reference

    def _stop_reference(self) -> None:
        if self._reference is not None:
            self._reference.close()
        self._reference = None


def _prepared(example: Example, board: Board) -> Prepared:
    options = example.options
    making = partial(
        prepare, example.grown.graph, board, module_name=_module(example),
        optimize=options.optimize, workspace=options.workspace, system_lib=False,
    )
    try:
        return making(feed=True) if options.feed else making(io=options.io)
    except CrtExportError as error:
        if not (options.feed and "row by row" in error.problem):
            raise
    return making(io=options.io)


def _module(example: Example) -> str:
    return f"n{str(example.seed).replace('-', '_')}"


def _same(found: Array, wish: Array) -> bool:
    """Returns whether bits are equal; any NaN equals any other."""
    if found.shape != wish.shape or found.dtype != wish.dtype:
        return False
    if wish.dtype.kind == "f":
        nan = np.isnan(wish)
        if not np.array_equal(np.isnan(found), nan):
            return False
        found, wish = found[~nan], wish[~nan]
    return found.tobytes() == wish.tobytes()


def _shown(array: Array) -> str:
    flat: Any = array.reshape(-1)[:40]
    return f"{array.dtype}{list(array.shape)} {flat.tolist()}"


def _where(error: BaseException) -> str:
    """Kind and innermost place in the program, which tells findings apart."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "crtexport/" in f.filename]
    frames = [f for f in frames if "/tests/" not in f.filename]
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3000:]
