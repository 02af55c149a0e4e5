"""Code for the models of a package, as a board and the user choose it: C sources, or LLVM's objects
and an object of constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crtexport.artifact.byte_sources import Blob
from crtexport.artifact.common import package_constants
from crtexport.artifact.model import Artifact
from crtexport.backends.constants import (
    ConstantPlacement,
    LargeData,
    all_constants,
    constants_module,
    constants_object,
    is_large,
)
from crtexport.backends.llvm.elf import reach_through_slots
from crtexport.backends.modules import Module
from crtexport.firmware.board import Board, load_board
from crtexport.pipeline.options import DEFAULTS, Emit, ExportOptions
from crtexport.schedules.select.choose import Choose, by_default
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import Level
from crtexport.version import __version__

if TYPE_CHECKING:
    from crtexport.backends.llvm.compile import Compiler
    from crtexport.schedules.select.tuning_records import ByRecord, Configuration

Code = tuple[dict[str, str], dict[Module, Blob]]
"""Sources by name, and objects."""
Look = Callable[[str, Blob], object]
"""Is shown an object with its file's name as soon as it is made."""


def resolve_board(board: Board | Path | str) -> Board:
    """Returns a board by name, by the path of its YAML file, or as it is."""
    return board if isinstance(board, Board) else load_board(board)


class Generator:
    """Makes code for one board under one set of options.

    LLVM's options are checked here, and its start begins.
    """

    def __init__(self, board: Board, options: ExportOptions = DEFAULTS) -> None:
        self.emit: Emit = options.emit or board.backend
        self.optimize: Level = options.level(board.optimize)
        self._board = board
        self._compiler = self._llvm(options)

    def _llvm(self, options: ExportOptions) -> Compiler | None:
        """Returns the compiler of objects, if the export makes objects."""
        if self.emit == "c":
            if options.llvm_options or options.split:
                raise CrtExportError(
                    "C sources are exported; this is for objects",
                    location="--llvm-option" if options.llvm_options else "--split",
                    hint="export objects with --emit llvm, or leave the option out",
                )
            return None
        # Imported here so that exporting C works where LLVM is not installed.
        from crtexport.backends.llvm import compile as llvm_compile  # noqa: PLC0415
        from crtexport.backends.llvm.types import normalized_triple  # noqa: PLC0415

        board = self._board
        normalized_triple(board.target)  # or there is no code for the processor
        return llvm_compile.Compiler(
            board.target, self.optimize, split=options.split or "auto",
            options=((f"board {board.name}: llvm_options", board.llvm_options),
                     ("--llvm-option", options.llvm_options)),
            timeout=llvm_compile.TIMEOUT if options.llvm_timeout is None else options.llvm_timeout,
            keep_failed=None if options.keep_failed is None else Path(options.keep_failed),
            jobs=options.jobs,
        )

    @property
    def llvm_options(self) -> tuple[str, ...]:
        """Returns the board's and the user's, as LLVM gets them."""
        return self._compiler.options if self._compiler else ()

    def tools(self) -> dict[str, str]:
        """Returns the versions of what makes code."""
        tools = {"crtexport": __version__}
        return {**tools, "llvm": self._compiler.version()} if self._compiler else tools

    def configuration(self) -> Configuration:
        """Returns everything that the costs of kernels depend on besides their text."""
        from crtexport.schedules.select.tuning_records import Configuration  # noqa: PLC0415

        return Configuration.of(
            self._board.target, self.emit, self.optimize, self.tools(), self.llvm_options
        )

    def default_choice(self) -> Choose:
        """Returns the function that selects variants of kernels by default."""
        return by_default(self._board.target, self.optimize, self.emit)

    def tuned(self, path: Path | str | None) -> ByRecord | None:
        """Returns the function that selects by the measurements in a file, if there is one."""
        if path is None:
            return None
        from crtexport.schedules.select import tuning_records  # noqa: PLC0415

        known = tuning_records.read(Path(path))
        found = known.required(self.configuration())
        return tuning_records.ByRecord(found, self.optimize, self.default_choice(), known.sha256)

    def expect(self, nodes: int) -> None:
        """Networks of so many nodes will come: starts what helps then."""
        if self._compiler is not None:
            self._compiler.expect(nodes)

    @contextmanager
    def started(
        self, artifacts: Sequence[Artifact], large_data: LargeData = "auto",
        counted: Callable[[int, int], None] | None = None,
    ) -> Iterator[Callable[[Look], Code]]:
        """LLVM works on the models of a package while the context lasts; what that yields waits
        for their code and shows the objects of LLVM; ``counted`` is told how many of all there
        are. Constants are an object, but for those that
        are C text."""
        board, (first, *others) = self._board, artifacts
        large = is_large(first, board.target, large_data, board.large_data_threshold, others)
        if self._compiler is None:
            yield lambda _: _sources(artifacts, board, large)
            return
        symbols = {constant.symbol for constant in all_constants(artifacts)} if large else {}
        with self._compiler.started(*artifacts, counted=counted) as finish:

            def finished(look: Look) -> Code:
                def shaped(name: str, data: bytes) -> bytes:
                    whole = reach_through_slots(data, symbols) if symbols else data
                    look(name, whole)
                    return whole

                constants = _constants(artifacts, board, ConstantPlacement(large, slots=large))
                for module, data in constants.items():
                    look(f"{module.name}.o", data)
                return {}, {**finish(shaped), **constants}

            yield finished


def _sources(artifacts: Sequence[Artifact], board: Board, large: bool) -> Code:
    """C, with constants in an object where they are too many for text."""
    from crtexport.backends.c.source import MAX_CONSTANTS, emit_c  # noqa: PLC0415

    linked = large or package_constants(artifacts) > MAX_CONSTANTS
    sources: dict[str, str] = {}
    for artifact in artifacts:
        sources |= emit_c(
            artifact, linked=linked, int_bits=board.target.int_bits, target=board.target
        )
    placement = ConstantPlacement(large, table=True)
    return sources, _constants(artifacts, board, placement) if linked else {}


def _constants(
    artifacts: Sequence[Artifact], board: Board, placement: ConstantPlacement
) -> dict[Module, Blob]:
    first, *others = artifacts
    constants = constants_object(first, board.target, placement, others)
    return {} if constants is None else {constants_module(first): constants}
