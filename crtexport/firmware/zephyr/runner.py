"""Builds a package's application with a tree of Zephyr, runs it, and reads its answer."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from crtexport.firmware.board_reader import board_from_keys
from crtexport.firmware.board_schema import Board, NoRunner
from crtexport.firmware.frame import Frame, parse_frames
from crtexport.firmware.parts import FirmwareParts
from crtexport.firmware.project import write_inputs
from crtexport.firmware.qemu import run_program
from crtexport.firmware.run import (
    BuildResult,
    RunResult,
    check_frame,
)
from crtexport.firmware.samples import Sample, decode_outputs, pack_samples
from crtexport.firmware.sections import read_program
from crtexport.firmware.toolchain import find_tool, run_tool
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.firmware.zephyr.application import SOURCES, write_application
from crtexport.firmware.zephyr.build import read_build
from crtexport.firmware.zephyr.derive import derive_board
from crtexport.firmware.zephyr.report import NATIVE_IMAGE, find_image
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from crtexport.support.outputs.folders import settle

BASE = "ZEPHYR_BASE"
"""Environment variable: the folder of Zephyr's tree."""

_NEW_NAMES = (3, 7)
_EMULATOR = re.compile(r"^build (?:zephyr/)?run_(\w+): phony", re.MULTILINE)
_CLOCK = re.compile(r"^CRT:CLOCK ([0-9a-f]+)\r?$", re.MULTILINE)
_NANOSECONDS = 1_000_000_000


class ZephyrTree(Struct, frozen=True):
    """A tree of Zephyr: ``version`` is (major, minor)."""

    path: Path
    version: tuple[int, int]


def find_tree() -> ZephyrTree:
    """Returns the tree that ZEPHYR_BASE names. Raises ToolMissingError that says how to name one.
    """
    named = os.environ.get(BASE, "")
    hint = (
        "export ZEPHYR_BASE=<workspace>/zephyr, or source zephyr-env.sh there; "
        "https://docs.zephyrproject.org/latest/develop/getting_started tells how to get one"
    )
    if not named:
        raise ToolMissingError(f"{BASE} is not set: it must name a tree of Zephyr", hint=hint)
    path = Path(named)
    try:
        text = (path / "VERSION").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolMissingError(f"{BASE} names no tree of Zephyr: it has no file VERSION",
                               location=named, hint=hint) from error
    numbers = dict(re.findall(r"^(VERSION_MAJOR|VERSION_MINOR)\s*=\s*(\d+)", text, re.MULTILINE))
    if len(numbers) != 2:
        raise ToolMissingError("the file VERSION has no version of Zephyr",
                               location=str(path / "VERSION"), hint=hint)
    return ZephyrTree(path, (int(numbers["VERSION_MAJOR"]), int(numbers["VERSION_MINOR"])))


def zephyr_board(board: Board, tree: ZephyrTree) -> str:
    """Returns Zephyr's name of ``board`` in that version. Raises CrtExportError if the board has
    none."""
    if board.zephyr is None:
        raise CrtExportError(
            "the board has no name in Zephyr",
            location=(board.name, "zephyr"), hint="add zephyr: {board: …} to its file",
        )
    if tree.version >= _NEW_NAMES:
        return board.zephyr.board
    return board.zephyr.legacy or board.zephyr.board.replace("/", "_")


def build_application(
    parts: FirmwareParts, board: Board, package: Path, folder: Path,
    inputs: Sequence[Sample] = (), *, force: bool = False,
) -> BuildResult:
    """Writes the application into ``folder`` and builds it in ``folder/build``; ``force`` replaces
    files there that are not ours.

    Raises ToolMissingError without a tree of Zephyr or its tools, RunFailedError with the build's
    last words when it fails.
    """
    built = _built(parts, board, package, folder, inputs, force=force)
    settle(folder)
    return built


def _built(
    parts: FirmwareParts, board: Board, package: Path, folder: Path, inputs: Sequence[Sample], *,
    force: bool,
) -> BuildResult:
    """As :func:`build_application`, but inputs may be replaced afterwards, and it be built again.
    """
    tree = find_tree()
    name = zephyr_board(board, tree)
    find_tool("cmake", "cmake")
    find_tool("ninja", "ninja-build")
    write_application(parts, board, package, folder, force=force)
    samples = pack_samples(parts, inputs)
    if samples:
        write_inputs(folder / SOURCES, samples)
    _make(folder, name, tree)
    image = find_image(folder / "build")
    return BuildResult(image, read_program(image))


def run_application(
    parts: FirmwareParts, board: Board, package: Path, inputs: Sequence[Sample], *,
    timeout: float = DEFAULT_TIMEOUT, out_dir: Path | None = None, force: bool = False,
) -> tuple[RunResult, ...]:
    """Builds the application and runs it: every model's outputs for every sample of ``inputs``.

    As :func:`crtexport.firmware.run.run_all`, but under Zephyr. Instructions are estimated by its
    clock and never exact; ``flash`` and ``ram`` are of the whole image, with the kernel.
    """
    if isinstance(board.runner, NoRunner):
        raise CrtExportError(
            f"there is no emulator for this board: {board.runner.reason}",
            location=(board.name, "runner"), hint="--zephyr DIR makes the application all the same",
        )
    if not inputs:
        raise CrtExportError("there are no inputs to run the model on", location=parts.module)
    if out_dir is not None:
        results = _run_in(parts, board, package, inputs, timeout, out_dir, force=force)
        settle(out_dir)
        return results
    with tempfile.TemporaryDirectory(prefix="crtexport-") as made:
        return _run_in(parts, board, package, inputs, timeout, Path(made))


def _run_in(
    parts: FirmwareParts, board: Board, package: Path, inputs: Sequence[Sample], timeout: float,
    folder: Path, *, force: bool = False,
) -> tuple[RunResult, ...]:
    samples = pack_samples(parts, inputs)
    first = _built(parts, board, package, folder, inputs[:1], force=force)
    batch = _samples_per_boot(folder / "build", first, len(samples[0]))
    outputs: tuple[list[tuple[bytes, ...]], ...] = tuple([] for _ in parts.models)
    measured: tuple[tuple[Frame, ...], int] | None = None
    for start in range(0, len(samples), batch):
        chosen = samples[start : start + batch]
        if start or len(chosen) > 1:
            write_inputs(folder / SOURCES, chosen)
            _make(folder, zephyr_board(board, find_tree()), find_tree())
        console = _boot(folder / "build", board, timeout)
        frames = parse_frames(
            console, [tuple(p.nbytes for p in model.outputs) for model in parts.models],
            first.sections,
        )
        for model, frame, rows in zip(parts.models, frames, outputs, strict=True):
            check_frame(model, frame, start, len(chosen))
            rows.extend(frame.outputs[: len(chosen)])
        clock = _CLOCK.search(console)
        measured = measured or (frames, int(clock[1], 16) if clock else 0)
    if measured is None:
        return ()
    frames, hertz = measured
    return tuple(
        _result(model, rows, _instructions(frame, hertz), first)
        for model, rows, frame in zip(parts.models, outputs, frames, strict=True)
    )


def _result(
    model: FirmwareParts, rows: Sequence[tuple[bytes, ...]], counted: tuple[int, ...],
    built: BuildResult,
) -> RunResult:
    return RunResult(
        outputs=tuple(decode_outputs(model.outputs, row) for row in rows),
        instructions_first=counted[0] if counted else None,
        instructions_second=counted[1] if counted else None,
        instructions_further=counted[2] if counted[2:] else None,
        exact=False, flash=built.sections.flash, ram=built.sections.ram, stack=None,
        symbols=built.sections.symbols,
    )


def _make(folder: Path, board: str, tree: ZephyrTree) -> None:
    """Builds with west if the tree is in a west workspace, else with the commands that west would
    run."""
    west = [shutil.which("west")] if shutil.which("west") else [sys.executable, "-m", "west"]
    words = [word for word in west if word]
    absolute = folder.resolve()
    if _in_workspace(words, tree):
        run_tool(
            [*words, "build", "-p", "auto", "-b", board, "-d", str(absolute / "build"),
             str(absolute)],
            cwd=tree.path, what=f"building the application for {board}",
        )
        return
    if not (absolute / "build" / "build.ninja").is_file():
        run_tool(
            ["cmake", "-GNinja", f"-DBOARD={board}", "-S", str(absolute),
             "-B", str(absolute / "build")],
            cwd=absolute, what=f"configuring the application for {board}",
        )
    run_tool(["ninja", "-C", str(absolute / "build")], cwd=absolute,
             what=f"building the application for {board}")


def _in_workspace(west: list[str], tree: ZephyrTree) -> bool:
    try:
        run_tool([*west, "topdir"], cwd=tree.path, what="looking for a workspace")
    except RunFailedError:
        return False
    return True


def check_emulator(build: Path, board: str) -> None:
    """Raises ToolMissingError unless ``ninja run`` in ``build`` starts an installed emulator."""
    emulators = _EMULATOR.findall(_text(build / "build.ninja"))
    if "qemu" in emulators:
        return
    cache = _text(build / "CMakeCache.txt")
    if any(re.search(rf"^{e.upper()}:.*=(?!.*-NOTFOUND$).+$", cache, re.M) for e in emulators):
        return
    raise ToolMissingError(
        f"this version of Zephyr does not run the board in QEMU: it asks for "
        f"{' or '.join(emulators) or 'hardware'}", location=board,
        hint="mps2_an385 and mps3_an547 run in QEMU with every version; so does this board, "
        "without Zephyr, if its runner is QEMU",
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _boot(build: Path, board: Board, timeout: float) -> str:
    native = build / NATIVE_IMAGE
    command = [str(native.resolve())] if native.is_file() else ["ninja", "run"]
    if command[0] == "ninja":
        check_emulator(build, board.name)
    console, _ = run_program(command, cwd=build, timeout=timeout)
    return console


def _samples_per_boot(build: Path, built: BuildResult, sample_size: int) -> int:
    """Returns how many samples fit beside the program, which was built with one."""
    board = board_from_keys(derive_board(read_build(build)), str(build))
    if board.hosted:
        return 1 << 20
    free = board.memory[board.placement.constants].size - built.sections.flash_size
    # Where everything is in RAM, that is taken too; half of the rest is left for tables.
    if board.placement.constants == board.placement.data:
        free -= built.sections.ram_size
    return 1 + max(free // 2, 0) // sample_size


def _instructions(frame: Frame, clock: int) -> tuple[int, ...]:
    """Returns the instructions of the first two inferences, and of a further result if there is
    one, estimated by a clock of ``clock`` cycles per second; empty without a clock."""
    nothing, *counted = frame.ticks
    if not clock or not counted[0]:
        return ()
    scale = _NANOSECONDS / clock
    return tuple(round((ticks - nothing) * scale) for ticks in counted)
