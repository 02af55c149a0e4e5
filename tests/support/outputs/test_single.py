"""Files that appear whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from crtexport.support.outputs import single
from crtexport.support.outputs.single import replacing


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def _interrupted(path: Path) -> None:
    with replacing(path) as stream:
        stream.write(b"new")
        raise KeyboardInterrupt


def test_what_was_there_stays_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        _interrupted(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_and_devices_keep_their_places(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, problem in (("folder", "Is a directory"), ("pipe", "Not a regular file")):
        with pytest.raises(OSError, match=problem), replacing(tmp_path / name):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


# ---- killed writers ---------------------------------------------------------------------------

CALLS = ("link", "replace", "unlink", "write")


def killed(monkeypatch: pytest.MonkeyPatch, path: Path, call: str, *, after: bool) -> bool:
    """Writes in a process that kills itself before or ``after`` the first such call; returns
    whether it came so far."""
    def write() -> None:
        with replacing(path) as stream:
            if call == "write" and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            stream.write(b"new")
            stream.flush()
            if call == "write":
                os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        if call != "write":
            really = getattr(os, call)

            def stop(*names: str, **options: int) -> None:
                if after:
                    really(*names, **options)
                os.kill(os.getpid(), signal.SIGKILL)

            patched.setattr(os, call, stop)
        child = multiprocessing.get_context("fork").Process(target=write)
        child.start()
        child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


@pytest.fixture(params=["unnamed", "named"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With files without a name, and where there are none."""
    if request.param == "named":
        monkeypatch.setattr(single, "_UNNAMED", 0)
    return str(request.param)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("old", [None, b"old"])
def test_what_a_killed_writer_left_is_gone_after_the_next(
    system: str, old: bytes | None, call: str, after: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    mine = tmp_path / ".crtexport-mine.tmp"
    mine.write_text("precious")
    ended = not killed(monkeypatch, path, call, after=after)
    there = path.read_bytes() if path.exists() else None
    assert there in (old, b"new")
    assert not ended or there == b"new"
    if system == "unnamed" and (old is None or call == "write"):
        assert {*tmp_path.iterdir()} <= {path, mine}
    with replacing(tmp_path / "other") as stream:
        stream.write(b"other")
    assert {*tmp_path.iterdir()} - {path} == {tmp_path / "other", mine}
    assert mine.read_text() == "precious"


def test_a_writer_that_lives_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single, "_UNNAMED", 0)
    with replacing(tmp_path / "one") as stream:
        stream.write(b"one")
        with replacing(tmp_path / "two") as other:
            other.write(b"two")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "one": b"one", "two": b"two"
    }


def test_a_link_is_replaced_and_what_it_leads_to_stays(system: str, tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_text("precious")
    for target in ("precious", "nowhere"):
        link.symlink_to(target)
        with replacing(link) as stream:
            stream.write(b"new")
        assert link.read_bytes() == b"new"
        link.unlink()
    assert precious.read_text() == "precious"
    assert [*tmp_path.iterdir()] == [precious]


def test_others_may_read_what_is_written(system: str, tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    with replacing(tmp_path / "file"):
        pass
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode
