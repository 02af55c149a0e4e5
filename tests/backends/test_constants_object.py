"""Objects of constants: what independent readers find in them, and what linkers make of them."""

from __future__ import annotations

import ctypes
import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.artifact.model import Artifact, Constant
from crtexport.backends import constants as constants_module
from crtexport.backends.constants import ConstantPlacement, constants_object, is_large, table_symbol
from crtexport.backends.elf.abi import elf_abi
from crtexport.backends.elf.writer import Data, Section, relocatable
from crtexport.backends.llvm.elf import reach_through_slots
from crtexport.ir.types import ConstantRef
from crtexport.kir.language import Scalar
from crtexport.mlf.objects import object_facts
from crtexport.simulation.library import SharedLibrary
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target
from tests.backends.llvm.llvm_support import (
    GCC,
    HOST,
    TARGETS,
    model,
    model_input,
    model_outputs,
    objects,
)
from tests.helpers import require
from tests.packed_functions import simulation_of

OTHERS = {
    "aarch64": Target("aarch64-unknown-linux-gnu", "generic", pointer_bits=64, reloc="pic"),
    "rv64": Target("riscv64-unknown-linux-gnu", "generic-rv64", ("+m",), abi="lp64d",
                   pointer_bits=64),
    "rv32f": Target("riscv32-unknown-none-elf", "generic-rv32", ("+f",), abi="ilp32f"),
    "big arm": Target("armebv7r-none-eabi", "cortex-r5", little_endian=False),
}
ALL = TARGETS | OTHERS
HEADERS = {  # machine, e_flags
    "host": ("EM_X86_64", 0), "i386": ("EM_386", 0), "i386sse": ("EM_386", 0),
    "rv32": ("EM_RISCV", 1), "aarch64": ("EM_AARCH64", 0), "rv64": ("EM_RISCV", 4),
    "rv32f": ("EM_RISCV", 2),
}


def made(
    target: str, placement: ConstantPlacement | None = None, artifact: Artifact | None = None
) -> bytes:
    result = constants_object(artifact or model(), ALL[target], placement or ConstantPlacement())
    assert result is not None
    content = result.read()
    assert len(content) == result.size
    return content


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("target", ALL)
def test_readers_find_every_constant(target: str, table: bool) -> None:
    content = made(target, ConstantPlacement(table=table))
    elf = ELFFile(io.BytesIO(content))
    assert (elf["e_machine"], elf["e_flags"]) == HEADERS.get(target, ("EM_ARM", 0x05000000))
    assert elf.little_endian == ALL[target].little_endian
    assert elf.elfclass == ALL[target].pointer_bits
    symbols = [s for s in elf.get_section_by_name(".symtab").iter_symbols() if s.name]
    assert [s.name for s in symbols] == sorted(s.name for s in symbols)
    found = {s.name: s for s in symbols}
    wanted = {c.symbol for c in model().constants}
    assert set(found) == (wanted | {table_symbol(model())} if table else wanted)
    for constant in model().constants:
        symbol = found[constant.symbol]
        section = elf.get_section(symbol["st_shndx"])
        assert section.name == f".rodata.{constant.symbol}"
        assert section["sh_flags"] == 2
        assert section["sh_addralign"] >= constant.align
        assert section["sh_offset"] % section["sh_addralign"] == 0
        values = np.frombuffer(
            section.data()[symbol["st_value"] :][: symbol["st_size"]],
            np.dtype(f"i{constant.dtype.itemsize}").newbyteorder("<" if elf.little_endian else ">"),
        )
        stored = np.frombuffer(constant.data.read(), f"<i{constant.dtype.itemsize}")
        np.testing.assert_array_equal(values, stored)
        assert symbol["st_other"]["visibility"] == "STV_HIDDEN"
        assert dict(symbol["st_info"]) == {"bind": "STB_GLOBAL", "type": "STT_OBJECT"}


@pytest.mark.parametrize("target", ALL)
def test_binutils_read_it_without_a_word(target: str, tmp_path: Path) -> None:
    path = tmp_path / "c.o"
    path.write_bytes(made(target, ConstantPlacement(table=True)))
    done = subprocess.run(
        [require("readelf"), "-aW", path], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "warning" not in done.stdout.lower()


@pytest.mark.parametrize("target", ALL)
def test_the_head_tells_all_but_the_data(target: str) -> None:
    streamed = constants_object(model(), ALL[target], ConstantPlacement())
    assert streamed is not None
    facts = object_facts("c.o", streamed)
    assert facts == object_facts("c.o", streamed.read())
    assert facts.hidden == tuple(sorted(c.symbol for c in model().constants))
    assert facts.defined == facts.undefined == ()


def test_large_constants_are_marked_for_linkers() -> None:
    elf = ELFFile(io.BytesIO(made("host", ConstantPlacement(large=True, table=True))))
    kinds = {
        s.name.rsplit(".tvmgen_m", 1)[0].removesuffix(f".{c}"): s["sh_flags"]
        for c in ("weights_0", "bias_0") for s in elf.iter_sections() if c in s.name
    }
    assert kinds == {".lrodata": 0x10000002}
    table = elf.get_section_by_name(f".data.rel.ro.{table_symbol(model())}")
    assert table["sh_flags"] == 3  # writable for the loader only, and near


def test_the_stack_note_is_where_compilers_write_it() -> None:
    have = {t: b".note.GNU-stack" in made(t) for t in ALL}
    assert {t for t, note in have.items() if not note} == {
        t for t in ALL if ALL[t].triple.startswith(("arm", "thumb"))
    }


def test_unreached_constants_are_left_out_and_nothing_makes_no_object() -> None:
    spare = Constant("spare", Scalar.I8, 4, ConstantRef(4, b"1234"), 4)
    assert b"spare" not in made("m4", artifact=model(constants=(*model().constants, spare)))
    assert constants_object(model(calls=()), TARGETS["m4"], ConstantPlacement()) is None


def test_many_constants_share_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants_module, "MAX_SECTIONS", 4)
    elf = ELFFile(io.BytesIO(made("m4")))
    section = elf.get_section_by_name(".rodata.tvmgen_m")
    for constant in model().constants:
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(constant.symbol)
        assert symbol["st_value"] % constant.align == 0
        data = section.data()[symbol["st_value"] :][: symbol["st_size"]]
        assert data == constant.data.read()


@given(
    st.lists(
        st.tuples(st.integers(0, 70), st.sampled_from([1, 4, 16, 64, 4096]), st.booleans()),
        min_size=1, max_size=9,
    ),
    st.sampled_from(sorted(ALL)),
)
def test_any_sizes_and_alignments(pieces: list[tuple[int, int, bool]], target: str) -> None:
    rows = [
        (f"s{number}", bytes([number + 1]) * size, align, alone)
        for number, (size, align, alone) in enumerate(pieces)
    ]
    data = [Data(n, len(b), a, lambda b=b: iter((b[:7], b[7:]))) for n, b, a, _ in rows]
    shared = tuple(d for d, row in zip(data, rows, strict=True) if not row[3])
    sections = [Section(f".rodata.{d.symbol}", 2, (d,)) for d in data if d not in shared]
    content = relocatable(elf_abi(ALL[target]), [*sections, Section(".rodata.x", 2, shared)]).read()
    elf = ELFFile(io.BytesIO(content))
    for name, stored, align, _ in rows:
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(name)
        section = elf.get_section(symbol["st_shndx"])
        assert section["sh_addralign"] % align == symbol["st_value"] % align == 0
        assert section.data()[symbol["st_value"] :][: symbol["st_size"]] == stored


def test_what_contradicts_itself_is_refused() -> None:
    first, *rest = model().constants
    short = replace(first, count=first.count + 1)
    with pytest.raises(CrtExportError, match=r"weights_0: a constant of 1537 elements has 1536 by"):
        made("m4", artifact=model(constants=(short, *rest)))

    def chunks() -> list[bytes]:
        return [b"12"]

    wrong = relocatable(
        elf_abi(HOST), [Section(".rodata.x", 2, (Data("x", 3, 1, lambda: iter(chunks())),))]
    )
    with pytest.raises(CrtExportError, match="x: a constant of 3 bytes has 2"):
        wrong.read()


def test_more_than_32_bits_can_number_is_refused() -> None:
    huge = Section(".rodata.x", 2, (Data("x", 1 << 32, 1, lambda: iter(())),))
    assert relocatable(elf_abi(HOST), [huge]).size > 1 << 32
    for target in ("m4", "i386", "rv32"):
        with pytest.raises(CrtExportError, match="more than an object of a 32-bit processor"):
            relocatable(elf_abi(TARGETS[target]), [huge])
    with pytest.raises(CrtExportError, match="65025 sections are more"):
        relocatable(elf_abi(HOST), [huge] * 65025)


def test_unknown_processors_are_refused() -> None:
    with pytest.raises(CrtExportError, match="can't be written for hexagon") as caught:
        elf_abi(Target("hexagon-unknown-none-elf", "hexagonv68"))
    assert "--emit c" in str(caught.value)


def _sized(size: int) -> Artifact:
    first, *rest = model().constants
    data = ConstantRef(size, path=Path("missing"))
    return model(constants=(replace(first, data=data, count=size), *rest))


def test_what_is_large_follows_mode_and_threshold() -> None:
    small, large = _sized(1 << 30 - 12), _sized(1 << 30)
    assert [is_large(a, HOST, "auto") for a in (small, large)] == [False, True]
    assert [is_large(a, HOST, "auto", 4096) for a in (model(), large)] == [False, True]
    assert is_large(model(), HOST, "auto", 1)
    assert is_large(small, HOST, "always")
    assert not is_large(large, HOST, "never")
    for mode in ("auto", "never"):
        assert not is_large(large, OTHERS["aarch64"], mode)
        assert not is_large(large, TARGETS["m4"], mode)  # whose memories are another matter


def test_what_no_processor_of_its_kind_could_reach_is_refused() -> None:
    with pytest.raises(CrtExportError, match="there is no section for large data") as caught:
        is_large(model(), TARGETS["m4"], "always")
    assert "--large-data always" in str(caught.value)
    size = (1 << 31) + 1
    rest = sum(c.data.nbytes for c in model().constants[1:])
    with pytest.raises(CrtExportError, match=rf"are {rest + 1:,} more than code can reach"):
        is_large(_sized(size), OTHERS["aarch64"], "auto")


_LINKERS = {"bfd": "ld.bfd", "gold": "ld.gold", "lld": "ld.lld", "mold": "mold"}
_PROBE = """
extern const signed char weights_0[], weights_1[];
extern const int bias_0[], bias_1[];
extern const void *const tvmgen_m_constant_table[];
int sum(void) {
    int s = 0;
    for (int i = 0; i < 1536; ++i) s += (i % 7 + 1) * weights_0[i];
    for (int i = 0; i < 24; ++i) s += (i % 5 + 1) * bias_0[i];
    for (int i = 0; i < 240; ++i) s += ((const signed char *)tvmgen_m_constant_table[2])[i] * i;
    for (int i = 0; i < 10; ++i) s += ((const int *)tvmgen_m_constant_table[3])[i] * i;
    return s;
}
"""


def _sum() -> int:
    w0, b0, w1, b1 = (
        np.frombuffer(c.data.read(), f"<i{c.dtype.itemsize}").astype(np.int64)
        for c in model().constants
    )
    return int(
        ((np.arange(1536) % 7 + 1) * w0).sum() + ((np.arange(24) % 5 + 1) * b0).sum()
        + (np.arange(240) * w1).sum() + (np.arange(10) * b1).sum()
    )


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("linker", _LINKERS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_linked_with_compilers_objects_on_this_computer(
    compiler: str, linker: str, large: bool, tmp_path: Path
) -> None:
    require(_LINKERS[linker])
    (tmp_path / "c.o").write_bytes(made("host", ConstantPlacement(large, table=True)))
    (tmp_path / "p.c").write_text(_PROBE + "int main(void) { return sum() != SUM; }\n")
    for pie in ("-pie", "-no-pie"):
        flags = ["-fPIC"] if pie == "-pie" else ["-fno-pie"]
        done = subprocess.run(
            [
                require(compiler), "-O2", *flags, pie, f"-fuse-ld={linker}",
                "-Wl,--fatal-warnings", f"-DSUM={_sum()}", tmp_path / "p.c", tmp_path / "c.o",
                "-o", tmp_path / "p",
            ],
            capture_output=True, text=True, check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        subprocess.run([tmp_path / "p"], check=True)


_EXITS = {  # the system call that ends a program, and what runs it here
    "aarch64": ("qemu-aarch64", """
        register long number __asm__("x8") = 93, code __asm__("x0") = failed;
        __asm__ volatile("svc 0" :: "r"(number), "r"(code));"""),
    "rv64": ("qemu-riscv64", """
        register long number __asm__("a7") = 93, code __asm__("a0") = failed;
        __asm__ volatile("ecall" :: "r"(number), "r"(code));"""),
}


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("linker", ["lld", "mold"])
@pytest.mark.parametrize("target", _EXITS)
def test_code_of_other_64_bit_processors_sees_the_values(
    target: str, linker: str, table: bool, tmp_path: Path
) -> None:
    emulator, leave = _EXITS[target]
    (tmp_path / "c.o").write_bytes(made(target, ConstantPlacement(table=table)))
    probe = _PROBE
    start = f"void _start(void) {{ long failed = sum() != {_sum()}; {leave} for (;;); }}\n"
    if not table:
        probe = probe.replace("tvmgen_m_constant_table[2]", "weights_1")
        probe = probe.replace("tvmgen_m_constant_table[3]", "bias_1")
    (tmp_path / "p.c").write_text(probe + start)
    subprocess.run(
        [
            require("clang"), f"--target={OTHERS[target].triple}", "-O2", "-ffreestanding",
            "-fno-pic", "-mcmodel=medium" if target == "rv64" else "-mcmodel=small",
            "-c", tmp_path / "p.c", "-o", tmp_path / "p.o",
        ],
        check=True,
    )
    done = subprocess.run(
        [
            require(_LINKERS[linker]), "-static", "--gc-sections", "--fatal-warnings",
            tmp_path / "p.o", tmp_path / "c.o", "-o", tmp_path / "p",
        ],
        capture_output=True, text=True, check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    subprocess.run([require(emulator), tmp_path / "p"], check=True, timeout=60)


@pytest.mark.parametrize("linker", ["bfd", "lld", "mold"])
@pytest.mark.parametrize("target", GCC)
def test_linked_for_other_processors_what_is_unused_is_left_out(
    target: str, linker: str, tmp_path: Path
) -> None:
    compiler, *flags = [require(GCC[target][0]), *GCC[target][1:], "-nostdlib"]
    (tmp_path / "c.o").write_bytes(made(target))
    (tmp_path / "p.c").write_text(
        "extern const signed char weights_0[];\n"
        "volatile int r;\nvoid _start(void) { for (;;) r = weights_0[9]; }\n"
    )
    subprocess.run(
        [compiler, *flags, "-c", tmp_path / "p.c", "-o", tmp_path / "p.o"], check=True
    )
    options = ["--gc-sections", "--fatal-warnings"]
    done = subprocess.run(
        [
            *(
                [compiler, *flags, "-static", *(f"-Wl,{option}" for option in options)]
                if linker == "bfd" else [require(_LINKERS[linker]), *options]
            ),
            tmp_path / "p.o", tmp_path / "c.o", "-o", tmp_path / "p",
        ],
        capture_output=True, text=True, check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with (tmp_path / "p").open("rb") as stream:
        elf = ELFFile(stream)
        names = {s.name: s for s in elf.get_section_by_name(".symtab").iter_symbols()}
        assert "weights_1" not in names
        symbol = names["weights_0"]
        section = elf.get_section(symbol["st_shndx"])
        data = section.data()[symbol["st_value"] - section["sh_addr"] :][: symbol["st_size"]]
        assert data == model().constants[0].data.read()


def test_a_slot_is_one_address_and_no_larger() -> None:
    elf = ELFFile(io.BytesIO(made("host", ConstantPlacement(large=True, slots=True))))
    names = {c.symbol for c in model().reached_constants}
    found = [
        section for section in elf.iter_sections()
        if section.name.startswith((".rodata.", ".data.rel.ro."))
        and elf.get_section_by_name(f".rela{section.name}")
    ]
    assert len(found) == len(names)
    for section in found:
        assert (section["sh_size"], section["sh_addralign"]) == (8, 8)


@pytest.mark.parametrize(("option", "kinds"), [("no", {9}), ("yes", {9, 41, 42})])
def test_every_kind_of_load_from_the_linkers_table_is_changed(
    option: str, kinds: set[int], tmp_path: Path
) -> None:
    """Older assemblers, and LLVM with an option, have one kind; the standard has three."""
    (tmp_path / "a.c").write_text(
        "extern const char ours[], other[];\nvoid use(const char *, const char *);\n"
        "void f(void) { use(ours, other); }\nint g(int i) { return i + (ours < other); }\n"
    )
    subprocess.run(
        [require("gcc"), "-O2", "-fPIC", f"-Wa,-mrelax-relocations={option}", "-c", "a.c"],
        cwd=tmp_path, check=True,
    )
    code = (tmp_path / "a.o").read_bytes()

    def found(content: bytes, name: str) -> set[int]:
        elf = ELFFile(io.BytesIO(content))
        symtab = elf.get_section_by_name(".symtab")
        return {
            entry["r_info_type"] for section in elf.iter_sections()
            if isinstance(section, RelocationSection) for entry in section.iter_relocations()
            if symtab.get_symbol(entry["r_info_sym"]).name == name
        }

    assert found(code, "ours") <= kinds
    assert found(code, "ours")
    changed = reach_through_slots(code, {"ours"})
    assert found(changed, "ours") == {2}
    assert found(changed, "other") == found(code, "other")


def test_code_finds_constants_through_slots_with_every_linker(tmp_path: Path) -> None:
    symbols = {c.symbol for c in model().reached_constants}
    code = objects("host")["m_lib0.o"]
    changed = reach_through_slots(code, symbols)
    assert reach_through_slots(code, ()) == code
    for content, kinds in ((code, {41, 42}), (changed, {2})):
        symtab = ELFFile(io.BytesIO(content)).get_section_by_name(".symtab")
        found = {
            entry["r_info_type"] for section in ELFFile(io.BytesIO(content)).iter_sections()
            if isinstance(section, RelocationSection) for entry in section.iter_relocations()
            if symtab.get_symbol(entry["r_info_sym"]).name in symbols
        }
        assert found
        assert found <= kinds
    (tmp_path / "m.o").write_bytes(changed)
    (tmp_path / "c.o").write_bytes(made("host", ConstantPlacement(large=True, slots=True)))
    for linker, tool in _LINKERS.items():
        require(tool)
        library = tmp_path / f"{linker}.so"
        subprocess.run(
            [
                require("gcc"), "-shared", f"-fuse-ld={linker}", tmp_path / "m.o",
                tmp_path / "c.o", "-o", library,
            ],
            check=True,
        )
        simulation = simulation_of(model(), SharedLibrary(ctypes.CDLL(str(library))))
        outputs = simulation.run([model_input()])
        for got, wanted in zip(outputs, model_outputs(model_input()), strict=True):
            np.testing.assert_array_equal(got, wanted)
