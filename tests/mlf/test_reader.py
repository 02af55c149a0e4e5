"""The reader accepts packages of any exporter and refuses what isn't safe or isn't whole."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from crtexport.mlf import reader
from crtexport.mlf.archive import open_archive
from crtexport.mlf.reader import open_package
from crtexport.mlf.writer import write_package
from crtexport.support.errors import CrtExportError
from tests.mlf.support import compiled, contents, info, tar_of

TOO_LARGE = r"more than the archive has left|no readable tar"
TVM_MODULE = {
    "model_name": "default",
    "export_datetime": "2023-11-01 10:00:00Z",
    "memory": {
        "functions": {
            "main": [
                {
                    "device": 1, "workspace_size_bytes": 128, "constants_size_bytes": 40,
                    "io_size_bytes": 14,
                    "inputs": {"x": {"size": 10, "dtype": "int8"}},
                    "outputs": {"output": {"size": 4, "dtype": "int32"}},
                }
            ],
            "operator_functions": [
                {
                    "function_name": "tvmgen_default_fused_add",
                    "workspace": [{"device": 1, "workspace_size_bytes": 0}],
                }
            ],
        },
        "sids": [{"storage_id": 0, "size_bytes": 10, "input_binding": "x"}],
    },
    "target": ["c -keys=cpu"],
    "executors": ["aot"],
    "style": "full-model",
    "external_dependencies": [{"short_name": "tvm_standalone_crt", "url": "./runtime"}],
}


def foreign(path: Path, metadata: dict[str, Any], prefix: str = "./") -> Path:
    files = {
        "metadata.json": json.dumps(metadata).encode(),
        "codegen/host/src/default_lib0.c": b"int a;\n",
        "codegen/host/include/tvmgen_default.h": b"/**/\n",
        "src/default.relay": b"def @main() {}",
    }
    return tar_of(path, {prefix + name: content for name, content in files.items()})


@pytest.fixture
def package(tmp_path: Path) -> Path:
    write_package(tmp_path / "p.tar", contents())
    return tmp_path / "p.tar"


def test_json_that_takes_too_much_memory_is_not_read(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_package(package)
    (size,) = (e.size for name, e in opened.archive.entries.items() if name.endswith("plan.json"))
    monkeypatch.setattr(reader, "_JSON_LIMIT", size)
    assert opened.plan_data
    monkeypatch.setattr(reader, "_JSON_LIMIT", size - 1)
    with pytest.raises(CrtExportError, match="too large"):
        _ = opened.plan_data


def test_what_was_written_is_read(package: Path) -> None:
    opened = open_package(package)
    assert opened.module == "digits"
    assert opened.sources == dict(contents().sources)
    assert opened.objects == {}
    assert opened.header == contents().models[0].header
    assert opened.board_data == contents().board
    assert opened.plan_data == {"workspace_bytes": 192}
    assert opened.runtime_headers == {"tvm/runtime/crt/module.h": b"/* */\n"}
    assert opened.graph_text is not None
    assert opened.graph_text.splitlines()[1:] == ["graph digits"]
    (x,) = opened.inputs
    assert (x.name, x.field, x.dtype, x.shape) == (
        'serving "x":0', "serving__x__0", "int8", (1, 8, 8, 1)
    )
    assert x.quantization is not None
    assert (x.quantization.scale, x.quantization.zero_point) == ((0.5,), (-3,))
    (y,) = opened.outputs
    assert (y.dtype, y.nbytes, y.quantization) == ("float32", 40, None)


def test_extraction_gives_the_same_files(package: Path, tmp_path: Path) -> None:
    opened = open_package(package)
    for _ in range(2):  # a second time over what is there already
        opened.extract(tmp_path / "out")
    found = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert found == {name: opened.read(name) for name in opened.names}


def test_extraction_does_not_follow_links(package: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "codegen").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CrtExportError, match="symbolic link stands where"):
        open_package(package).extract(tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_extraction_replaces_nothing(package: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "out").mkdir()
    for put in (lambda path: path.symlink_to("../precious"), lambda path: path.write_text("{}")):
        put(tmp_path / "out" / "metadata.json")
        with pytest.raises(CrtExportError, match="another file is there already"):
            open_package(package).extract(tmp_path / "out")
        assert (tmp_path / "out" / "metadata.json").read_text() in ("precious", "{}")
        (tmp_path / "out" / "metadata.json").unlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_extraction_into_a_file_is_an_error(package: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(CrtExportError, match="can't be unpacked"):
        open_package(package).extract(tmp_path / "out")


@pytest.mark.parametrize("prefix", ["./", ""])
def test_a_package_of_tvm_is_read(tmp_path: Path, prefix: str) -> None:
    path = foreign(tmp_path / "tvm.tar", {"version": 7, "modules": {"default": TVM_MODULE}}, prefix)
    opened = open_package(path)
    assert opened.section is None
    assert opened.board_data is None
    assert opened.plan_data is None
    (x,) = opened.inputs
    assert (x.name, x.nbytes, x.dtype, x.shape) == ("x", 10, "int8", None)
    assert [t.name for t in opened.outputs] == ["output"]
    assert opened.sources == {"default_lib0.c": "int a;\n"}
    assert opened.graph_text == "def @main() {}"
    assert opened.raw_metadata["modules"]["default"]["memory"]["sids"][0]["storage_id"] == 0


@pytest.mark.parametrize("version", [5, 6])
def test_flat_metadata_of_older_versions_is_brought_to_version_7(
    tmp_path: Path, version: int
) -> None:
    old = {"version": version, **TVM_MODULE}
    if version == 5:
        old["target"] = {"1": "c -keys=cpu"}
    opened = open_package(foreign(tmp_path / "tvm.tar", old))
    assert opened.modules["default"].target == ("c -keys=cpu",)
    assert opened.modules["default"].executors == ("aot",)
    assert opened.modules["default"].memory.functions.main[0].workspace_size_bytes == 128
    assert opened.metadata.version == version


def test_version_1_and_operator_style_are_read(tmp_path: Path) -> None:
    first = {
        "version": 1, "model_name": "default", "memory": [{"storage_id": 0}],
        "target": {"1": "c"}, "runtimes": ["graph"],
    }
    assert open_package(foreign(tmp_path / "1.tar", first)).modules["default"].executors == (
        "graph",
    )
    operator = {
        "version": 5, "model_name": "add", "style": "operator", "target": {"1": "c"},
        "memory": {"add": [{"size_bytes": 4, "shape": [1], "dtype": "int32"}]}, "executors": [],
    }
    opened = open_package(foreign(tmp_path / "op.tar", operator))
    assert opened.modules["add"].style == "operator"
    assert opened.inputs == ()


def test_several_models_are_listed_but_not_one_of_them_taken(tmp_path: Path) -> None:
    two = {"version": 7, "modules": {"a": {**TVM_MODULE, "model_name": "a"}, "b": TVM_MODULE}}
    opened = open_package(foreign(tmp_path / "two.tar", two))
    assert list(opened.modules) == ["a", "b"]
    with pytest.raises(CrtExportError, match="one model; the package has a, b"):
        _ = opened.inputs


def test_objects_are_found(tmp_path: Path) -> None:
    one = compiled("@x = constant i32 7")
    write_package(
        tmp_path / "p.tar",
        contents(sources={}, objects={"digits_lib0.o": one}, info=info(emit="llvm")),
    )
    opened = open_package(tmp_path / "p.tar")
    assert {name: blob.read() for name, blob in opened.objects.items()} == {"digits_lib0.o": one}
    assert opened.sources == {}


def rewritten(package: Path, change: dict[str, bytes | None]) -> Path:
    """The package with the bytes of some members changed, added, or (None) removed."""
    with tarfile.open(package) as tar:
        files = {
            member.name: tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in tar if member.isfile()
        }
    for name, content in change.items():
        files.pop(name, None)
        if content is not None:
            files[name] = content
    return tar_of(package.with_name("changed.tar"), files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"./codegen/host/src/digits_lib0.c": b"/* bad */"}, "SHA-256 differs"),
        ({"./codegen/host/src/digits_lib0.c": None}, "the archive doesn't have it"),
        ({"./codegen/host/src/more.c": b""}, "the metadata doesn't name it"),
        ({"./metadata.json": b"{"}, "this isn't JSON"),
        ({"./metadata.json": b"[" * 100_000}, "this isn't JSON"),
        ({"./metadata.json": b"[]"}, "no integer under the key"),
        ({"./metadata.json": b'{"version": 7, "modules": []}'}, "metadata.json → modules"),
        ({"./metadata.json": None}, "has no metadata.json"),
    ],
)
def test_a_package_that_was_changed_is_refused(
    package: Path, change: dict[str, bytes | None], message: str
) -> None:
    with pytest.raises(CrtExportError, match=message):
        open_package(rewritten(package, change))


@pytest.mark.parametrize("wrong", [{"zero_point": []}, {"scale": [], "zero_point": []}])
def test_scales_without_zero_points_are_refused(wrong: dict[str, Any], package: Path) -> None:
    with tarfile.open(package) as tar:
        data = json.load(tar.extractfile("./metadata.json"))  # type: ignore[arg-type]
    data["crtexport"]["modules"]["digits"]["inputs"][0]["quantization"] |= wrong
    with pytest.raises(CrtExportError, match="as many of both") as caught:
        open_package(rewritten(package, {"./metadata.json": json.dumps(data).encode()}))
    assert "inputs" in str(caught.value)


def test_hashes_can_be_left_unchecked(package: Path) -> None:
    changed = rewritten(package, {"./codegen/host/src/digits_lib0.c": b"/* mine */"})
    assert open_package(changed, verify=False).sources["digits_lib0.c"] == "/* mine */"


def test_a_section_of_a_later_format_is_named(tmp_path: Path) -> None:
    later = {"version": 7, "modules": {}, "crtexport": {"format": 9}}
    with pytest.raises(CrtExportError, match="has format 9; this program reads 1"):
        open_package(foreign(tmp_path / "p.tar", later))


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up", "a/../../up", "./..", "a\\b", "C:/x", "a\nb", "//x"]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    path = tar_of(tmp_path / "p.tar", {name: b"x"})
    with pytest.raises(CrtExportError, match=r"leads out of its folder|no file can have"):
        open_archive(path)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a device"),
    ],
)
def test_special_members_are_refused(tmp_path: Path, kind: bytes, said: str) -> None:
    with tarfile.open(tmp_path / "p.tar", "w") as tar:
        entry = tarfile.TarInfo("x")
        entry.type = kind
        entry.linkname = "/etc/passwd"
        tar.addfile(entry)
    with pytest.raises(CrtExportError, match=f"the archive has {said}"):
        open_archive(tmp_path / "p.tar")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "p.tar", {"./a": b"1", "a": b"2"})
    with pytest.raises(CrtExportError, match="two files of this name"):
        open_archive(path)


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "p.tar", {"a": b"1", "a/b": b"2"})
    with pytest.raises(CrtExportError, match="a file and a folder of the same name"):
        open_archive(path)


def test_a_member_larger_than_the_archive_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("metadata.json")
    entry.size = 1 << 40
    (tmp_path / "p.tar").write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + b"{}" + b"\0" * 2000)
    with pytest.raises(CrtExportError, match=TOO_LARGE):
        open_archive(tmp_path / "p.tar")


def test_a_truncated_package_is_refused(package: Path) -> None:
    raw = package.read_bytes()
    last = max(entry.offset + entry.size for entry in open_archive(package).entries.values())
    for cut in (0, 100, 511, 512, 1500, last - 512, last - 1):
        package.write_bytes(raw[:cut])
        with pytest.raises(CrtExportError):
            open_package(package)


def test_garbage_between_members_does_not_hide_the_rest(package: Path) -> None:
    raw = bytearray(package.read_bytes())
    raw[512:1024] = b"\xff" * 512
    package.write_bytes(raw)
    with pytest.raises(CrtExportError, match="damaged"):
        open_package(package)


@pytest.mark.parametrize("content", [b"", b"not a tar file", b"\0" * 10240, b"\x7fELF" * 600])
def test_what_is_no_tar_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.tar").write_bytes(content)
    with pytest.raises(CrtExportError, match=r"no readable tar|has no metadata\.json"):
        open_package(tmp_path / "p.tar")


def test_a_compressed_package_says_how_to_unpack_it(package: Path) -> None:
    package.write_bytes(gzip.compress(package.read_bytes()))
    with pytest.raises(CrtExportError, match="gunzip"):
        open_package(package)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="No such file") as caught:
        open_package(tmp_path / "p.tar")
    assert caught.value.location == (str(tmp_path / "p.tar"),)


def test_a_file_that_is_not_there_is_named(package: Path) -> None:
    opened = open_package(package)
    with pytest.raises(CrtExportError, match=r"x\.c: the package has no such file"):
        opened.read("x.c")
    with pytest.raises(CrtExportError, match=r"x\.c: the package has no such file"):
        opened.size("x.c")
    assert opened.size("parameters/digits.params") == 32


def test_no_bytes_of_a_tar_crash_the_reader(package: Path) -> None:
    raw = package.read_bytes()
    for at in range(0, len(raw), 97):
        changed = bytearray(raw)
        changed[at] ^= 0x5A
        package.write_bytes(changed)
        try:
            open_package(package)
        except CrtExportError:
            continue


def test_a_pax_header_cannot_claim_more_than_there_is(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("a")
    entry.pax_headers = {"size": "99999999999"}
    (tmp_path / "p.tar").write_bytes(entry.tobuf(tarfile.PAX_FORMAT) + b"\0" * 2048)
    with pytest.raises(CrtExportError, match=TOO_LARGE):
        open_archive(tmp_path / "p.tar")
