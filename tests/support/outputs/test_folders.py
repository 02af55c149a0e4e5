"""Files laid out in folders that have others: precious ones, links to such, and changed ones."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from crtexport.support.errors import CrtExportError
from crtexport.support.outputs import manifest
from crtexport.support.outputs.folders import Wanted, lay_out, settle
from crtexport.support.outputs.tree import Tree

FIRST = {"src/a.c": "a", "src/gone.c": "gone", "include/tvm/x.h": "x"}
SECOND = {"src/a.c": "A", "src/new/b.c": "b", "include/tvm/x.h": "x"}


def wanted(files: Mapping[str, str], **others: tuple[str, ...]) -> Wanted:
    def content(text: str) -> Callable[[], tuple[bytes]]:
        return lambda: (text.encode(),)

    return Wanted("unpack", {name: content(text) for name, text in files.items()}, **others)


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file, link and folder but the manifest, with content and time."""
    return {
        path.relative_to(folder).as_posix(): (
            f"to {path.readlink()}" if path.is_symlink()
            else "folder" if path.is_dir() else path.read_text("latin-1"),
            0 if path.is_dir() else path.lstat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*")) if path.name != manifest.NAME
    }


def texts(folder: Path) -> dict[str, str]:
    return {name: text for name, (text, _) in state(folder).items() if text != "folder"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of ours in which the user has put something, too."""
    path = tmp_path / "out"
    lay_out(path, wanted(FIRST, folders=("lib",)))
    (path / "src" / "mine.c").write_text("precious")
    (path / "notes.txt").write_text("precious")
    (tmp_path / "beside.txt").write_text("precious")
    return path


def test_what_is_wanted_no_more_goes_and_what_is_the_users_stays(folder: Path) -> None:
    before = state(folder)
    paths = lay_out(folder, wanted(SECOND))
    assert paths == tuple(sorted(folder / name for name in SECOND))
    assert texts(folder) == {**SECOND, "src/mine.c": "precious", "notes.txt": "precious"}
    after = state(folder)
    for name in ("src/mine.c", "notes.txt", "include/tvm/x.h"):
        assert after[name] == before[name]
    assert (folder.parent / "beside.txt").read_text() == "precious"


def test_a_folder_that_was_emptied_goes_but_not_one_that_is_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    lay_out(folder, wanted({"lib/deep/x.o": "x", "lib/y.o": "y"}, folders=("lib",)))
    lay_out(folder, wanted({}, folders=("lib",)))
    assert state(folder) == {"lib": ("folder", 0)}


def test_a_changed_file_is_neither_removed_nor_replaced(folder: Path) -> None:
    (folder / "src" / "gone.c").write_text("changed")
    lay_out(folder, wanted(SECOND))
    assert (folder / "src" / "gone.c").read_text() == "changed"
    (folder / "src" / "a.c").write_text("changed")
    before = state(folder)
    with pytest.raises(CrtExportError, match=r"would be replaced: src/a\.c"):
        lay_out(folder, wanted(FIRST))
    assert state(folder) == before


def test_files_of_others_are_replaced_by_force_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "src").mkdir(parents=True)
    for number in range(7):
        (folder / "src" / f"{number}.c").write_text("precious")
    new = {f"src/{number}.c": "new" for number in range(7)}
    before = state(folder)
    with pytest.raises(CrtExportError, match=r"src/4\.c and 2 more") as caught:
        lay_out(folder, wanted(new))
    assert "--force" in str(caught.value)
    assert state(folder) == before
    lay_out(folder, wanted(new), force=True)
    assert texts(folder) == new
    lay_out(folder, wanted({"src/0.c": "newer"}))
    assert texts(folder) == {"src/0.c": "newer"}


def test_an_equal_file_of_the_users_stays_theirs(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("x")
    lay_out(tmp_path, wanted({"x.c": "x"}))
    lay_out(tmp_path, wanted({}))
    assert texts(tmp_path) == {"x.c": "x"}


@pytest.mark.parametrize("name", ["src", "src/a.c", "include/tvm"])
@pytest.mark.parametrize("force", [False, True])
def test_links_are_never_followed(name: str, force: bool, tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "out"
    (precious / "new").mkdir(parents=True)
    for path in ("a.c", "gone.c", "x.h", "new/b.c"):
        (precious / path).write_text("precious")
    lay_out(folder, wanted(FIRST))
    own = folder / name
    if own.is_dir():
        own.rename(tmp_path / "moved")
    else:
        own.unlink()
    own.symlink_to(precious / "a.c" if name.endswith(".c") else precious)
    before, inside = state(precious), state(folder)
    if force and name.endswith(".c"):  # the link itself is replaced
        lay_out(folder, wanted(SECOND), force=True)
        assert not own.is_symlink()
    else:
        with pytest.raises(CrtExportError, match=r"symbolic link|would be replaced: src/a\.c"):
            lay_out(folder, wanted(SECOND), force=force)
        assert state(folder) == inside
    assert state(precious) == before


def test_a_link_to_the_folder_itself_is_what_the_user_named(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    lay_out(tmp_path / "link", wanted(FIRST))
    assert texts(tmp_path / "real") == FIRST
    assert (tmp_path / "link").is_symlink()


def test_a_folder_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "src" / "a.c").mkdir(parents=True)
    (tmp_path / "src" / "a.c" / "notes").write_text("precious")
    with pytest.raises(CrtExportError, match="a file belongs here"):
        lay_out(tmp_path, wanted(FIRST), force=True)
    assert texts(tmp_path) == {"src/a.c/notes": "precious"}


@pytest.mark.parametrize("names", ["../x", "/x", "src/../../x", "a//b", "."])
def test_no_name_leads_out(names: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("precious")
    out = tmp_path / "out"
    with pytest.raises(CrtExportError, match="leads out of the folder"):
        lay_out(out, wanted({names: "new"}))
    lay_out(out, wanted({}, folders=("src",)))
    listed = {"format": "crtexport-manifest", "version": 1, "folders": {},
              "files": {names: {"part": "unpack", "sha256": "0"}}}
    (out / manifest.NAME).write_text(json.dumps(listed))
    with pytest.raises(CrtExportError, match="names that lead out"):
        lay_out(out, wanted({}))
    assert texts(tmp_path)["x"] == "precious"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"format": "other"}'])
def test_a_damaged_manifest_is_refused(text: str, folder: Path) -> None:
    (folder / manifest.NAME).write_text(text)
    before = state(folder)
    with pytest.raises(CrtExportError, match="the manifest of this folder"):
        lay_out(folder, wanted(SECOND))
    assert state(folder) == before


def test_a_read_only_folder_that_has_everything_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tree, "create", pytest.fail)
    lay_out(folder, wanted(FIRST))


def test_two_writers_keep_out_of_each_others_way(folder: Path) -> None:
    def content() -> tuple[bytes]:
        with pytest.raises(CrtExportError, match="another process is writing"):
            lay_out(folder, wanted(FIRST))
        return (b"z",)

    lay_out(folder, Wanted("unpack", {"z": content}))
    assert texts(folder)["z"] == "z"


# ---- what tools make --------------------------------------------------------------------------

PRODUCTS = {"made": ("app.elf",), "own_folders": ("build",)}


def test_files_of_tools_are_replaced_until_they_are_changed(tmp_path: Path) -> None:
    lay_out(tmp_path, wanted({"Makefile": "all:"}, **PRODUCTS))
    (tmp_path / "app.elf").write_text("half")
    lay_out(tmp_path, wanted({"Makefile": "all:"}, **PRODUCTS))  # the first never ended
    (tmp_path / "app.elf").write_text("whole")
    (tmp_path / "build").mkdir()
    settle(tmp_path)
    lay_out(tmp_path, wanted({"Makefile": "all:"}, **PRODUCTS))
    settle(tmp_path)
    (tmp_path / "app.elf").write_text("precious")
    with pytest.raises(CrtExportError, match=r"would be replaced: app\.elf"):
        lay_out(tmp_path, wanted({"Makefile": "new"}, **PRODUCTS))
    assert texts(tmp_path) == {"Makefile": "all:", "app.elf": "precious"}


@pytest.mark.parametrize("name", ["app.elf", "build/x.o"])
def test_tools_get_nothing_that_was_there_before(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    before = state(tmp_path)
    with pytest.raises(CrtExportError, match="would be replaced"):
        lay_out(tmp_path, wanted({"Makefile": "all:"}, **PRODUCTS))
    assert state(tmp_path) == before


# ---- all or nothing ---------------------------------------------------------------------------

CHANGES = ("create", "move", "remove", "make_folder")


def interrupted(monkeypatch: pytest.MonkeyPatch, at: int, stop: Callable[[], None]) -> list[int]:
    """Every change of a folder counts; before number ``at``, ``stop`` is called."""
    done = [0]
    for name in CHANGES:
        monkeypatch.setattr(Tree, name, counting(getattr(Tree, name), done, at, stop))
    return done


def counting(
    really: Callable[..., object], done: list[int], at: int, stop: Callable[[], None]
) -> Callable[..., object]:
    def change(tree: Tree, *names: str) -> object:
        done[0] += 1
        if done[0] == at:
            stop()
        return really(tree, *names)

    return change


def changes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    with monkeypatch.context() as patched:
        done = interrupted(patched, 0, lambda: None)
        lay_out(folder, wanted(SECOND))
    lay_out(folder, wanted(FIRST))
    return done[0]


def test_a_failure_at_any_point_puts_everything_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    count, before = changes(monkeypatch, folder), state(folder)
    assert count > 15
    for at in range(1, count + 1):
        with monkeypatch.context() as patched:
            interrupted(patched, at, stop)
            with pytest.raises(KeyboardInterrupt):
                lay_out(folder, wanted(SECOND))
        assert state(folder) == before, at


def test_after_a_kill_at_any_point_the_next_run_finds_a_whole_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, before = changes(monkeypatch, folder), state(folder)
    for at in range(1, count + 1):
        with monkeypatch.context() as patched:
            interrupted(patched, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
            child = multiprocessing.get_context("fork").Process(
                target=lay_out, args=(folder, wanted(SECOND))
            )
            child.start()
            child.join()
        assert child.exitcode == -signal.SIGKILL
        lay_out(folder, wanted(FIRST))
        assert {name: text for name, (text, _) in state(folder).items()} == {
            name: text for name, (text, _) in before.items()
        }, at


def test_what_is_changed_after_a_kill_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = changes(monkeypatch, folder)
    with monkeypatch.context() as patched:
        interrupted(patched, count, lambda: os.kill(os.getpid(), signal.SIGKILL))
        child = multiprocessing.get_context("fork").Process(
            target=lay_out, args=(folder, wanted(SECOND))
        )
        child.start()
        child.join()
    assert (folder / "src" / "a.c").read_text() == "A"
    (folder / "src" / "a.c").write_text("precious")
    with pytest.raises(CrtExportError, match=r"would be replaced: src/a\.c"):
        lay_out(folder, wanted(FIRST))
    assert (folder / "src" / "a.c").read_text() == "precious"


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> tuple[bytes]:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        lay_out(tmp_path / "a" / "b", Wanted("unpack", {"x": lambda: (b"x",), "y": broken}))
    assert not list(tmp_path.iterdir())
    lay_out(tmp_path / "a" / "b", wanted(FIRST))
    assert texts(tmp_path / "a" / "b") == FIRST
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
