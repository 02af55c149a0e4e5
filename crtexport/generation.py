"""Code for the models of a package, as a board and the user want it: C sources, or LLVM's objects
and an object of constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import crtexport
from crtexport.artifact.blobs import Blob
from crtexport.artifact.common import package_constants
from crtexport.artifact.model import Artifact
from crtexport.backends.constants import (
    LargeData,
    Placement,
    all_constants,
    constants_module,
    constants_object,
    is_large,
)
from crtexport.backends.llvm_elf import reach_through_slots
from crtexport.backends.modules import Module, Split
from crtexport.errors import CrtExportError
from crtexport.exported import Emit
from crtexport.firmware.board import Board, load_board
from crtexport.schedules.choice import Choose, by_default

if TYPE_CHECKING:
    from crtexport.backends.llvm_compile import Compiler
    from crtexport.schedules.records import ByRecord, Configuration

Optimize = Literal["size", "balanced", "speed"]
Code = tuple[dict[str, str], dict[Module, Blob]]
"""Sources by name, and objects."""
Look = Callable[[str, Blob], object]
"""Is shown an object with its file's name as soon as it is made."""


def resolve_board(board: Board | Path | str) -> Board:
    """A board by name, by the path of its YAML file, or as it is."""
    return board if isinstance(board, Board) else load_board(board)


class Generator:
    """Makes code for one board under one set of options.

    ``emit`` and ``optimize`` are the board's where they are None; the others are for objects, as
    :func:`crtexport.export` has them. LLVM's options are checked here, and its start begins.
    """

    def __init__(
        self, board: Board, emit: Emit | None = None, optimize: Optimize | None = None, *,
        split: Split | None = None, llvm_options: Sequence[str] = (), jobs: int | None = None,
        timeout: float | None = None, keep_failed: Path | str | None = None,
    ) -> None:
        self.emit: Emit = emit or board.backend
        self.optimize: Optimize = optimize or board.optimize
        self._board = board
        self._compiler = self._llvm(split, llvm_options, jobs, timeout, keep_failed)

    def _llvm(
        self, split: Split | None, options: Sequence[str], jobs: int | None,
        timeout: float | None, keep_failed: Path | str | None,
    ) -> Compiler | None:
        """What makes objects, if such are exported."""
        if self.emit == "c":
            if options or split:
                raise CrtExportError(
                    "C sources are exported; this is for objects",
                    location="--llvm-option" if options else "--split",
                    hint="export objects with --emit llvm, or leave the option out",
                )
            return None
        # Imported here so that exporting C works where LLVM is not installed.
        from crtexport.backends import llvm_compile  # noqa: PLC0415
        from crtexport.backends.llvm_types import normalized_triple  # noqa: PLC0415

        board = self._board
        normalized_triple(board.target)  # or there is no code for the processor
        return llvm_compile.Compiler(
            board.target, self.optimize, split=split or "auto",
            options=((f"board {board.name}: llvm_options", board.llvm_options),
                     ("--llvm-option", options)),
            timeout=llvm_compile.TIMEOUT if timeout is None else timeout,
            keep_failed=None if keep_failed is None else Path(keep_failed), jobs=jobs,
        )

    @property
    def llvm_options(self) -> tuple[str, ...]:
        """The board's and the user's, as LLVM gets them."""
        return self._compiler.options if self._compiler else ()

    def tools(self) -> dict[str, str]:
        """The versions of what makes code."""
        tools = {"crtexport": crtexport.__version__}
        return {**tools, "llvm": self._compiler.version()} if self._compiler else tools

    def configuration(self) -> Configuration:
        """What the costs of kernels depend on besides their text."""
        from crtexport.schedules.records import Configuration  # noqa: PLC0415

        return Configuration.of(
            self._board.target, self.emit, self.optimize, self.tools(), self.llvm_options
        )

    def default_choice(self) -> Choose:
        """What chooses the forms of kernels where nobody says."""
        return by_default(self._board.target, self.optimize, self.emit)

    def tuned(self, path: Path | str | None) -> ByRecord | None:
        """What chooses by the measurements in a file, if there is one."""
        if path is None:
            return None
        from crtexport.schedules import records  # noqa: PLC0415

        known = records.read(Path(path))
        found = known.required(self.configuration())
        return records.ByRecord(found, self.optimize, self.default_choice(), known.sha256)

    def expect(self, nodes: int) -> None:
        """Networks of so many nodes will come: starts what helps then."""
        if self._compiler is not None:
            self._compiler.expect(nodes)

    @contextmanager
    def started(
        self, artifacts: Sequence[Artifact], large_data: LargeData = "auto"
    ) -> Iterator[Callable[[Look], Code]]:
        """LLVM works on the models of a package while the context lasts; what that yields waits
        for their code and shows the objects of LLVM. Constants are an object, but for those that
        are C text."""
        board, (first, *others) = self._board, artifacts
        large = is_large(first, board.target, large_data, board.large_data_threshold, others)
        if self._compiler is None:
            yield lambda _: _sources(artifacts, board, large)
            return
        symbols = {constant.symbol for constant in all_constants(artifacts)} if large else {}
        with self._compiler.started(*artifacts) as finish:

            def finished(look: Look) -> Code:
                def shaped(name: str, data: bytes) -> bytes:
                    whole = reach_through_slots(data, symbols) if symbols else data
                    look(name, whole)
                    return whole

                constants = _constants(artifacts, board, Placement(large, slots=large))
                for module, data in constants.items():
                    look(f"{module.name}.o", data)
                return {}, {**finish(shaped), **constants}

            yield finished


def _sources(artifacts: Sequence[Artifact], board: Board, large: bool) -> Code:
    """C, with constants in an object where they are too many for text."""
    from crtexport.backends.c_source import MAX_CONSTANTS, emit_c  # noqa: PLC0415

    linked = large or package_constants(artifacts) > MAX_CONSTANTS
    sources: dict[str, str] = {}
    for artifact in artifacts:
        sources |= emit_c(artifact, linked=linked, int_bits=board.target.int_bits)
    placement = Placement(large, table=True)
    return sources, _constants(artifacts, board, placement) if linked else {}


def _constants(
    artifacts: Sequence[Artifact], board: Board, placement: Placement
) -> dict[Module, Blob]:
    first, *others = artifacts
    constants = constants_object(first, board.target, placement, others)
    return {} if constants is None else {constants_module(first): constants}
