"""Device programs in images: from model.json to hooks that are given them, raw or inflated."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import struct
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import google_crc32c
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

import crtexport
from crtexport.artifact.byte_sources import blob_bytes
from crtexport.cli.main import main
from crtexport.devices.image import decode
from crtexport.devices.simulated import program
from crtexport.firmware.board import load_board
from crtexport.mlf.reader import open_package
from crtexport.simulation.package import load_package
from crtexport.support.errors import CrtExportError, RunFailedError
from tests.backends.c.c_support import COMPILERS, compile_object
from tests.devices.programs import program as filler
from tests.devices.test_offload import llvm_tool, unbundled
from tests.helpers import require
from tests.mlf.consumers import complaints

BACKENDS = ("c", "llvm")
SIZE = 24
X = np.linspace(-128, 127, SIZE).astype(np.int8).reshape(1, SIZE)
A, O, C, D, R, L = 1, 2, 3, 4, 5, 6  # noqa: E741  (as crt_simulated_verb has them)
STORY = [(A, 0), (A, 1), (O, 0), (L, 0), (R, 0), (C, 0), (O, 1), (L, 1), (R, 1), (C, 1),
         (D, 1), (D, 0)]
ENDINGS = {  # what still happens after call n of the story has failed
    0: [], 1: [(D, 0)], 2: [(D, 1), (D, 0)], 3: [(C, 0), (D, 1), (D, 0)],
    4: [(C, 0), (D, 1), (D, 0)], 5: [(D, 1), (D, 0)], 6: [(D, 1), (D, 0)],
    7: [(C, 1), (D, 1), (D, 0)], 8: [(C, 1), (D, 1), (D, 0)], 9: [(D, 1), (D, 0)],
    10: [(D, 0)], 11: [],
}
_RNG = np.random.default_rng(7)
WEIGHTS = _RNG.integers(-127, 128, (2, SIZE, SIZE), dtype=np.int8)


def tensor(name: str, scale: float, zero: int = 0) -> dict[str, Any]:
    return {"name": name, "dtype": "int8", "shape": [1, SIZE],
            "quantization": {"scale": scale, "zero_point": zero}}


def network(offload: bool) -> dict[str, Any]:
    """Dense, logistic, dense, tanh: the second and fourth on accelerators, or all on the CPU."""
    dense = [
        {"op": "FullyConnected", "inputs": [source, f"w{i}"], "outputs": [result]}
        for i, (source, result) in enumerate((("x", "a"), ("b", "c")))
    ]
    own = [{"op": "Logistic", "inputs": ["a"], "outputs": ["b"]},
           {"op": "Tanh", "inputs": ["c"], "outputs": ["y"]}]
    theirs = [
        {"op": "External", "inputs": node["inputs"], "outputs": node["outputs"],
         "attributes": {"function": name}}
        for node, name in zip(own, ("squash", "bend"), strict=True)
    ]
    others = theirs if offload else own
    return {
        "format": "crtexport-model", "version": 1, "name": "mixed",
        "inputs": ["x"], "outputs": ["y"],
        "tensors": [
            tensor("x", 0.05), tensor("a", 0.04), tensor("b", 1 / 256, -128), tensor("c", 0.02),
            tensor("y", 1 / 128),
            *({"name": f"w{i}", "dtype": "int8", "shape": [SIZE, SIZE],
               "quantization": {"scale": 0.01}, "data": WEIGHTS[i].tolist()} for i in (0, 1)),
        ],
        "nodes": [dense[0], others[0], dense[1], others[1]],
    }


@cache
def one_operator(op: str) -> bytes:
    """Returns what an operator of the network makes of all int8 values, in the order of their
    bytes."""
    content = network(False)
    node = next(node for node in content["nodes"] if node["op"] == op)
    content |= {"inputs": node["inputs"], "outputs": node["outputs"], "nodes": [node]}
    for made in content["tensors"]:
        if "data" not in made:
            made["shape"] = [1, 256]
    values = np.arange(256).astype(np.uint8).view(np.int8).reshape(1, 256)
    return _simulated(content, values).tobytes()


@cache
def plain_result() -> Any:
    """Returns what the network gives without accelerators."""
    return _simulated(network(False), X)


def _simulated(content: dict[str, Any], values: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.json"
        path.write_text(json.dumps(content))
        package = crtexport.export(path, output=Path(folder) / "p.tar").path
        (outputs,) = crtexport.simulate(package, {content["inputs"][0]: values})
    return outputs[content["outputs"][0]]


def modules(compression: str, align: int = 16) -> list[dict[str, Any]]:
    return [{"name": "npu", "kind": "device-image", "programs": [
        {"file": "first.bin", "device": {"kind": "test-acc", "program": "first"},
         "compression": compression, "align": align,
         "functions": [{"name": "squash", "entry": "main"}]},
        {"file": "second.bin", "device": {"kind": "test-acc", "id": 1, "program": "second"},
         "compression": compression, "align": align,
         "functions": [{"name": "bend", "entry": "main"}]},
    ]}]


def write(folder: Path, compression: str = "none", align: int = 16, **changes: Any) -> Path:
    """The network with its images, in ``folder``."""
    for file, op, size in (("first.bin", "Logistic", 5000), ("second.bin", "Tanh", 3001)):
        content = program({"main": (SIZE, one_operator(op))}, filler(size))
        (folder / file).write_bytes(content)
    path = folder / "model.json"
    path.write_text(json.dumps(
        {**network(True), "modules": modules(compression, align), **changes}
    ))
    return path


@cache
def _folder() -> TemporaryDirectory[str]:
    """A folder that is removed when the process ends."""
    return TemporaryDirectory()


@cache
def exported(compression: str, emit: str, **options: Any) -> Path:
    """The package of the network with its images; tests share it, so they leave it as it is."""
    folder = Path(_folder().name) / "-".join(map(str, (compression, emit, *options.values())))
    folder.mkdir()
    return crtexport.export(
        write(folder, compression), emit=emit, output=folder / "p.tar", **options
    ).path


@pytest.mark.parametrize(
    ("compression", "options"),
    [("none", {}), ("none", {"workspace": "caller"}), ("lz4", {}), ("zlib", {"io": "workspace"}),
     ("smallest", {"workspace": "caller"})],
)
@pytest.mark.parametrize("emit", BACKENDS)
def test_programs_compute_what_the_cpu_does(
    emit: str, compression: str, options: dict[str, Any]
) -> None:
    require("gcc")
    assert len(np.unique(plain_result())) > 8
    package = exported(compression, emit, **options)
    assert complaints(package) == []
    (outputs,) = crtexport.simulate(package, {"x": X})
    np.testing.assert_array_equal(outputs["y"], plain_result())


@pytest.mark.parametrize(
    ("board", "emit", "compression", "workspace"),
    [("mps2_an386", "c", "zlib", "static"), ("mps2_an386", "llvm", "none", "caller"),
     ("mps2_an386", "llvm", "lz4", "static"), ("qemu_x86", "c", "none", "static"),
     ("qemu_x86", "llvm", "zlib", "caller")],
)
def test_programs_run_on_boards(
    board: str, emit: str, compression: str, workspace: str
) -> None:
    chosen = load_board(board)
    require(chosen.toolchain.compiler[0])
    require(chosen.runner.command[0])  # type: ignore[union-attr]
    package = exported(compression, emit, board=board, workspace=workspace)
    ((output,),) = crtexport.run(package, {"x": X}).outputs
    np.testing.assert_array_equal(output, plain_result())


class Running:
    """The network with simulated devices, in this process."""

    def __init__(self, package: Path) -> None:
        self.simulation = load_package(open_package(package))
        self.library: Any = self.simulation.library.handle  # type: ignore[attr-defined]
        self.library.crt_simulated_call.restype = ctypes.POINTER(ctypes.c_int32 * 3)
        self.contexts = [(ctypes.c_int32 * 16)(number) for number in (0, 1)]
        self.simulation._contexts_held[:] = self.contexts  # type: ignore[assignment]

    def run(self, fail: int = -1, code: int = 0) -> int:
        """Returns what ``run`` returns; its call number ``fail`` of a hook returns ``code``."""
        self.library.crt_simulated_reset()
        if fail >= 0:
            self.library.crt_simulated_fail(fail, code)
        try:
            (output,) = self.simulation.run([X])
        except RunFailedError as error:
            return int(error.problem.rsplit(" ", 1)[1])
        np.testing.assert_array_equal(output, plain_result())
        return 0

    def story(self) -> list[tuple[int, int]]:
        """(verb, device) of each hook that was called."""
        count = self.library.crt_simulated_count()
        calls = [self.library.crt_simulated_call(i).contents for i in range(count)]
        return [(call[0], call[1]) for call in calls]

    def at_rest(self) -> bool:
        """Returns whether every device is closed and inactive."""
        return all(list(context)[1:3] == [0, 0] for context in self.contexts)


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("emit", BACKENDS)
def test_a_failure_of_any_hook_closes_everything_and_is_reported(
    emit: str, compression: str
) -> None:
    require("gcc")
    made = Running(exported(compression, emit))
    assert made.run() == 0
    assert made.story() == STORY
    for call, ending in ENDINGS.items():
        for code in (77, -5):
            assert made.run(call, code) == code
            assert made.story() == STORY[: call + 1] + ending
            assert made.at_rest()
    assert made.run() == 0, "the next run works again"


def damaged(package: Path, folder: Path, which: int) -> Path:
    """The package with one byte of the program number ``which`` changed in its constants."""
    found = open_package(package, verify=False)
    section = found.section
    assert section is not None
    image = section.devices[which]
    content = bytearray(blob_bytes(found.objects["mixed_constants.o"]))
    elf = ELFFile(io.BytesIO(bytes(content)))
    symbol = elf.get_section_by_name(".symtab").get_symbol_by_name(image.symbol)[0]
    place = elf.get_section(symbol["st_shndx"])["sh_offset"] + symbol["st_value"] + image.offset
    assert content[place : place + 4] == b"CRTI"
    content[place + 32 + image.stored_size // 2] ^= 4
    tar = bytearray(package.read_bytes())
    before = blob_bytes(found.objects["mixed_constants.o"])
    start = tar.index(before)
    tar[start : start + len(before)] = content
    digest = tar.index(hashlib.sha256(before).hexdigest().encode())
    tar[digest : digest + 64] = hashlib.sha256(content).hexdigest().encode()
    result = folder / "damaged.tar"
    result.write_bytes(bytes(tar))
    return result


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("compression", ["none", "lz4", "zlib"])
def test_a_damaged_program_ends_the_run_with_everything_closed(
    compression: str, which: int, tmp_path: Path
) -> None:
    require("gcc")
    made = Running(damaged(exported(compression, "llvm"), tmp_path, which))
    assert made.run() == -105  # CRT_IMAGE_DAMAGED
    opened = STORY.index((O, which)) + 1
    assert made.story() == [*STORY[:opened], (C, which), (D, 1), (D, 0)]
    assert made.at_rest()


@pytest.mark.parametrize("emit", BACKENDS)
def test_the_tables_tell_everything_and_need_no_memory(emit: Any, tmp_path: Path) -> None:
    require("arm-none-eabi-gcc")
    path = write(tmp_path, "lz4", align=64)
    package = open_package(crtexport.export(
        path, board="mps2_an386", emit=emit, output=tmp_path / "p.tar"
    ).path)
    built = crtexport.build(package.path, tmp_path / "firmware")
    elf = ELFFile(io.BytesIO(built.elf.read_bytes()))
    symbols = {s.name: s for s in elf.get_section_by_name(".symtab").iter_symbols()}

    def memory(at: int, size: int) -> bytes:
        for segment in elf.iter_segments("PT_LOAD"):
            start = at - segment["p_vaddr"]
            if start in range(segment["p_filesz"] - size + 1):
                return segment.data()[start : start + size]  # type: ignore[no-any-return]
        pytest.fail(f"nothing at {at:#x}")

    def text(at: int) -> str:
        return memory(at, 32).split(b"\0")[0].decode()

    images, functions = (
        symbols[f"tvmgen_mixed_device_{name}"]["st_value"] for name in ("images", "functions")
    )
    for number, file in enumerate(("first.bin", "second.bin")):
        original = (tmp_path / file).read_bytes()
        kind, name, image, *numbers = struct.unpack("<9I", memory(images + 36 * number, 36))
        stored = numbers[2]
        assert (text(kind), text(name)) == ("test-acc", ("first", "second")[number])
        assert numbers == [number, 1, stored, len(original), google_crc32c.value(original), 64]
        assert decode(memory(image, 32 + stored)) == original
        entry, row, given, results = struct.unpack("<4I", memory(functions + 16 * number, 16))
        assert (text(entry), row, given, results) == ("main", images + 36 * number, 1, 1)
    for made in ("_device_images", "_device_functions"):
        section = elf.get_section(symbols[f"tvmgen_mixed{made}"]["st_shndx"])
        assert not section["sh_flags"] & 1, "nothing to be copied to RAM"
    section = package.section
    assert section is not None
    assert [(d.kind, d.id, d.program, d.functions, d.compression) for d in section.devices] == [
        ("test-acc", 0, "first", ("main",), "lz4"), ("test-acc", 1, "second", ("main",), "lz4"),
    ]
    sizes = [len((tmp_path / f).read_bytes()) for f in ("first.bin", "second.bin")]
    assert f"TVMGEN_MIXED_DEVICE_IMAGE_SIZE {max(sizes)}\n" in (package.header or "")
    assert "TVMGEN_MIXED_DEVICE_IMAGE_ALIGN 64\n" in (package.header or "")


def changed(**program_keys: Any) -> dict[str, Any]:
    made = modules("none")
    made[0]["programs"][1] |= program_keys
    return {"modules": made}


FIRST = {"kind": "test-acc", "program": "first"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (changed(file="none.bin"), r"modules\[0\]\.programs\[1\]\.file.*none\.bin"),
        (changed(file="../../etc/passwd"), "lies outside of the model's folder"),
        (changed(file="empty.bin"), "empty.bin: the program is empty"),
        (changed(align=48), "48 is no alignment"),
        (changed(align=8192), r"programs\[1\]\.align"),
        (changed(compression="brotli"), r"programs\[1\]\.compression"),
        (changed(device=FIRST), "another image is for this program of this device"),
        (changed(functions=[]), "no module has a function 'bend'"),
        (changed(functions=[{"name": "bend", "entry": "a\0b"}]), "NUL in its name"),
        ({"modules": [{**modules("none")[0], "files": ["first.bin"]}]},
         r"modules\[0\]\.files: a module of kind device-image has no files"),
        ({"modules": [{**modules("none")[0], "programs": []}]}, "device-image has programs"),
        ({"modules": [{**modules("none")[0], "kind": "object"}]}, "kind object has files"),
    ],
)
def test_flaws_are_named(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    (tmp_path / "empty.bin").write_bytes(b"")
    path = write(tmp_path, **changes)
    with pytest.raises(CrtExportError, match=problem):
        crtexport.export(path, output=tmp_path / "p.tar")
    assert not (tmp_path / "p.tar").exists()


def test_what_is_too_large_to_be_inflated_is_used_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crtexport.devices.image.MAX_COMPRESSED", 4000)
    with pytest.raises(CrtExportError, match=r"first\.bin: a program of 5,296 bytes is too large"):
        crtexport.export(write(tmp_path, "smallest"), output=tmp_path / "p.tar")
    crtexport.export(write(tmp_path, "none"), output=tmp_path / "p.tar")


def test_equal_exports_of_images_are_equal(tmp_path: Path) -> None:
    path = write(tmp_path, "smallest")
    made = [crtexport.export(path, output=tmp_path / f"{i}.tar", emit="c").path for i in (0, 1)]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_llvms_tools_read_the_programs_of_a_package(tmp_path: Path) -> None:
    objdump, bundler = llvm_tool("llvm-objdump"), llvm_tool("clang-offload-bundler")
    package = tmp_path / "p.tar"
    command = ["export", str(write(tmp_path, "zlib")), "--board", "mps2_an386", "--emit", "c"]
    assert main([*command, "--device-bundle", "-o", str(package)]) == 0
    open_package(package).extract(tmp_path / "all")
    given = [(tmp_path / name).read_bytes() for name in ("first.bin", "second.bin")]
    listed = subprocess.run(
        [objdump, "--offloading", tmp_path / "all/crtexport/devices.offload"],
        capture_output=True, text=True, check=True,
    ).stdout
    assert listed.count("OFFLOADING IMAGE") == 2
    assert "test-acc-0" in listed
    assert "test-acc-1" in listed
    container = (tmp_path / "all/crtexport/devices.offload").read_bytes()
    assert all(container.count(content) == 1 for content in given)
    section = open_package(package).section
    assert section is not None
    for number, (device, content) in enumerate(zip(section.devices, given, strict=True)):
        bundle = tmp_path / f"all/crtexport/device_{number}.ccob"
        assert bundle.stat().st_size < len(content)
        assert unbundled(bundler, bundle, [device.target], tmp_path) == [content]
    crtexport.export(tmp_path / "model.json", output=package)
    names = open_package(package).names
    assert "crtexport/devices.offload" in names
    assert "crtexport/device_0.ccob" not in names


def test_a_bundle_of_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(network(False)))
    with pytest.raises(CrtExportError, match="no device program that could be bundled"):
        crtexport.export(path, output=tmp_path / "p.tar", device_bundle=True)
    assert not (tmp_path / "p.tar").exists()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_sources_with_programs_compile_without_a_warning(compiler: str, tmp_path: Path) -> None:
    for workspace in ("static", "caller"):
        package = exported("smallest", "c", board="qemu_x86", workspace=workspace)
        folder = tmp_path / workspace
        open_package(package).extract(folder)
        flags = [f"-I{folder / part}" for part in ("codegen/host/include", "runtime/include")]
        for source in sorted((folder / "codegen/host/src").iterdir()):
            compile_object(source, compiler, *flags)


def test_the_header_with_programs_is_c_plus_plus_too(tmp_path: Path) -> None:
    require("g++")
    open_package(exported("lz4", "llvm")).extract(tmp_path / "all")
    source = tmp_path / "app.cpp"
    source.write_text(
        '#include "tvmgen_mixed.h"\n'
        "int main() { return static_cast<int>(tvmgen_mixed_device_functions[0].image->id); }\n"
    )
    subprocess.run(
        ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source,
         f"-I{tmp_path / 'all/codegen/host/include'}", f"-I{tmp_path / 'all/runtime/include'}"],
        check=True,
    )


def test_build_systems_hear_of_programs(tmp_path: Path) -> None:
    path, rule = write(tmp_path), tmp_path / "p.d"
    assert main(["export", str(path), "-o", str(tmp_path / "p.tar"), "--depfile", str(rule)]) == 0
    assert {"first.bin", "second.bin"} <= {Path(word).name for word in rule.read_text().split()}


@pytest.mark.parametrize("emit", BACKENDS)
def test_models_of_a_package_have_programs_of_their_own(emit: Any, tmp_path: Path) -> None:
    require("gcc")
    paths = []
    for name, compression in (("a", "lz4"), ("b", "none")):
        (tmp_path / name).mkdir()
        paths.append(write(tmp_path / name, compression))
    package = crtexport.export(
        paths, emit=emit, module_name=["one", "two"], output=tmp_path / "p.tar"
    ).path
    for model in ("one", "two"):
        (outputs,) = crtexport.simulate(package, {"x": X}, model=model)
        np.testing.assert_array_equal(outputs["y"], plain_result())
    section = open_package(package).section
    assert section is not None
    assert [(d.module, d.compression) for d in section.devices] == [
        ("one", "lz4"), ("one", "lz4"), ("two", "stored"), ("two", "stored"),
    ]
