"""A shortage of the system is no defect of crtexport: the error names it."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from crtexport.backends.llvm.pool import POOL
from crtexport.cli.main import main
from crtexport.support.shortage import ShortageError, shortage
from tests.cli.support import DIGITS, exported
from tests.helpers import ROOT
from tests.support.outputs.test_folders import state

EXPORT = [str(DIGITS), "-q", "-o", "x.tar", "--emit"]


def limited(limit: int, value: int, folder: Path, emit: str) -> tuple[int, str]:
    """:func:`under` for an export."""
    return under(limit, value, folder, [*EXPORT, emit])


def under(limit: int, value: int, folder: Path, words: list[str]) -> tuple[int, str]:
    """A command's exit code and words under a limit of the system's."""
    done = subprocess.run(
        (sys.executable, "-m", "crtexport", *words), cwd=folder, text=True,
        capture_output=True, check=False, env={
            **os.environ, "PYTHONPATH": str(ROOT),
            # Python 3.11 would keep a module's code that a limit on sizes cut off.
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        preexec_fn=lambda: resource.setrlimit(limit, (value, value)),
    )
    return done.returncode, done.stderr


def right(code: int, said: str, words: str, folder: Path) -> None:
    assert code in (2, 3), said
    assert re.search(words, said), said
    assert "defect" not in said
    assert "Traceback" not in said
    assert not [*folder.iterdir()]


def test_too_little_memory_is_named(tmp_path: Path) -> None:
    size, codes = 48 << 20, []
    while not codes or codes[-1]:
        code, said = limited(resource.RLIMIT_AS, size, tmp_path, "llvm")
        codes.append(code)
        if code:
            right(code, said, "ulimit -v", tmp_path)
            assert "pip install" not in said
        size = size * 3 // 2
        assert size < 1 << 33
    assert len(codes) > 1


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_too_few_open_files_are_named(emit: str, tmp_path: Path) -> None:
    codes = []
    for count in range(5, 16):  # with fewer, Python itself doesn't start
        code, said = limited(resource.RLIMIT_NOFILE, count, tmp_path, emit)
        codes.append(code)
        if not code:
            break
        right(code, said, "ulimit -n", tmp_path)
    assert codes[0] or emit == "c"
    assert not codes[-1]


@pytest.mark.parametrize("words", [
    [*EXPORT, "c"], ["unpack", "k.tar", "out", "-q"],
    ["convert", str(DIGITS), "-o", "m.json", "-q"],
    ["simulate", "k.tar", "--output", "y.npz", "-q"],
], ids=lambda words: words[0] if words[0] != str(DIGITS) else "export")
def test_a_full_disk_leaves_everything_as_it_was(words: list[str], tmp_path: Path) -> None:
    exported(tmp_path).rename(tmp_path / "k.tar")
    (tmp_path / "out").mkdir()
    for name in ("x.tar", "m.json", "y.npz", "out/notes"):
        (tmp_path / name).write_text("precious")
    before = state(tmp_path)
    code, said = under(resource.RLIMIT_FSIZE, 200, tmp_path, words)
    assert (code, "too large" in said) == (2, True), said
    assert state(tmp_path) == before


def reading(folder: Path, done: multiprocessing.connection.Connection) -> None:
    """An export of somebody who may write nothing into the folder."""
    os.chdir(folder)
    if os.getuid() == 0:  # who may write everywhere
        os.setuid(65534)
    done.send([main([*EXPORT, "c"]), main([str(DIGITS), "-q", "--emit", "c", "--depfile", "x.d"])])


def test_a_folder_that_is_read_only_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(DIGITS), "-q", "--emit", "c", "-o", str(tmp_path / "x.tar")]) == 0
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=reading, args=(folder, theirs))
    child.start()
    child.join(60)
    assert ours.poll()
    assert ours.recv() == [2, 2]
    assert capfd.readouterr().err.count("the folder can't be written") == 2
    assert not [*folder.iterdir()]


def alone(folder: Path, done: multiprocessing.connection.Connection) -> None:
    """An export of somebody who may start no process."""
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if os.getuid() == 0:  # who may start as many as there can be
        os.setuid(65534)
    done.send(main([*EXPORT, "llvm"]))


def test_no_further_process_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "-q", "--emit", "llvm", "-o", str(tmp_path / "x.tar")]) == 0
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=alone, args=(folder, theirs))
    child.start()
    child.join(60)
    assert ours.poll()
    right(ours.recv(), capfd.readouterr().err, "process", folder)


def refuse(error: Exception) -> Callable[..., None]:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


@pytest.mark.parametrize(("error", "words"), [
    (BlockingIOError(11, "Resource temporarily unavailable"), "starts no further process"),
    (OSError(12, "Cannot allocate memory"), "too little memory"),
    (OSError(24, "Too many open files"), "too many files are open"),
])
def test_a_failing_fork_is_named(
    error: OSError, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    POOL.close()
    monkeypatch.setattr(subprocess, "Popen", refuse(error))
    monkeypatch.chdir(tmp_path)
    code = main([*EXPORT, "llvm"])
    right(code, capsys.readouterr().err, words, tmp_path)


def test_a_thread_that_does_not_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(threading.Thread, "start", refuse(RuntimeError("can't start new thread")))
    code = main([*EXPORT, "llvm"])
    right(code, capsys.readouterr().err, "starts no further process or thread", tmp_path)


LONG = "a" * 300


@pytest.mark.parametrize("words", [
    [LONG], ["export", LONG], [str(DIGITS), "--board", LONG],
    [str(DIGITS), "--board", f"{LONG}.yaml"], [str(DIGITS), "--board", "board.yaml"],
    [str(DIGITS), "-o", LONG], [str(DIGITS), "--depfile", f"x/{LONG}"],
    [str(DIGITS), "--emit", "c", "--unpack", LONG], ["inspect", LONG], ["unpack", LONG, "x"],
    ["run", LONG], ["simulate", LONG], ["boards", LONG], ["convert", str(DIGITS), "-o", LONG],
    ["zephyr", "board", LONG], ["bench", LONG, "--board", "host"], ["verify", LONG],
], ids=lambda words: " ".join(words).replace(LONG, "LONG").replace(str(DIGITS), DIGITS.name))
def test_names_too_long_for_the_file_system_are_the_users(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "board.yaml").write_text(f"extends: {LONG}\nname: x\ndescription: x\n")
    assert main(words) in (2, 3)
    said = capsys.readouterr().err
    assert "defect" not in said
    assert re.search("too long|no board|no such file|No such file", said), said


@pytest.mark.parametrize("line", [
    f"toolchain: {{compiler: [{LONG}]}}", f"toolchain: {{compiler: [/{LONG}/cc]}}",
    f"runner: {{kind: qemu, command: [{LONG}], package: x}}",
])
def test_names_too_long_inside_a_board_are_the_users(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "board.yaml").write_text(
        f"extends: mps2_an386\nname: board\ndescription: x\n{line}\n"
    )
    words = [str(DIGITS), "--board", "board.yaml", "-q", "--run"]
    assert main(words) in (2, 3)
    said = capsys.readouterr().err
    assert "defect" not in said
    assert LONG[:100] in said


def test_nothing_else_is_a_shortage() -> None:
    assert shortage(KeyError("x")) is None
    assert shortage(RuntimeError("a reason")) is None
    assert shortage(FileNotFoundError(2, "No such file or directory")) is None
    inner = ImportError("x")
    inner.__cause__ = MemoryError()
    assert isinstance(shortage(inner), ShortageError)
