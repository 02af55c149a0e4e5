"""Packages are the same bytes for the same contents, and all or nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from crtexport.artifact.byte_sources import Streamed
from crtexport.mlf.reader import open_package
from crtexport.mlf.writer import write_package
from crtexport.support.errors import CrtExportError
from tests.helpers import ROOT
from tests.mlf.support import artifact, calling, compiled, contents, info


@pytest.fixture(autouse=True)
def _no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


def test_members_are_sorted_prefixed_and_have_no_owner(tmp_path: Path) -> None:
    write_package(tmp_path / "p.tar", contents())
    with tarfile.TarFile(tmp_path / "p.tar") as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert names[0] == "."
    assert names[1:] == sorted(names[1:])
    assert all(name.startswith("./") for name in names[1:])
    assert "./codegen/host/src" in names
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {
        (0, 0, "root", "root", 0)
    }
    assert {m.mode for m in members if m.isfile()} == {0o644}
    assert {m.mode for m in members if m.isdir()} == {0o755}


def test_short_names_need_no_pax_headers(tmp_path: Path) -> None:
    write_package(tmp_path / "p.tar", contents())
    raw = (tmp_path / "p.tar").read_bytes()
    assert raw[257:263] == b"ustar\0"
    with tarfile.TarFile(tmp_path / "p.tar") as tar:
        assert all(member.pax_headers == {} for member in tar)


def test_a_long_module_name_survives(tmp_path: Path) -> None:
    module = "m" * 150
    write_package(tmp_path / "p.tar", contents(model=artifact(module)))
    assert open_package(tmp_path / "p.tar").module == module


def test_bytes_do_not_depend_on_process_folder_time_or_order(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.mlf.support import contents\n"
        "from crtexport.mlf.writer import write_package\n"
        "c = contents(); names = sorted(c.sources, reverse=bool(int(sys.argv[2])))\n"
        "write_package(Path(sys.argv[1]), contents(sources={n: c.sources[n] for n in names}))\n"
    )
    digests = set()
    for turn in (0, 1):
        folder = tmp_path / f"folder{turn}"
        folder.mkdir()
        env = {**os.environ, "PYTHONHASHSEED": str(turn + 1), "PYTHONPATH": str(ROOT)}
        env["TZ"] = f"UTC+{turn}"
        subprocess.run(
            [sys.executable, "-c", script, "p.tar", str(turn)], cwd=folder, env=env, check=True
        )
        digests.add(hashlib.sha256((folder / "p.tar").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_the_date_is_that_of_source_date_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    write_package(tmp_path / "p.tar", contents())
    package = open_package(tmp_path / "p.tar")
    assert package.modules["digits"].export_datetime == "1970-01-02 00:00:00Z"
    with tarfile.TarFile(tmp_path / "p.tar") as tar:
        assert {member.mtime for member in tar} == {86400}


@pytest.mark.parametrize("value", ["yesterday", "-1", "1.5", "99999999999999"])
def test_a_senseless_source_date_epoch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    with pytest.raises(CrtExportError, match="SOURCE_DATE_EPOCH is"):
        write_package(tmp_path / "p.tar", contents())


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="create the folder") as caught:
        write_package(tmp_path / "no" / "p.tar", contents())
    assert caught.value.location == (str(tmp_path / "no" / "p.tar"),)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_as_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="no regular file"):
        write_package(tmp_path, contents())


def test_a_failure_half_way_leaves_the_old_package_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "p.tar"
    target.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "close", full)
    with pytest.raises(CrtExportError, match="No space left on device"):
        write_package(target, contents())
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["p.tar"]


@pytest.mark.parametrize(("size", "problem"), [(1, "grew"), (3, "shrank")])
def test_a_file_that_changes_while_it_is_written_leaves_nothing(
    size: int, problem: str, tmp_path: Path
) -> None:
    header = Streamed(b"a", size, lambda: iter([b"b"]))
    with pytest.raises(CrtExportError, match=problem):
        write_package(
            tmp_path / "p.tar", contents(runtime_headers={"tvm/runtime/crt/module.h": header})
        )
    assert not list(tmp_path.iterdir())


def test_interruption_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_package(tmp_path / "p.tar", contents())
    assert list(tmp_path.iterdir()) == []


def test_a_package_is_as_readable_as_the_umask_lets_it(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_package(tmp_path / "p.tar", contents())
    finally:
        os.umask(old)
    assert (tmp_path / "p.tar").stat().st_mode & 0o777 == 0o644


def test_objects_are_streamed_from_files(tmp_path: Path) -> None:
    stored = tmp_path / "object"
    stored.write_bytes(compiled("@x = constant i32 7"))
    write_package(
        tmp_path / "p.tar",
        contents(sources={}, objects={"digits_lib0.o": stored}, info=info(emit="llvm")),
    )
    package = open_package(tmp_path / "p.tar")
    assert package.objects["digits_lib0.o"].read() == stored.read_bytes()


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"a.c": "", "A.c": ""}, "clashes with a.c"),
        ({"a.c": "", "a.cc": ""}, "clashes with a.c"),
        ({"sub/a.c": ""}, "without a folder"),
        ({"../a.c": ""}, "no file name"),
        ({"a b.c": ""}, "no file name"),
        ({"a.txt": ""}, "named \\*.c"),
    ],
)
def test_bad_names_of_sources_are_refused(
    tmp_path: Path, sources: dict[str, str], message: str
) -> None:
    with pytest.raises(CrtExportError, match=message):
        write_package(tmp_path / "p.tar", contents(sources=sources))
    assert list(tmp_path.iterdir()) == []


def test_a_source_and_an_object_of_one_stem_are_refused(tmp_path: Path) -> None:
    both = contents(sources={"a.c": ""}, objects={"a.o": compiled("@x = constant i32 7")})
    with pytest.raises(CrtExportError, match=r"clashes with a\.c"):
        write_package(tmp_path / "p.tar", both)


def test_a_symbol_in_two_objects_is_refused(tmp_path: Path) -> None:
    one = compiled("@x = constant i32 7")
    with pytest.raises(CrtExportError, match=r"b\.o → x: a\.o defines the same symbol"):
        write_package(
            tmp_path / "p.tar",
            contents(sources={}, objects={"a.o": one, "b.o": one}, info=info(emit="llvm")),
        )


def test_an_undeclared_need_of_an_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="nothing provides: malloc"):
        write_package(
            tmp_path / "p.tar",
            contents(
                sources={}, objects={"a.o": calling("f", "malloc")}, info=info(emit="llvm")
            ),
        )


def test_one_object_may_need_another(tmp_path: Path) -> None:
    objects = {"a.o": calling("f", "g"), "b.o": calling("g", "memset")}
    write_package(
        tmp_path / "p.tar", contents(sources={}, objects=objects, info=info(emit="llvm"))
    )
    section = open_package(tmp_path / "p.tar").section
    assert section is not None
    assert section.undefined.used == ("memset",)
    assert section.objects["a.o"].undefined == ("g",)
    assert section.objects["a.o"].defined == ("f",)
    assert section.objects["a.o"].sections[".text"] > 0


def test_what_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=r"a\.o: this is no ELF object"):
        write_package(
            tmp_path / "p.tar",
            contents(sources={}, objects={"a.o": b"MZ"}, info=info(emit="llvm")),
        )


@pytest.mark.parametrize("module", ["Digits", "a-b", "", "ü"])
def test_a_module_name_that_is_none_is_refused(tmp_path: Path, module: str) -> None:
    with pytest.raises(CrtExportError, match="must consist of a-z"):
        write_package(tmp_path / "p.tar", contents(model=artifact(module)))


def test_a_runtime_header_stays_in_its_folder(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="no file name"):
        write_package(tmp_path / "p.tar", contents(runtime_headers={"../../x.h": b""}))


def test_a_board_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="board's data has no name"):
        write_package(tmp_path / "p.tar", contents(board={}))
