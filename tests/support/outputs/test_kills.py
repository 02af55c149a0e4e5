"""Exporters that are killed while they write, and the LLVM of such: never half a package, and
nothing left once the next export is done."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crtexport.cli.main import main
from crtexport.mlf.reader import open_package
from crtexport.support.outputs import manifest
from tests.cli.support import DIGITS
from tests.helpers import ROOT
from tests.large.models import Large, Table

KILLS = int(os.environ.get("CRTEXPORT_KILLS", "6"))
"""Of exporters, by each signal; of their LLVM two thirds as many."""
WORKERS = KILLS * 2 // 3
MARK = "CRTEXPORT_TEST_MARK"
"""In the environment of an exporter and of all that it starts."""
WORKER = b"crtexport.backends.llvm.worker"

INTERRUPTIBLE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""Starts Python as a terminal does: where tests run in the background, shells ignore SIGINT."""


class Exporter:
    """A process that exports ``model`` into ``folder``, beside a folder for temporary files."""

    def __init__(self, model: Path, folder: Path, *options: str) -> None:
        self.folder, self.temporary = folder, folder.with_name(f"{folder.name}-tmp")
        folder.mkdir(exist_ok=True)
        self.temporary.mkdir(exist_ok=True)
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            (sys.executable, "-c", INTERRUPTIBLE, "-m", "crtexport", str(model),
             "-o", str(folder / "large.tar"), "--unpack", str(folder / "out"), "-q", *options),
            env={**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary),
                 "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def processes(self) -> list[int]:
        """The processes that it started."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def workers(self) -> list[int]:
        """Those of them that run LLVM, or will. Between vfork and exec a process looks like its
        parent, which can't handle any signal until then."""
        return [pid for pid in self.processes() if WORKER in arguments(pid)]

    def written(self) -> int:
        """The bytes that it has written so far; 0 once it has ended."""
        with contextlib.suppress(OSError):
            counted = Path(f"/proc/{self.process.pid}/io").read_text("ascii")
            return int(counted.partition("wchar: ")[2].split()[0])
        return 0

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said, once it and all that it started have ended."""
        _, said = self.process.communicate(timeout=300)
        deadline = time.monotonic() + 120
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.processes()
        return self.process.returncode, said


def arguments(pid: int) -> list[bytes]:
    """The command of a process; none where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def marked(mark: str) -> Iterator[int]:
    """Processes with ``mark`` in their environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)


def holdings(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes longer to write than to read and generate."""
    return Large((Table("t", 1, 4 << 10, 1024),)).write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], int]:
    """Returns what an export leaves that nobody kills, and the bytes that it writes."""
    folder, count = tmp_path_factory.mktemp("whole"), 0
    exporter = Exporter(model, folder, "--emit", "c")
    while exporter.process.poll() is None:
        count = max(count, exporter.written())
        time.sleep(0.001)
    assert exporter.end() == (0, "")
    open_package(folder / "large.tar")
    return holdings(folder), count


def look(folder: Path, whole: dict[str, bytes]) -> None:
    """Everything that has a name of ours is whole."""
    found = holdings(folder)
    assert found.get("large.tar", b"") in (b"", b"old", whole["large.tar"])
    unpacked = {name: text for name, text in found.items() if name.startswith("out/")}
    if unpacked:
        assert unpacked == {n: text for n, text in whole.items() if n.startswith("out/")}


def clean(folder: Path) -> None:
    """The next export into the folder leaves nothing but what belongs there."""
    assert main([str(DIGITS), "--emit", "c", "-q", "-o", str(folder / "next.tar")]) == 0
    assert {path.name for path in folder.iterdir()} <= {"large.tar", "out", "next.tar"}
    assert not [*(folder / "out").glob(".*")] or (folder / "out" / manifest.NAME).is_file()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_export_leaves_all_or_nothing(
    how: signal.Signals, model: Path, whole: tuple[dict[str, bytes], int], tmp_path: Path
) -> None:
    files, count = whole
    drawn = random.Random(how)  # noqa: S311
    # One in each part of what is written: that takes a moment, but to find out what, seconds.
    when = [count * (part + drawn.random()) / KILLS for part in range(KILLS)]

    def attempt(number: int) -> int:
        folder = tmp_path / str(number)
        folder.mkdir()
        if number % 2:
            (folder / "large.tar").write_bytes(b"old")
        exporter = Exporter(model, folder, "--emit", "c")
        while exporter.process.poll() is None and exporter.written() < when[number]:
            time.sleep(0.001)
        exporter.process.send_signal(how)
        code, said = exporter.end()
        look(folder, files)
        if how == signal.SIGTERM and code:
            assert (code, said) in ((143, "terminated\n"), (-signal.SIGTERM, ""))
            assert {path.name for path in folder.iterdir()} <= {"large.tar", "out"}
        else:
            assert code in (0, -how)
        assert not [*exporter.temporary.iterdir()]
        return code

    with ThreadPoolExecutor(2) as beside:
        codes = [*beside.map(attempt, range(KILLS))]
    assert any(codes), "or this test kills nothing"
    for number in range(KILLS):
        clean(tmp_path / str(number))


def test_an_export_whose_llvm_is_killed_leaves_nothing(tmp_path: Path) -> None:
    drawn = random.Random(7)  # noqa: S311
    waits = [drawn.uniform(0, 0.6) for _ in range(WORKERS)]

    def attempt(number: int) -> int:
        folder = tmp_path / str(number)
        exporter = Exporter(DIGITS, folder, "--emit", "llvm")
        while not exporter.workers() and exporter.process.poll() is None:
            time.sleep(0.01)
        time.sleep(waits[number])
        for worker in exporter.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        code, said = exporter.end()
        names = {path.name for path in folder.iterdir()}
        if code:
            assert code == 2
            assert "LLVM ended" in said
            assert "by signal SIGKILL" in said
            assert not names
        else:
            open_package(folder / "large.tar")
            assert names == {"large.tar", "out"}
        assert not [*exporter.temporary.iterdir()]
        return code

    with ThreadPoolExecutor(2) as beside:
        codes = [*beside.map(attempt, range(WORKERS))]
    assert any(codes), "or this test kills nothing"
    for number in range(WORKERS):
        clean(tmp_path / str(number))


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("wait", [0.25, 0.5, 1])
def test_an_export_ends_though_its_llvm_does_not_answer(
    wait: float, how: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Not at once: an exporter that is still starting a worker doesn't know it yet, which ends by
    itself when its pipe closes, but not while it is stopped."""
    exporter = Exporter(DIGITS, tmp_path / "out", "--emit", "llvm")
    while not exporter.workers():
        time.sleep(0.01)
    for worker in exporter.workers():
        os.kill(worker, signal.SIGSTOP)
    time.sleep(wait)
    exporter.process.send_signal(how)
    ended, said = exporter.end()
    assert (ended, said.strip()) == (code, "terminated" if code == 143 else "interrupted")
    assert not [*exporter.folder.iterdir(), *exporter.temporary.iterdir()]
