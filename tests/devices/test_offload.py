"""Containers of images, as LLVM's own tools see them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from crtexport.devices.offload import (
    HOST_ENTRY,
    OffloadEntry,
    bundle,
    compressed_bundle,
    offload_binaries,
    write_offload,
)
from crtexport.errors import CrtExportError
from tests.devices.programs import program
from tests.support import unavailable

TARGET = "openmp-thumbv7em-none-none-eabi-cortex-m4"


def llvm_tool(name: str) -> str:
    """A tool of LLVM 19 or newer."""
    installed = [shutil.which(f"{name}-{version}") for version in range(30, 18, -1)]
    found = next(filter(None, installed), None)
    if found is None:
        unavailable(name, f"{name} of LLVM 19 or newer is not installed")
    return found


def written(entries: list[OffloadEntry]) -> bytes:
    stream = io.BytesIO()
    write_offload(stream, entries)
    assert stream.getvalue() == b"".join(bytes(p) for p in offload_binaries(entries))
    return stream.getvalue()


def test_llvm_lists_every_image(tmp_path: Path) -> None:
    entries = [
        OffloadEntry(program(100 + i), "thumbv8m", f"npu-{i}", {"program": f"p{i}", "device": "u"})
        for i in range(3)
    ]
    path = tmp_path / "images.bin"
    path.write_bytes(written(entries))
    listed = subprocess.run(
        [llvm_tool("llvm-objdump"), "--offloading", str(path)],
        capture_output=True, text=True, check=True,
    ).stdout
    for i in range(3):
        assert f"npu-{i}" in listed
    assert listed.count("OFFLOADING IMAGE") == 3


@pytest.mark.parametrize("make", [bundle, compressed_bundle])
def test_the_bundler_gives_images_back(make: object, tmp_path: Path) -> None:
    tool = llvm_tool("clang-offload-bundler")
    images = [(TARGET, program(5001)), ("openmp-riscv32-unknown-none-elf-npu", program(77, 3))]
    path = tmp_path / "images.bundle"
    path.write_bytes(make(images))  # type: ignore[operator]
    names = [HOST_ENTRY, *(name for name, _ in images)]
    outputs = [tmp_path / f"out{i}" for i in range(3)]
    subprocess.run(
        [tool, "-type=o", f"-targets={','.join(names)}", f"-input={path}", "-unbundle",
         *(f"-output={out}" for out in outputs)],
        check=True, env={**os.environ, "LC_ALL": "C"},
    )
    assert [out.read_bytes() for out in outputs] == [b"", *(image for _, image in images)]


def test_containers_are_aligned_whatever_the_images_are() -> None:
    for size in range(20):
        data = written([OffloadEntry(program(size), "t", "a")] * 2)
        assert len(data) % 16 == 0
        assert data.count(b"\x10\xff\x10\xad") == 2


def test_a_name_that_ends_early_is_refused() -> None:
    with pytest.raises(CrtExportError, match="NUL"):
        written([OffloadEntry(b"", "t", "a\0b")])
