"""Compiles LLVM modules to objects in processes of their own.

LLVM ends the process that it fails in, and its state is global; so nothing here runs it in the
exporter's process. A worker reads one request after the other from its standard input (a length, a
line of JSON, a module) and answers on its standard output (a length, a status byte, then an object
or a message).
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from crtexport.backends.llvm_elf import deactivate_sections
from crtexport.backends.llvm_types import normalized_triple
from crtexport.errors import CrtExportError, ToolMissingError
from crtexport.target import Target

_COMMAND = (sys.executable, "-P", "-m", "crtexport.backends.llvm_worker")
_LENGTH = struct.Struct("<Q")
_OBJECT, _ERROR, _NO_LLVM = b"o", b"e", b"m"
_DEFINITION = re.compile(
    r"^(?P<head>define [^\n]*@(?P<name>[\w.$]+)\([^\n]*\{)\n.*?^\}$", re.DOTALL | re.MULTILINE
)
_SMALL = 1 << 16
"""Text of modules that isn't worth a process of its own, which costs a quarter of a second."""
_NOT_ON_ARM = (".note.GNU-stack", ".ARM.exidx", ".rel.ARM.exidx")
"""Sections that LLVM always writes and bare-metal GCC never does: with the first in one object, its
linker warns about all others; the second costs eight bytes of flash for each function."""


def compile_modules(
    modules: Mapping[str, str], target: Target, optimize: str, *, jobs: int | None = None
) -> dict[str, bytes]:
    """File name of each module (``x_lib0.ll``) → its text, to ``x_lib0.o`` → its object.

    ``optimize`` is size, balanced or speed; ``jobs`` the number of worker processes, by default
    as many as are worth it. The bytes depend on neither. Raises CrtExportError with the module's
    name, and the function's where LLVM tells it, when LLVM fails or crashes; ToolMissingError when
    llvmlite can't be imported.
    """
    options = {
        "triple": normalized_triple(target), "cpu": target.cpu,
        "features": ",".join(target.features), "reloc": target.reloc, "abi": target.abi,
        "optimize": optimize,
    }
    largest_first = sorted(modules.items(), key=lambda item: (-len(item[1]), item[0]))
    queue: SimpleQueue[tuple[str, str]] = SimpleQueue()
    for item in largest_first:
        queue.put(item)
    if jobs is None:
        worth = sum(len(text) > _SMALL for text in modules.values())
        jobs = min(os.cpu_count() or 1, max(worth, 1))
    count = max(min(jobs, len(modules)), 1)
    with ThreadPoolExecutor(count) as pool:
        parts = list(pool.map(lambda _: _serve(queue, options), range(count)))
    objects = {name: data for part in parts for name, data in part.items()}
    failures = {name: o for name, o in objects.items() if isinstance(o, CrtExportError)}
    for name, text in modules.items():
        if name in failures:
            raise _with_function(failures[name], name, text, options)
    return {
        f"{Path(name).stem}.o": data
        for name in modules
        if isinstance(data := objects[name], bytes)
    }


# ---- in the exporter's process -----------------------------------------------------------------


def _serve(
    queue: SimpleQueue[tuple[str, str]], options: Mapping[str, str]
) -> dict[str, bytes | CrtExportError]:
    """Compiles what is left in ``queue`` in one worker, or a new one after a crash."""
    results: dict[str, bytes | CrtExportError] = {}
    worker: _Worker | None = None
    try:
        while True:
            try:
                name, text = queue.get_nowait()
            except Empty:
                return results
            if worker is None:
                worker = _Worker()
            try:
                results[name] = worker.compile(name, options, text)
            except CrtExportError as error:
                results[name] = error
                worker.close()
                worker = None
    finally:
        if worker is not None:
            worker.close()


def _with_function(
    error: CrtExportError, name: str, text: str, options: Mapping[str, str]
) -> CrtExportError:
    """``error`` with the function in its location that makes LLVM crash, if LLVM didn't tell it.

    That is found by compiling each function alone.
    """
    if not isinstance(error, _CrashError) or len(error.location) > 1:
        return error
    for function in _DEFINITION.finditer(text):
        queue: SimpleQueue[tuple[str, str]] = SimpleQueue()
        queue.put((name, _only(function["name"], text)))
        if isinstance(_serve(queue, options)[name], _CrashError):
            error.location = (*error.location, function["name"])
            break
    return error


def _only(wanted: str, text: str) -> str:
    """``text`` with one function visible and the bodies of all others emptied."""

    def replaced(function: re.Match[str]) -> str:
        if function["name"] == wanted:
            return function[0].replace("define internal ", "define ", 1)
        return f"{function['head']}\n  unreachable\n}}"

    return _DEFINITION.sub(replaced, text)


class _CrashError(CrtExportError):
    """LLVM ended its process."""


class _Worker:
    """A worker process and what it says on stderr."""

    def __init__(self) -> None:
        package_root = str(Path(__file__).parents[2])
        path = os.pathsep.join(p for p in (package_root, os.environ.get("PYTHONPATH")) if p)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": path},
        )

    def compile(self, name: str, options: Mapping[str, str], text: str) -> bytes:
        """One module's object; raises CrtExportError when there is none."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise CrtExportError("the compiler process has no pipes", location=name)
        try:
            _send(stdin, json.dumps(options).encode() + b"\n" + text.encode())
            answer = _receive(stdout)
        except BrokenPipeError:
            answer = b""
        status, payload = answer[:1], answer[1:]
        if status == _OBJECT:
            return payload
        if status == _NO_LLVM:
            raise ToolMissingError(
                f"llvmlite can't be imported ({payload.decode('utf-8', 'replace')})",
                hint="install it with: pip install 'llvmlite>=0.50,<0.51'; or export C sources, "
                "which need no LLVM, with --emit c",
            )
        if status == _ERROR:
            message = payload.decode("utf-8", "replace")
            raise CrtExportError(f"LLVM does not accept a module: {message}", location=name)
        raise _crash(name, self._ending(), self._said())

    def _ending(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"by signal {signal.Signals(-code).name}"
        return f"with exit code {code}"

    def _said(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")

    def close(self) -> None:
        """Ends the process, which ends by itself when its input does."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        self._process.wait()
        self._stderr.close()


def _crash(name: str, ending: str, said: str) -> _CrashError:
    """The error for a module, with the function that LLVM mentions and the end of what it says."""
    location = [name]
    _, found, rest = said.rpartition("In function: ")
    if found:
        location.append(rest.split()[0])
    tail = "\n".join(said.strip().splitlines()[-8:])
    problem = f"LLVM ended {ending}"
    return _CrashError(f"{problem}: {tail}" if tail else problem, location=location)


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    """One message, or nothing when the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return b""
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    return data if len(data) == length else b""


# ---- in the worker -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Level:
    """How hard LLVM tries. ``unroll``: for each run of its passes, whether they unroll loops.

    Unrolling where no hint asks for it costs flash, so only speed does it, and only after a run
    without: what is unrolled isn't vectorized any more. Some instructions (SMLAD) are only looked
    for in code generation at level 3.
    """

    passes: int
    codegen: int
    unroll: tuple[bool, ...]


_LEVELS = {
    "size": _Level(passes=2, codegen=2, unroll=(False,)),
    "balanced": _Level(passes=2, codegen=3, unroll=(False,)),
    "speed": _Level(passes=3, codegen=3, unroll=(False, True)),
}


def _compile(options: Mapping[str, str], text: str) -> bytes:
    """The object of one module."""
    import llvmlite.binding as llvm  # noqa: PLC0415

    level = _LEVELS[options["optimize"]]
    machine = llvm.Target.from_triple(options["triple"]).create_target_machine(
        cpu=options["cpu"], features=options["features"], opt=level.codegen,
        reloc=options["reloc"], codemodel="small", abiname=options["abi"],
    )
    module = llvm.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    module.verify()
    for unroll in level.unroll:
        tuning = llvm.create_pipeline_tuning_options(speed_level=level.passes)
        tuning.loop_unrolling = unroll  # hints are followed in any case
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
    data: bytes = machine.emit_object(module)
    if options["triple"].startswith(("arm", "thumb")) and "linux" not in options["triple"]:
        return deactivate_sections(data, _NOT_ON_ARM)
    return data


def main() -> None:
    """Serves requests until standard input ends."""
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever LLVM prints must not get between the answers
    try:
        import llvmlite.binding as llvm  # noqa: PLC0415

        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    except (ImportError, OSError) as error:
        if _receive(stdin):
            _send(stdout, _NO_LLVM + str(error).encode())
        return
    while request := _receive(stdin):
        try:
            head, _, text = request.partition(b"\n")
            answer = _OBJECT + _compile(json.loads(head), text.decode())
        except RuntimeError as error:
            answer = _ERROR + str(error).encode()
        _send(stdout, answer)


if __name__ == "__main__":
    main()
