"""Packages whose code must not be linked are refused, with both sides' values."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.firmware.abi_check import check_linkable
from crtexport.firmware.board_reader import board_from_keys
from crtexport.firmware.zephyr.derive import derive_board
from crtexport.mlf.reader import Package, open_package
from crtexport.pipeline import driver
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS
from tests.helpers import require_module
from tests.zephyr.test_derive import recorded


def package(folder: Path, board: str, emit: driver.Emit) -> Package:
    require_module("llvmlite")
    path = folder / f"{board}-{emit}.tar"
    return open_package(driver.export(DIGITS, board=board, emit=emit, output=path).path)


def check(found: Package, build: str) -> None:
    described = recorded(build)
    board = board_from_keys(derive_board(described), build)
    check_linkable(found, board, described.compiler.abi)


@pytest.mark.parametrize(("board", "build", "theirs", "ours"), [
    ("mps2_an386", "qemu_cortex_m3", "float ABI: hard", "soft"),
    ("mps2_an386", "mps2_an386_softfp", "float ABI: hard", "soft"),
    ("mps2_an385", "mps2_an386", "float ABI: soft", "hard"),
    ("mps2_an385", "qemu_cortex_m0", "CPU architecture: ARMv7-M", "ARMv6-M"),
    ("mps2_an386", "qemu_riscv32", "processor: Arm", "RISC-V"),
    ("qemu_x86", "native_sim_64", "processor: i386", "x86-64"),
    ("mps3_an547", "mps2_an386", "CPU architecture: ARMv8.1-M Mainline", "ARMv7E-M"),
])
def test_objects_for_another_machine_are_refused(
    tmp_path: Path, board: str, build: str, theirs: str, ours: str
) -> None:
    with pytest.raises(CrtExportError) as caught:
        check(package(tmp_path, board, "llvm"), build)
    assert f"{theirs}; this build has {ours}" in str(caught.value)
    assert ".o: the package was made for another" in str(caught.value)


@pytest.mark.parametrize(("board", "build"), [
    ("qemu_cortex_m0", "qemu_cortex_m3"), ("mps2_an385", "mps2_an386_softfp"),
    ("mps2_an386", "mps2_an386"), ("qemu_riscv32", "qemu_riscv32"), ("qemu_x86", "qemu_x86"),
    ("qemu_cortex_m0", "mps2_an521"), ("host", "native_sim_64"),
])
def test_objects_that_the_processor_runs_are_taken(tmp_path: Path, board: str, build: str) -> None:
    check(package(tmp_path, board, "llvm"), build)


@pytest.mark.parametrize(("board", "build"), [
    ("mps2_an385", "mps2_an386"), ("qemu_riscv32", "qemu_cortex_m3"), ("qemu_x86", "native_sim"),
])
def test_plain_c_sources_fit_every_processor_of_their_width(
    tmp_path: Path, board: str, build: str
) -> None:
    check(package(tmp_path, board, "c"), build)


def test_c_sources_with_instructions_that_a_build_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="CPU: dsp; this build has no dsp"):
        check(package(tmp_path, "mps2_an386", "c"), "mps2_an521")


def test_c_sources_of_another_word_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="pointers: 32 bits; this build has 64 bits"):
        check(package(tmp_path, "qemu_x86", "c"), "native_sim_64")
