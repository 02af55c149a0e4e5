"""Worker processes for LLVM: one set of options each, lent to one user at a time, then kept.

Options of LLVM are set once in the life of a worker, before its first module; so no export can see
those of another, whatever runs at the same time in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crtexport.backends.llvm import worker as llvm_worker
from crtexport.backends.llvm.options import (
    KnownOption,
    Listing,
    Option,
    combine,
    parse_option,
)
from crtexport.support.errors import CrtExportError, ToolMissingError
from crtexport.support.shortage import shortage, shortage_told

_COMMAND = (sys.executable, "-P", "-m", "crtexport.backends.llvm.worker")
_START = 120.0  # seconds for a worker to start
_TOLD = 8  # lines of what LLVM says at its end


_KILLED = "another program ended it; the system does so where memory runs out"


class CrashError(CrtExportError):
    """Raised when LLVM ended its process, or was ended because it took too long."""


class Worker:
    """A process in which LLVM runs under ``options``; None: :meth:`begin` sets them, and
    :meth:`listing` may be called before."""

    def __init__(self, options: tuple[str, ...] | None = None) -> None:
        self.options: tuple[str, ...] | None = None
        self.version = ""
        try:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = subprocess.Popen(
                _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
                env=_environment(),
            )
        except OSError as error:
            raise _not_started(error) from error
        self._ready = False
        self.ended = False
        if options is not None:
            self.begin(options)

    def begin(self, options: tuple[str, ...]) -> None:
        """Sends the options, once, before any other request."""
        self.options = options
        # The pipe holds this much; the answer is read when it is needed.
        with contextlib.suppress(BrokenPipeError):
            self._send(llvm_worker.SETUP, json.dumps(options).encode())

    def listing(self) -> str:
        """Returns LLVM's output that lists every option."""
        with contextlib.suppress(BrokenPipeError):
            self._send(llvm_worker.LIST, b"")
        kind, data = self._receive(_START)
        if kind in (llvm_worker.NO_LLVM, llvm_worker.NOT_LOADED):
            raise _no_llvm(data, missing=kind == llvm_worker.NO_LLVM)
        if kind != llvm_worker.LISTED:
            raise self._crash("while it listed its options")
        return data.decode("utf-8", "replace")

    def set_up(self) -> None:
        """Waits until LLVM has its options; raises CrtExportError when it refuses one."""
        if self._ready:
            return
        kind, data = self._receive(_START)
        if kind == llvm_worker.REFUSED:
            refused: dict[str, str] = json.loads(data)
            raise CrtExportError("; ".join(refused.values()), location=tuple(refused))
        if kind in (llvm_worker.NO_LLVM, llvm_worker.NOT_LOADED):
            raise _no_llvm(data, missing=kind == llvm_worker.NO_LLVM)
        if kind != llvm_worker.READY:
            raise self._crash("while it started")
        self.version = data.decode()
        self._ready = True

    def compile(self, request: Mapping[str, str], text: str, timeout: float) -> bytes:
        """Returns one module's object.

        Raises CrtExportError when LLVM rejects the module, CrashError when the process ends or
        takes more than ``timeout`` seconds; it can't be used any more then.
        """
        self.set_up()
        with contextlib.suppress(BrokenPipeError):
            self._send(llvm_worker.MODULE, json.dumps(request).encode() + b"\n" + text.encode())
        kind, data = self._receive(timeout)
        if kind == llvm_worker.OBJECT:
            return data
        if kind == llvm_worker.ERROR:
            said = data.decode("utf-8", "replace")
            raise CrtExportError(f"LLVM does not accept a module: {said}")
        raise self._crash()

    def _send(self, kind: bytes, data: bytes) -> None:
        if self._process.stdin is not None:
            llvm_worker.send(self._process.stdin, kind, data)

    def _receive(self, timeout: float) -> tuple[bytes, bytes]:
        """Returns the next answer, or nothing from a process that ended; one that is late is
        killed."""
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        watch = threading.Timer(timeout, end)
        watch.daemon = True
        watch.start()
        try:
            stdout = self._process.stdout
            answer = (b"", b"") if stdout is None else llvm_worker.receive(stdout)
        finally:
            watch.cancel()
        if late.is_set():
            raise CrashError(f"LLVM had not finished after {timeout:g} seconds")
        return answer

    def _crash(self, when: str = "") -> CrashError:
        """Returns the error of a process that has ended, with the function that LLVM mentions, if
        any."""
        code = self._process.wait()
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        self._stderr.seek(0)
        said = self._stderr.read().decode("utf-8", "replace").strip()
        _, found, rest = said.rpartition("In function: ")
        tail = "\n".join(said.splitlines()[-_TOLD:])
        problem = " ".join(filter(None, ("LLVM ended", when, how)))
        lacking = shortage_told(said)
        hint = lacking.hint if lacking else _KILLED if code == -signal.SIGKILL else None
        return CrashError(
            f"{problem}: {tail}" if tail else problem, location=rest.split()[:1] if found else (),
            hint=hint,
        )

    def end(self) -> None:
        """Ends the process, whatever it is doing, without waiting for its end."""
        self.ended = True
        self._process.kill()

    def close(self) -> None:
        """Ends the process, whatever it is doing."""
        self.end()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()
        self._stderr.close()


class WorkerPool:
    """Workers by their options. Safe to use from several threads.

    At most ``idle`` idle workers are kept, by default one for each processor.
    """

    def __init__(self, idle: int | None = None) -> None:
        self._limit = idle if idle is not None else os.cpu_count() or 1
        self._idle: list[Worker] = []  # the one that was used last is at the end
        self._lock = threading.Lock()
        self._foreign: list[Worker] = []
        self._lent: set[Worker] = set()
        os.register_at_fork(after_in_child=self._forget)

    @contextlib.contextmanager
    def worker(self, options: tuple[str, ...] | None = ()) -> Iterator[Worker]:
        """Yields a worker under ``options``, None: without any yet; it returns to the pool unless
        an exception passes."""
        worker = self._take(options) or Worker(options)
        self._lent.add(worker)
        try:
            yield worker
        except BaseException:
            worker.close()
            raise
        finally:
            self._lent.discard(worker)
        self._put(worker)

    def warm(self, options: tuple[str, ...] = (), count: int = 1) -> None:
        """Starts workers, unless ``count`` are idle, without waiting for them."""
        for worker in [self._take(options) or Worker(options) for _ in range(count)]:
            self._put(worker)

    def start(self) -> None:
        """Starts a worker for the first options that are requested, unless one is idle, without
        waiting for it."""
        if not self._idle:
            self._put(Worker())

    def abandon(self) -> None:
        """Ends all workers, busy or not, so that no thread waits for one any longer; later requests
        get new ones."""
        for worker in (*self._lent, *self._idle):
            worker.end()

    def close(self) -> None:
        """Ends all idle workers."""
        with self._lock:
            idle, self._idle = self._idle, []
        self._discard(idle)

    def _take(self, options: tuple[str, ...] | None) -> Worker | None:
        with self._lock:
            ended = [worker for worker in self._idle if worker.ended]
            self._idle = [worker for worker in self._idle if not worker.ended]
            positions = range(len(self._idle))
            fitting = [p for p in positions if self._idle[p].options in (options, None)]
            best = max(
                fitting, key=lambda p: (self._idle[p].options is not None, p), default=None
            )
            worker = None if best is None else self._idle.pop(best)
        self._discard(ended)
        if worker is None:
            return None
        if worker.options is None and options is not None:
            worker.begin(options)
        return worker

    def _put(self, worker: Worker) -> None:
        with self._lock:
            self._idle.append(worker)
            excess = max(len(self._idle) - self._limit, 0)
            old, self._idle = self._idle[:excess], self._idle[excess:]
        self._discard(old)

    @staticmethod
    def _discard(workers: Sequence[Worker]) -> None:
        for worker in workers:  # which takes each a while, all at once
            worker.end()
        for worker in workers:
            worker.close()

    def _forget(self) -> None:
        """Forgets all workers after a fork: they are those of the parent, which goes on using
        them."""
        self._lock = threading.Lock()
        self._foreign, self._idle = [*self._foreign, *self._idle, *self._lent], []
        self._lent = set()


POOL = WorkerPool()
"""The workers of this process; they end with it."""
atexit.register(POOL.close)


def parsed_options(groups: Sequence[tuple[str, Sequence[str]]]) -> list[Option]:
    """Returns the options of all ``groups``, each an origin and its options.

    ``(("board x", ("-a=1",)), ("--llvm-option", ("-b",)))``. Raises CrtExportError for an option
    that is malformed: it names the option and the origin.
    """
    return [parse_option(text, origin) for origin, texts in groups for text in texts]


def check_options(options: Sequence[Option]) -> tuple[str, ...]:
    """Returns ``options`` as workers take them.

    Raises CrtExportError for an option that is unknown to the installed LLVM, contradicts another
    or has a value that LLVM refuses: it names the option and the origin. Raises ToolMissingError
    without llvmlite.
    """
    if not options:
        return ()
    combined = combine(options, known_options())
    try:
        with POOL.worker(combined) as worker:
            worker.set_up()
    except CrtExportError as error:
        raise error.within(*_origins(options, error.location)) from None
    return combined


def _origins(options: Sequence[Option], refused: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(option.origin for option in options if str(option) in refused))


def llvm_version(options: tuple[str, ...] = ()) -> str:
    """Returns the version of LLVM that workers run, as in ``22.1.0``; it doesn't depend on
    ``options``, but a worker that has them may be there already."""
    with POOL.worker(options) as worker:
        worker.set_up()
        return worker.version


@functools.cache
def known_options() -> Mapping[str, KnownOption]:
    """Returns every option that the installed LLVM has, by name, from its own list.

    Raises ToolMissingError without llvmlite.
    """
    with POOL.worker(None) as worker:
        known = Listing(worker.listing())
    if not known:
        raise CrtExportError(
            "LLVM does not list its options, so none can be checked",
            hint="leave them out, or install the version of llvmlite that crtexport asks for",
        )
    return known


def _environment() -> dict[str, str]:
    """Returns the environment in which a worker finds this package, wherever it runs."""
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p)
    return {**os.environ, "PYTHONPATH": path}


def _no_llvm(message: bytes, *, missing: bool) -> CrtExportError:
    said = message.decode("utf-8", "replace")
    hint = "install it with: pip install 'llvmlite>=0.50,<0.51'"
    if not missing:
        lacking = shortage_told(said)
        if lacking is not None:
            return lacking.within("LLVM")
        hint = hint.replace("install it", "install it again")
    return ToolMissingError(
        f"llvmlite can't be imported ({said})",
        hint=f"{hint}; or export C sources, which need no LLVM, with --emit c",
    )


def _not_started(error: OSError) -> CrtExportError:
    found = shortage(error) or ToolMissingError(f"LLVM's process doesn't start ({error})")
    return found.within("LLVM")
