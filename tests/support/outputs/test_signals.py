"""Signals at each line of what writes outputs: all or nothing, and never another exception."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from crtexport.support.errors import Terminated
from crtexport.support.outputs import folders, signals, single, tree
from crtexport.support.outputs.folders import Wanted, lay_out
from crtexport.support.outputs.single import replacing

WATCHED = {module.__file__ for module in (folders, signals, single, tree)}


def terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


@contextlib.contextmanager
def handled(number: signal.Signals, handler: object) -> Iterator[None]:
    before = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(number, before)


def interrupted(action: Callable[[], object], at: int) -> bool:
    """Runs ``action``, sends SIGTERM to this process before line ``at`` that it comes through, and
    returns whether there was one. Any exception but Terminated is a defect."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            count += 1
            if count == at + 1:
                signal.raise_signal(signal.SIGTERM)
        return trace

    with handled(signal.SIGTERM, terminate):
        before = sys.gettrace()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            action()
        except Terminated:
            pass
        finally:
            sys.settrace(before)
        assert signal.getsignal(signal.SIGTERM) is terminate
    return count > at


def holdings(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}


def wanted(text: bytes) -> Wanted:
    return Wanted("part", {"a.c": lambda: (text, text), "in/b.c": lambda: (b"b",)}, ("empty",))


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize("there", [False, True])
def test_a_signal_at_any_line_leaves_a_folder_as_before_or_as_wanted(
    there: bool, tmp_path: Path
) -> None:
    old: dict[str, bytes] = {}
    if there:
        lay_out(tmp_path / "before", wanted(b"old"))
        old = holdings(tmp_path / "before")
    lay_out(tmp_path / "after", wanted(b"new"))
    new = holdings(tmp_path / "after")
    seen, at = set(), 0
    files = open_files()
    while True:
        place = tmp_path / str(at)
        place.mkdir()
        folder = place / "out"
        if there:
            lay_out(folder, wanted(b"old"))
        if not interrupted(lambda folder=folder: lay_out(folder, wanted(b"new")), at):  # type: ignore[misc]
            break
        found = holdings(folder)
        assert found in (old, new), at
        assert folder.exists() or not there
        assert {path.name for path in place.iterdir()} <= {"out"}
        seen.add(found == new)
        at += 1
    assert seen == {False, True}
    assert open_files() <= files + 2  # those that were being opened just then


# A file that was being opened is closed with its object.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_signal_at_any_line_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, seen, at = tmp_path / "file", set(), 0
    path.write_bytes(b"old")

    def write() -> None:
        with replacing(path) as stream:
            stream.write(b"new")

    while interrupted(write, at):
        assert path.read_bytes() in (b"old", b"new")
        assert [*tmp_path.iterdir()] == [path]
        seen.add(path.read_bytes())
        path.write_bytes(b"old")
        at += 1
    assert seen == {b"old", b"new"}


def test_signals_that_the_program_ignores_stay_ignored(tmp_path: Path) -> None:
    with handled(signal.SIGTERM, signal.SIG_IGN):
        with signals.held() as let_through:
            signal.raise_signal(signal.SIGTERM)
            let_through()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_a_long_file_can_be_interrupted_while_it_is_written(tmp_path: Path) -> None:
    def endless() -> Iterator[bytes]:
        signal.raise_signal(signal.SIGTERM)
        while True:
            yield b"."

    with handled(signal.SIGTERM, terminate), pytest.raises(Terminated):
        lay_out(tmp_path / "out", Wanted("part", {"a.c": endless}))
    assert not [*tmp_path.iterdir()]
