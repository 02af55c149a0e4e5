"""Boards derived from builds of Zephyr: the flags are those that Zephyr 3.4.99 compiles with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import asdict

from crtexport.firmware.abi_check import check_linkable
from crtexport.firmware.board import load_board
from crtexport.firmware.board_reader import board_from_keys
from crtexport.firmware.elf_abi import read_abi
from crtexport.firmware.zephyr.build import (
    ZephyrBuild,
    examine,
    machine_flags,
    parse_config,
    read_build,
)
from crtexport.firmware.zephyr.derive import derive_board, write_board
from crtexport.firmware.zephyr.devicetree import Region, read_regions
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.support.errors import CrtExportError, ToolMissingError
from tests.cli.support import DIGITS
from tests.helpers import require, require_module

ARM = "arm-none-eabi-gcc"
RISCV = "riscv64-unknown-elf-gcc"
OFF = "-fno-pic -fno-pie"
# board → compiler, flags as Zephyr passes them, the shipped board of the same processor
RECORDED = {
    "qemu_cortex_m0": (ARM, "-mcpu=cortex-m0 -mthumb -mabi=aapcs", "qemu_cortex_m0"),
    "qemu_cortex_m3": (
        ARM, f"-mcpu=cortex-m3 -mthumb -mabi=aapcs -mfp16-format=ieee {OFF}", "mps2_an385",
    ),
    "mps2_an386": (
        ARM, "-mcpu=cortex-m4 -mthumb -mabi=aapcs -mfpu=fpv4-sp-d16 -mfloat-abi=hard", "mps2_an386",
    ),
    "nucleo_f746zg": (
        ARM, "-mcpu=cortex-m7 -mthumb -mabi=aapcs -mfpu=fpv5-sp-d16 -mfloat-abi=hard",
        "nucleo_f746zg",
    ),
    "mps2_an500": (
        ARM, "-mcpu=cortex-m7 -mthumb -mabi=aapcs -mfpu=fpv5-d16 -mfloat-abi=hard", "mps2_an500",
    ),
    "mps2_an521": (ARM, "-mcpu=cortex-m33+nodsp -mthumb -mabi=aapcs -mcmse", "mps2_an521"),
    "mps3_an547": (
        ARM, "-mcpu=cortex-m55 -mthumb -mabi=aapcs -mfpu=auto -mfloat-abi=hard -mcmse",
        "mps3_an547",
    ),
    "mps3_an547_soft": (ARM, "-mcpu=cortex-m55 -mthumb -mabi=aapcs -mcmse", None),
    "mps2_an386_softfp": (
        ARM, "-mcpu=cortex-m4 -mthumb -mabi=aapcs -mfpu=fpv4-sp-d16 -mfloat-abi=softfp", None,
    ),
    "qemu_riscv32": (RISCV, "-mabi=ilp32 -march=rv32imac_zicsr_zifencei", "qemu_riscv32"),
    "qemu_x86": (
        "gcc", f"-m32 -msoft-float {OFF} -mpreferred-stack-boundary=2 -mno-mmx -mno-sse",
        "qemu_x86",
    ),
    "native_sim": ("gcc", f"{OFF} -m32 -msse2 -mfpmath=sse", None),
    "native_sim_64": ("gcc", f"{OFF} -m64 -fPIC", None),
}
XIP = {
    "XIP": "y", "FLASH_BASE_ADDRESS": "0x8000000", "FLASH_SIZE": "1024", "SRAM_SIZE": "128",
    "SRAM_BASE_ADDRESS": "0x20000000", "MAIN_STACK_SIZE": "2048",
}


def recorded(name: str, **config: str) -> ZephyrBuild:
    compiler, flags, _ = RECORDED[name]
    require(compiler)
    settings = {**XIP, "BOARD": name.removesuffix("_soft").removesuffix("fp"), **config}
    if name.startswith("native"):
        settings["ARCH_POSIX"] = "y"
    return ZephyrBuild(settings, examine((compiler,), machine_flags(flags.split())))


@pytest.mark.parametrize("name", [name for name, row in RECORDED.items() if row[2]])
def test_the_processor_is_that_of_the_shipped_board(name: str) -> None:
    derived = board_from_keys(derive_board(recorded(name)), name).target
    shipped = load_board(RECORDED[name][2] or "").target
    assert derived.triple.split("-")[0] == shipped.triple.split("-")[0]
    for fact in ("cpu", "float_abi", "abi", "pointer_bits", "stack_align", "reloc"):
        assert getattr(derived, fact) == getattr(shipped, fact), fact
    assert set(shipped.features) <= {*derived.features, "-fpregs"}


@pytest.mark.parametrize("name", RECORDED)
def test_objects_for_a_derived_board_say_what_the_builds_own_say(name: str, tmp_path: Path) -> None:
    require_module("llvmlite")
    build = recorded(name)
    board = write_board(derive_board(build), tmp_path / "board.yaml", "a test")
    package = open_package(
        driver.export(DIGITS, board=board, emit="llvm", output=tmp_path / "d.tar").path
    )
    check_linkable(package, board, build.compiler.abi)
    theirs = read_abi(package.objects["digits_lib0.o"], "object")
    assert (theirs.machine, theirs.bits, theirs.float_abi, theirs.architecture) == (
        build.compiler.abi.machine, build.compiler.abi.bits, build.compiler.abi.float_abi,
        build.compiler.abi.architecture,
    )


def test_flash_is_the_images_partition_and_ram_is_whole() -> None:
    build = recorded("mps2_an386", FLASH_LOAD_OFFSET="0xc000", FLASH_LOAD_SIZE="0x32000")
    board = board_from_keys(derive_board(build), "build")
    assert (board.memory["flash"].origin, board.memory["flash"].size) == (0x800C000, 0x32000)
    assert (board.memory["ram"].origin, board.memory["ram"].size) == (0x20000000, 128 << 10)


def test_without_a_partition_flash_reaches_from_the_offset_to_its_end() -> None:
    board = board_from_keys(
        derive_board(recorded("mps2_an386", FLASH_LOAD_OFFSET="0x10000")), "build"
    )
    assert board.memory["flash"].size == (1 << 20) - 0x10000


def test_an_image_that_runs_from_ram_has_everything_there() -> None:
    board = board_from_keys(derive_board(recorded("qemu_x86", XIP="n")), "build")
    assert list(board.memory) == ["ram"]
    assert board.placement.spill == ()
    assert {region for key, region in asdict(board.placement).items() if key != "spill"} == {"ram"}


def test_other_memories_come_from_the_devicetree_and_the_chosen_one_has_workspaces() -> None:
    build = recorded("mps2_an386")
    build = ZephyrBuild(build.config, build.compiler, (
        Region("sram0", 0x20000000, 128 << 10, ("zephyr,sram",)),
        Region("SDRAM 2!", 0x60000000, 8 << 20, ("crtexport,workspace",)),
    ))
    board = board_from_keys(derive_board(build), "build")
    assert board.memory["sdram_2"].size == 8 << 20
    assert board.placement.workspace == "sdram_2"


def test_without_the_library_that_reads_devicetrees_its_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "zephyr.dts"
    path.write_text("/dts-v1/;\n/ { };\n", encoding="ascii")
    assert read_regions(path) == ()
    monkeypatch.setitem(sys.modules, "devicetree", None)
    with pytest.raises(ToolMissingError, match="devicetree") as caught:
        read_regions(path)
    assert "'crtexport[zephyr]'" in str(caught.value)


def test_a_board_file_that_would_not_change_keeps_its_time(tmp_path: Path) -> None:
    data, path = derive_board(recorded("native_sim_64")), tmp_path / "board.yaml"
    write_board(data, path, "a")
    before = path.stat().st_mtime_ns
    write_board(data, path, "a")
    assert path.stat().st_mtime_ns == before


def test_processors_without_code_generation_are_refused_by_name() -> None:
    require("arm-none-eabi-gcc")
    build = ZephyrBuild(XIP, examine(("arm-none-eabi-gcc",), ("-mcpu=cortex-a9",)))
    with pytest.raises(CrtExportError, match="no code is generated for ARMv7"):
        derive_board(build)


def test_a_build_is_read_from_its_folder(tmp_path: Path) -> None:
    require(ARM)
    (tmp_path / "zephyr").mkdir()
    (tmp_path / "zephyr" / ".config").write_text(
        '# CONFIG_FPU is not set\nCONFIG_BOARD="a \\"b\\""\nCONFIG_SRAM_SIZE=64\n'
        'CONFIG_XIP=y\nCONFIG_FLASH_SIZE=256\n'
    )
    commands = [
        {"file": "a.cpp", "command": "other -D__ZEPHYR__=1 a.cpp"},
        {"file": "app.c", "command": f"{ARM} -mcpu=cortex-m0 app.c"},
        {"file": "k.c", "command": f"ccache {ARM} -D__ZEPHYR__=1 -mcpu=cortex-m3 -mthumb -O2 k.c"},
    ]
    (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
    build = read_build(tmp_path)
    assert build.board == 'a "b"'
    assert build.compiler.flags == ("-mcpu=cortex-m3", "-mthumb")
    assert not build.on("FPU")


@pytest.mark.parametrize(("files", "problem"), [
    ({}, "no build of a Zephyr application"),
    ({"zephyr/.config": ""}, "can't be read"),
    ({"zephyr/.config": "", "compile_commands.json": "{"}, "no list of compile commands"),
    ({"zephyr/.config": "", "compile_commands.json": "[]"}, "no C file of Zephyr's"),
    ({"zephyr/.config": "", "zephyr/zephyr.dts": "/dts-v1/; /{", "compile_commands.json": "["
      '{"file": "k.c", "command": "gcc -D__ZEPHYR__=1 k.c"}]'}, "devicetree can't be read"),
])
def test_folders_that_are_no_build_say_what_is_wrong(
    tmp_path: Path, files: dict[str, str], problem: str
) -> None:
    (tmp_path / "zephyr").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CrtExportError, match=problem):
        read_build(tmp_path)


def test_a_number_that_is_none_is_refused() -> None:
    build = ZephyrBuild(parse_config("CONFIG_SRAM_SIZE=much\n"), examine(("gcc",), ()))
    with pytest.raises(CrtExportError, match="should be a number"):
        build.number("SRAM_SIZE")
