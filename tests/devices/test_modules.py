"""Modules of others in model.json: called, packed, simulated; what doesn't fit is refused."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crtexport
from crtexport.artifact.byte_sources import blob_bytes
from crtexport.cli.main import main
from crtexport.firmware.board import load_board
from crtexport.firmware.package import parts_from_package
from crtexport.firmware.zephyr.application import write_application
from crtexport.importers import load
from crtexport.importers.crtjson import save
from crtexport.mlf import objects
from crtexport.mlf.objects import object_facts
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError
from tests.backends.llvm.llvm_support import GCC
from tests.helpers import require
from tests.mlf.consumers import complaints

HERE = Path(__file__).parent
BACKENDS = ("c", "llvm")
X = np.arange(-12, 12, dtype=np.int8).reshape(1, 24)
TABLE = np.random.default_rng(3).integers(-128, 128, 256, dtype=np.int8)


def _tensor(name: str, size: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "int8", "shape": [1, size], "quantization": {"scale": 0.5},
            **more}


DOCUMENT: dict[str, Any] = {
    "format": "crtexport-model", "version": 1, "name": "two parts",
    "inputs": ["x"], "outputs": ["y"],
    "modules": [
        {"name": "acc", "kind": "c-source", "files": ["accelerator.c"], "functions": [
            {"name": "acc_flip", "device": {"kind": "test-acc", "program": "flip"}},
            {"name": "acc_look_up", "device": {"kind": "test-acc", "id": 1, "program": "look up"}},
            {"name": "host_reverse"},
        ]},
    ],
    "tensors": [
        _tensor("x", 24), _tensor("a", 24), _tensor("b", 24), _tensor("c", 10), _tensor("d", 10),
        _tensor("y", 10),
        {"name": "table", "dtype": "int8", "shape": [256], "data": TABLE.tolist()},
    ],
    "nodes": [
        {"op": "Relu", "inputs": ["x"], "outputs": ["a"]},
        {"op": "External", "inputs": ["a"], "outputs": ["b"],
         "attributes": {"function": "acc_flip"}},
        {"op": "Slice", "inputs": ["b"], "outputs": ["c"],
         "attributes": {"begin": [0, 3], "size": [1, 10], "stride": [1, 1], "shape": [1, 10]}},
        {"op": "External", "inputs": ["c", "table"], "outputs": ["d"],
         "attributes": {"function": "look_up"}},
        {"op": "External", "inputs": ["d"], "outputs": ["y"],
         "attributes": {"function": "host_reverse"}},
    ],
}
SOURCE = """
#include "crt_simulated.h"
#include <stdint.h>
int32_t acc_flip(const void *x, void *y, void *context);
int32_t look_up(const void *x, const void *table, void *y, void *context);
int32_t host_reverse(const void *x, void *y);
int32_t acc_flip(const void *x, void *y, void *context)
{
    for (int i = 0; i < 24; ++i) {
        ((int8_t *)y)[i] = (int8_t)(((const int8_t *)x)[i] ^ 0x55);
    }
    return crt_simulated_run(context);
}
int32_t look_up(const void *x, const void *table, void *y, void *context)
{
    for (int i = 0; i < 10; ++i) {
        ((int8_t *)y)[i] = ((const int8_t *)table)[((const int8_t *)x)[i] + 128];
    }
    return crt_simulated_run(context);
}
int32_t host_reverse(const void *x, void *y)
{
    for (int i = 0; i < 10; ++i) {
        ((int8_t *)y)[9 - i] = ((const int8_t *)x)[i];
    }
    return 0;
}
"""
PLAIN = """
int f(const void *x, void *y);
int f(const void *x, void *y) { (void)x; (void)y; return 0; }
"""


def document(**changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(DOCUMENT)
    made["modules"][0]["functions"][1]["name"] = "look_up"
    return {**made, **changes}


def write(folder: Path, content: dict[str, Any], source: str = SOURCE) -> Path:
    (folder / "accelerator.c").write_text(source)
    path = folder / "model.json"
    path.write_text(json.dumps(content))
    return path


def expected() -> Any:
    flipped = np.maximum(X[0], 0) ^ np.int8(0x55)
    return TABLE[flipped[3:13].astype(int) + 128][::-1]


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("options", [{}, {"workspace": "caller"}, {"io": "workspace"}])
def test_a_network_of_parts_runs_in_the_simulation(
    emit: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    require("gcc")
    package = crtexport.export(
        write(tmp_path, document()), emit=emit, output=tmp_path / "p.tar", **options
    ).path
    assert complaints(package) == []
    (outputs,) = crtexport.simulate(package, {"x": X})
    np.testing.assert_array_equal(outputs["y"][0], expected())
    section = open_package(package).module_section
    assert section is not None
    assert [(d.field, d.kind, d.id, d.program, d.functions) for d in section.devices] == [
        ("test_acc_0", "test-acc", 0, "flip", ("acc_flip",)),
        ("test_acc_1", "test-acc", 1, "look up", ("look_up",)),
    ]
    assert [(e.symbol, e.module, e.kind, e.device) for e in section.externals] == [
        ("acc_flip", "acc", "c-source", "test_acc_0"),
        ("look_up", "acc", "c-source", "test_acc_1"),
        ("host_reverse", "acc", "c-source", None),
    ]


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("board", ["mps2_an386", "qemu_x86"])
def test_a_network_of_parts_runs_on_boards(board: str, emit: Any, tmp_path: Path) -> None:
    chosen = load_board(board)
    require(chosen.toolchain.compiler[0])
    require(chosen.runner.command[0])  # type: ignore[union-attr]
    package = crtexport.export(
        write(tmp_path, document()), board=board, emit=emit, output=tmp_path / "p.tar"
    ).path
    ((output,),) = crtexport.run(package, {"x": X}).outputs
    np.testing.assert_array_equal(output[0], expected())


def test_zephyr_applications_for_devices_are_the_users(tmp_path: Path) -> None:
    package = crtexport.export(write(tmp_path, document()), emit="c", output=tmp_path / "p.tar")
    parts = parts_from_package(open_package(package.path))
    with pytest.raises(CrtExportError, match="needs their hooks"):
        write_application(parts, load_board("host"), package.path, tmp_path / "application")
    assert not (tmp_path / "application").exists()


@pytest.mark.parametrize("emit", BACKENDS)
def test_the_failure_of_a_function_is_reported(emit: Any, tmp_path: Path) -> None:
    source = SOURCE.replace("return 0;", "return 42;")
    package = crtexport.export(
        write(tmp_path, document(), source), emit=emit, output=tmp_path / "p.tar"
    ).path
    with pytest.raises(CrtExportError, match="returned the error 42"):
        crtexport.simulate(package, {"x": X})


def object_document() -> dict[str, Any]:
    made = document()
    made["modules"] = [
        {"name": "blob", "kind": "object", "files": ["blob.o"], "functions": [{"name": "f"}]}
    ]
    made["nodes"] = [
        {"op": "External", "inputs": ["x"], "outputs": ["y"], "attributes": {"function": "f"}}
    ]
    made["tensors"] = [_tensor("x", 24), _tensor("y", 10)]
    return made


def compiled(folder: Path, source: str, *command: str) -> None:
    file = folder / "blob.c"
    file.write_text(source)
    subprocess.run(
        [require(command[0]), *command[1:], "-c", file, "-o", folder / "blob.o"], check=True
    )


@pytest.mark.parametrize("emit", BACKENDS)
def test_objects_are_linked_as_they_are(emit: Any, tmp_path: Path) -> None:
    path = write(tmp_path, object_document())
    compiled(tmp_path, PLAIN.replace("(void)y;", "((char *)y)[3] = 7;"), "gcc", "-fPIC")
    package = crtexport.export(path, emit=emit, output=tmp_path / "p.tar").path
    assert blob_bytes(open_package(package).objects["blob.o"]) == (tmp_path / "blob.o").read_bytes()
    (outputs,) = crtexport.simulate(package, {"x": X})
    assert outputs["y"][0, 3] == 7


def test_symbols_of_each_object_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, object_document())
    compiled(tmp_path, PLAIN, "gcc", "-fPIC")
    examined = []
    facts = objects._facts
    monkeypatch.setattr(
        objects, "_facts", lambda stream, name: (examined.append(name), facts(stream, name))[1]
    )
    package = crtexport.export(path, emit="llvm", output=tmp_path / "p.tar").path
    assert sorted(examined) == sorted(open_package(package).objects)


@pytest.mark.parametrize(
    ("board", "command", "problem"),
    [
        ("mps2_an386", ("gcc",), "made for another processor: x86-64; the board has Arm"),
        ("mps2_an386", GCC["m4soft"], "another float ABI: soft; the board has hard"),
        ("mps2_an386", GCC["m55"], "another CPU architecture: ARMv8.1-M"),
        ("host", (*GCC["i386"],), "another processor: i386; the board has x86-64"),
        ("qemu_riscv32", (GCC["rv32"][0], "-march=rv32imafc", "-mabi=ilp32f"),
         "another float ABI: single; the board has soft"),
    ],
)
def test_objects_for_other_boards_are_refused(
    board: str, command: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    path = write(tmp_path, object_document())
    compiled(tmp_path, PLAIN, *command)
    for emit in BACKENDS:
        with pytest.raises(CrtExportError, match=problem) as caught:
            crtexport.export(path, board=board, emit=emit, output=tmp_path / "p.tar")  # type: ignore[arg-type]
        assert caught.value.location[:2] == ("module 'blob'", "blob.o")
    assert not (tmp_path / "p.tar").exists()


def test_objects_with_constructors_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, object_document())
    compiled(tmp_path, PLAIN + "__attribute__((constructor)) static void g(void) {}\n", "gcc")
    with pytest.raises(CrtExportError, match=r"must run at start-up \(section \.init_array"):
        crtexport.export(path, output=tmp_path / "p.tar")


@pytest.mark.parametrize("kind", ["object", "c-source"])
def test_promised_functions_must_be_there(kind: str, tmp_path: Path) -> None:
    made = object_document()
    compiled(tmp_path, PLAIN.replace("f(", "other("), "gcc")
    if kind == "c-source":
        made["modules"][0] |= {"kind": kind, "files": ["blob.c"]}
    with pytest.raises(CrtExportError, match="the function 'f' is not in blob") as caught:
        crtexport.export(write(tmp_path, made), output=tmp_path / "p.tar")
    assert caught.value.location[0] == "module 'blob'"


def _broken(**changes: Any) -> dict[str, Any]:
    made = document()
    made["modules"][0] |= changes
    return made


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (_broken(files=["nothing.c"]), r"modules\[0\]\.files\[0\].*nothing\.c"),
        (_broken(files=["../../etc/passwd"]), "lies outside of the model's folder"),
        (_broken(files=["model.json"]), r"kind c-source has files named \*\.c"),
        (_broken(files=["accelerator.c"] * 2), "another file has this name"),
        (_broken(kind="device-driver"), "c-source"),
        (_broken(functions=[]), "functions"),
        (_broken(functions=[{"name": "a-b"}]), "a function's name must be one of C"),
        (_broken(functions=[{"name": "f"}]), "no module has a function 'acc_flip'"),
        (document(modules=[]), "no module has a function 'acc_flip'"),
        (document(modules=DOCUMENT["modules"] * 2), "two modules have this name"),
        (document(modules=[*DOCUMENT["modules"], {**DOCUMENT["modules"][0], "name": "b"}]),
         "module 'acc' has a function of this name"),
    ],
)
def test_flaws_are_named(content: dict[str, Any], problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    with pytest.raises(CrtExportError, match=problem):
        crtexport.export(path, output=tmp_path / "p.tar")
    assert not (tmp_path / "p.tar").exists()


def test_all_calls_of_a_function_are_alike(tmp_path: Path) -> None:
    made = document()
    made["nodes"][4] = {"op": "External", "inputs": ["d", "d"], "outputs": ["y"],
                        "attributes": {"function": "acc_flip"}}
    with pytest.raises(CrtExportError, match="2 inputs and 1 outputs here, but elsewhere 1 and 1"):
        load(write(tmp_path, made))


def test_names_of_generated_files_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path, _broken(files=["two_parts_lib0.c"]))
    shutil.copy(tmp_path / "accelerator.c", tmp_path / "two_parts_lib0.c")
    with pytest.raises(CrtExportError, match="generated code has a file of this name"):
        crtexport.export(path, emit="c", output=tmp_path / "p.tar")


def test_inspect_shows_functions_and_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "p.tar"
    crtexport.export(write(tmp_path, document()), emit="c", output=package)
    assert main(["inspect", str(package)]) == 0
    said = capsys.readouterr().out
    assert "test_acc_1" in said
    assert "host_reverse" in said
    assert "accelerator.c" in said


def test_reference_runtimes_know_no_functions_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(write(tmp_path, document()))]) == 2
    assert "the reference runtime has no function 'acc_flip'" in capsys.readouterr().err


def test_networks_with_modules_are_not_converted(tmp_path: Path) -> None:
    graph = load(write(tmp_path, document()))
    with pytest.raises(CrtExportError, match="external modules can't be written"):
        save(graph, tmp_path / "again.json")
    assert not (tmp_path / "again.json").exists()


START_UP = [
    "__attribute__((constructor)) static void g(void) {}",
    "__attribute__ ((unused, __constructor__(101))) static void g(void) {}",
    "static void (*const g)(void) __attribute__((section(\".init_array\"), used)) = 0;",
]


@pytest.mark.parametrize("line", START_UP)
def test_sources_with_constructors_are_refused(line: str, tmp_path: Path) -> None:
    path = write(tmp_path, document(), f"{SOURCE}\n{line}\n")
    with pytest.raises(CrtExportError, match="must run at start-up") as caught:
        crtexport.export(path, output=tmp_path / "p.tar")
    assert caught.value.location == ("module 'acc'", "accelerator.c")


def test_constructors_in_comments_and_names_are_none(tmp_path: Path) -> None:
    source = SOURCE + (
        "/* no __attribute__((constructor)) here */ // constructor)\n"
        "static const char text[] = \"// constructor is a word\"; int constructor_of = 0;\n"
    )
    crtexport.export(write(tmp_path, document(), source), emit="c", output=tmp_path / "p.tar")


LOADERS = {
    "const char __tvm_dev_mblob[1] = {0};": "modules in a blob.*unpacking",
    "void *__tvm_module_ctx = 0;": "a loader would have to fill in",
    "const char __tvm_main__[2] = \"f\";": "an entry point for a loader",
    "int TVMBackendRegisterSystemLibSymbol(const char *, void *);"
    "int g(void); int g(void) { return TVMBackendRegisterSystemLibSymbol(0, 0); }":
        "registers its functions at start-up",
}


@pytest.mark.parametrize("line", LOADERS)
def test_objects_that_must_be_loaded_are_refused(line: str, tmp_path: Path) -> None:
    path = write(tmp_path, object_document())
    compiled(tmp_path, f"{PLAIN}\n{line}\n", "gcc")
    with pytest.raises(CrtExportError, match=LOADERS[line]) as caught:
        crtexport.export(path, output=tmp_path / "p.tar")
    assert caught.value.location == ("module 'blob'", "blob.o")


def with_const_vars() -> dict[str, Any]:
    """The table is a constant of the function instead of an input of its node."""
    made = document()
    made["modules"][0]["functions"][1]["const_vars"] = ["table"]
    made["nodes"][3]["inputs"] = ["c"]
    return made


CONST_SOURCE = SOURCE.replace(
    "look_up(const void *x, const void *table, void *y, ",
    "look_up(const void *x, void *y, const void *table, ",
)


@pytest.mark.parametrize("emit", BACKENDS)
def test_functions_are_given_their_constants(emit: Any, tmp_path: Path) -> None:
    require("gcc")
    path = write(tmp_path, with_const_vars(), CONST_SOURCE)
    package = crtexport.export(path, emit=emit, output=tmp_path / "p.tar").path
    (outputs,) = crtexport.simulate(package, {"x": X})
    np.testing.assert_array_equal(outputs["y"][0], expected())
    opened = open_package(package)
    if emit == "c":
        text = " ".join(opened.sources["two_parts_lib0.c"].split())
        assert re.search(r"static const int8_t tvmgen_two_parts_table\w*\[256\]", text)
        assert re.search(r"look_up\([^;]*tvmgen_two_parts_table\w*, devices->test_acc_1\);", text)
    else:
        blob = opened.objects["two_parts_constants.o"]
        assert TABLE.tobytes() in blob_bytes(blob)
        assert object_facts("c", blob).sections[".data"] == 0


@pytest.mark.parametrize(
    ("name", "problem"),
    [("tabel", "there is no tensor 'tabel'"), ("a", "the tensor 'a' is no constant")],
)
def test_const_vars_are_constants(name: str, problem: str, tmp_path: Path) -> None:
    made = with_const_vars()
    made["modules"][0]["functions"][1]["const_vars"] = [name]
    where = r"modules\[0\]\.functions\[1\]\.const_vars\[0\]"
    with pytest.raises(CrtExportError, match=f"{where}: {problem}"):
        load(write(tmp_path, made, CONST_SOURCE))


def test_inspect_tells_which_functions_can_be_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = with_const_vars()
    (tmp_path / "ok.bin").write_bytes(bytes(1000))
    (tmp_path / "empty.bin").write_bytes(b"")
    made["modules"] += [
        object_document()["modules"][0],
        {"name": "npu", "kind": "device-image", "programs": [
            {"file": "ok.bin", "device": {"kind": "npu"}, "compression": "zlib",
             "functions": [{"name": "good"}]},
            {"file": "empty.bin", "device": {"kind": "npu", "id": 1},
             "functions": [{"name": "bad"}]},
        ]},
    ]
    compiled(tmp_path, PLAIN + "__attribute__((constructor)) static void g(void) {}\n", "gcc")
    path = write(tmp_path, made, CONST_SOURCE)
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["functions"]
    assert [(f["function"], f["exportable"], f["kind"]) for f in found] == [
        ("host_reverse", True, "c-source"), ("f", False, "object"),
        ("good", True, "device-image"), ("bad", False, "device-image"),
        ("acc_flip", True, "c-source"), ("look_up", True, "c-source"),
    ]
    reasons = {f["function"]: f["reason"] for f in found}
    assert "must run at start-up (section .init_array" in reasons["f"]
    assert reasons["bad"] == "empty.bin: the program is empty"
    assert "inflated to 1,000 when it is opened" in reasons["good"]
    assert reasons["look_up"] == "compiled with the code; given static constants: table"
    assert main(["inspect", str(path), "--board", "mps2_an386"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "host_reverse" in said
    assert "made for another processor" in said
