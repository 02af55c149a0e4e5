"""The process in which LLVM runs: reads requests, answers with objects.

LLVM ends the process that it fails in, and its options are variables of the whole process; so it
runs here and not in the exporter's process. The first request holds the options, which are set
before anything else happens, after one for a list of all that there are, if that is wanted; every
other one a module. Each message is a length and that many bytes; requests and answers begin with
one byte that says what they are.

This module imports nothing that the work doesn't need: each worker takes that much longer to
start.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, Any, NamedTuple

from crtexport.backends.llvm.elf import begin_with_code, deactivate_sections

LENGTH = struct.Struct("<Q")
LIST, SETUP, MODULE = b"l", b"s", b"m"
LISTED, READY, OBJECT, ERROR, REFUSED = b"t", b"r", b"o", b"e", b"x"
NO_LLVM, NOT_LOADED = b"n", b"f"
_LOOK = 0.5
"""Seconds between two checks that the process that started this one still runs."""

_IN_VAIN = (
    "-disable-licm-promotion", "-enable-global-analyses=false",
    "-enable-constraint-elimination=false", "-dse-memoryssa-scanlimit=0",
)
"""Options that switch off passes without effect here: kernels hold their sums in registers, change
no globals, compare nothing twice and store nothing that they overwrite unread. Without these
options LLVM takes a tenth longer for the same code."""
_OBJECTS = 200_000  # made between two searches for unreachable ones; importing makes a part of it
_PROGRAM = "llvm"  # what LLVM calls itself in messages
_LATE = '"crt-inline-late"'
_NOT_ON_ARM = (".note.GNU-stack", ".ARM.exidx", ".rel.ARM.exidx")
"""Sections that LLVM always writes and bare-metal GCC never does: with the first in one object, its
linker warns about all others; the second costs eight bytes of flash for each function."""


def send(stream: IO[bytes], kind: bytes, data: bytes = b"") -> None:
    """Writes one message."""
    stream.write(LENGTH.pack(len(data) + 1))
    stream.write(kind)
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[bytes, bytes]:
    """Returns one message, as kind and data; both empty when the other side has ended."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return b"", b""
    (length,) = LENGTH.unpack(head)
    data = stream.read(length)
    return (data[:1], data[1:]) if len(data) == length else (b"", b"")


class _Effort(NamedTuple):
    """LLVM's effort. ``unroll``: for each run of its passes, whether they unroll loops.

    Unrolling where no hint asks for it costs flash, so only speed does it, and only after a run
    without: what is unrolled isn't vectorized any more. Some instructions (SMLAD) are only looked
    for in code generation at level 3.
    """

    passes: int
    codegen: int
    unroll: tuple[bool, ...]


_LEVELS = {
    "size": _Effort(passes=2, codegen=2, unroll=(False,)),
    "compact": _Effort(passes=2, codegen=3, unroll=(False,)),
    "balanced": _Effort(passes=2, codegen=3, unroll=(False,)),
    "speed": _Effort(passes=3, codegen=3, unroll=(False, True)),
}


class _Compiler:
    """Compiles modules as one ``request`` says: LLVM takes a while to get to know a processor."""

    def __init__(self, llvm: Any, request: Mapping[str, str]) -> None:
        self._llvm, self._level = llvm, _LEVELS[request["optimize"]]
        triple = request["triple"]
        self._bare_arm = triple.startswith(("arm", "thumb")) and "linux" not in triple
        self._machine = llvm.Target.from_triple(triple).create_target_machine(
            cpu=request["cpu"], features=request["features"], opt=self._level.codegen,
            reloc=request["reloc"], codemodel="small", abiname=request["abi"],
        )

    def compile(self, text: str) -> bytes:
        """Returns the object of one module."""
        module = self._llvm.parse_assembly(text)
        module.data_layout = str(self._machine.target_data)
        module.verify()
        for unroll in self._level.unroll:
            tuning = self._llvm.create_pipeline_tuning_options(speed_level=self._level.passes)
            tuning.loop_unrolling = unroll  # hints are followed in any case
            builder = self._llvm.create_pass_builder(self._machine, tuning)
            builder.getModulePassManager().run(module, builder)
        if _LATE in text:
            _inline_late(self._llvm, module, builder)
        data: bytes = self._machine.emit_object(module)
        if not self._bare_arm:
            return data
        return deactivate_sections(begin_with_code(data), _NOT_ON_ARM)


def _inline_late(llvm: Any, module: Any, builder: Any) -> None:
    """Inlines functions that passes must not look into.

    Code generation knows them as one instruction; passes would spend half their time on the steps
    of each, and turn some into other instructions.
    """
    for function in module.functions:
        if any(_LATE.encode() in group for group in function.attributes):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, builder)


def _set_options(llvm: Any, options: list[str]) -> dict[str, str]:
    """Sets each option; returns LLVM's complaints, by option: it refuses in words only."""
    given = {_name(option) for option in options}
    for option in _IN_VAIN:
        if _name(option) not in given:
            llvm.set_option(_PROGRAM, option)
    refused = {}
    for option in options:
        if said := _said_by(partial(llvm.set_option, _PROGRAM, option)):
            refused[option] = said.partition(" option: ")[2] or said
    return refused


def _name(option: str) -> str:
    return option.lstrip("-").partition("=")[0]


def _said_by(call: Callable[[], object]) -> str:
    """Returns what ``call`` writes to file descriptor 2."""
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            call()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return file.read().decode("utf-8", "replace").strip()


def _listing(llvm: Any) -> bytes:
    """Returns every option that LLVM has, as it prints them. That ends a process, so a separate one
    does it."""
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            os.dup2(file.fileno(), 1)
            llvm.set_option(_PROGRAM, "-help-hidden")
            os._exit(1)
        os.waitpid(child, 0)
        file.seek(0)
        return file.read()


def _told(error: BaseException | None) -> str:
    """Returns the text of an error and of those that it arose from."""
    said: list[str] = []
    while error is not None:
        said.append(str(error) or type(error).__name__)
        error = error.__cause__ or error.__context__
    return "; ".join(dict.fromkeys(said))


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent ended, whatever LLVM is doing."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


def _serve(llvm: Any, stdin: IO[bytes], stdout: IO[bytes]) -> None:
    header = b""
    while True:
        kind, data = receive(stdin)
        if not kind:
            return
        if kind == LIST:
            send(stdout, LISTED, _listing(llvm))
            continue
        if kind == SETUP:
            if refused := _set_options(llvm, json.loads(data)):
                send(stdout, REFUSED, json.dumps(refused).encode())
                return
            threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
            send(stdout, READY, ".".join(map(str, llvm.llvm_version_info)).encode())
            continue
        try:
            head, _, text = data.partition(b"\n")
            if head != header:
                compiler, header = _Compiler(llvm, json.loads(head)), head
            answer = OBJECT, compiler.compile(text.decode())
        except RuntimeError as error:
            answer = ERROR, str(error).encode()
        send(stdout, *answer)


def main() -> None:
    """Serves requests until standard input ends."""
    gc.set_threshold(_OBJECTS)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # LLVM would not let Python see it
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever LLVM prints must not get between the answers
    try:
        import llvmlite.binding as llvm  # noqa: PLC0415

        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    except (ImportError, OSError, MemoryError) as error:
        missing = isinstance(error, ModuleNotFoundError)
        if receive(stdin)[0]:
            send(stdout, NO_LLVM if missing else NOT_LOADED, _told(error).encode())
        return
    _serve(llvm, stdin, stdout)


if __name__ == "__main__":
    main()
