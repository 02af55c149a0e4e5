"""Runs a program in QEMU with a deadline, and counts instructions with a plugin of QEMU."""

from __future__ import annotations

import functools
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from crtexport.firmware.board_schema import Board, QemuRunner
from crtexport.firmware.spent import Cycles, Misses, Spent
from crtexport.firmware.thumb.table import write_table
from crtexport.firmware.thumb.timing import Core
from crtexport.firmware.toolchain import end_with_children, find_tool, log_tail, run_tool
from crtexport.support import resources
from crtexport.support.errors import CrtExportError, RunFailedError
from crtexport.support.target import Flash

MAX_CONSOLE = 64 << 20
"""Bytes of console output; a program that prints more is stopped."""

MARKS = "marks.txt"
COUNTS = "counts.txt"
TIMES = "times.txt"
PLUGIN = "count.so"
# QEMU 9 raised the lowest version of the plugin interface that it takes from 0 to 2.
_PLUGIN_API_2_SINCE = 9

_CONSOLE = {
    "semihosting": (
        "-serial", "none", "-chardev", "stdio,id=console,signal=off",
        "-semihosting-config", "enable=on,target=native,chardev=console",
    ),
    "uart16550": (
        "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
        "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
    ),
}


class Mark(Struct, frozen=True):
    """A call of a watched function: its address, and what was executed until then."""

    address: int
    before: Spent


class Watching(Struct, frozen=True):
    """The counts of the QEMU plugin at ``plugin``: calls of the functions at the addresses
    ``functions``; cycles, if ``core`` is given; and, if ``flash`` is given, misses of its caches,
    for accesses below address ``top``."""

    plugin: Path
    functions: tuple[int, ...]
    core: Core | None = None
    flash: Flash | None = None
    top: int = 0


class QemuRun(Struct, frozen=True):
    """``console`` is the output. ``marks`` are the calls of the watched functions in the order in
    which they were made, None without the plugin."""

    console: str
    marks: tuple[Mark, ...] | None


def run_program(command: Sequence[str], *, cwd: Path, timeout: float) -> tuple[str, int]:
    """Runs ``command`` and returns its output and exit status.

    Raises RunFailedError with the end of the output when ``timeout`` seconds pass or the output
    grows beyond MAX_CONSOLE.
    """
    try:
        process = subprocess.Popen(
            list(command), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
    except OSError as error:
        raise RunFailedError(f"{command[0]} does not start: {error.strerror}") from error
    with process:
        try:
            text = _collect(process, time.monotonic() + timeout)
        except BaseException:
            end_with_children(process)
            raise
        if text.late:
            end_with_children(process)
            raise RunFailedError(
                f"the program {text.late}; its console:\n{log_tail(text.decoded)}",
                hint="give it more time with a longer timeout" if "ended" in text.late else None,
            )
        status = process.wait()
    return text.decoded, status


class _Output(Struct, frozen=True):
    data: bytes
    late: str = ""

    @property
    def decoded(self) -> str:
        return self.data.decode("utf-8", "replace")


def _collect(process: subprocess.Popen[bytes], deadline: float) -> _Output:
    """Returns the output, read until the program closes it, prints too much or exceeds its time.
    """
    data = bytearray()
    stream = process.stdout
    if stream is None:
        return _Output(b"")
    start = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                late = f"had not ended after {deadline - start:.0f} seconds"
                return _Output(bytes(data), late)
            if not selector.select(left):
                continue
            piece = os.read(stream.fileno(), 1 << 16)
            if not piece:
                return _Output(bytes(data))
            data += piece
            if len(data) > MAX_CONSOLE:
                return _Output(bytes(data), "printed without end")


def machine(board: Board) -> tuple[str, ...]:
    """Returns the command that boots the board's machine without windows, with its console on this
    one; the program is to follow, as ``-kernel FILE``. Empty for boards without QEMU."""
    runner = board.runner
    if not isinstance(runner, QemuRunner):
        return ()
    return (
        *runner.command, "-display", "none", "-monitor", "none", "-no-reboot",
        *_CONSOLE.get(board.console.kind, ()),
    )


def run_qemu(
    board: Board, elf: Path, *, timeout: float, watching: Watching | None = None
) -> QemuRun:
    """Boots ``elf`` on the board's machine, at one instruction per nanosecond of its clock; returns
    the console output and the calls that were watched.

    Raises ToolMissingError if QEMU isn't installed, and RunFailedError if the machine does not
    start, ends by a signal or runs longer than ``timeout`` seconds.
    """
    runner = board.runner
    if not isinstance(runner, QemuRunner):
        raise CrtExportError("this board has no QEMU machine", location=board.name)
    command = [
        find_tool(runner.command[0], runner.package), *machine(board)[1:],
        "-icount", "shift=0", "-kernel", elf.name,
    ]
    if watching is not None:
        command += ["-plugin", _arguments(elf, watching)]
    console, status = run_program(command, cwd=elf.parent, timeout=timeout)
    if status < 0:
        raise RunFailedError(
            f"{runner.command[0]} gave up (signal {-status}), as it does when the processor locks "
            f"up; its output:\n{log_tail(console)}"
        )
    if watching is None:
        return QemuRun(console, None)
    return QemuRun(console, _read_counts(elf.parent / COUNTS, watching))


def _arguments(elf: Path, watching: Watching) -> str:
    """Writes the files that the plugin reads; returns QEMU's option that loads it."""
    folder = elf.parent
    (folder / COUNTS).unlink(missing_ok=True)
    marks = "".join(f"{address:x}\n" for address in sorted(set(watching.functions)))
    (folder / MARKS).write_text(marks, encoding="ascii")
    # Relative, because QEMU takes commas in paths for its own.
    words = [f"./{os.path.relpath(watching.plugin, folder)}", f"marks={MARKS}", f"out={COUNTS}"]
    if watching.core is not None:
        write_table(elf, watching.core, folder / TIMES)
        words.append(f"times={TIMES}")
    if (flash := watching.flash) is not None:
        words += [
            f"top={watching.top}", f"code={flash.code_cache // flash.line}",
            f"data={max(flash.data_cache // flash.line, 1)}",
            f"line={flash.line.bit_length() - 1}",
        ]
    return ",".join(words)


def build_plugin(board: Board, folder: Path) -> Path | None:
    """Copies the counting plugin into ``folder`` and returns its path. It is compiled once per
    process. Returns None if it can't be compiled here."""
    runner = board.runner
    if not isinstance(runner, QemuRunner):
        return None
    plugin = folder / PLUGIN
    api = 2 if _qemu_major(runner.command[0]) >= _PLUGIN_API_2_SINCE else 1
    try:
        plugin.write_bytes(_plugin(api))
    except RunFailedError:
        return None
    return plugin


@functools.cache
def _plugin(api: int) -> bytes:
    source = resources.templates_dir() / "baremetal" / "qemu" / "count.c"
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        run_tool(
            ["cc", "-shared", "-fPIC", "-O2", f"-DQEMU_PLUGIN_API={api}", "-o", PLUGIN,
             str(source)],
            cwd=Path(folder), what="compiling the counting plugin",
        )
        return (Path(folder) / PLUGIN).read_bytes()


@functools.cache
def _qemu_major(program: str) -> int:
    text = run_tool([program, "--version"], cwd=Path.cwd(), what="asking for QEMU's version")
    found = re.search(r"version (\d+)", text)
    return int(found[1]) if found else 0


def _read_counts(path: Path, watching: Watching) -> tuple[Mark, ...] | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return tuple(_mark(line.split(), watching) for line in lines)
    except (OSError, ValueError):
        return None


def _mark(words: Sequence[str], watching: Watching) -> Mark:
    executed, low, mid, high, code, following, data = map(int, words[1:])
    return Mark(int(words[0], 16), Spent(
        executed, Cycles(low, mid, high) if watching.core is not None else None,
        Misses(code, following, data) if watching.flash is not None else None,
    ))
