"""One command with one damaged file, watched: what it says, what it takes, which files it touches.

Everything that Python opens for writing, moves, links or removes is noted by an audit hook, which
can't be taken out of a process again; what other programs do is seen by looking at the files
around. The command's own folder for outputs, for temporary files and the user's cache are its own.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crtexport.cli.main import main
from tests.fuzz.cases import Case
from tests.fuzz.pool import Outcome

SECONDS = 20
MEMORY = 1 << 30
"""The limits of a command unless a sandbox is told otherwise."""
CODES = {0: "done", 1: "failed", 2: "refused", 3: "refused for want of a tool"}
"""Names of the ends that may be; all others are findings."""

_PRECIOUS = {"precious/notes.txt": b"mine", "precious/src/main.c": b"int x;\n"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = {
    "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.truncate": 1, "os.chmod": 1, "os.chown": 1,
    "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.utime": 1,
}
"""Events by name, and how many paths are their first arguments."""
_STARVED = re.compile("memory", re.IGNORECASE)


class Sandbox:
    """A folder ``root`` for attempts, one after the other, in this process: which from now on is
    good for nothing else."""

    def __init__(self, root: Path, memory: int = MEMORY) -> None:
        self.root, self.memory = root.resolve(), memory
        self._own = tuple(str(self.root / name) for name in ("out", "tmp", "cache"))
        self._touched: list[str] = []
        self._watching = False
        logging.disable()
        sys.dont_write_bytecode = True
        os.environ["TMPDIR"] = str(self.root / "tmp")
        os.environ["XDG_CACHE_HOME"] = str(self.root / "cache")
        # Programs that Python starts in a folder that isn't there any more find what it has, too.
        if paths := os.environ.get("PYTHONPATH"):
            os.environ["PYTHONPATH"] = os.pathsep.join(
                str(Path(path).resolve()) for path in paths.split(os.pathsep)
            )
        tempfile.tempdir = None  # which remembers where its files were
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "said").touch()
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and (flags or 0) & _WRITING:
                self._note(event, path)
        elif event in _EVENTS:
            for path in arguments[_EVENTS[event] - 1 : _EVENTS[event]]:
                self._note(event, path)
            if event == "os.rename":
                self._note(event, arguments[0])

    def _note(self, event: str, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        text = os.fsdecode(path)
        # What links lead to counts, but not the last part of what is replaced or removed.
        folder, name = os.path.split(os.path.abspath(text))  # noqa: PTH100
        real = os.path.realpath(text) if event == "open" else (
            str(Path(os.path.realpath(folder), name))
        )
        if real.startswith(("/dev/", "/proc/")):
            return
        if not any(real == own or real.startswith(own + "/") for own in self._own):
            self._touched.append(f"{event} {real}")

    def attempt(self, case: Case) -> Outcome:
        """Gives the case to its command, and says what came of it."""
        os.chdir(self.root)  # out of what is removed now
        self._prepare(case)
        before = self._around()
        os.chdir(self.root / "out")
        _forget_peak()
        start = time.monotonic()
        code, said = self._run(case.arguments)
        seconds, nbytes = time.monotonic() - start, _peak()
        finding = self._judged(code, said, nbytes, before)
        if seconds > SECONDS:
            finding = finding or "slow"
        if finding.startswith("internal"):
            code, said = self._run((*case.arguments, "--debug"))
            finding = f"internal error{_place(said)}"
        reached = CODES.get(code, f"exit {code}")
        detail = "\n".join((" ".join(case.arguments), said[-3000:], *self._touched))
        return Outcome(
            f"{case.kind} {reached}", f"{case.kind}: {finding}" if finding else "",
            detail if finding else "", seconds, nbytes,
        )

    def _judged(
        self, code: int, said: str, nbytes: int, before: dict[str, tuple[int, ...]]
    ) -> str:
        """Returns what mustn't be; nothing if all is well."""
        if "Traceback (most recent call last)" in said:
            return f"traceback{_place(said)}"
        if code not in CODES:
            return f"internal error, exit {code}"
        if self._touched:
            return f"touched {self._touched[0].split()[0]}"
        if self._around() != before:
            return "another program touched files"
        if nbytes > self.memory:
            return "memory"
        if code and _STARVED.search(said) and "enough" in said:
            return "out of memory"
        return ""

    def _run(self, arguments: tuple[str, ...]) -> tuple[int, str]:
        told = [
            a.replace("{in}", str(self.root / "in")).replace("{out}", str(self.root / "out"))
            for a in arguments
        ]
        self._touched.clear()
        with _caught(self.root / "said") as said:
            self._watching = True
            try:
                code = main(told)
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                self._watching = False
            sys.stdout.flush()
            return code, said()

    def _prepare(self, case: Case) -> None:
        for name in ("in", "out", "tmp", "cache", "precious"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            (self.root / name).mkdir(parents=True)
        inputs = {f"in/{name}": content for name, content in case.files.items()}
        for name, content in {**inputs, **_PRECIOUS}.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if case.linked:
            folder = self.root / "out" / "folder"
            folder.mkdir()
            (folder / "src").symlink_to(self.root / "precious" / "src")
            (folder / "include").symlink_to(self.root / "precious")

    def _around(self) -> dict[str, tuple[int, ...]]:
        """All that lies beside what is the command's own: kind, size and time."""
        found = {}
        for name in ("in", "precious"):
            for path in (self.root / name).rglob("*"):
                status = path.lstat()
                found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
        for path in (*self.root.iterdir(), *self.root.parent.iterdir()):
            found[str(path)] = (path.lstat().st_mode,)
        return found


@contextmanager
def _caught(path: Path) -> Iterator[Callable[[], str]]:
    """Returns what this process and those that it starts say, on both streams."""
    kept = os.dup(1), os.dup(2), sys.stdout, sys.stderr
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(target, 1)
    os.dup2(target, 2)
    sys.stdout = sys.stderr = os.fdopen(target, "w", encoding="utf-8", errors="replace")
    try:
        yield lambda: path.read_text(encoding="utf-8", errors="replace")
    finally:
        sys.stdout.close()
        sys.stdout, sys.stderr = kept[2:]
        for number, stream in enumerate(kept[:2], 1):
            os.dup2(stream, number)
            os.close(stream)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak() -> int:
    """The most memory that this process, or the largest of those that ended, has taken."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    mine = re.search(r"VmHWM:\s+(\d+) kB", status)
    others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(int(mine[1]) if mine else 0, others) << 10


def _place(said: str) -> str:
    """The innermost place in the program and the error, which tell findings apart."""
    frames = re.findall(r'File "[^"]*crtexport/([\w/]+\.py)", line (\d+)', said)
    errors = re.findall(r"^(\w+(?:Error|Exception|Interrupt)\b)", said, re.MULTILINE)
    place = f" in {frames[-1][0]}:{frames[-1][1]}" if frames else ""
    return f"{place} ({errors[-1]})" if errors else place
