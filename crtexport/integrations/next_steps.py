"""Says what to do with a folder that was written: commands that build, run and flash it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from crtexport.firmware.board_schema import Board, Flashing

Step = tuple[str, str]
"""A command, for libraries to be given in their folder, and what it does."""

_NO_FLASHING = Flashing()


def of_library(format_name: str, name: str, board: Board, *, runs_here: bool) -> tuple[Step, ...]:
    """Returns the steps for a library of :mod:`.formats` that is called ``name``. ``runs_here``:
    its example can run on this computer."""
    steps = {
        "cmake": _cmake, "arduino": _arduino, "platformio": _platformio, "esp-idf": _esp_idf,
        "zephyr": _zephyr, "cmsis-pack": _cmsis_pack, "mlperf-tiny": _mlperf_tiny,
    }[format_name]
    return tuple(steps(name, board, runs_here))


def of_firmware(package: Path, elf: Path, board: Board) -> tuple[Step, ...]:
    """Returns the steps for firmware that ``make`` builds, as given in the current folder."""
    return tuple(_firmware(shlex.quote(str(package)), elf, board))


def _firmware(package: str, elf: Path, board: Board) -> Iterator[Step]:
    make = f"make -C {shlex.quote(str(elf.parent))}"
    if board.runner.kind != "none":
        place = "in QEMU" if board.runner.kind == "qemu" else "on this computer"
        yield f"{make} run", f"runs it {place}"
        yield f"crtexport run {package}", "measures instructions, cycles and stack"
    elif (board.flashing or _NO_FLASHING).openocd:
        yield f"{make} flash", f"writes {elf.name} to {board.name} with OpenOCD, shows its output"
    elif board.console.kind == "semihosting" and missing_part(board) is None:
        yield (
            f"pyocd load -t TARGET {shlex.quote(str(elf))}",
            f"writes it to {board.name}, as the tools of other debug probes do",
        )
    yield make, "builds it again after changes"


def missing_part(board: Board) -> str | None:
    """Returns why firmware alone doesn't start on a board, and which formats help; None where it
    starts, or where nothing is known about that."""
    if board.flashing is None or board.flashing.needs is None:
        return None
    formats = ", ".join(board.build_systems)
    others = f"; --format {formats} write libraries for builds that add it" if formats else ""
    needs = board.flashing.needs
    return f"this program alone doesn't start on {board.name}: it needs {needs}{others}"


def _cmake(_name: str, board: Board, runs_here: bool) -> Iterator[Step]:
    if runs_here:
        yield (
            "cmake --preset example && cmake --build --preset example && ctest --preset example",
            "runs the example on this computer",
        )
    yield (
        "cmake --preset board && cmake --build --preset board",
        f"compiles the library for {board.name}; your project links and flashes it",
    )


def _arduino(_name: str, board: Board, _runs_here: bool) -> Iterator[Step]:
    board_name = (board.flashing or _NO_FLASHING).arduino or "FQBN"
    yield (
        f"arduino-cli compile --library . -b {board_name} -u -p PORT examples/run",
        "compiles and flashes the example",
    )


def _platformio(_name: str, board: Board, _runs_here: bool) -> Iterator[Step]:
    yield "pio run -d examples/run -t exec", "runs the example on this computer"
    if (board.flashing or _NO_FLASHING).platformio is not None:
        yield (
            f"pio run -d examples/run -e {board.name} -t upload -t monitor",
            "compiles it for the board, flashes it and shows its output",
        )


def _esp_idf(_name: str, board: Board, _runs_here: bool) -> Iterator[Step]:
    target = (board.flashing or _NO_FLASHING).esp_idf or "CHIP"
    yield (
        f"idf.py -C examples/run set-target {target} build flash monitor",
        "compiles and flashes the example and shows its output",
    )


def _zephyr(_name: str, board: Board, _runs_here: bool) -> Iterator[Step]:
    name = "BOARD" if board.zephyr is None else board.zephyr.board
    yield f"west build -b {name} samples/run", "compiles the sample"
    yield "west flash", "writes it to the board; in QEMU: west build -t run"


def _cmsis_pack(name: str, _board: Board, _runs_here: bool) -> Iterator[Step]:
    yield (
        f"cpackget add Crtexport.{name}.pdsc",
        f"installs the pack; choose the component Machine Learning: crtexport: {name}",
    )
    yield f"layer: Crtexport.{name}.clayer.yml", "in the .cproject.yml of a csolution project"


def _mlperf_tiny(_name: str, board: Board, runs_here: bool) -> Iterator[Step]:
    tiny = "-DMLPERF_TINY=PATH/TO/tiny/benchmark && cmake --build"
    if runs_here:
        yield f"cmake -B build {tiny} build", "builds the benchmark for this computer"
    yield (
        f"cmake -B firmware --toolchain cmake/toolchain.cmake {tiny} firmware",
        f"compiles it for {board.name}; your project links and flashes it",
    )
