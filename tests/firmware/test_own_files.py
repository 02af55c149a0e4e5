"""Projects are built among the user's files: those stay as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import crtexport
from crtexport.firmware.board import load_board
from crtexport.firmware.package import parts_from_package
from crtexport.firmware.zephyr.application import write_application
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs import manifest
from tests.cli.support import exported
from tests.support.outputs.test_folders import state


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("package"))


@pytest.mark.parametrize("name", [
    "Makefile", "firmware/main.c", "build/notes.txt", "build/model/digits_lib0.o",
    "model/digits_lib0.c", "include/tvm/runtime/c_runtime_api.h", "firmware.elf",
])
@pytest.mark.parametrize("link", [False, True])
def test_a_project_replaces_nothing_that_was_there(
    name: str, link: bool, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, behind = tmp_path / "folder", tmp_path / "behind"
    path = folder / name
    path.parent.mkdir(parents=True)
    if link:
        behind.write_text("precious")
        path.symlink_to(behind)
    else:
        path.write_text("precious")
    before = state(tmp_path)
    monkeypatch.chdir(folder)
    with pytest.raises(CrtExportError, match="would be replaced: (build|" + name + ")"):
        crtexport.build(package, ".")
    assert state(tmp_path) == before


def test_a_folder_behind_a_link_is_not_built_in(package: Path, tmp_path: Path) -> None:
    (tmp_path / "behind").mkdir()
    (tmp_path / "behind" / "main.c").write_text("precious")
    for name in ("firmware", "build"):
        folder = tmp_path / f"with {name}"
        folder.mkdir()
        (folder / name).symlink_to("../behind")
        for force in (False, True):
            before = state(tmp_path)
            with pytest.raises(CrtExportError, match=r"symbolic link|would be replaced"):
                crtexport.build(package, folder, force=force)
            assert state(tmp_path) == before


def test_a_project_is_built_again_beside_the_users_files(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    first = crtexport.build(package, folder)
    for name in ("notes.txt", "firmware/notes.c", "build/notes.txt", "build/model/notes.o"):
        (folder / name).write_text("precious")
    before = state(folder)
    again = crtexport.build(package, folder)
    assert again.sections == first.sections
    after = state(folder)
    for name in before:
        if "notes" in name or name == "firmware/main.c":
            assert after[name] == before[name]
    (folder / "firmware" / "main.c").write_text("changed")
    before = state(folder)
    with pytest.raises(CrtExportError, match=r"would be replaced: firmware/main\.c"):
        crtexport.build(package, folder)
    assert state(folder) == before
    assert crtexport.build(package, folder, force=True).sections == first.sections
    assert (folder / "build" / "notes.txt").read_text() == "precious"


def test_a_run_keeps_its_project_and_may_be_repeated(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    first = crtexport.run(package, out_dir=folder)
    (folder / "notes.txt").write_text("precious")
    assert crtexport.run(package, out_dir=folder).flash == first.flash
    assert (folder / "notes.txt").read_text() == "precious"
    for name in ("inputs.bin", "firmware.elf"):
        ours = (folder / name).read_bytes()
        (folder / name).write_text("precious")
        with pytest.raises(CrtExportError, match=f"would be replaced: {name}"):
            crtexport.run(package, out_dir=folder)
        assert (folder / name).read_text() == "precious"
        (folder / name).write_bytes(ours)


@pytest.mark.parametrize("name", ["CMakeLists.txt", "src/main.c", "build/notes.txt", "model.tar"])
def test_an_application_replaces_nothing_that_was_there(
    name: str, package: Path, tmp_path: Path
) -> None:
    parts = parts_from_package(open_package(package))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    before = state(tmp_path)
    with pytest.raises(CrtExportError, match="would be replaced"):
        write_application(parts, load_board("host"), package, tmp_path)
    assert state(tmp_path) == before
    shutil.rmtree(tmp_path / "build", ignore_errors=True)
    write_application(parts, load_board("host"), package, tmp_path, force=True)
    assert (tmp_path / manifest.NAME).is_file()
