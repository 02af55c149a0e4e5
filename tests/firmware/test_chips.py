"""Boards from what others describe: CMSIS packs and devicetrees, also odd and hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.firmware.board import list_families
from crtexport.firmware.board_schema import Memory
from crtexport.firmware.chips.chip import arm_family, plain_name, riscv_family
from crtexport.firmware.chips.devicetree import read_tree
from crtexport.firmware.chips.pack import read_pack
from crtexport.firmware.chips.write import write_new_board
from crtexport.support.errors import CrtExportError
from tests.helpers import require_module

PACK = """<?xml version="1.0" encoding="utf-8"?>
<package schemaVersion="1.7.7"><vendor>V</vendor><devices>
  <family Dfamily="F" Dvendor="V:1">
    <processor Dcore="Cortex-M4" Dfpu="SP_FPU" Dendian="Little-endian"/>
    <subFamily DsubFamily="F1">
      <memory id="IRAM2" start="0x10000000" size="0x10000" default="0"/>
      <device Dname="F1A">
        <memory id="IROM1" start="0x08000000" size="0x80000" startup="1" default="1"/>
        <memory id="IRAM1" start="0x20000000" size="0x20000" default="1"/>
      </device>
      <device Dname="F1B">
        <processor Dfpu="0"/>
        <memory id="IROM1" start="0x08000000" size="0x40000" startup="1" default="1"/>
        <memory id="IRAM1" start="0x20000000" size="0x8000" default="1"/>
        <variant Dvariant="F1BX">
          <memory id="IRAM1" start="0x20000000" size="0x10000" default="1"/>
        </variant>
      </device>
    </subFamily>
  </family>
  <family Dfamily="G" Dvendor="V:1">
    <processor Pname="big" Dcore="Cortex-M7" Dfpu="DP_FPU"/>
    <processor Pname="little" Dcore="Cortex-M33" Dfpu="SP_FPU" Ddsp="DSP"/>
    <device Dname="G1">
      <memory name="Flash" access="rx" start="0x08000000" size="0x200000" startup="1" default="1"/>
      <memory name="ITCM" access="rwx" start="0x0" size="0x10000"/>
      <memory name="AXI SRAM" access="rwx" start="0x24000000" size="0x80000" default="1"/>
      <memory name="AXI alias" access="rwx" start="0x24000000" size="0x1000"/>
      <memory name="Own" access="rw" Pname="little" start="0x38000000" size="65536"/>
    </device>
    <device Dname="G2"><processor Pname="big" Dcore="ARMV81MML"/></device>
  </family>
</devices></package>
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    path = tmp_path / "V.F.pdsc"
    path.write_text(PACK)
    return path


@pytest.mark.parametrize(("device", "core", "family", "memories"), [
    ("F1A", None, "cortex_m4f", {"flash": (0x08000000, 512), "ram": (0x20000000, 128),
                                 "iram2": (0x10000000, 64)}),
    ("F1B", None, "cortex_m3", {"flash": (0x08000000, 256), "ram": (0x20000000, 32),
                                "iram2": (0x10000000, 64)}),
    ("F1BX", None, "cortex_m3", {"flash": (0x08000000, 256), "ram": (0x20000000, 64),
                                 "iram2": (0x10000000, 64)}),
    ("G1", "big", "cortex_m7f_dp", {"flash": (0x08000000, 2048), "ram": (0x24000000, 512),
                                    "itcm": (0, 64)}),
    ("G1", "little", "cortex_m33f", {"flash": (0x08000000, 2048), "ram": (0x24000000, 512),
                                     "itcm": (0, 64), "own": (0x38000000, 64)}),
])
def test_a_packs_device_has_what_the_groups_around_it_say(
    device: str, core: str | None, family: str, memories: dict[str, tuple[int, int]], pack: Path
) -> None:
    chip = read_pack(pack, device, core)
    assert chip.family == family
    assert chip.memories == {
        name: Memory(origin, size << 10) for name, (origin, size) in memories.items()
    }


@pytest.mark.parametrize(("device", "core", "words"), [
    (None, None, "several devices"), ("F1", None, "no device 'F1'"),
    ("G1", None, "several processors"), ("G1", "middle", "several processors"),
])
def test_what_a_pack_leaves_open_is_asked_for(
    device: str | None, core: str | None, words: str, pack: Path
) -> None:
    with pytest.raises(CrtExportError, match=words):
        read_pack(pack, device, core)


def test_a_processor_without_a_family_has_none(pack: Path) -> None:
    assert read_pack(pack, "G2", "big").family == ""


BAD_MEMORY = """<package><devices><device Dname="A">
  <memory id="IROM1" start="x" size="1"/>
</device></devices></package>"""
LAUGHS = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(12))


@pytest.mark.parametrize(("text", "words"), [
    (f'<!DOCTYPE package [<!ENTITY l0 "ha">{LAUGHS}]><package>&l12;</package>', "no DOCTYPE"),
    ('<!DOCTYPE p [<!ENTITY x SYSTEM "file:///etc/passwd">]><package>&x;</package>', "no DOCTYPE"),
    ("<package>", "no XML"), ("", "no XML"), ("<svg/>", "no description of a CMSIS pack"),
    ("<package/>", "no devices"),
    (BAD_MEMORY, "without start or size"),
])
def test_odd_and_hostile_files_are_errors(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pdsc"
    path.write_text(text)
    with pytest.raises(CrtExportError, match=words):
        read_pack(path, None)
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(CrtExportError, match="no XML"):
        read_pack(path, None)


TREE = """/dts-v1/;
/ {
  #address-cells = <1>; #size-cells = <1>; model = "Some board";
  chosen { zephyr,flash = &flash0; zephyr,sram = &sram0; zephyr,dtcm = &dtcm; };
  cpus {
    #address-cells = <1>; #size-cells = <0>;
    cpu@0 { device_type = "cpu"; CPU reg = <0>; };
  };
  sram0: memory@24000000 { reg = <0x24000000 0x80000>; };
  dtcm: memory@20000000 { reg = <0x20000000 0x20000>; zephyr,memory-region = "DTCM"; };
  sram1: memory@30000000 { reg = <0x30000000 0x8000>; zephyr,memory-region = "SRAM1"; };
  soc { #address-cells = <1>; #size-cells = <1>;
    flash0: flash@8000000 { reg = <0x08000000 0x200000>; };
  };
};
"""


@pytest.mark.parametrize(("cpu", "family"), [
    ('compatible = "arm,cortex-m7";', "cortex_m7f_sp"),
    ('compatible = "arm,cortex-m33f";', "cortex_m33f"),
    ('compatible = "arm,cortex-m0+";', "cortex_m0plus"),
    ('compatible = "espressif,riscv", "riscv"; riscv,isa = "rv32imc_zicsr";', "riscv32imc"),
    ('compatible = "xtensa";', ""),
])
def test_a_devicetree_says_processor_and_memories(cpu: str, family: str, tmp_path: Path) -> None:
    require_module("devicetree")
    path = tmp_path / "zephyr.dts"
    path.write_text(TREE.replace("CPU", cpu))
    chip = read_tree(path)
    assert (chip.name, chip.family) == ("Some board", family)
    assert chip.memories == {
        "flash": Memory(0x08000000, 2 << 20), "ram": Memory(0x24000000, 512 << 10),
        "dtcm": Memory(0x20000000, 128 << 10), "sram1": Memory(0x30000000, 32 << 10),
    }


def test_all_families_that_are_chosen_are_there() -> None:
    known = {family.name for family in list_families()}
    chosen = {arm_family(core, fpu=fpu, dsp=dsp)
              for core in ("m0", "m0+", "m1", "m23", "m3", "m4", "m7", "m33", "m35p", "m55", "m85")
              for fpu in ("none", "single", "double") for dsp in (False, True)}
    chosen |= {riscv_family(isa) for isa in ("rv32imac", "rv32imc_zicsr", "rv32g_c", "rv32gc")}
    assert chosen - {""} <= known
    assert arm_family("a53", fpu="double", dsp=True) == riscv_family("rv64gc") == ""


@pytest.mark.parametrize(("text", "name"), [
    ("AXI SRAM", "axi_sram"), ("1", "memory_1"), ("ram", "ram_2"), ("é\n", "memory"),
])
def test_memories_get_names_that_linkers_take(text: str, name: str) -> None:
    assert plain_name(text, {"ram": Memory(0, 1)}) == name


def test_a_board_that_cannot_be_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    flash = Memory(0, 1 << 20)
    for family, memories, words in (
        ("cortex_m4f", {"flash": flash}, "no memory called ram"),
        ("cortex_m4f", {"flash": flash, "ram": Memory(0x1000, 1 << 12)}, "overlap"),
        ("cortex_m5", {"flash": flash, "ram": Memory(1 << 29, 1 << 12)}, "cortex_m"),
    ):
        with pytest.raises(CrtExportError, match=words):
            write_new_board(path, "b", "Ours", family, memories)
    assert not path.exists()
