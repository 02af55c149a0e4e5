"""The record of packages that were exported here, and its users."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import crtexport
from crtexport.cli.main import main
from crtexport.mlf import marks
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS, exported
from tests.helpers import ROOT
from tests.trust.repack import repacked


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a cache of its own, and a process that has exported nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(marks, "_here", set())
    return tmp_path / "cache" / "crtexport" / "exported"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on it is another process."""
    monkeypatch.setattr(marks, "_here", set())


def here(package: Path) -> bool:
    return marks.exported_here(open_package(package))


def test_another_process_simulates_what_was_exported_here(
    tmp_path: Path, cache: Path
) -> None:
    package = exported(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "crtexport", "simulate", str(package), "-q"]
    subprocess.run(command, env=environment, check=True)
    cache.unlink()
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "was not exported on this computer" in done.stderr
    assert "--trust-package" in done.stderr
    subprocess.run([*command, "--trust-package"], env=environment, check=True)


def test_a_copy_is_as_good_as_the_package_and_a_changed_one_is_not(
    tmp_path: Path, cache: Path
) -> None:
    package = exported(tmp_path)
    copy = tmp_path / "copy.tar"
    copy.write_bytes(package.read_bytes())
    crtexport.simulate(copy)
    with pytest.raises(CrtExportError, match="was not exported on this computer"):
        crtexport.simulate(repacked(package, copy))
    assert crtexport.simulate(copy, trust_package=True)
    with pytest.raises(CrtExportError, match="was not exported on this computer"):
        crtexport.simulate_all(copy)
    assert crtexport.simulate_all(copy, trust_package=True)


def test_without_a_cache_this_process_keeps_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    for variables in ({"XDG_CACHE_HOME": str(tmp_path / "file" / "cache")}, {}):
        (tmp_path / "file").write_text("")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.delenv("HOME", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        forget(monkeypatch)
        package = exported(tmp_path)
        assert crtexport.simulate(package)
        forget(monkeypatch)
        assert not here(package)


def test_a_relative_cache_is_none_and_the_home_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    package = exported(tmp_path)
    forget(monkeypatch)
    assert here(package)
    assert (tmp_path / "home" / ".cache" / "crtexport" / "exported").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("how", ["writable by others", "a link", "a pipe", "a folder"])
def test_a_file_that_others_may_have_made_says_nothing(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    package = exported(tmp_path)
    moved = cache.rename(tmp_path / "moved")
    match how:
        case "writable by others":
            cache.write_bytes(moved.read_bytes())
            cache.chmod(0o666)
        case "a link":
            cache.symlink_to(moved)
        case "a pipe":
            os.mkfifo(cache)
        case _:
            cache.mkdir()
    forget(monkeypatch)
    assert not here(package)
    marks.remember(b"another")
    assert moved.stat().st_size == 65


def test_the_file_keeps_the_newest_and_stays_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    monkeypatch.setattr(marks, "_MOST", 8)
    for number in range(50):
        marks.remember(b"%d" % number)
        marks.remember(b"%d" % number)
        assert cache.stat().st_size <= 8 * 65
    package = exported(tmp_path)
    with cache.open("ab") as stream:
        stream.write(b"cut o")
    marks.remember(b"one more")
    forget(monkeypatch)
    assert here(package)
    assert cache.stat().st_size % 65 == 0


def test_export_and_run_in_one_command_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = tmp_path / "mine.yaml"
    board.write_text("name: mine\ndescription: d\nextends: host\n")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    words = [str(DIGITS), "--board", str(board), "--emit", "c", "-o", str(tmp_path / "m.tar")]
    assert main([*words, "--run"]) == 0
    assert "bytes of stack" in capsys.readouterr().out
