"""Containers of images, as LLVM's own tools see them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from crtexport.devices.offload import (
    HOST_ENTRY,
    Container,
    OffloadEntry,
    bundle,
    compressed_bundle,
    offload_binaries,
)
from crtexport.ir.types import ConstantRef
from crtexport.support.errors import CrtExportError
from tests.devices.programs import program
from tests.helpers import unavailable

TARGET = "openmp-thumbv7em-none-none-eabi-cortex-m4"


def llvm_tool(name: str) -> str:
    """A tool of LLVM 19 or newer."""
    installed = [shutil.which(f"{name}-{version}") for version in range(30, 18, -1)]
    found = next(filter(None, installed), None)
    if found is None:
        unavailable(name, f"{name} of LLVM 19 or newer is not installed")
    return found


def held(data: bytes) -> ConstantRef:
    return ConstantRef(len(data), data=data)


def written(container: Container) -> bytes:
    """The container's bytes, which it gives as often as it is asked."""
    data = container.read()
    assert len(data) == container.size
    assert container.read() == data
    return data


def test_llvm_lists_every_image(tmp_path: Path) -> None:
    entries = [
        OffloadEntry(held(program(100 + i)), "thumbv8m", f"npu-{i}", {"program": f"p{i}"})
        for i in range(3)
    ]
    path = tmp_path / "images.bin"
    path.write_bytes(written(offload_binaries(entries)))
    listed = subprocess.run(
        [llvm_tool("llvm-objdump"), "--offloading", str(path)],
        capture_output=True, text=True, check=True,
    ).stdout
    for i in range(3):
        assert f"npu-{i}" in listed
    assert listed.count("OFFLOADING IMAGE") == 3


def unbundled(tool: str, path: Path, targets: list[str], folder: Path) -> list[bytes]:
    """Returns what the bundler finds for ``targets``; it wants to hear of all that are there."""
    names = [HOST_ENTRY, *targets]
    outputs = [folder / f"out{i}" for i in range(len(names))]
    subprocess.run(
        [tool, "-type=o", f"-targets={','.join(names)}", f"-input={path}", "-unbundle",
         *(f"-output={out}" for out in outputs)],
        check=True, env={**os.environ, "LC_ALL": "C"},
    )
    host, *images = (out.read_bytes() for out in outputs)
    assert host == b""
    return images


@pytest.mark.parametrize("make", [bundle, compressed_bundle])
def test_the_bundler_gives_images_back(make: object, tmp_path: Path) -> None:
    tool = llvm_tool("clang-offload-bundler")
    images = [(TARGET, program(5001)), ("openmp-riscv32-unknown-none-elf-npu", program(77, 3))]
    path = tmp_path / "images.bundle"
    path.write_bytes(written(make([(n, held(i)) for n, i in images])))  # type: ignore[operator]
    assert unbundled(tool, path, [n for n, _ in images], tmp_path) == [i for _, i in images]


def test_containers_are_aligned_whatever_the_images_are() -> None:
    for size in range(20):
        data = written(offload_binaries([OffloadEntry(held(program(size)), "t", "a")] * 2))
        assert len(data) % 16 == 0
        assert data.count(b"\x10\xff\x10\xad") == 2


def test_a_name_that_ends_early_is_refused() -> None:
    with pytest.raises(CrtExportError, match="NUL"):
        written(offload_binaries([OffloadEntry(held(b""), "t", "a\0b")]))
