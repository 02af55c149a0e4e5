"""``python -m tests.bench --images``: the cost of compressed device programs on a board.

The program is a mebibyte of what accelerators are given: weights of the MLPerf Tiny networks, and
machine code. It goes through the whole way, from model.json to the hook of a simulated device.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from elftools.elf.elffile import ELFFile
from rich.table import Table

import crtexport
from crtexport.artifact.byte_sources import blob_bytes
from crtexport.devices.simulated import program
from crtexport.mlf.reader import open_package
from crtexport.support.resources import templates_dir
from tests.helpers import INT8_NETWORKS, shared_model

SIZE = 1 << 20
CODE = ("mps2_an386", "mps3_an547", "mps2_an385", "qemu_riscv32", "qemu_x86", "mps2_an500")
IDENTITY = bytes(range(256))
COMPILERS = {
    "gcc -Os": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-Os"),
    "clang -Os": ("clang", "--target=thumbv7em-none-eabihf", "-mcpu=cortex-m4", "-Os",
                  "-ffreestanding"),
    "clang -Oz": ("clang", "--target=thumbv7em-none-eabihf", "-mcpu=cortex-m4", "-Oz",
                  "-ffreestanding"),
}


def content() -> bytes:
    """:data:`SIZE` bytes: weights of the networks, and code for them as much as is missing."""
    with TemporaryDirectory() as folder:
        weights = b"".join(shared_model(name).read_bytes() for name in INT8_NETWORKS)
        code = b"".join(_code(Path(folder)))
    share = min(len(weights), SIZE - min(len(code), SIZE // 2))
    data = weights[:share] + code
    return (data + weights[share:])[:SIZE]


def _code(folder: Path) -> Iterator[bytes]:
    for board in CODE:
        for name in INT8_NETWORKS:
            package = folder / f"{board}-{name}.tar"
            crtexport.export(shared_model(name), board=board, emit="llvm", output=package)
            for blob in open_package(package).objects.values():
                elf = ELFFile(io.BytesIO(blob_bytes(blob)))
                for section in elf.iter_sections():
                    if section.name.startswith(".text"):
                        yield section.data()


def decoder_sizes() -> dict[str, int]:
    """Bytes of code and tables of the decoder for Cortex-M4, by compiler."""
    sizes = {}
    source = templates_dir() / "devices" / "crt_image.c"
    with TemporaryDirectory() as folder:
        for name, command in COMPILERS.items():
            made = Path(folder) / "image.o"
            subprocess.run([*command, "-std=c99", "-c", source, "-o", made], check=True)
            elf = ELFFile(io.BytesIO(made.read_bytes()))
            sizes[name] = sum(
                section["sh_size"] for section in elf.iter_sections()
                if section.name.startswith((".text", ".rodata"))
            )
    return sizes


def tables(board: str) -> Iterator[Table]:
    """Returns what ``--images`` prints: sizes of the decoder; ratio and instructions by
    compression."""
    sizes = Table("compiler", "bytes", title="decoder on Cortex-M4: code and tables")
    for name, size in decoder_sizes().items():
        sizes.add_row(name, f"{size:,}")
    yield sizes
    data = program({"same": (16, IDENTITY)}, content())[:SIZE]
    costs = Table(
        "compression", "stored", "ratio", "instructions to open", "per byte",
        title=f"a program of {len(data):,} bytes on {board}, C, -Os",
    )
    for compression in ("none", "lz4", "zlib"):
        stored, count = _opened(board, compression, data)
        costs.add_row(compression, f"{stored:,}", f"{stored / len(data):.3f}", f"{count:,}",
                      f"{count / len(data):.1f}")
    yield costs


def _opened(board: str, compression: str, data: bytes) -> tuple[int, int]:
    """Stored bytes, and the instructions that a run needs more than with a program of 300 bytes."""
    (_, small), (stored, count) = (
        _run(board, how, content)
        for how, content in (("none", data[:512]), (compression, data))
    )
    return stored, count - small


def _run(board: str, compression: str, data: bytes) -> tuple[int, int]:
    tensor = {"dtype": "int8", "shape": [1, 16], "quantization": {"scale": 1.0}}
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.bin").write_bytes(data)
        (folder / "m.json").write_text(json.dumps({
            "format": "crtexport-model", "version": 1, "inputs": ["x"], "outputs": ["y"],
            "tensors": [{"name": "x", **tensor}, {"name": "y", **tensor}],
            "modules": [{"name": "m", "kind": "device-image", "programs": [
                {"file": "program.bin", "device": {"kind": "npu"}, "compression": compression,
                 "functions": [{"name": "same"}]}]}],
            "nodes": [{"op": "External", "inputs": ["x"], "outputs": ["y"],
                       "attributes": {"function": "same"}}],
        }))
        package = crtexport.export(
            folder / "m.json", board=board, emit="c", optimize="size", output=folder / "m.tar"
        ).path
        section = open_package(package).section
        ran = crtexport.run(package)
    if section is None or ran.instructions_second is None:
        raise RuntimeError("nothing was measured")
    return section.devices[0].stored_size, ran.instructions_second
