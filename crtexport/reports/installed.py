"""The external programs and Python packages that crtexport's commands use, and which of them are
installed."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from crtexport.firmware import vela
from crtexport.firmware.board import Board, list_boards
from crtexport.firmware.board_schema import QemuRunner
from crtexport.firmware.zephyr.runner import find_tree
from crtexport.simulation.library import COMPILERS
from crtexport.simulation.runtimes import KINDS, find_runtime
from crtexport.support.errors import ToolMissingError

_TIMEOUT = 20  # seconds that a program may take to say its version
_NAMED = 3

REQUIRED = ("llvmlite", "numpy", "msgspec", "click", "jinja2", "PyYAML", "rich")
"""Distributions that are installed with crtexport; they are listed to show broken installations."""


class Installed(Struct, frozen=True):
    """A program or package. ``found`` is its version or path, "" if it is missing; ``use`` says
    what it is for, ``hint`` how to install it."""

    name: str
    found: str
    use: str
    hint: str


def installed() -> list[Installed]:
    """Returns all programs and packages that commands start or import, grouped by kind. Starts the
    programs, to ask for their versions; runs no code of models or packages."""
    boards = list_boards()
    return [
        *_distributions(), *_compilers(boards), *_emulators(boards), *_build_tools(),
        *_references(), _vela(), _zephyr(),
    ]


def _distributions() -> Iterator[Installed]:
    for name in REQUIRED:
        yield Installed(name, _release(name), "every verb", "pip install crtexport")
    yield Installed("west", _release("west"), "west crtexport, Zephyr", "pip install crtexport")
    yield Installed(
        "matplotlib", _release("matplotlib"), "bench --chart", "pip install 'crtexport[bench]'"
    )
    yield Installed(
        "devicetree", _release("devicetree"), "zephyr board, check and report",
        "pip install 'crtexport[zephyr]'",
    )


def _release(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _compilers(boards: Sequence[Board]) -> Iterator[Installed]:
    here = next((name for name in COMPILERS if shutil.which(name)), "")
    yield Installed(
        " or ".join(COMPILERS), here and f"{here}: {_version(here)}",
        "simulate C sources; outputs that examples compare with", "on Debian: apt-get install gcc",
    )
    tools: dict[str, list[Board]] = {}
    for board in boards:
        tools.setdefault(board.toolchain.compiler[0], []).append(board)
    for name, used in tools.items():
        chain = used[0].toolchain
        hint = f"on Debian: apt-get install {chain.package}" if chain.package else chain.url or ""
        yield _program(name, f"build for {_listed(used)}", hint)


def _emulators(boards: Sequence[Board]) -> Iterator[Installed]:
    tools: dict[str, tuple[str, list[Board]]] = {}
    for board in boards:
        if isinstance(board.runner, QemuRunner):
            tools.setdefault(board.runner.command[0], (board.runner.package, []))[1].append(board)
    for name, (package, used) in tools.items():
        yield _program(name, f"run {_listed(used)}", f"on Debian: apt-get install {package}")


def _build_tools() -> Iterator[Installed]:
    for name, package, use in (
        ("make", "make", "build and run firmware"),
        ("cmake", "cmake", "libraries of --format cmake, Zephyr"),
        ("ninja", "ninja-build", "Zephyr"),
        ("openocd", "openocd", "make flash in firmware's folders"),
    ):
        yield _program(name, use, f"on Debian: apt-get install {package}")


def _references() -> Iterator[Installed]:
    for name, kind in KINDS.items():
        runtime = _or_missing(lambda name=name: find_runtime(name).python)  # type: ignore[misc]
        yield Installed(
            name, runtime, "quantize" if kind.command == "quantize" else "verify",
            f"crtexport {kind.command} --install-reference, or pip install"
            f" 'crtexport[{kind.extra}]', or {kind.variable}",
        )


def _vela() -> Installed:
    return Installed("vela", _or_missing(vela.program), "--accelerator ethos-u…",
                     f"pip install 'crtexport[ethos-u]', or {vela.PROGRAM}")


def _zephyr() -> Installed:
    return Installed("Zephyr", _or_missing(lambda: str(find_tree().path)), "run --runner zephyr",
                     "export ZEPHYR_BASE=<workspace>/zephyr")


def _or_missing(find: Callable[[], str]) -> str:
    try:
        return find()
    except ToolMissingError:
        return ""


def _program(name: str, use: str, hint: str) -> Installed:
    path = shutil.which(name)
    return Installed(name, (path and (_version(path) or path)) or "", use, hint)


def _version(program: str) -> str:
    """Returns the first line that ``program --version`` prints; "" if it prints none."""
    try:
        done = subprocess.run(
            (program, "--version"), capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=_TIMEOUT, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else ""


def _listed(boards: Sequence[Board]) -> str:
    names = [board.name for board in boards]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
