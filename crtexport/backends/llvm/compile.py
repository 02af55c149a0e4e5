"""Compiles artifacts and LLVM modules to objects, in parallel, in processes of :mod:`.pool`."""

from __future__ import annotations

import heapq
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from crtexport.artifact.model import Artifact
from crtexport.backends.llvm.module import printed_modules
from crtexport.backends.llvm.pool import (
    POOL,
    CrashError,
    Worker,
    check_options,
    llvm_version,
    parsed_options,
)
from crtexport.backends.llvm.split import processes
from crtexport.backends.llvm.types import ModuleText, normalized_triple
from crtexport.backends.modules import Module, Split
from crtexport.support.errors import CrtExportError, Terminated, ToolMissingError
from crtexport.support.outputs.folders import Wanted, lay_out
from crtexport.support.target import Target

TIMEOUT = 600.0
"""Seconds that LLVM may take for one module."""

_DEFINITION = re.compile(
    r"^(?P<head>define [^\n]*@(?P<name>[\w.$]+)\([^\n]*\{)\n.*?^\}$", re.DOTALL | re.MULTILINE
)
Shape = Callable[[str, bytes], bytes]
Counted = Callable[[int, int], None]
"""Transforms an object, given its file's name, as soon as it is compiled."""

_MANY = 12
"""Nodes of networks whose kernels are likely to be several modules."""
_SMALL = 1 << 15
"""The number of characters of a module's text below which starting a process (a quarter of a
second) doesn't pay."""


class Compiler:
    """Makes the objects of artifacts for one target, under one set of LLVM's options.

    ``optimize`` is one of ``LEVELS``, ``split`` none, operator or auto
    (:func:`.split.partition`). ``options`` are groups of an origin and the options from
    there; the rest is as in :func:`compile_modules`. Making a Compiler starts LLVM and lets it
    check the options, so that it is ready when the first artifact is.
    """

    def __init__(
        self, target: Target, optimize: str, *, split: Split = "none",
        options: Sequence[tuple[str, Sequence[str]]] = (), jobs: int | None = None,
        timeout: float = TIMEOUT, keep_failed: Path | None = None,
    ) -> None:
        self._target, self._optimize, self._split = target, optimize, split
        self._jobs, self._timeout, self._keep_failed = jobs, timeout, keep_failed
        self._beside = ThreadPoolExecutor(1)  # starting LLVM takes a quarter of a second
        self._checked = self._beside.submit(check_options, parsed_options(options))
        self._warm(1)

    @property
    def options(self) -> tuple[str, ...]:
        """Returns LLVM's options, once they are checked and LLVM has started; errors as in
        :func:`.pool.check_options`."""
        return self._ready.result()

    def expect(self, nodes: int) -> None:
        """Starts as many workers as compiling a network of ``nodes`` nodes needs."""
        if nodes >= _MANY and self._jobs != 1:
            self._warm(min(os.cpu_count() or 1, 2))

    def _warm(self, count: int) -> None:
        def ready() -> tuple[str, ...]:
            options = self._checked.result()
            POOL.warm(options, count)
            return options

        self._ready = self._beside.submit(ready)

    def compile(self, *artifacts: Artifact) -> dict[Module, bytes]:
        """Returns the objects of the models of a package; errors as of
        :func:`.module.printed_modules` and of :func:`compile_modules`."""
        with self.started(*artifacts) as finish:
            return finish(_as_it_is)

    @contextmanager
    def started(
        self, *artifacts: Artifact, counted: Counted | None = None
    ) -> Iterator[Callable[[Shape], dict[Module, bytes]]]:
        """Compiles the models of a package in the background while the context lasts. Yields a
        function that waits for the objects and applies a Shape to each as soon as it is compiled.
        ``counted`` is called with the number of compiled modules and of all. Raises what
        :meth:`compile` raises."""
        modules: list[Module] = []

        def printed() -> Iterator[tuple[str, str]]:
            for artifact in artifacts:
                for module, text in printed_modules(
                    artifact, self._target, self._optimize, self._split
                ):
                    modules.append(module)
                    yield f"{module.name}.ll", text

        jobs = self._jobs
        if jobs is None:
            jobs = _processes(sum(
                processes(one, self._split, self._target) for one in artifacts
            ))
        with compilation(
            printed(), self._target, self._optimize, llvm_options=self.options, jobs=jobs,
            timeout=self._timeout, keep_failed=self._keep_failed, counted=counted,
        ) as finish:

            def finished(shape: Shape) -> dict[Module, bytes]:
                made = finish(shape)
                return {module: made[f"{module.name}.o"] for module in modules}

            yield finished

    def version(self) -> str:
        """Returns LLVM's version."""
        return llvm_version(self.options)


def compile_modules(
    modules: Mapping[str, str], target: Target, optimize: str, *,
    llvm_options: Sequence[str] = (), jobs: int | None = None, timeout: float = TIMEOUT,
    keep_failed: Path | None = None,
) -> dict[str, bytes]:
    """Compiles modules. ``modules`` maps file names (``x_lib0.ll``) to LLVM IR; returns the objects
    by their names (``x_lib0.o``).

    ``optimize`` is one of ``LEVELS``; ``llvm_options`` are LLVM's own; ``jobs`` is the
    number of worker processes, by default one for each processor and module. The bytes depend
    neither on ``jobs`` nor on what else is compiled before or at the same time. A module takes at
    most ``timeout`` seconds.

    All modules are compiled, even if one fails. Then raises CrtExportError, which names the modules
    that LLVM rejects, crashes on or doesn't finish, and the function if it can be found out. The
    text of these modules is written into the folder ``keep_failed``, if one is given. Raises
    ToolMissingError if llvmlite can't be imported.
    """
    if jobs is None:
        jobs = _processes(sum(len(text) > _SMALL for text in modules.values()))
    with compilation(
        modules.items(), target, optimize, llvm_options=llvm_options,
        jobs=jobs, timeout=timeout, keep_failed=keep_failed,
    ) as finish:
        return finish(_as_it_is)


def _as_it_is(_name: str, data: bytes) -> bytes:
    return data


def _processes(jobs: int) -> int:
    return max(min(jobs, os.cpu_count() or 1), 1)


@contextmanager
def compilation(
    modules: Iterable[tuple[str, str]], target: Target, optimize: str, *, jobs: int,
    llvm_options: Sequence[str] = (), timeout: float = TIMEOUT, keep_failed: Path | None = None,
    counted: Counted | None = None,
) -> Iterator[Callable[[Shape], dict[str, bytes]]]:
    """Runs :func:`compile_modules` in the background: yields a function that waits for the objects,
    applies a Shape to each, and raises the errors of :func:`compile_modules`. LLVM compiles the
    first modules while others are still being printed. When the context ends, modules that weren't
    begun are dropped."""
    if not 0 < timeout <= threading.TIMEOUT_MAX:
        raise CrtExportError(f"{timeout:g} seconds are no time to wait for LLVM")
    if jobs < 1:
        raise CrtExportError(f"{jobs} processes can't compile anything")
    options = check_options(parsed_options([("llvm_options", llvm_options)]))
    job = _Job(options, _request(target, optimize), timeout)
    texts: dict[str, str] = {}
    waiting: list[tuple[int, str]] = []  # a heap, first what has most instructions, one a line
    threads = ThreadPoolExecutor(jobs)

    def longest() -> tuple[str, bytes | CrtExportError]:
        _, name = heapq.heappop(waiting)
        return name, job.run(name, texts[name])

    try:
        tried = []
        for name, text in modules:
            texts[name] = text
            heapq.heappush(waiting, (-text.count("\n"), name))
            tried.append(threads.submit(longest))

        def finish(shape: Shape) -> dict[str, bytes]:
            made: dict[str, bytes] = {}
            failed: dict[str, CrtExportError] = {}
            for done, future in enumerate(as_completed(tried), 1):
                name, result = future.result()
                if counted is not None:
                    counted(done, len(tried))
                if isinstance(result, CrtExportError):
                    failed[name] = result
                else:
                    made[name] = shape(_object_name(name), result)
            if failed:
                failures = [failed[name] for name in texts if name in failed]
                raise _failure(failures, texts, job, keep_failed)
            return {_object_name(name): made[name] for name in texts}

        yield finish
    except (KeyboardInterrupt, Terminated):
        job.abandon()  # else the threads would wait for LLVM
        raise
    finally:
        threads.shutdown(cancel_futures=True)


def _object_name(module: str) -> str:
    return f"{Path(module).stem}.o"


def empty_object(target: Target) -> bytes:
    """Returns an object with an empty function: it has the headers of all objects for ``target``.
    """
    body = ["define void @f() #0 {", "  ret void", "}"]
    text = ModuleText(target, "size").text("empty.ll", (), body)
    return compile_modules({"empty.ll": text}, target, "size")["empty.o"]


def _request(target: Target, optimize: str) -> dict[str, str]:
    """Returns a module's target for workers, which have no other state."""
    return {
        "triple": normalized_triple(target), "cpu": target.cpu,
        "features": ",".join(target.features), "reloc": target.reloc, "abi": target.abi,
        "optimize": optimize,
    }


class _Job:
    """The settings that all modules of one export share."""

    def __init__(
        self, options: tuple[str, ...], request: Mapping[str, str], timeout: float
    ) -> None:
        self._options, self._request, self._timeout = options, request, timeout
        self._using: set[Worker] = set()
        self._abandoned = False

    def run(self, name: str, text: str) -> bytes | CrtExportError:
        """Returns the object of module ``name``, or the error, located there."""
        try:
            with POOL.worker(self._options) as worker, self._used(worker):
                return worker.compile(self._request, text, self._timeout)
        except CrtExportError as error:
            return error.within(name)

    @contextmanager
    def _used(self, worker: Worker) -> Iterator[None]:
        self._using.add(worker)
        try:
            if self._abandoned:
                raise CrashError("the compilation was abandoned")
            yield
        finally:
            self._using.discard(worker)

    def abandon(self) -> None:
        """Ends the processes that work on modules, whose results are no longer needed."""
        self._abandoned = True
        for worker in tuple(self._using):
            worker.end()


def _failure(
    failures: Sequence[CrtExportError], modules: Mapping[str, str], job: _Job,
    folder: Path | None,
) -> CrtExportError:
    """Returns one error for all of ``failures``: the first, with the names of the others in its
    hint."""
    if missing := next((e for e in failures if isinstance(e, ToolMissingError)), None):
        missing.location = ()
        return missing
    hints, texts = [], dict[str, str]()
    for error in failures:
        name, text = error.location[0], modules[error.location[0]]
        _find_function(error, name, text, job)
        if folder is not None:
            hints.append(f"its text is in {folder / _added(texts, error.location, text)}")
    first, *others = failures
    if folder is not None:
        hints = _kept(folder, texts) or hints
    if others:
        hints.append(
            f"{len(others)} more failed: " + ", ".join(" → ".join(e.location) for e in others)
        )
    first.hint = "; ".join(filter(None, (first.hint, *hints))) or None
    return first


def _find_function(error: CrtExportError, name: str, text: str, job: _Job) -> None:
    """Adds to the location of ``error`` the function that LLVM fails on, if LLVM didn't name it.
    Finds it by compiling each function separately.
    """
    if not isinstance(error, CrashError) or len(error.location) > 1:
        return
    for function in _DEFINITION.finditer(text):
        if isinstance(job.run(name, _only(function["name"], text)), CrashError):
            error.location = (*error.location, function["name"])
            return


def _added(texts: dict[str, str], location: Sequence[str], text: str) -> str:
    """Adds the module and, if the failing function is known, one in which all others are empty;
    returns the more specific of them."""
    stem = Path(location[0]).stem
    texts[name := f"{stem}.ll"] = text
    if len(location) > 1:
        texts[name := f"{stem}.{location[1]}.ll"] = _only(location[1], text)
    return name


def _kept(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Writes the modules of this run into ``folder`` and removes those of an earlier one; returns
    the reason where that fails."""
    files = {name: partial(_encoded, text) for name, text in texts.items()}
    try:
        lay_out(folder, Wanted("failed modules", files))
    except CrtExportError as error:
        return [f"LLVM's input can't be kept in {folder}: {error.problem}"]
    except OSError as error:
        return [f"LLVM's input can't be kept in {folder} ({error.strerror})"]
    return []


def _encoded(text: str) -> tuple[bytes]:
    return (text.encode(),)


def _only(name: str, text: str) -> str:
    """Returns ``text`` with one function visible and the bodies of all others emptied."""

    def replaced(function: re.Match[str]) -> str:
        if function["name"] == name:
            return function[0].replace("define internal ", "define ", 1)
        return f"{function['head']}\n  unreachable\n}}"

    return _DEFINITION.sub(replaced, text)
